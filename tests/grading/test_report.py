"""Tables and pages: everything in them is text, and nothing is anybody's markup."""

import csv
import io
import json
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from lib.exercises import Wrong, judging
from lib.exercises.judging import RIGHT, WRONG
from lib.exercises.verdicts import Row
from lib.grading import batch, report, similar
from tests.exercises.making import ROOT, answered, put, solved

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>"
BECAUSE = "Attention gives weight to no key of the left context, since its mask is too narrow"


class Page(HTMLParser):
    """Gathers what is on a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = set(), set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


def diagnosis(because, evidence="no_left_context", name="scenario_diagnosis"):
    found = {"seed": 2026, "component": "attention", "evidence": evidence, "because": because}
    return f"{name} = {found!r}"


def make(folder):
    put(
        folder / EVIL.replace("/", "∕") / "01_ordering.ipynb",
        answered("01", one_query=f"x = {EVIL}"),
    )
    put(
        folder / "=SUM(A1)" / f"{EVIL[:20]}.ipynb",
        answered("01", one_query=f'attention_order = "{EVIL}"'),
    )
    put(folder / "ana" / "03.ipynb", answered("03", scenario=diagnosis(BECAUSE)))
    put(folder / "ben" / "03.ipynb", answered("03", scenario=diagnosis(BECAUSE + EVIL)))
    put(folder / "cem" / "03.ipynb", answered("03", scenario=diagnosis("+1", "future_leaks")))
    put(folder / "dee" / "01_ordering.ipynb", answered("01", one_query='attention_order = "D F E"'))
    put(folder / "eva" / "01_ordering.ipynb", answered("01", one_query='attention_order = "D F E"'))


def test_results(tmp_path, monkeypatch):
    plain = judging.find  # the real model is slow, and what is said of it is tested elsewhere
    unjudged = lambda answer: (_ for _ in ()).throw(Wrong("not here"))  # noqa: E731
    monkeypatch.setattr(
        judging,
        "find",
        lambda name: replace(plain(name), judge=unjudged) if "real" in name else plain(name),
    )
    make(tmp_path / "in")
    out = tmp_path / "out"
    batch.grade(tmp_path / "in", out, ROOT)
    pages = [*(out / "reports").iterdir(), out / "class.html"]
    assert len(pages) == 8
    for page in pages:
        found = Page(page.read_text(encoding="utf-8"))
        assert not found.tags & {"script", "img", "b", "iframe", "object", "svg"}
        assert not {name for name in found.attributes if name.startswith("on")}
    assert "alert(1)" in Page((out / "class.html").read_text(encoding="utf-8")).text

    read = lambda name: list(csv.DictReader(io.StringIO((out / name).read_text("utf-8"))))  # noqa: E731
    results = read("results.csv")
    assert list(results[0]) == ["student", "task", "points", "verdict", "message"]
    assert {row["student"] for row in results} >= {"'=SUM(A1)", "ana"}
    stored = json.loads((out / "results.json").read_text("utf-8"))["results"]
    assert [row["task"] for row in stored] == [row["task"] for row in results]
    assert sum(row["points"] for row in stored) == sum(float(row["points"]) for row in results)

    items = {row["task"]: row for row in read("items.csv")}
    one_query = items["01.one_query"]
    assert (one_query["handed in"], one_query["right"], one_query["share right"]) == (
        "4",
        "0",
        "0.000",
    )
    assert (one_query["commonest wrong answer"], one_query["times"]) == ("'D F E'", "2")
    assert items["01.one_layer"]["share right"] == "1.000"
    reasons = [row for row in read("reasons.csv") if row["task"] == "03.scenario"]
    assert [row["because"] for row in reasons] == [BECAUSE, BECAUSE + EVIL, "'+1"]
    assert [row["verdict"] for row in reasons] == [RIGHT, RIGHT, WRONG]


def test_no_cell_of_a_table_is_a_formula():
    text = report.table(("a",), [["=1"], ["+1"], ["-1"], ["@x"], ["\tx"], ["plain"], [0.5]])
    shown = ["'=1", "'+1", "'-1", "'@x", "'\tx", "plain", "0.5"]
    assert text.split("\n")[1:-1] == [f'"{cell}"' for cell in shown]


@pytest.mark.parametrize("cell", [" =1", "\n=1", "＝1", "＋1", "－1", "＠x", "\u3000=1", "\r=1"])
def test_no_blank_or_wide_sign_hides_a_formula(cell):
    (_, line) = csv.reader(io.StringIO(report.table(("a",), [[cell]])))
    assert line[0].startswith("'")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize(
    "cell", ["x;=1+2;y", "x; =1+2;y", "x\t=1+2\ty", "x\n=1+2", "x|=1|y", "x;＝1"]
)
def test_no_separator_of_another_country_makes_a_formula(separator, cell):
    text = report.table(("a", "b"), [["ana", cell]])
    parts = [part for row in csv.reader(io.StringIO(text), delimiter=separator) for part in row]
    firsts = {unicodedata.normalize("NFKC", part.strip())[:1] for part in parts}
    assert not firsts & set("=+-@")


def test_what_is_no_formula_stays_as_it_is():
    text = "rows: [1, -2]; x = 3\n    came = [-1.]"
    (_, line) = csv.reader(io.StringIO(report.table(("a",), [[text]])))
    assert line == [text]


@pytest.mark.parametrize(
    "names", [["Anna", "anna"], ["Zoe\u0308", "Zo\xeb"], ["STRASSE", "straße"], ["ﬁn", "fin"]]
)
def test_no_two_pages_are_one_to_a_system_that_folds_names(names):
    files = report._file_names(names)
    folded = {unicodedata.normalize("NFKC", file).casefold() for file in files.values()}
    assert len(folded) == 2


@pytest.mark.parametrize("name", ["CON", "nul", "com1", "LPT9.txt", "aux.b", "con .x", "CONIN$"])
def test_no_page_has_a_name_that_windows_keeps_for_itself(name):
    assert report._file_name(name) != f"{name}.html"
    assert report._file_name("Conrad") == "Conrad.html"


def test_nobody_is_called_like_the_page_of_another():
    files = report._file_names(["Anna", "anna"])
    more = report._file_names(["Anna", "anna", files["Anna"].removesuffix(".html")])
    assert len(set(more.values())) == 3


def test_pages_have_names_that_every_system_knows():
    assert report._file_name("李 雷") == "李 雷.html"
    for name in ("a/b", "a:b", "x" * 300, "dots.", " space"):
        page = report._file_name(name)
        assert not set(page) & set('<>:"/\\|?*')
        assert len(page) < 80
    assert report._file_name("a:b") != report._file_name("a/b")


ANSWER = """
def layer_norm(X, gain, bias, eps=1e-5):
    mitte = X.mean(axis=-1, keepdims=True)  # my very own name for it
    abstand = X - mitte
    streuung = np.mean(abstand * abstand, axis=-1, keepdims=True)
    wurzel = np.sqrt(streuung + eps)
    return (abstand / wurzel) * gain + bias
"""


def test_near_copies_are_listed_and_what_the_task_asks_for_is_not():
    solution = "".join(answered("05")["cells"][0]["source"])
    copy = ANSWER.replace("# my very own name for it", "").replace("X - mitte", "(X - mitte)")
    other = ANSWER.replace("abstand", "d").replace("streuung", "v").replace("wurzel", "r")
    answers = {"ana": ANSWER, "ben": ANSWER, "cem": copy, "dee": other.replace("mitte", "m")}
    found = similar.pairs("05.layer_norm", answers, [solution])
    assert (found[0].one, found[0].other, found[0].share) == ("ana", "ben", 1.0)
    assert {pair[1:3] for pair in found} == {("ana", "ben")}
    handed_out = [ANSWER]
    assert similar.pairs("05.layer_norm", answers, handed_out) == []
    crowd = {f"s{k}": ANSWER for k in range(similar.MAX_HOLDERS + 1)}
    assert similar.pairs("05.layer_norm", crowd) == []


def row(task, verdict, message="", value=""):
    return Row("s", task, "t", 0.0, 1.0, verdict, message, value=value)


def test_the_table_of_tasks_leaves_out_who_handed_nothing_in():
    rows = [row("01.a", RIGHT), row("01.a", "not handed in"), row("01.b", "not handed in")]
    _, body = report.items_of([*rows, row("01.a", WRONG, "first\nsecond")])
    assert body == [["01.a", "t", 2, 1, "0.500", "first", 1], ["01.b", "t", 0, 0, "", "", ""]]
    assert solved("01")["cells"]
