// The real model on a sentence, from numbers that the build has stored: choose a token, and see
// what one head looks at and what the model would say next after each of some layers.
(() => {
  const place = document.getElementById("live");
  const data = window.courseLive;
  if (!place || !data) return;

  const make = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const shown = (token) => token.trim() || "␣";

  const select = make("select", { id: "live-text" });
  data.texts.forEach((text, k) =>
    select.append(make("option", { value: k }, text.tokens.join(""))));
  const tokens = make("div", { class: "live-tokens", role: "group", "aria-label": "tokens" });
  const looks = make("p", { class: "live-looks", role: "status" });
  const table = make("table");
  place.append(
    make("label", { for: "live-text" }, "A language model reads"), select,
    make("p", { class: "live-hint" }, "Choose a word: "), tokens, looks,
    make("div", { class: "live-table" }, table));

  function draw(text, chosen) {
    const row = text.weights[chosen];
    tokens.replaceChildren(...text.tokens.map((token, k) => {
      const weight = k < row.length ? row[k] : 0;
      const button = make("button", {
        type: "button", "aria-pressed": k === chosen, style: `--weight: ${weight / 100}`,
        "aria-label": `${shown(token)}, weight ${weight} %`,
      }, shown(token));
      button.addEventListener("click", () => { draw(text, k); tokens.children[k].focus(); });
      if (k > chosen) button.classList.add("live-later");
      return button;
    }));
    const best = row.map((weight, k) => [weight, k]).sort((a, b) => b[0] - a[0]).slice(0, 2);
    const names = best.filter(([weight]) => weight)
      .map(([weight, k]) => `${shown(text.tokens[k])} (${weight} %)`);
    looks.textContent =
      `One head of layer ${data.layer}: “${shown(text.tokens[chosen])}” looks at ${names.join(" and ")}.`;
    const head = make("tr", {}, make("th", { scope: "col" }, "after layer"),
      make("th", { scope: "col" }, `the next word after “${shown(text.tokens[chosen])}”`));
    table.replaceChildren(
      make("caption", {}, "What the model would say if it stopped there"),
      make("thead", {}, head),
      make("tbody", {}, ...text.said[chosen].map((words, k) => {
        const cell = make("td", {}, ...words.map(([word, percent]) =>
          make("span", { style: `--share: ${percent / 100}` }, `${word} ${percent} %`)));
        return make("tr", {}, make("th", { scope: "row" }, String(data.depths[k])), cell);
      })));
  }

  const show = () => {
    const text = data.texts[Number(select.value)];
    draw(text, text.tokens.length - 1);
  };
  select.addEventListener("change", show);
  show();
  if (data.texts[0].tokens.length > 7) draw(data.texts[0], 6); // “flew” looks at “bird”
})();
