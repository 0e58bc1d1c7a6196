// usage: node in_node.mjs PYODIDE_FOLDER SCRIPT.py FOLDER
// Runs a script under Pyodide in Node; FOLDER, with lib/ and what the script reads, is /course.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [pyodideFolder, script, folder] = process.argv.slice(2).map((path) => resolve(path));
try {
  const { loadPyodide } = await import(pathToFileURL(`${pyodideFolder}/pyodide.mjs`));
  const pyodide = await loadPyodide({ indexURL: `${pyodideFolder}/` });
  await pyodide.loadPackage(["numpy"], { messageCallback: () => {} });
  pyodide.FS.mkdirTree("/course");
  pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root: folder }, "/course");
  pyodide.runPython("import sys; sys.path.insert(0, '/course')");
  pyodide.runPython(readFileSync(script, "utf8"));
} catch (error) {
  console.error(error.message); // Node would print the whole of Pyodide with it
  process.exit(1);
}
