// usage: node in_node.mjs PYODIDE_FOLDER SCRIPT.py WHEEL...
// Runs a script under Pyodide in Node, with the wheels unpacked into its site-packages.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, script, ...wheels] = process.argv.slice(2).map((path) => resolve(path));
try {
  const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
  const pyodide = await loadPyodide({ indexURL: `${folder}/` });
  await pyodide.loadPackage(["numpy", "matplotlib", "ipython"], { messageCallback: () => {} });
  for (const wheel of wheels) pyodide.unpackArchive(new Uint8Array(readFileSync(wheel)), "wheel");
  pyodide.runPython(readFileSync(script, "utf8"));
} catch (error) {
  console.error(error.message); // Node would print the whole of Pyodide with it
  process.exit(1);
}
