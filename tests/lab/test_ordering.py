"""The ordering list, from the kernel's side; tests/browser shows it in a browser."""

import html
import re

import pytest
import traitlets

from lib.errors import CourseError
from lib.exercises.t01_ordering import ONE_LAYER, ONE_QUERY
from lib.lab.ordering import LINE, STATIC, order_widget


def test_the_list_begins_with_all_letters_and_their_texts():
    listed = order_widget(ONE_QUERY, "attention_order")
    assert listed.literal == 'attention_order = "A B C D E F G H"'
    assert listed.steps == [[k, step.text] for k, step in ONE_QUERY.lettered.items()]


def test_the_line_to_paste_holds_what_stands_above_the_line():
    listed = order_widget(ONE_QUERY, "order")
    listed.value = ["C", "A", LINE, *"BDEFGH"]
    assert listed.literal == 'order = "C A"'
    listed.value = [LINE, *"ABCDEFGH"]
    assert listed.literal == 'order = ""'


@pytest.mark.parametrize("value", [["A"], [*"ABCDEFGH"], [*"AACDEFGH", LINE], [*"ABCDEFGHI", LINE]])
def test_an_order_that_does_not_hold_each_letter_once_is_refused(value):
    listed = order_widget(ONE_QUERY, "order")
    with pytest.raises(traitlets.TraitError, match="each of .* once"):
        listed.value = value
    assert listed.literal == 'order = "A B C D E F G H"'


def test_its_text_is_the_same_whatever_the_order():
    listed = order_widget(ONE_LAYER, "layer_order")
    assert repr(listed) == "OrderList(10 steps, for layer_order)"
    listed.value = list(reversed(listed.value))
    assert repr(listed) == "OrderList(10 steps, for layer_order)"


def test_where_no_kernel_runs_the_steps_are_a_list():
    shown = order_widget(ONE_QUERY, "attention_order")._repr_mimebundle_()[0]["text/html"]
    rows = re.findall(r"<li><b>(.)</b>: (.*?)</li>", shown)
    assert [(k, html.unescape(text)) for k, text in rows] == [
        (k, step.text) for k, step in ONE_QUERY.lettered.items()
    ]


@pytest.mark.parametrize("variable", ["", "a b", "1st", None, 'x = "'])
def test_the_variable_is_a_name(variable):
    with pytest.raises(CourseError, match="variable should be a name"):
        order_widget(ONE_QUERY, variable)


def test_the_line_is_the_same_sign_on_both_sides():
    script = (STATIC / "order_list.js").read_text(encoding="utf-8")
    assert re.search(r'const LINE = "(.)";', script).group(1) == LINE
    assert "http" not in script.replace("needs https or", "")  # nothing is fetched
