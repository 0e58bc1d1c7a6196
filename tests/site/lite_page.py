"""One notebook of the course open in JupyterLite, driven through Playwright."""

import json
import threading
from contextlib import contextmanager

from lib.site import lite

READY = """() => {
  const context = window.jupyterapp?.shell?.currentWidget?.sessionContext;
  const kernel = context?.isReady && context.session?.kernel;
  return Boolean(kernel) && kernel.status === "idle";
}"""

# Runs the cells one after the other and goes on after an error; returns what each came to.
RUN_EACH = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  const { commands } = window.jupyterapp;
  const found = [];
  for (let index = 0; index < panel.content.widgets.length; index++) {
    const cell = panel.content.widgets[index];
    if (cell.model.type !== "code" || !cell.model.sharedModel.source.trim()) continue;
    panel.content.activeCellIndex = index;
    panel.content.deselectAll();
    const begun = performance.now();
    await commands.execute("notebook:run-cell");
    const outputs = cell.model.sharedModel.getOutputs();
    const error = outputs.find((output) => output.output_type === "error");
    const text = outputs.map((output) => [output.text ?? ""].flat().join("")).join("");
    found.push({
      id: cell.model.id,
      seconds: (performance.now() - begun) / 1000,
      error: error ? [error.traceback].flat().join("\\n") : "",
      text,
    });
  }
  return found;
}"""


@contextmanager
def served(folder):
    """Serve a folder for as long as the context lasts; yield its address."""
    with lite.server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def expose(folder):
    """Let a page of a built folder be driven by JupyterLab's commands: `window.jupyterapp`."""
    path = folder / lite.MARKER
    config = json.loads(path.read_text(encoding="utf-8"))
    config["jupyter-config-data"]["exposeAppInBrowser"] = True
    path.write_text(json.dumps(config), encoding="utf-8")


class LitePage:
    """A notebook in a page of its own, with a kernel in the browser."""

    def __init__(self, page, address, path, seconds=400):
        self.page, self.address, self.path = page, address, path
        page.set_default_timeout(60_000)
        page.goto(f"{address}/notebooks/index.html?path={path}")
        page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=1000 * seconds)
        page.wait_for_function(READY, timeout=1000 * seconds)
        self.places = page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.content.widgets.map(c => c.model.id)"
        )

    def command(self, name, **options):
        """Run one of JupyterLab's commands and wait for it."""
        self.page.evaluate(
            "([name, options]) => window.jupyterapp.commands.execute(name, options).then(() => {})",
            [name, options],
        )

    def run_each(self):
        """Run every code cell, also after errors; return a list of dictionaries."""
        return self.page.evaluate(RUN_EACH)

    def run(self, cell):
        """Run one cell, and wait for it."""
        self.page.evaluate(
            """async index => {
              const { content } = window.jupyterapp.shell.currentWidget;
              content.activeCellIndex = index;
              content.deselectAll();
              await window.jupyterapp.commands.execute("notebook:run-cell");
            }""",
            self.places.index(cell),
        )

    def write(self, cell, source):
        """Put other code into a cell."""
        self.page.evaluate(
            """([index, source]) => {
              const { content } = window.jupyterapp.shell.currentWidget;
              content.widgets[index].model.sharedModel.setSource(source);
            }""",
            [self.places.index(cell), source],
        )

    def output(self, cell):
        """Return the output area of the cell with this id."""
        cells = self.page.locator(".jp-Notebook .jp-Cell")
        return cells.nth(self.places.index(cell)).locator(".jp-OutputArea")

    def failed(self, cell):
        """Tell whether the cell ended with an error, as its stored outputs say."""
        return self.page.evaluate(
            """index => {
              const { content } = window.jupyterapp.shell.currentWidget;
              const outputs = content.widgets[index].model.sharedModel.getOutputs();
              return outputs.some((output) => output.output_type === "error");
            }""",
            self.places.index(cell),
        )

    def save(self):
        """Save the notebook into the browser's storage."""
        self.command("docmanager:save")

    def download(self, folder):
        """Download the notebook as a reader does, and return the file."""
        with self.page.expect_download() as coming:
            self.command("docmanager:download")
        target = folder / coming.value.suggested_filename
        coming.value.save_as(target)
        return target
