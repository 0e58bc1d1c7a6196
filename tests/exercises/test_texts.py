"""The texts that a reader works on stand in the notebooks, as the code has them."""

import re

import pytest

from lib import notebooks
from lib.exercises import t01_ordering as t01
from lib.exercises import t02_roles as t02
from lib.exercises.diagnosis import evidence_table
from lib.exercises.ordering import lettered_list
from lib.exercises.repairing import places_table
from lib.lab import example, show
from lib.lab import experiments as lab

KNOWS = [[i, name, lab.NAMES[k]]
         for i, (name, k) in enumerate(zip(lab.NAMES, lab.POINTS_TO, strict=True))]  # fmt: skip
WINDOW = [
    [f"**{query}**", *("●" if query - lab.WINDOW < key <= query else " " for key in range(8))]
    for query in range(8)
]
TEXTS = {
    "01-one_query-steps": lettered_list(t01.ONE_QUERY),
    "01-one_layer-steps": lettered_list(t01.ONE_LAYER),
    "01-pre_norm-steps": lettered_list(t01.PRE_NORM),
    "01-next_token-steps": lettered_list(t01.TO_THE_NEXT_TOKEN),
    "01-decoding_step-steps": lettered_list(t01.DECODING_STEP),
    "02-roles-statements": lettered_list(t02.STATEMENTS),
    "02-sorting-properties": lettered_list(t02.PROPERTIES),
    "02-jobs-list": lettered_list(t02.JOBS),
    "02-one_step-tokens": show.table(["position", "token"], enumerate(example.TOKENS)),
    "02-hops-people": show.table(["position", "name", "knows"], KNOWS),
    "02-window-figure": show.table(["query ↓ key →", *range(8)], WINDOW),
    "03-evidence": evidence_table(),
    "03-places": places_table(),
}
FILES = {path.name[:2]: path for path in notebooks.chapters(notebooks.find_root(), "solutions")}


def cells(number):
    return notebooks.read_notebook(FILES[number]).cells


@pytest.mark.parametrize("cell", TEXTS)
def test_a_notebook_holds_the_texts_of_the_code(cell):
    (found,) = [one for one in cells(cell[:2]) if one.id == cell]
    assert found.cell_type == "markdown"
    assert found.source == TEXTS[cell].data


@pytest.mark.parametrize("number", ["01", "02", "03"])
def test_the_last_hint_helps_and_points_to_no_file(number):
    hints = [one.source for one in cells(number) if "<summary>Hint 1" in one.source]
    assert hints
    for source in hints:
        third = re.search(r"Hint 3</summary>\n\n(.+?)\n\n</details>", source, re.DOTALL).group(1)
        assert "solutions/" not in third
        assert len(third.split()) > 20
