"""Two models that the instruments are tried on: a tiny random one, and the real one."""

import sys
from pathlib import Path

import pytest

from lib.engine.llama import load_model
from lib.errors import ModelError

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from tiny_models import ODD, write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", ODD))


@pytest.fixture(scope="module")
def real(compiled):
    try:
        return load_model()
    except ModelError as error:
        pytest.skip(str(error))
