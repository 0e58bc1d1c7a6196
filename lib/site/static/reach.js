// Says in words that Python cannot start here: the page itself would only wait for its kernel.
const { pyodide, remedy } = document.currentScript.dataset;
const address = new URL(pyodide, document.baseURI).href;

function say() {
  const line = document.createElement("div");
  line.id = "python-out-of-reach";
  line.setAttribute("role", "alert");
  line.textContent =
    `Python could not be fetched from ${new URL(address).host}, so no cell can run here. ${remedy}`;
  line.style.cssText =
    "position:fixed;z-index:10000;left:0;right:0;bottom:0;padding:12px 16px;" +
    "font:16px/1.4 system-ui,sans-serif;color:#fff;background:#8f1d1d;";
  document.body.append(line);
}

function check() {
  fetch(address, { cache: "no-cache" })
    .then((answer) => answer.ok || say())
    .catch(say);
}

document.readyState === "loading" ? addEventListener("DOMContentLoaded", check) : check();
