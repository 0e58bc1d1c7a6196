// A list whose rows can be put in order: by dragging a row, by the keyboard, or by its two buttons.
// An anywidget module without dependencies. `value` holds the letters from top to bottom and LINE;
// what stands after LINE is left out. The kernel learns of a move when it is finished, so Escape
// truly cancels it.

const LINE = "|";
const DRAG_THRESHOLD = 4; // pixels before a press becomes a drag

// Plain keys (arrows, A, B, D D) are commands of the notebook, also while something inside an output
// has the focus. JupyterLab heeds stopPropagation(); Notebook 7 only this attribute, and only on the
// focused element itself.
const QUIET = { "data-lm-suppress-shortcuts": "true" };

const HELP =
  "Drag a row, or use its arrows. By keyboard: focus a row, press Space, move it with ↑ and ↓, press " +
  "Space again; Escape cancels. Steps that do not belong go below the line.";

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function button(attributes, ...children) {
  return make("button", { ...QUIET, type: "button", ...attributes }, ...children);
}

class OrderList {
  constructor(model) {
    this.model = model;
    this.texts = new Map(model.get("steps")); // letter -> text
    this.rows = new Map(); // letter or LINE -> <li>
    this.lifted = null; // {letter, before} while a row is picked up by keyboard
    this.drag = null; // {letter, before, pointerId, startY, active} while a pointer drags
    this.build();
    this.pull();
  }

  // ---- what is on the page --------------------------------------------------------------------

  build() {
    const name = this.model.get("variable");
    this.list = make("ol", { class: "ol-list", role: "list" });
    for (const [letter, text] of this.texts) this.rows.set(letter, this.row(letter, text));
    this.rows.set(LINE, make("li", { class: "ol-line" }, "left out, below this line"));
    this.code = make("code", { ...QUIET, class: "ol-code", tabindex: "0", "aria-label": "the line to paste" });
    this.copy = button({ class: "ol-copy" }, "Copy");
    this.live = make("div", { class: "ol-live", role: "status", "aria-live": "assertive" });
    this.root = make(
      "div",
      { class: "ol-root", role: "group", "aria-label": `Steps to order, for ${name}` },
      make("div", { class: "ol-help" }, HELP),
      this.list,
      make("div", { class: "ol-result" }, "Paste into the answer cell:", this.code, this.copy),
      this.live,
    );
  }

  row(letter, text) {
    return make(
      "li",
      { class: "ol-item", "data-letter": letter },
      make("span", { class: "ol-grip", "aria-hidden": "true" }),
      button(
        { class: "ol-main", "aria-pressed": "false" },
        make("span", { class: "ol-letter" }, letter),
        make("span", { class: "ol-text" }, text),
      ),
      button({ class: "ol-move", "data-by": "-1", "aria-label": `Move ${letter} up` }, "↑"),
      button({ class: "ol-move", "data-by": "1", "aria-label": `Move ${letter} down` }, "↓"),
    );
  }

  main(letter) {
    return this.rows.get(letter).querySelector(".ol-main");
  }

  place(letter) {
    const at = this.order.indexOf(letter);
    const line = this.order.indexOf(LINE);
    return at < line ? `position ${at + 1} of ${line}` : "left out";
  }

  say(message) {
    // The same text twice is read once: a no-break space at its end makes it another one.
    this.live.textContent = this.live.textContent === message ? `${message}\u00a0` : message;
  }

  // Put the rows into `order` without moving `anchor`: a node that is moved loses the focus and the
  // pointer's capture.
  layout(anchor) {
    const rows = this.order.map((letter) => this.rows.get(letter));
    const at = rows.indexOf(anchor);
    rows.forEach((row, k) => {
      if (k < at) this.list.insertBefore(row, anchor);
      else if (k > at) this.list.append(row);
    });
    const line = this.order.indexOf(LINE);
    for (const [k, letter] of this.order.entries()) {
      if (letter === LINE) continue;
      const row = this.rows.get(letter);
      row.classList.toggle("ol-out", k > line);
      this.main(letter).setAttribute("aria-label", `${letter}: ${this.texts.get(letter)}, ${this.place(letter)}`);
      const [up, down] = row.querySelectorAll(".ol-move");
      // aria-disabled and not disabled: a disabled button loses the focus.
      up.setAttribute("aria-disabled", String(k === 0));
      down.setAttribute("aria-disabled", String(k === this.order.length - 1));
    }
  }

  // ---- the order ------------------------------------------------------------------------------

  pull() {
    this.order = [...this.model.get("value")];
    const letters = this.order.slice(0, this.order.indexOf(LINE));
    this.code.textContent = `${this.model.get("variable")} = "${letters.join(" ")}"`;
    if (this.drag) this.unmark(this.drag.letter);
    if (this.lifted) this.unmark(this.lifted.letter);
    this.drag = this.lifted = null;
    this.layout(this.root.contains(document.activeElement) ? document.activeElement.closest("li") : null);
  }

  commit() {
    if (this.order.join() === this.model.get("value").join()) return;
    this.model.set("value", [...this.order]);
    this.model.save_changes();
  }

  moveTo(letter, index) {
    const from = this.order.indexOf(letter);
    const to = Math.max(0, Math.min(this.order.length - 1, index));
    if (to === from) return false;
    this.order.splice(to, 0, ...this.order.splice(from, 1));
    this.layout(this.rows.get(letter));
    return true;
  }

  restore(letter, before) {
    this.order = before;
    this.layout(this.rows.get(letter));
    this.say(`Cancelled. ${letter} is back: ${this.place(letter)}.`);
  }

  // ---- keyboard and buttons -------------------------------------------------------------------

  mark(letter) {
    this.rows.get(letter).classList.add("ol-lifted");
    this.main(letter).setAttribute("aria-pressed", "true");
  }

  unmark(letter) {
    const row = this.rows.get(letter);
    row.classList.remove("ol-lifted", "ol-dragging");
    row.style.transform = "";
    this.main(letter).setAttribute("aria-pressed", "false");
  }

  lift(letter) {
    this.lifted = { letter, before: [...this.order] };
    this.mark(letter);
    this.say(`${letter} lifted, ${this.place(letter)}. Arrows move it, Space drops it, Escape cancels.`);
  }

  drop(keep = true) {
    const { letter, before } = this.lifted;
    this.lifted = null;
    this.unmark(letter);
    if (!keep) return this.restore(letter, before);
    this.commit();
    this.say(`${letter} dropped, ${this.place(letter)}.`);
  }

  step(letter, index) {
    const moved = this.moveTo(letter, index);
    this.say(`${letter} ${moved ? "moved" : "stays"}, ${this.place(letter)}.`);
    this.rows.get(letter).scrollIntoView({ block: "nearest" });
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation(); // "d d" typed here shall not delete the cell
    if (event.key === "Escape" && this.lifted) return this.drop(false);
    if (!event.target.classList.contains("ol-main")) return;
    const letter = event.target.closest("li").dataset.letter;
    const at = this.order.indexOf(letter);
    const last = this.order.length - 1;
    const goal = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: last }[event.key];
    if (goal === undefined) return;
    event.preventDefault(); // no scrolling of the page
    if (this.lifted?.letter === letter) this.step(letter, goal);
    else this.focusFrom(at, goal);
  }

  focusFrom(at, goal) {
    const towards = Math.sign(goal - at);
    if (this.order[goal] === LINE) goal += this.order[goal + towards] ? towards : -towards;
    const letter = this.order[Math.max(0, Math.min(this.order.length - 1, goal))];
    if (letter !== LINE) this.main(letter).focus();
  }

  onClick(event) {
    const pressed = event.target.closest("button");
    if (!pressed) return;
    if (pressed === this.copy) return this.copyLine();
    const letter = pressed.closest("li").dataset.letter;
    if (pressed.classList.contains("ol-main")) {
      if (event.detail !== 0) return; // 0: Space, Enter or a screen reader, not the mouse
      if (this.lifted?.letter === letter) return this.drop();
      if (this.lifted) this.drop();
      return this.lift(letter);
    }
    if (this.lifted) this.drop();
    this.step(letter, this.order.indexOf(letter) + Number(pressed.dataset.by));
    this.commit();
  }

  // ---- pointer --------------------------------------------------------------------------------

  onDown(event) {
    const row = event.target.closest(".ol-item");
    if (!row || this.drag || event.button !== 0 || event.target.closest(".ol-move")) return;
    // A finger drags by the grip; on the text it scrolls the page.
    if (event.pointerType === "touch" && !event.target.closest(".ol-grip")) return;
    if (this.lifted) this.drop();
    const { pointerId, clientY } = event;
    const letter = row.dataset.letter;
    this.drag = { letter, before: [...this.order], pointerId, startY: clientY, active: false };
  }

  onMove(event) {
    const { drag } = this;
    if (!drag || event.pointerId !== drag.pointerId) return;
    const row = this.rows.get(drag.letter);
    if (!drag.active) {
      if (Math.abs(event.clientY - drag.startY) < DRAG_THRESHOLD) return;
      drag.active = true;
      row.setPointerCapture(event.pointerId);
      row.classList.add("ol-dragging");
    }
    event.preventDefault();
    this.follow(row, event.clientY);
  }

  // Move the row with the pointer, and past each neighbour whose centre its own centre has passed.
  follow(row, y) {
    const { drag } = this;
    const centre = (node) => {
      const box = node.getBoundingClientRect();
      return box.top + box.height / 2;
    };
    row.style.transform = `translateY(${y - drag.startY}px)`;
    for (;;) {
      const at = this.order.indexOf(drag.letter);
      const above = this.rows.get(this.order[at - 1]);
      const below = this.rows.get(this.order[at + 1]);
      const top = row.offsetTop;
      if (above && centre(row) < centre(above)) this.moveTo(drag.letter, at - 1);
      else if (below && centre(row) > centre(below)) this.moveTo(drag.letter, at + 1);
      else return;
      drag.startY += row.offsetTop - top; // the row's own place has changed
      row.style.transform = `translateY(${y - drag.startY}px)`;
    }
  }

  endDrag(keep) {
    const { letter, before, pointerId, active } = this.drag;
    this.drag = null;
    this.unmark(letter);
    const row = this.rows.get(letter);
    if (row.hasPointerCapture(pointerId)) row.releasePointerCapture(pointerId);
    if (!active) return;
    if (keep) {
      this.commit();
      this.say(`${letter} dropped, ${this.place(letter)}.`);
    } else this.restore(letter, before);
    this.main(letter).focus({ preventScroll: true });
  }

  // ---- the line to paste ----------------------------------------------------------------------

  async copyLine() {
    let done = true;
    try {
      await navigator.clipboard.writeText(this.code.textContent); // needs https or localhost
    } catch {
      window.getSelection().selectAllChildren(this.code);
      done = document.execCommand("copy");
    }
    this.copy.textContent = done ? "Copied" : "Press Ctrl+C";
    this.say(done ? `Copied: ${this.code.textContent}` : "Press Ctrl+C");
    setTimeout(() => (this.copy.textContent = "Copy"), 1500);
  }

  // ---- events ---------------------------------------------------------------------------------

  listen(signal) {
    const on = (target, type, handle, options = {}) =>
      target.addEventListener(type, handle, { signal, ...options });
    const ends = (keep) => (event) => {
      if (this.drag?.pointerId === event.pointerId) this.endDrag(keep);
    };
    on(this.root, "keydown", (event) => this.onKey(event));
    on(this.root, "click", (event) => this.onClick(event));
    on(this.root, "focusout", (event) => {
      // Whoever leaves a lifted row drops it where it is seen.
      if (this.lifted && event.target === this.main(this.lifted.letter)) this.drop();
    });
    on(this.list, "pointerdown", (event) => this.onDown(event));
    // On the window: a fast pointer leaves the output before it is captured.
    on(window, "pointermove", (event) => this.onMove(event));
    on(window, "pointerup", ends(true));
    on(window, "pointercancel", ends(false));
    const escape = (event) => {
      if (event.key !== "Escape" || !this.drag?.active) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      this.endDrag(false);
    };
    on(window, "keydown", escape, { capture: true });
  }
}

function render({ model, el }) {
  const view = new OrderList(model);
  const gone = new AbortController();
  const pull = () => view.pull();
  view.listen(gone.signal);
  model.on("change:value", pull);
  el.append(view.root);
  return () => {
    gone.abort();
    model.off("change:value", pull);
  };
}

export default { render };
