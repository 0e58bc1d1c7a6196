"""`course update`: the newest course, and nothing that a reader wrote is lost."""

import shutil
import subprocess

import pytest

from lib.errors import CourseError
from lib.update import update

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not here")
FILE = "exercises/01_ordering.ipynb"


def git(folder, *words):
    name = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)


def put(folder, text, name=FILE):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A course that is kept up, and a reader's clone of it."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@b.c")
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir()
    git(theirs, "init", "--quiet")
    put(theirs, "one\ntwo\nthree\n")
    put(theirs, "words\n", "notebooks/00.ipynb")
    git(theirs, "add", ".")
    git(theirs, "commit", "--quiet", "--message", "first")
    git(tmp_path, "clone", "--quiet", str(theirs), str(mine))
    return theirs, mine


def publish(theirs, text, name=FILE):
    put(theirs, text, name)
    git(theirs, "commit", "--quiet", "--all", "--message", "more")


def read(folder, name=FILE):
    return (folder / name).read_text(encoding="utf-8")


def test_what_was_written_stays_on_top_of_the_newest_course(places):
    theirs, mine = places
    put(mine, "one\ntwo\nthree, answered\n")
    publish(theirs, "newer words\n", "notebooks/00.ipynb")
    _, beside = update(mine)
    assert beside == []
    assert read(mine) == "one\ntwo\nthree, answered\n"
    assert read(mine, "notebooks/00.ipynb") == "newer words\n"


def test_where_both_changed_a_file_the_reader_s_lies_beside_it(places):
    theirs, mine = places
    put(mine, "one\nTWO ANSWERED\nthree\n")
    put(mine, "mine too\n", "notebooks/00.ipynb")
    put(mine, "taken", "exercises/01_ordering-mine.ipynb")
    publish(theirs, "one\ntwo, asked anew\nthree\n")
    _, beside = update(mine)
    assert [path.name for path in beside] == ["01_ordering-mine-2.ipynb"]
    assert beside[0].read_text(encoding="utf-8") == "one\nTWO ANSWERED\nthree\n"
    assert read(mine) == "one\ntwo, asked anew\nthree\n"
    assert read(mine, "notebooks/00.ipynb") == "mine too\n"
    assert read(mine, "exercises/01_ordering-mine.ipynb") == "taken"
    assert update(mine)[1] == []  # and again, from here


def test_a_file_that_the_course_has_given_up_stays_the_reader_s(places):
    theirs, mine = places
    put(mine, "one\ntwo\nthree, answered\n")
    git(theirs, "rm", "--quiet", FILE)
    git(theirs, "commit", "--quiet", "--message", "gone")
    _, beside = update(mine)
    assert beside == [mine / FILE]
    assert read(mine) == "one\ntwo\nthree, answered\n"
    assert update(mine)[1] == []


def test_a_file_that_the_reader_threw_away_comes_with_what_is_new_in_it(places):
    theirs, mine = places
    (mine / FILE).unlink()
    put(mine, "mine too\n", "notebooks/00.ipynb")
    publish(theirs, "one\ntwo, asked anew\nthree\n")
    _, beside = update(mine)
    assert beside == []
    assert read(mine) == "one\ntwo, asked anew\nthree\n"
    assert read(mine, "notebooks/00.ipynb") == "mine too\n"
    assert update(mine)[1] == []


def test_a_new_file_in_the_way_of_the_course_s_is_named_and_kept(places):
    theirs, mine = places
    put(mine, "mine", "exercises/09.ipynb")
    put(theirs, "theirs", "exercises/09.ipynb")
    git(theirs, "add", ".")
    git(theirs, "commit", "--quiet", "--message", "ninth")
    with pytest.raises(CourseError, match="exercises/09.ipynb"):
        update(mine)
    assert read(mine, "exercises/09.ipynb") == "mine"


def test_a_course_that_cannot_be_fetched_leaves_all_as_it_was(places):
    theirs, mine = places
    put(mine, "answered\n")
    shutil.rmtree(theirs)
    with pytest.raises(CourseError, match="git pull"):
        update(mine)
    assert read(mine) == "answered\n"


def test_a_folder_that_was_unpacked_is_told_what_to_do(tmp_path):
    with pytest.raises(CourseError, match="no clone of the course.*copy your exercises over"):
        update(tmp_path)
