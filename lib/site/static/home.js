// The logo of JupyterLite leads back to the course. JupyterLab's own is a drawing without a link.
const { home } = document.currentScript.dataset;
const words = "Back to the course's site";

new MutationObserver((_, watching) => {
  const logo = document.querySelector("#jp-NotebookLogo, #jp-MainLogo");
  if (!logo?.firstElementChild) return;
  watching.disconnect();
  let link = logo;
  if (logo.tagName !== "A") {
    link = document.createElement("a");
    link.append(...logo.childNodes);
    logo.append(link);
  }
  link.href = new URL(home, document.baseURI).href;
  link.target = "_self";
  link.title = words;
  link.setAttribute("aria-label", words);
}).observe(document, { childList: true, subtree: true });
