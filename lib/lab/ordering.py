"""A list whose steps one can drag into order; it writes the line to paste, and judges nothing."""

import html
from pathlib import Path

import anywidget
import traitlets

from lib.errors import CourseError

STATIC = Path(__file__).parent / "static"
LINE = "|"  # the steps that stand after it are left out


class OrderList(anywidget.AnyWidget):
    """Steps in an order that the reader changes by pointer, by keyboard or with buttons.

    Where no kernel runs, the steps are a plain list. Its state ends with the kernel, so the answer
    is the literal in the reader's cell.

    Fields
    ------
    steps : list of [letter, text]
    value : list of str
        All letters from top to bottom, and `LINE`.
    variable : str
        The variable in the line to paste.
    """

    _esm = STATIC / "order_list.js"
    _css = STATIC / "order_list.css"

    steps = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    value = traitlets.List(traitlets.Unicode()).tag(sync=True)
    variable = traitlets.Unicode().tag(sync=True)

    @traitlets.validate("value")
    def _holds_each_letter_once(self, proposal):
        letters = [letter for letter, _ in self.steps]
        if sorted(proposal["value"]) != sorted([*letters, LINE]):
            raise traitlets.TraitError(
                f"value should hold each of {letters} and {LINE!r} once; it is {proposal['value']}"
            )
        return proposal["value"]

    @property
    def literal(self):
        """The line to paste: the letters above the line, in order."""
        return f'{self.variable} = "{" ".join(self.value[: self.value.index(LINE)])}"'

    def _repr_mimebundle_(self, **options):
        bundle = super()._repr_mimebundle_(**options)
        kinds, *rest = bundle if isinstance(bundle, tuple) else (bundle,)
        shown = kinds | {"text/html": self._plain_list()}
        return (shown, *rest) if rest else shown

    def _plain_list(self):
        rows = (f"<li><b>{letter}</b>: {html.escape(text)}</li>" for letter, text in self.steps)
        words = "Run this cell to drag the steps into order."
        return f'<ul style="list-style: none">{"".join(rows)}</ul><p><em>{words}</em></p>'

    def __repr__(self):  # constant, so that stored outputs do not change
        return f"OrderList({len(self.steps)} steps, for {self.variable})"


def order_widget(ordering, variable):
    """Return a list of the steps that can be put in order.

    Parameters
    ----------
    ordering : lib.exercises.ordering.Ordering
        Its ``lettered`` steps are shown, in the order of their letters.
    variable : str
        The name in the answer cell; it stands in the line to paste.

    Raises
    ------
    CourseError
        The variable is not a name of Python.
    """
    if not isinstance(variable, str) or not variable.isidentifier():
        raise CourseError(
            f"variable should be a name such as 'attention_order'; it is {variable!r}"
        )
    steps = [[letter, step.text] for letter, step in ordering.lettered.items()]
    return OrderList(steps=steps, value=[*ordering.lettered, LINE], variable=variable)
