const focusable = ".jupyter-widgets :is(button, input, select, [tabindex]), button.jupyter-widgets";
const named = ".widget-slider, .widget-play, .widget-dropdown, .widget-hslider";

function guard(root) {
  for (const node of root.querySelectorAll(focusable)) {
    node.setAttribute("data-lm-suppress-shortcuts", "true");
  }
  // ipywidgets writes a control's name beside it; those who hear the page need it on the control.
  for (const box of root.querySelectorAll(named)) {
    const name = box.querySelector(".widget-label")?.textContent || box.previousSibling?.textContent;
    for (const node of name ? box.querySelectorAll("[role=slider], .noUi-handle, select, button") : []) {
      const said = node.tagName === "BUTTON" ? `${name}: ${node.title || node.textContent}` : name;
      node.setAttribute("aria-label", said.trim());
    }
  }
}

function render({ el, signal }) {
  let timer = 0;
  const start = () => {
    const root = el.closest(".jp-Notebook") || el.closest(".jp-Cell") || document.body;
    guard(root);
    observer.observe(root, { childList: true, subtree: true });
  };
  const observer = new MutationObserver(() => {
    clearTimeout(timer);
    timer = setTimeout(start, 50);
  });
  requestAnimationFrame(start); // el is attached after render()
  signal?.addEventListener("abort", () => {
    clearTimeout(timer);
    observer.disconnect();
  });
}

export default { render };
