"""The real model in a browser: fetched in parts that lie beside the site, once.

The parts are ordinary files, so that the browser keeps them, a net that fails costs one part, and
any server of static files will do. `split` makes them when the site is built.
"""

import hashlib
import json
from pathlib import Path

from lib.errors import ModelError

PART = 4 * 2**20  # bytes
LIST = "model.json"
TRIES = 3  # for each part
HOME = Path("/home/pyodide/left-context")  # in the memory of the page


def split(model: Path, folder: Path) -> Path:
    """Write a model file in parts, and the list of them; return the list.

    Parameters
    ----------
    model : Path
        A GGUF file.
    folder : Path
        Made if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    with model.open("rb") as file:
        while piece := file.read(PART):
            name = f"{model.name}.{len(parts):03}"
            (folder / name).write_bytes(piece)
            parts.append([name, len(piece), hashlib.sha256(piece).hexdigest()])
    about = {"name": model.name, "bytes": model.stat().st_size, "parts": parts}
    (folder / LIST).write_text(json.dumps(about, indent=1), encoding="utf-8")
    return folder / LIST


def join(get, home: Path = HOME, progress=lambda done, total: None) -> Path:
    """Fetch the parts of a model, and return the whole file.

    Parameters
    ----------
    get : callable
        Given a name beside the list, returns the bytes; raises `OSError` if they can't be had.
    home : Path
        The folder of the file. Parts that an earlier call has fetched stay there.
    progress : callable
        Called as ``progress(done, total)``, in bytes.

    Raises
    ------
    ModelError
        The model is not beside the site, a part can't be had, or there is no room for it. What has
        been fetched is kept, and another call goes on from there.
    """
    try:
        about = json.loads(get(LIST))
        name, total, parts = about["name"], about["bytes"], about["parts"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelError("this site has no model beside it; its builder can add one") from None
    out = home / name
    if out.exists() and out.stat().st_size == total:
        return out
    home.mkdir(parents=True, exist_ok=True)
    begun = out.with_suffix(".part")
    done = 0
    try:
        with begun.open("ab") as file:
            file.seek(0, 2)
            for part, size, digest in parts:
                done += size
                if file.tell() < done:
                    file.truncate(done - size)
                    file.write(_part(get, part, digest, done - size, total))
                progress(done, total)
    except (MemoryError, OSError):
        begun.unlink(missing_ok=True)
        raise ModelError(
            f"there is no room for the model, {total / 1e6:.0f} MB: close other pages, then run "
            "the cell again"
        ) from None
    begun.rename(out)
    return out


def _part(get, name, digest, before, total):
    why = ""
    for _ in range(TRIES):
        try:
            piece = get(name)
        except OSError as error:
            why = str(error) or type(error).__name__
            continue
        if hashlib.sha256(piece).hexdigest() == digest:
            return piece
        why = "it is not the file that the site was built with"
    raise ModelError(
        f"the model was fetched up to {before / 1e6:.0f} of {total / 1e6:.0f} MB: {name} can't be "
        f"had ({why}). Run the cell again to go on from there"
    )


def in_browser(progress=None) -> Path:
    """Return the model's file, fetched if it is not here yet.

    Parameters
    ----------
    progress : callable, optional
        As for `join`; by default a line in the output of a notebook's cell.

    Raises
    ------
    ModelError
        As for `join`; also in a Python that has no browser around it.
    """
    try:
        import js
    except ImportError:
        raise ModelError("there is no browser here that could fetch the model") from None
    if not hasattr(js, "XMLHttpRequest"):
        raise ModelError("there is no browser here that could fetch the model")
    here = str(js.self.location.href).split("/extensions/")[0]  # of JupyterLite's kernel
    root = getattr(js.self, "leftContextRoot", here)
    return join(lambda name: _get(js, f"{root}/model/{name}"), progress=progress or _Line().show)


def _get(js, address):
    """Return the bytes of a file; a kernel runs in a worker, which may wait for them."""
    request = js.XMLHttpRequest.new()
    request.open("GET", address, False)
    request.responseType = "arraybuffer"
    try:
        request.send()
    except Exception as error:  # a JavaScript exception
        raise OSError(f"the net failed: {str(error).splitlines()[0]}") from None
    if request.status != 200:
        raise OSError(f"the server said {request.status}")
    return request.response.to_bytes()


class _Line:
    """A line in the cell's output that is written over as parts arrive."""

    def __init__(self):
        self.handle = None

    def show(self, done, total):
        from IPython.display import HTML, display

        share = done / total
        words = f"the model: {done / 1e6:.0f} of {total / 1e6:.0f} MB"
        bar = HTML(f'<progress value="{share:.3f}" aria-label="{words}"></progress> {words}')
        if self.handle is None:
            self.handle = display(bar, display_id=True)
        else:
            self.handle.update(bar)
