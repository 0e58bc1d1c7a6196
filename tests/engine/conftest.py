"""A real model once, and tiny random ones of any shape."""

import itertools

import pytest
from tiny_models import write_tiny

from lib.engine.gguf import find_model, read_gguf
from lib.engine.llama import load_model
from lib.engine.tokenizer import Tokenizer


@pytest.fixture
def tiny(tmp_path):
    """Return a function that writes a tiny model file and returns its path, a new one each time."""
    numbers = itertools.count()
    return lambda **options: write_tiny(tmp_path / f"tiny-{next(numbers)}.gguf", **options)


@pytest.fixture
def odd(tmp_path):
    """A tiny model, ready to run."""
    return load_model(write_tiny(tmp_path / "odd.gguf"))


@pytest.fixture(scope="session")
def real_file():
    return read_gguf(find_model())


@pytest.fixture(scope="session")
def real_tokenizer(real_file):
    return Tokenizer(real_file)


@pytest.fixture(scope="session")
def model(compiled):
    """The real model, read once."""
    return load_model()
