// The pages are written in British English; a search may be written in American.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const british = (words) =>
    words
      .replace(/(\w{3,}[^e])iz(e|es|ed|er|ers|ing|ations?)\b/gi, "$1is$2")
      .replace(/\b(col|fav|behavi|neighb)or/gi, "$1our")
      .replace(/\bcenter/gi, "centre");
  const plain = Search.performSearch;
  Search.performSearch = (words) => plain(british(words));
});

// The buttons that copy code name themselves in a bubble alone.
addEventListener("load", () => {
  for (const button of document.querySelectorAll(".copybtn")) {
    button.setAttribute("aria-label", button.dataset.tooltip || "Copy");
  }
});
