// The worker's side: Pyodide with the course's own package, and the model.
const PYODIDE = "@PYODIDE@"; // both are put in when the site is built
const WHEEL = "@WHEEL@";

const post = (kind, more) => self.postMessage({ kind, ...more });
self.leftContextRoot = new URL("..", self.location.href).href.replace(/\/$/, "");
self.leftContextFetched = (done, total) =>
  post("fetched", {
    share: done / total,
    sentence: `The model: ${Math.round(done / 1e6)} of ${Math.round(total / 1e6)} MB`,
  });

const CODE = `
import js
import time
from lib.engine.fast import load_fast
from lib.engine.sampling import generate
from lib.errors import CourseError
from lib.wasm import model

loaded = load_fast(model.in_browser(js.leftContextFetched))

def begin(prompt):
    ids = loaded.tokenizer.encode(prompt)
    room = loaded.config.context - len(ids)
    if not ids:
        raise CourseError("type a few words first")
    return loaded.tokenizer.stream_text(generate(loaded, ids, min(120, room)))
`;

let python = null;
let stopped = false;

async function load() {
  post("state", { sentence: "Fetching Python …" });
  const address = new URL(PYODIDE, self.location.href).href;
  const { loadPyodide } = await import(address);
  const pyodide = await loadPyodide({ indexURL: new URL(".", address).href });
  await pyodide.loadPackage("numpy", { messageCallback: () => {} });
  const wheel = await fetch(new URL(WHEEL, self.location.href));
  if (!wheel.ok) throw new Error(`the course's package is not beside the page (${wheel.status})`);
  pyodide.unpackArchive(await wheel.arrayBuffer(), "wheel");
  post("state", { sentence: "Fetching the model …" });
  pyodide.runPython(CODE);
  return pyodide;
}

async function write(prompt) {
  stopped = false;
  try {
    python ??= await load();
    post("state", { sentence: "Writing …" });
    const pieces = python.globals.get("begin")(prompt);
    const start = performance.now();
    let count = 0;
    for (const text of pieces) {
      post("piece", { text });
      count += 1;
      await new Promise((next) => setTimeout(next)); // lets a stop come in
      if (stopped) break;
    }
    pieces.destroy();
    const rate = (1000 * count) / (performance.now() - start);
    post("done", { sentence: `${count} pieces of text, ${rate.toFixed(0)} a second in this page.` });
  } catch (error) {
    const last = String(error.message ?? error).trim().split("\n").pop();
    post("done", { sentence: `It did not work: ${last.replace(/^[\w.]*Error: /, "")}` });
  }
}

self.onmessage = ({ data }) => {
  if (data.stop) stopped = true;
  else write(data.prompt);
};
