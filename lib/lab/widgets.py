"""Controls above a picture. A widget only arranges what the figures draw and the probes compute."""

import base64
import html
import io
from pathlib import Path

import anywidget
import ipywidgets as widgets
from matplotlib.backends.backend_agg import FigureCanvasAgg

from lib.errors import CourseError


class KeyGuard(anywidget.AnyWidget):
    """Nothing to see: it keeps the notebook's shortcuts away from controls that have the focus.

    Without it the arrow keys do not move a slider in Notebook 7, and `dd` on a focused control
    deletes the cell.
    """

    _esm = Path(__file__).parent / "static" / "key_guard.js"

    def __repr__(self):
        return "KeyGuard()"


class Explorer(widgets.VBox):
    """Controls above a picture; where no kernel runs, the picture as it was drawn first."""

    def __repr__(self):  # constant, so that stored outputs do not change
        return "Explorer()"

    def _repr_mimebundle_(self, **options):
        bundle = super()._repr_mimebundle_(**options)
        words = "Run this cell to move the controls that belong to this picture."
        return bundle | {"text/html": f"{''.join(self._shown())}<p><em>{words}</em></p>"}

    def _shown(self):
        for child in self.children:
            if isinstance(child, Explorer):
                yield from child._shown()
            elif isinstance(child, widgets.HTML):
                yield child.value


def explorer(draw, **controls):
    """Return controls above one picture, drawn anew whenever a control moves.

    Parameters
    ----------
    draw : callable
        ``draw(**values)`` returns a Matplotlib Figure.
    controls : ipywidgets
        One for each argument of ``draw``; each carries its own description.

    Returns
    -------
    Explorer
    """
    picture, message = widgets.HTML(), widgets.HTML()

    def redraw(_=None):
        try:
            picture.value = image(draw(**{name: c.value for name, c in controls.items()}))
            message.value = ""
        except CourseError as mistake:
            message.value = str(mistake)

    for control in controls.values():
        control.observe(redraw, "value")
    redraw()
    return Explorer([KeyGuard(), *controls.values(), message, picture])


def slow_explorer(draw, *, working="working …", **controls):
    """Return an `explorer` for what takes longer than a tenth of a second.

    It says that it is working while it does. A slider draws when it comes to rest, and what was
    drawn once is shown again without computing. The arguments are those of `explorer`.

    Returns
    -------
    Explorer
    """
    picture, message, drawn = widgets.HTML(), widgets.HTML(), {}

    def redraw(_=None):
        values = {name: control.value for name, control in controls.items()}
        key = tuple(values.values())
        try:
            if key not in drawn:
                message.value = working  # sent at once: it shows before `draw` has ended
                drawn[key] = image(draw(**values))
            picture.value, message.value = drawn[key], ""
        except CourseError as mistake:
            message.value = str(mistake)

    for control in controls.values():
        if hasattr(control, "continuous_update"):
            control.continuous_update = False
        control.observe(redraw, "value")
    redraw()
    return Explorer([KeyGuard(), *controls.values(), message, picture])


def slider(description, low, high, value, step=1):
    """Return a slider over whole numbers, or over floats where the step is not whole."""
    kind = widgets.IntSlider if isinstance(step, int) else widgets.FloatSlider
    return kind(
        value=value,
        min=low,
        max=high,
        step=step,
        description=description,
        continuous_update=True,
        style={"description_width": "initial"},
        layout=widgets.Layout(width="28em"),
    )


def player(slider, milliseconds=1500):
    """Return a play button, with a label beside it, that moves a slider of whole numbers."""
    button = widgets.Play(
        value=slider.value,
        min=slider.min,
        max=slider.max,
        step=slider.step,
        interval=milliseconds,
    )
    widgets.jslink((button, "value"), (slider, "value"))
    return widgets.HBox([widgets.Label(f"play {slider.description}"), button])


def choice(description, options, value=None):
    """Return a drop-down list; ``options`` is a list of labels or of (label, value) pairs."""
    box = widgets.Dropdown(
        options=options, description=description, style={"description_width": "initial"}
    )
    if value is not None:
        box.value = value
    return box


def image(figure):
    """Return the figure as an HTML image, sharp on any screen, with what it shows in words."""
    width, dpi = round(figure.get_figwidth() * figure.dpi), figure.dpi
    figure.set_dpi(2 * dpi)
    data = base64.b64encode(png(figure)).decode()
    figure.set_dpi(dpi)
    return (
        f'<img width="{width}" style="max-width: 100%; height: auto" '
        f'alt="{html.escape(figure.in_words())}" src="data:image/png;base64,{data}">'
    )


def png(figure):
    """Return the figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)  # `savefig` draws twice; the picture is the same
    return buffer.getvalue()
