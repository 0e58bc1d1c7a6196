"""A JupyterLab of its own, and the page of one notebook in it, driven through Playwright."""

import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request

import nbformat

# Nothing but this machine: what needs the network fails here as it does without one.
CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


class Lab:
    """JupyterLab on a free port, with folders of its own for notebooks, settings and state."""

    def __init__(self, folder):
        self.folder, self.root, self.runtime = folder, folder / "root", folder / "runtime"
        quiet = folder / "settings" / "@jupyterlab" / "apputils-extension"
        for part in (self.root, self.runtime, folder / "home", quiet):
            part.mkdir(parents=True)
        # Or a question about news lies over the corner of the page.
        (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        self.token, self.url, self.process = secrets.token_hex(16), "", None

    def start(self, seconds=60):
        """Start the server and wait until it answers."""
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *self._options()],
                env=self._environment(),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        # The port is the system's choice; the server writes it into this file.
        place = self.runtime / f"jpserver-{self.process.pid}.json"
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError, ValueError, urllib.error.URLError):
                self.url = json.loads(place.read_text(encoding="utf-8"))["url"].rstrip("/")
                self.ask("GET", "status")
                return
            time.sleep(0.1)
        self.stop()
        raise RuntimeError((self.folder / "log").read_text(encoding="utf-8", errors="replace"))

    def _options(self):
        return [
            "--no-browser",
            "--allow-root",
            "--ServerApp.ip=127.0.0.1",
            "--ServerApp.port=0",
            f"--ServerApp.root_dir={self.root}",
            "--LabApp.extension_manager=readonly",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            "--LabApp.news_url=None",
            "--LabApp.expose_app_in_browser=True",  # for `window.jupyterapp`
        ]

    def _environment(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON"))}
        own = {
            "HOME": "home",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "IPYTHONDIR": "ipython",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        }
        own = {name: str(self.folder / folder) for name, folder in own.items()}
        return kept | own | {"JUPYTER_TOKEN": self.token}

    def ask(self, method, path):
        """Ask the server's interface, and return what it answers."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=10) as reply:
            body = reply.read()
        return json.loads(body) if body else None

    def stop(self):
        """Ask the server to end, with its kernels; insist if it does not."""
        with contextlib.suppress(OSError, ValueError):
            self.ask("POST", "shutdown")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def put(self, notebook, name):
        """Store a notebook in the server's folder, without outputs."""
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, self.root / name)


class Page:
    """One notebook, open in a page of the browser."""

    def __init__(self, page, lab, name):
        self.page, self.lab, self.name = page, lab, name
        cells = nbformat.read(lab.root / name, as_version=4).cells
        self.places = {cell.id: k for k, cell in enumerate(cells)}
        page.set_default_timeout(30_000)
        page.goto(f"{lab.url}/lab/workspaces/{name[:-6]}/tree/{name}?reset&token={lab.token}")
        page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
        self.wait_for_kernel()

    def wait_for_kernel(self):
        """Wait until the kernel is idle; the toolbar says so before there is one, so ask Lab."""
        self.page.wait_for_function(
            """() => {
              const context = window.jupyterapp?.shell?.currentWidget?.sessionContext;
              const kernel = context?.isReady && context.session?.kernel;
              return kernel?.connectionStatus === "connected" && kernel.status === "idle";
            }""",
            timeout=60_000,
        )

    def command(self, name, **options):
        """Run one of JupyterLab's commands and wait for it."""
        self.page.evaluate(
            "([name, options]) => window.jupyterapp.commands.execute(name, options).then(() => {})",
            [name, options],
        )

    def run_all(self):
        """Run all cells; fail with the first error that a cell shows."""
        self.command("notebook:run-all-cells")
        self.wait_for_kernel()
        errors = self.page.locator('[data-mime-type="application/vnd.jupyter.error"]')
        assert errors.count() == 0, errors.first.inner_text()

    def output(self, cell):
        """Return the output area of the cell with this id."""
        index = self.places[cell]
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-OutputArea")

    def value(self, expression):
        """Return what an expression is in the page's kernel, as text, without touching the page."""
        from jupyter_client import BlockingKernelClient

        sessions = self.lab.ask("GET", "sessions")
        kernel = next(s["kernel"]["id"] for s in sessions if s["path"] == self.name)
        client = BlockingKernelClient()
        client.load_connection_file(str(self.lab.runtime / f"kernel-{kernel}.json"))
        client.start_channels()
        try:
            client.wait_for_ready(timeout=30)
            reply = client.execute_interactive(
                "", silent=True, store_history=False, user_expressions={"it": expression}
            )
            return reply["content"]["user_expressions"]["it"]["data"]["text/plain"]
        finally:
            client.stop_channels()

    def wait_for_value(self, expression, wanted, seconds=15):
        """Wait until an expression has this value in the kernel."""
        end = time.monotonic() + seconds
        while (came := self.value(expression)) != wanted:
            assert time.monotonic() < end, f"{expression} is {came}, not {wanted}"
            time.sleep(0.1)

    def theme(self, name):
        """Change JupyterLab's theme and wait until it is there."""
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)


def drag(page, start, end):
    """Drag with the mouse from one point to another."""
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=12)
    page.mouse.up()


def centre(locator):
    """Return the middle of an element, after scrolling it into view."""
    locator.scroll_into_view_if_needed()
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def contrast(first, second):
    """Return the contrast of two CSS colours such as ``rgb(1, 2, 3)``, by WCAG 2.2."""

    def luminance(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)
