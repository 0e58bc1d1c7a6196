"""The library for a browser: what is in it, and what it asks of its surroundings."""

import importlib.util
import json

import pytest

from lib.errors import CourseError
from lib.wasm import build, call


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("the group `site` is not installed: no linker for WebAssembly")
    folder = tmp_path_factory.mktemp("wasm")
    build.build(folder)
    return folder


def sections(data):
    """Return the sections of a module by number: WebAssembly's specification, section 5.5."""
    found, at = {}, 8
    while at < len(data):
        number = data[at]
        size, at = leb(data, at + 1)
        found.setdefault(number, []).append(data[at : at + size])
        at += size
    return found


def leb(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def test_it_imports_memory_and_nothing_that_could_be_called(built):
    (imports,) = sections((built / call.LIBRARY).read_bytes())[2]
    count, at = leb(imports, 0)
    names = []
    for _ in range(count):
        texts = []
        for _ in range(2):
            size, at = leb(imports, at)
            texts.append(imports[at : at + size].decode())
            at += size
        kind, at = imports[at], at + 1
        assert kind in (2, 3), f"{texts} is a function or a table"  # a memory or a global number
        if kind == 2:
            flags, at = leb(imports, at)
            for _ in range(1 + (flags & 1)):
                _, at = leb(imports, at)
        else:
            at += 2
        names.append(".".join(texts))
    assert names[0] == "env.memory"
    assert set(names) <= {
        "env.memory", "env.__stack_pointer", "env.__memory_base", "env.__table_base",
    }  # fmt: skip


def test_it_has_no_data(built):
    assert 11 not in sections((built / call.LIBRARY).read_bytes())


def test_the_list_names_every_kernel_that_is_exported(built):
    names = json.loads((built / call.LIST).read_text(encoding="utf-8"))
    (exports,) = sections((built / call.LIBRARY).read_bytes())[7]
    assert "lib.engine.kernels.forward" in names
    for kernel in names.values():
        for symbol, result in kernel.values():
            assert symbol.encode() in exports
            assert result in call.RESULTS


def test_what_fails_is_said_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "MODULE", "lib.wasm.nothing")
    with pytest.raises(CourseError, match=r"compiled to WebAssembly: .*lib\.wasm\.nothing"):
        build.build(tmp_path)
