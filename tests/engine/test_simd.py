"""Vector values: what compiled code does is what the twin in Python says, on every road."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")
from llvmlite import binding, ir

from lib.engine import processor, simd_llvm

X86 = binding.get_default_triple().startswith("x86_64")
HOST = {name for name, has in binding.get_host_cpu_features().items() if has}
# A processor's name, the way it multiplies bytes, and what this machine needs to run it.
NAMED = [
    ("generic", "plain", set()),
    pytest.param("x86-64-v2", "plain", {"sse4.2"}, marks=pytest.mark.slow),
    ("x86-64-v3", "avx2", {"avx2", "fma", "f16c"}),
    ("x86-64-v4", "avx2", {"avx512bw", "avx512vl"}),
    ("icelake-server", "avx512vnni", {"avx512vnni", "avx512vbmi", "avx512bitalg"}),
    ("alderlake", "avxvnni", {"avxvnni"}),
]


def run(tmp_path, *command, name=None):
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    env.pop("NUMBA_CPU_NAME", None)
    if name:
        env["NUMBA_CPU_NAME"] = name
    return subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, timeout=240
    )


@pytest.mark.usefixtures("compiled")
def test_the_road_of_this_machine(tmp_path):
    done = run(tmp_path, "-m", "tests.engine.simd_agrees")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == processor.BYTE_DOT


@pytest.mark.usefixtures("compiled")
@pytest.mark.skipif(not X86, reason="names of x86 processors")
@pytest.mark.parametrize(("name", "road", "needs"), NAMED)
def test_the_roads_of_named_processors(tmp_path, name, road, needs):
    if not needs <= HOST:
        pytest.skip(f"this machine lacks {', '.join(sorted(needs - HOST))}")
    done = run(tmp_path, "-m", "tests.engine.simd_agrees", name=name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == road


COMPILE = """
import numpy as np
from numba import types
from lib.engine.simd import *
from lib.jit import vector_kernel

@vector_kernel
def dots(w, x, out):
    acc = dot_nibbles(no_dots(), low_nibbles(load_bytes(w, 0)), spread_four(x, 0))
    whole = dot_bytes(total_dots(acc), load_bytes(w, 64), spread_four(x, 4))
    store(out, 0, to_float(whole))

u, i, f = (types.Array(t, 1, "C") for t in (types.uint8, types.int8, types.float32))
dots.compile((u, i, f))
print(next(iter(dots.inspect_asm().values())))
"""


@pytest.mark.usefixtures("compiled")
@pytest.mark.skipif(not X86, reason="names of x86 processors")
@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("icelake-server", "vpdpbusd"),
        pytest.param("alderlake", "vpdpbusd", marks=pytest.mark.slow),
        pytest.param("x86-64-v3", "vpmaddubsw", marks=pytest.mark.slow),
    ],
)
def test_what_a_named_processor_is_given(tmp_path, name, instruction):
    """Compiled here, not run: also for processors that this machine is not."""
    done = run(tmp_path, "-c", COMPILE, name=name)
    assert done.returncode == 0, done.stderr
    assert instruction in done.stdout


def test_what_arm_is_given(monkeypatch):
    """ARM's dot product takes both sides signed: compiled for it, not run."""
    try:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        target = binding.Target.from_triple("aarch64-apple-darwin")
    except RuntimeError:
        pytest.skip("this LLVM has no ARM")
    monkeypatch.setattr(simd_llvm, "BYTE_DOT", "dotprod")
    module = ir.Module()
    kind = ir.FunctionType(
        simd_llvm.I32.llvm, [simd_llvm.I32.llvm, simd_llvm.BYTES.llvm, simd_llvm.BYTES.llvm]
    )
    function = ir.Function(module, kind, "dots")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(simd_llvm._emit_dot_bytes(builder, *function.args))
    machine = target.create_target_machine(cpu="apple-m1")
    module.triple = "aarch64-apple-darwin"
    assembly = machine.emit_assembly(binding.parse_assembly(str(module)))
    assert assembly.count("sdot") == 4
