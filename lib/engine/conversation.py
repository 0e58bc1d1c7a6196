"""A conversation as the model was trained to read it: the chat template of its file.

The template writes control tokens, and must be the only one who does. What people say is marked
where it spells one, in a way that templates carry along and the tokenizer knows; so it stays text.
"""

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from lib.errors import CourseError


class Conversation(str):
    """What a template wrote. `marked` is the same text, with a mark inside what is plain text.

    Fields
    ------
    marked : str
    mark : str
        One character, that occurs nowhere else in it.
    """

    marked: str
    mark: str

    def __new__(cls, marked: str, mark: str):
        """Take the marks off for those who read it as a str."""
        made = super().__new__(cls, marked.replace(mark, ""))
        made.marked, made.mark = marked, mark
        return made


def write(template: str, messages: list[dict], control: Iterable[str], **variables: Any):
    """Run a chat template on messages, and return a `Conversation`.

    Parameters
    ----------
    template : str
        Jinja, as the trainers' library `transformers` reads it. It runs in a sandbox, as it is
        code from a file.
    messages : list of dict
        Each with the texts ``role`` and ``content``, at least.
    control : iterable of str
        Spellings of the control tokens.
    **variables
        What the template may ask for besides.

    Raises
    ------
    CourseError
        If `messages` is not a list of such dicts, or the template makes a control token of one.
    Exception
        Whatever the template raises.
    """
    _check_messages(messages)
    every = json.dumps(messages, ensure_ascii=False) + template
    mark = next(chr(k) for k in range(0xF0000, 0xFFFFE) if chr(k) not in every)  # private use
    spelled = re.compile("|".join(map(re.escape, sorted(filter(None, control), key=len)[::-1])))
    variables = {"tools": None, "documents": None} | variables
    render = _sandbox().from_string(template).render
    found = render(messages=_marked(messages, spelled, mark), **variables)
    # A template may turn a message into what it does not spell (lower case, a part cut out), or
    # complete it: then other words in its place give other control tokens.
    calm = [{**m, "content": "x" if m["content"].strip() else m["content"]} for m in messages]
    by_template = spelled.findall(render(messages=_marked(calm, spelled, mark), **variables))
    if spelled.pattern and spelled.findall(found) != by_template:
        raise CourseError(
            "a message should not make control tokens of the model, alone or together with the "
            "chat template of its file"
        )
    return Conversation(found, mark)


def _marked(value: Any, spelled: re.Pattern, mark: str) -> Any:
    """Put a mark into each control token that is spelled in the texts of a value."""
    if isinstance(value, str) and spelled.pattern:
        return spelled.sub(lambda m: m[0][:1] + mark + m[0][1:], value)
    if isinstance(value, list | tuple):
        return [_marked(item, spelled, mark) for item in value]
    if isinstance(value, dict):
        return {key: _marked(item, spelled, mark) for key, item in value.items()}
    return value


def _check_messages(messages: list[dict]) -> None:
    if not isinstance(messages, list | tuple) or not messages:
        raise CourseError("messages should be a list of at least one dict")
    for k, message in enumerate(messages):
        texts = [message.get(key) for key in ("role", "content")] if type(message) is dict else []
        if not texts or not all(isinstance(text, str) for text in texts):
            raise CourseError(
                "messages should be dicts with the texts `role` and `content`; "
                f"number {k} is {message!r}"
            )


def _sandbox():
    """Return an environment in which templates find what `transformers` gives them."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks what the model is to say, for training; it writes nothing."""

        tags = {"generation"}  # noqa: RUF012, as jinja2 has it

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
            sort_keys=sort_keys,
        )  # fmt: skip

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = tojson  # jinja2's own writes for HTML
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment
