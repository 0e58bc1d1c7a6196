"""The fixtures of this folder, read once; make.py says where they come from."""

import json
from pathlib import Path

import numpy as np
import pytest

from lib.engine.gguf import find_model, read_gguf
from lib.engine.tokenizer import Tokenizer

HERE = Path(__file__).parent


def read_arrays(name):
    with np.load(HERE / name) as file:
        return {key: file[key] for key in file.files}


def read_json(name):
    return json.loads((HERE / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def operations():
    """Return a function that gives the arrays of a case: ``operations("norm_cases")``."""
    arrays = read_arrays("operations.npz")

    def case(*name):
        prefix = ".".join(name) + "."
        return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

    return case


@pytest.fixture(scope="session")
def tokens():
    return read_json("tokens.json")


@pytest.fixture(scope="session")
def greedy():
    return read_json("greedy.json")


@pytest.fixture(scope="session")
def peer_llama():
    return read_arrays("llama.npz")


@pytest.fixture(scope="session")
def real_tokenizer():
    return Tokenizer(read_gguf(find_model()))
