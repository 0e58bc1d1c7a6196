"""Write the results down: tables for the teacher, a page for each student.

Nothing of a submission is markup here. Pages are made by templates that escape all they are given,
and forbid scripts besides; a cell of a table that a spreadsheet would take for a formula gets a
mark in front. The same results give the same bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from lib import notebooks
from lib.exercises.judging import NOT_HANDED_IN, RIGHT
from lib.exercises.verdicts import Row
from lib.grading import similar
from lib.grading.collect import Handed

CSV, JSON, STUDENTS = "results.csv", "results.json", "students.csv"
ITEMS, REASONS, SIMILAR = "items.csv", "reasons.csv", "similar.csv"
CLASS, REPORTS = "class.html", "reports"


def write(
    rows: dict[str, list[Row]], handed: dict[str, Handed], exercises: dict, out: Path
) -> None:
    """Write all files of results.

    Parameters
    ----------
    rows : dict of str to list of Row
        By student.
    handed : dict of str to Handed
    exercises : dict of str to Exercise
        Those that were graded.
    out : Path
        A folder.
    """
    every = [row for name in sorted(rows) for row in rows[name]]
    items, reasons, alike = items_of(every), reasons_of(every), similar_of(every, exercises)
    fields = ("student", "task", "points", "verdict", "message")
    results = [[getattr(row, name) for name in fields] for row in every]
    notebooks.replace(out / CSV, table(fields, results))
    records = [dict(zip(fields, values, strict=True)) for values in results]
    text = json.dumps({"results": records}, ensure_ascii=False, indent=1)
    notebooks.replace(out / JSON, text + "\n")
    totals = [[name, *_sums(found)] for name, found in sorted(rows.items())]
    notebooks.replace(out / STUDENTS, table(("student", "points", "possible"), totals))
    for name, (head, body) in {ITEMS: items, REASONS: reasons, SIMILAR: alike}.items():
        notebooks.replace(out / name, table(head, body))
    pages = _pages(rows, handed)
    (out / REPORTS).mkdir(exist_ok=True)
    for old in sorted((out / REPORTS).glob("*.html")):  # of students who are no longer there
        if old.name not in {page for page, _ in pages.values()}:
            old.unlink()
    for page, text in pages.values():
        notebooks.replace(out / REPORTS / page, text)
    links = {name: f"{REPORTS}/{page}" for name, (page, _) in pages.items()}
    notebooks.replace(out / CLASS, class_page(totals, links, items, reasons, alike))


def _sums(rows: Iterable[Row]) -> tuple[float, float]:
    rows = list(rows)
    return sum(row.points for row in rows), sum(row.possible for row in rows)


# --- Tables --------------------------------------------------------------------------------------


def table(head: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV."""
    out = io.StringIO()
    # All in quotation marks: a cell may hold what separates cells where a spreadsheet is opened.
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(head)
    writer.writerows([[_cell(value) for value in line] for line in body])
    return out.getvalue()


def _cell(value: object) -> str:
    """Return a cell as text that no spreadsheet takes for a formula."""
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value).replace("\r", " ")
    # Quotation marks hold nothing together where another sign separates: `"a","x;=1"` is then two
    # cells, the second a formula. So what follows any separator is marked, not the beginning alone.
    return "".join(
        f"'{part}" if _is_formula(part) else part for part in re.split(r"(?<=[;\t\n|])", text)
    )


def _is_formula(text: str) -> bool:
    first = unicodedata.normalize("NFKC", text.lstrip())[:1]  # also ＝, and after blanks
    return first in tuple("=+-@") or text[:1] in ("\t", "\n")


def items_of(rows: Sequence[Row]) -> tuple[Sequence[str], list]:
    """Return the table of tasks: who answered, who is right, and the commonest wrong answer."""
    head = ("task", "title", "handed in", "right", "share right", "commonest wrong answer", "times")
    body = []
    for task in dict.fromkeys(row.task for row in rows):
        mine = [row for row in rows if row.task == task and row.verdict != NOT_HANDED_IN]
        right = sum(row.verdict == RIGHT for row in mine)
        wrong = Counter(row.value or _first_line(row) for row in mine if row.verdict != RIGHT)
        ((most, times),) = sorted(wrong.items(), key=lambda pair: (-pair[1], pair[0]))[:1] or (
            ("", 0),
        )
        share = f"{right / len(mine):.3f}" if mine else ""
        title = next(row.title for row in rows if row.task == task)
        body.append([task, title, len(mine), right, share, most, times or ""])
    return head, body


def _first_line(row: Row) -> str:
    return row.message.partition("\n")[0][:200] or row.verdict


def reasons_of(rows: Sequence[Row]) -> tuple[Sequence[str], list]:
    """Return the sentences of reasoning, gathered for reading."""
    given = [row for row in rows if row.reason]
    body = [[r.task, r.student, r.verdict, r.reason] for r in sorted(given, key=_by_task)]
    return ("task", "student", "verdict", "because"), body


def _by_task(row: Row) -> tuple[str, str]:
    return row.task, row.student


def similar_of(rows: Sequence[Row], exercises: dict) -> tuple[Sequence[str], list]:
    """Return the pairs of answers that are nearly the same: functions, and sentences."""
    questions = [q for exercise in exercises.values() for q in exercise.questions]
    texts = []
    for question in questions:
        mine = [row for row in rows if row.task == question.task]
        if question.is_built:
            answers = {row.student: row.answer for row in mine if row.answer}
            texts.append((question.task, answers, (question.stub, question.solution)))
        else:
            reasons = {row.student: row.reason for row in mine if row.reason}
            texts.append((f"{question.task}, because", reasons, ()))
    return ("task", "one", "other", "share alike"), [list(p) for p in similar.every(texts)]


# --- Pages ---------------------------------------------------------------------------------------

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{ title }}</title>
<style>
body { font-family: system-ui, sans-serif; line-height: 1.45; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: #1d1d1f; background: #fff; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem;
         border-bottom: 1px solid #bbb; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0; font-size: .85rem; }
.right { color: #0a5f2c; }
</style>
</head>
<body>
"""

_STUDENT = (
    _HEAD
    + """<h1><bdi>{{ student }}</bdi></h1>
<p>{{ points }} of {{ possible }} points.</p>
{% if notes %}<h2>About the files</h2>
<ul>{% for note in notes %}<li><bdi>{{ note }}</bdi></li>{% endfor %}</ul>
{% endif %}{% if files %}<p>Counted were {% for file in files -%}
<bdi>{{ file }}</bdi>{{ ", " if not loop.last }}{% endfor %}.</p>
{% endif %}<table>
<thead><tr><th>task</th><th>points</th><th>verdict</th></tr></thead>
<tbody>
{% for row in rows %}<tr><td>{{ row.task }}<br>{{ row.title }}</td>
<td>{{ "%g" % row.points }} of {{ "%g" % row.possible }}</td>
<td><strong{% if row.points %} class="right"{% endif %}>{{ row.verdict }}</strong>
{%- if row.message %}<pre><bdi>{{ row.message }}</bdi></pre>{% endif %}</td></tr>
{% endfor %}</tbody>
</table>
</body>
</html>
"""
)

_CLASS = (
    _HEAD
    + """<h1>{{ title }}</h1>
{% for name, head, body in tables %}<h2>{{ name }}</h2>
{% if body %}<table>
<thead><tr>{% for one in head %}<th>{{ one }}</th>{% endfor %}</tr></thead>
<tbody>
{% for line in body %}<tr>{% for one in line %}<td>
{%- if links[one] is defined and loop.first and name == "Students" -%}
<a href="{{ links[one] | urlencode }}"><bdi>{{ one }}</bdi></a>
{%- else -%}<bdi>{{ one }}</bdi>{% endif %}</td>{% endfor %}</tr>
{% endfor %}</tbody>
</table>{% else %}<p>None.</p>{% endif %}
{% endfor %}</body>
</html>
"""
)


def _template(text: str):
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(text)


def _pages(rows: dict[str, list[Row]], handed: dict[str, Handed]) -> dict[str, tuple[str, str]]:
    """Return the file name and the text of each student's page."""
    template = _template(_STUDENT)
    pages, files = {}, _file_names(sorted(rows))
    for name in sorted(rows):
        points, possible = (f"{number:g}" for number in _sums(rows[name]))
        one = handed[name]
        pages[name] = files[name], template.render(
            title=name, student=name, rows=rows[name], points=points, possible=possible,
            notes=list(dict.fromkeys(one.notes)), files=[one.files[n] for n in sorted(one.files)],
        )  # fmt: skip
    return pages


_RESERVED = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\.|$)", re.IGNORECASE
)


def _file_names(students: Sequence[str]) -> dict[str, str]:
    """Return the names of the pages; no two are one to a system that folds case or accents."""
    folded = {name: unicodedata.normalize("NFKC", name).casefold() for name in students}
    count = Counter(folded.values())
    return {name: _file_name(name, count[folded[name]] == 1) for name in students}


def _file_name(student: str, alone: bool = True) -> str:
    """Return the name of a page: the student's, if every system can have a file of it."""
    plain = student.strip(". ") == student and not set(student) & set('<>:"/\\|?*\n\t')
    plain = plain and not re.search(r"-[0-9a-f]{8}$", student)  # as if it had a mark already
    if plain and alone and len(student.encode()) < 150 and not _RESERVED.match(student):
        return f"{student}.html"
    mark = hashlib.sha256(student.encode()).hexdigest()[:8]
    short = "".join("_" if c in '<>:"/\\|?*\n\t' else c for c in student).strip(". ")[:40]
    return f"{short}-{mark}.html"


def class_page(totals: list, links: dict[str, str], items, reasons, alike) -> str:
    """Return the teacher's page: students, tasks, answers that are alike, reasons to read."""
    lines = [[name, f"{points:g}", f"{possible:g}"] for name, points, possible in totals]
    tables = [
        ("Students", ("student", "points", "of"), lines),
        ("Tasks", *items),
        ("Answers that are nearly the same", *alike),
        ("Reasons, for reading", *reasons),
    ]
    return _template(_CLASS).render(title="Results of the class", tables=tables, links=links)
