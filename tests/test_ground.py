"""The ground: what pyproject.toml, environment.yml and the README promise stays in step."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def split(requirement):
    return re.fullmatch(r"([A-Za-z0-9_.-]+?)\s*([<>=!~].*)?", requirement).groups()


def in_pyproject():
    wanted = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]
    return dict(map(split, wanted))


def test_conda_and_pyproject_ask_for_the_same_packages():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    plain = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    conda = dict(map(split, plain))
    assert conda.pop("python") == PROJECT["project"]["requires-python"]
    assert conda.pop("pip", "missing") is None
    assert conda == in_pyproject()
    assert {"pip": ["-e ."]} in environment["dependencies"]


def test_every_direct_dependency_has_a_tested_version():
    pinned = dict(map(split, PROJECT["tool"]["uv"]["constraint-dependencies"]))
    site = dict(map(split, PROJECT["dependency-groups"]["site"]))
    cluster = dict(map(split, PROJECT["project"]["optional-dependencies"]["cluster"]))
    assert pinned.keys() == in_pyproject().keys() | site.keys() | cluster.keys()
    assert all(version.startswith("==") for version in pinned.values())


def test_the_model_s_package_is_named_the_same_everywhere():
    (wanted,) = PROJECT["dependency-groups"]["model"]
    override = PROJECT["tool"]["uv"]["dependency-metadata"][0]
    assert wanted == f"{override['name']}=={override['version']}"
    assert override["requires-dist"] == []
    for name in ("environment.yml", "postBuild", "README.md"):
        assert f"pip install --no-deps {wanted}" in (ROOT / name).read_text(encoding="utf-8")


def test_ci_runs_the_readme_s_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first_screen = readme[: readme.index("\n## ")]
    for command in ("course lab", "pytest"):
        assert re.search(rf"^ *pip install uv && uv run {command}", first_screen, re.MULTILINE)
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert ci.index("pip install uv") < ci.index("uv run pytest")


@pytest.mark.parametrize("folder", ["notebooks", "exercises"])
def test_readme_lists_every_chapter_and_exercise(folder):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for notebook in (ROOT / folder).glob("*.ipynb"):
        assert f"]({folder}/{notebook.name})" in readme


LIGHT = """
import sys
import lib, lib.cli, lib.errors
heavy = {"numba", "matplotlib", "gguf", "tokenizers", "jupyterlab", "nbclient"} & set(sys.modules)
assert not heavy, heavy
"""


def test_import_of_the_command_is_light():
    subprocess.run([sys.executable, "-c", LIGHT], check=True, cwd=ROOT)


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None  # as where it is not installed
import numpy as np
from lib import attention, ffn, jit, layer, norm, reference, rope, stack
assert not jit.NUMBA and not jit.cache_is_writable()
rng = np.random.default_rng(0)
Q, K, V = rng.standard_normal((3, 4)), rng.standard_normal((6, 4)), rng.standard_normal((6, 5))
layers = stack.random_stack(2, 4, 9, seed=0)
pairs = [
    (attention.attend(Q[0], K, V), reference.attend(Q[0], K, V)),
    (attention.attend_causal(Q, K, V), reference.attend_causal(Q, K, V)),
    (attention.causal_weights(Q, K), reference.causal_weights(Q, K)),
    (attention.softmax(K), reference.softmax(K)),
    (ffn.activate(K, "gelu"), reference.gelu(K)),
    (ffn.swiglu(K, Q.T, Q.T, Q), reference.swiglu(K, Q.T, Q.T, Q)),
    (norm.layer_norm(K, K[0], K[1]), reference.layer_norm(K, K[0], K[1])),
    (norm.rms_norm(K, K[0]), reference.rms_norm(K, K[0])),
    (rope.rope(K, np.arange(6)), reference.rope(K, np.arange(6))),
    (stack.stack(K, layers), reference.stack(K, layers)),
]
for got, right in pairs:
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
"""


def test_without_numba_the_core_runs_its_definitions():
    subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], check=True, cwd=ROOT)


UNWRITABLE = """
import numba.core.caching
# What Numba finds when neither the library's folder nor a folder of the user can be written.
numba.core.caching.CacheImpl._locator_classes = []
import numpy as np
from lib import jit
from lib.attention import attend
assert not jit.cache_is_writable()
assert np.allclose(attend([1.0], [[0.0], [0.0]], [[2.0], [4.0]]), [3.0])
"""


def test_kernels_run_where_no_cache_can_be_written(compiled):
    subprocess.run([sys.executable, "-c", UNWRITABLE], check=True, cwd=ROOT)


# The one place that names its options, what it is taught, for which processor, and for a browser.
NUMBA_IS_IMPORTED_IN = [ROOT / "lib/jit.py", ROOT / "lib/wasm/build.py"] + [
    ROOT / f"lib/engine/{name}.py" for name in ("processor", "simd_llvm")
]


@pytest.mark.parametrize("path", sorted((ROOT / "lib").rglob("*.py")), ids=lambda p: p.stem)
def test_numba_is_imported_where_it_is_set_up(path):
    if path not in NUMBA_IS_IMPORTED_IN:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from) numba", text, re.MULTILINE)


PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    + [
        path
        for name in ("notebooks", "solutions", "exercises", "docs")
        for path in (ROOT / name).glob("*")
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_link_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target
