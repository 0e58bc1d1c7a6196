"""Compile the kernels to WebAssembly: `python -m lib.wasm.build FOLDER`.

Numba's compiler holds a back end for WebAssembly. What it makes of a kernel for a plain processor
(vectors of 128 bits, as WebAssembly has) becomes, with the layout of wasm32, an object without
data and without imports but memory. `wasm-ld`, which the package ziglang brings, links all of them
into one library that Pyodide loads.
"""

import os
import sys
import tempfile

if __name__ == "__main__":  # before Numba is imported
    os.environ |= {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": tempfile.mkdtemp(),
    }

import ctypes
import json
import re
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

from lib import jit
from lib.errors import CourseError
from lib.wasm.call import LIBRARY, LIST

MODULE = "lib.wasm.build"  # run in a process of its own
TRIPLE = "wasm32-unknown-unknown"
LAYOUT = "e-m:e-p:32:32-p10:8:8-p20:8:8-i64:64-i128:128-n32:64-S128-ni:1:10:20"
FEATURES = "+simd128,+bulk-memory,+mutable-globals,+sign-ext,+nontrapping-fptoint"

# What is changed in LLVM's text of a kernel, in order.
CHANGES = [
    (r'target datalayout = ".*"', f'target datalayout = "{LAYOUT}"'),
    (r'target triple = ".*"', f'target triple = "{TRIPLE}"'),
    # What only CPython calls becomes internal, so that it is thrown away.
    (
        r"^define (?:linkonce_odr )?(?=(?:noalias |noundef |nonnull )*ptr @_ZN7cpython)",
        "define internal ",
    ),
    (r"^define (?:linkonce_odr )?(?=[\w{}*, \[\]]+ @cfunc\.)", "define internal "),
    (r"^define linkonce_odr ", "define internal "),
    (r"= common ", "= internal "),  # WebAssembly has no common symbols
    # Nobody counts the references of arguments in a browser.
    (
        r"(?s)^define internal (void @NRT_(?:incref|decref)\(ptr[^)]*\)[^{]*)\{.*?^\}",
        r"define internal \1{\n  ret void\n}",
    ),
    (r"declare double @sqrt\(double\)", "declare double @llvm.sqrt.f64(double)"),
    (r"@sqrt\(", "@llvm.sqrt.f64("),
    (r"declare i32 @sched_yield\(\)[^\n]*", "define internal i32 @sched_yield() { ret i32 0 }"),
    (r"@wasm_dot\(", "@llvm.wasm.dot("),  # see `lib.engine.simd_llvm`
    (r'"target-(cpu|features)"="[^"]*"', ""),
]  # fmt: skip


def build(folder):
    """Compile all kernels in a process of their own, and write the library and its list.

    Raises
    ------
    CourseError
        A part of the compiler is missing, or it has changed; the message ends with its last words.
    """
    line = [sys.executable, "-m", MODULE, str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    if done.returncode:
        last = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise CourseError(f"the kernels could not be compiled to WebAssembly: {last}")


def make(folder):
    """Do the work of `build` in this process, which must be fresh."""
    folder = Path(folder)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    objects, names = [], {}
    with tempfile.TemporaryDirectory() as room:
        for name, key, result, symbol, text in texts():
            file = Path(room, f"{symbol}.o")
            file.write_bytes(to_object(text, symbol))
            objects.append(str(file))
            names.setdefault(name, {})[key] = [symbol, result]
        folder.mkdir(parents=True, exist_ok=True)
        link(objects, folder / LIBRARY)
    (folder / LIST).write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")


def texts():
    """Yield each kernel: its name, the key of its types, its result, its symbol, LLVM's text."""
    for kernel, signatures in kernels().items():
        name = f"{kernel.__module__}.{kernel.__qualname__}"
        for k, signature in enumerate(signatures):
            overload = kernel.overloads[signature]
            symbol = f"{name.removeprefix('lib.')}_{k}".replace(".", "_")
            text = kernel.inspect_llvm(signature)
            # The function itself, among what it was inlined from and what CPython would call.
            own = re.escape(overload.fndesc.llvm_func_name)
            yield (
                name,
                _key(signature),
                _word(overload.signature.return_type),
                symbol,
                re.sub(rf"@{own}\b|@\"{own}\"", f"@{symbol}", text),
            )


def kernels():
    """Compile the kernels for the types that the course uses: {dispatcher: signatures}."""
    jit.TARGET = "wasm32"
    address = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value
    llvm.add_symbol("wasm_dot", address)  # while compiling for this processor; it is never run
    return _engine()


def _engine():
    from numba import typeof

    from lib.engine import batch, fast
    from lib.engine import kernels as engine
    from lib.engine.cache import GrowingCache
    from lib.engine.config import LlamaConfig
    from lib.engine.layout import LAYER, MATRIX, Weights

    config = LlamaConfig(1, 16, 1, 1, 16, 16, 1, 16, 10000.0, 1e-5)
    cache = GrowingCache(1, 1, 16, 16, "float32")
    cache.make_room(1)
    pages = cache.pages
    store = engine.Store(pages.keys.reshape(-1), pages.values.reshape(-1), 16, 16)
    weights = Weights(
        np.zeros(1, np.uint8),
        np.recarray(1, LAYER),
        np.recarray(1, MATRIX),
        np.zeros(1, np.float32),
        0,
    )
    sizes = engine.Sizes(1, 1, 1, 1, 1, 1.0)
    state = fast.new_state(config, 1, 1)
    sync, logits = np.zeros(1, np.int64), np.zeros(1, np.float32)
    work = batch.plan([batch.Run(0, np.zeros(1, np.int64), True)], [cache], sizes, [0])
    arguments = 0, 1, sync, weights, state, store, sizes, work, 0, 1, logits
    signature = tuple(map(typeof, arguments))
    engine.forward.compile(signature)
    return {engine.forward: engine.forward.signatures}


def to_object(text, symbol):
    """Return the object of one kernel, which exports its symbol: LLVM's text -> bytes."""
    for pattern, put in CHANGES:
        text = re.sub(pattern, put, text, flags=re.MULTILINE)
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu="generic", features=FEATURES, opt=3, reloc="pic"
    )
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(module, passes)
    return machine.emit_object(module)


def link(objects, out):
    """Link objects to a library that imports Pyodide's memory, has no data, and calls nothing."""
    line = [sys.executable, "-m", "ziglang", "wasm-ld", "-shared", "--experimental-pic"]
    exports = [f"--export={Path(file).stem}" for file in objects]
    subprocess.run([*line, "--no-entry", *exports, *objects, "-o", str(out)], check=True)


def _key(signature):
    return " ".join(map(_word, signature))


def _word(kind):
    """Return the word of `lib.wasm.call.key_of` for a type of Numba."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    if isinstance(kind, types.Array):
        return f"{as_dtype(kind.dtype).str[1:]}:{kind.ndim}{'C' if kind.layout == 'C' else 'A'}"
    if isinstance(kind, types.BaseTuple):
        return f"({_key(kind.types)})"
    return "none" if kind is types.none else as_dtype(kind).str[1:]


if __name__ == "__main__":
    make(sys.argv[1])
