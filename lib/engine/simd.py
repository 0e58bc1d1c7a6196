"""Vector values for Numba: 16 numbers that the processor adds or multiplies in one go.

Each function here is its own definition: a few lines of NumPy that run anywhere. The decorator
above it says what compiled code does in its place, as instructions of LLVM, the compiler beneath
Numba. Plain vector instructions exist for every processor. Where the processor has a better one
(a dot product of bytes, a product that adds, 16-bit floats), `HAS` says so and it is used.

Two dot products of bytes carry the quantised engine. Both take 64 bytes as 16 groups of four and
add the four products of a group to a lane: 64 multiply-adds. One instruction does this with
AVX-512 VNNI, AVX-VNNI or ARM's dotprod; AVX2 needs two to three for each half.
"""

import inspect
import operator
import os

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import lower_builtin, models, register_model, type_callable

LANES = 16

FLOAT, HALF, INT, BYTE, SHORT = ir.FloatType(), ir.HalfType(), *map(ir.IntType, (32, 8, 16))


class Vector(types.Type):
    """n values of one kind, in registers."""

    def __init__(self, name: str, element: ir.Type, n: int):
        super().__init__(name)
        self.llvm = ir.VectorType(element, n)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, vector.llvm)


F32 = Vector("f32x16", FLOAT, 16)
I32 = Vector("i32x16", INT, 16)
BYTES = Vector("i8x64", BYTE, 64)
ARRAY = object()  # stands for an array of any kind among an operation's parameters


# ------------------------------------------------------------------ what the processor can do

# Processors that go by a name in NUMBA_CPU_NAME, and what of interest they have.
_V3 = {"avx2", "fma", "f16c"}
_V4 = _V3 | {"avx512f", "avx512bw"}
_NAMED = {"x86-64-v3": _V3, "haswell": _V3, "x86-64-v4": _V4, "skylake-avx512": _V4}
_NAMED |= dict.fromkeys(("icelake-server", "sapphirerapids"), _V4 | {"avx512vnni"})
_NAMED |= {"alderlake": _V3 | {"avxvnni"}, "apple-m1": {"dotprod"}}


def _features() -> set[str]:
    """Return the features of the processor that Numba compiles for."""
    arm = {"arm"} if binding.get_default_triple().startswith(("aarch64", "arm64")) else set()
    if config.CPU_NAME not in (None, "", "host"):
        return _NAMED.get(config.CPU_NAME, set()) | arm  # unknown to us: plain vectors
    return {name for name, has in binding.get_host_cpu_features().items() if has} | arm


HAS = frozenset(_features())
FUSED = "fma" in HAS or "arm" in HAS  # x · y + z with one rounding
HALVES = "f16c" in HAS or "arm" in HAS  # float16 to float32 and back
# How the four products of a group are added up.
BYTE_DOT = next(
    (name for name in ("avx512vnni", "avxvnni", "dotprod", "avx2") if name in HAS), "plain"
)


# ------------------------------------------------------------------ the link to the compiler


def operation(result, parameters, emit):
    """Let compiled code use a function: `emit(builder, *values)` writes LLVM's instructions."""

    def attach(twin):
        def typer(*found):
            fits = len(found) == len(parameters) and all(
                isinstance(a, types.Array) if p is ARRAY else not isinstance(p, Vector) or a == p
                for p, a in zip(parameters, found, strict=False)
            )
            if fits:
                pairs = zip(parameters, found, strict=True)
                return signature(result, *(a if p is ARRAY else p for p, a in pairs))
            return None

        def lower(context, builder, sig, arguments):
            values = [
                _Pointer(context, builder, kind, value) if isinstance(kind, types.Array) else value
                for kind, value in zip(sig.args, arguments, strict=True)
            ]
            made = emit(builder, *values)
            return context.get_dummy_value() if result is types.none else made

        typer.__signature__ = inspect.signature(twin)
        type_callable(twin)(lambda context: typer)
        lower_builtin(twin, types.VarArg(types.Any))(lower)
        return twin

    return attach


class _Pointer:
    """An array as seen by `emit`: where its item `at` lies, as a pointer to some type."""

    def __init__(self, context, builder, kind, value):
        self.dtype = kind.dtype
        self.data = context.make_array(kind)(context, builder, value).data
        self.builder = builder

    def to(self, kind, at):
        return self.builder.bitcast(self.builder.gep(self.data, [at]), kind.as_pointer())


def _call(builder, name, result, *values):
    """Call an intrinsic of LLVM by its name."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


def _all(vector, value):
    """Return a constant vector of equal values."""
    return ir.Constant(vector, [value] * vector.count)


def _spread(builder, value, n):
    kind = ir.VectorType(value.type, n)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, INT(0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), _all(_ints(n), 0))


def _ints(n):
    return ir.VectorType(INT, n)


def _pick(builder, vector, indices):
    """Return the elements of a vector at some places, as a shorter vector."""
    mask = ir.Constant(_ints(len(indices)), list(indices))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _join(builder, parts):
    """Lay vectors end to end; their number is a power of two."""
    while len(parts) > 1:
        both = ir.Constant(_ints(2 * parts[0].type.count), list(range(2 * parts[0].type.count)))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [builder.shuffle_vector(a, b, both) for a, b in pairs]
    return parts[0]


def _in_parts(builder, n, function, *vectors):
    """Apply a function to n equal parts of vectors, and join what comes out."""
    sizes = [vector.type.count // n for vector in vectors]
    return _join(
        builder,
        [
            function(*(
                _pick(builder, vector, range(k * size, (k + 1) * size))
                for vector, size in zip(vectors, sizes, strict=True)
            ))
            for k in range(n)
        ],
    )  # fmt: skip


# ------------------------------------------------------------------ memory


def _emit_load(b, array, at):
    if array.dtype == types.float32:
        return b.load(array.to(F32.llvm, at), align=4)
    return _emit_load_half(b, array, at)


def _emit_store(b, array, at, x):
    if array.dtype != types.float32:
        x = _to_half(b, x, ir.VectorType(HALF, LANES))
    b.store(x, array.to(x.type, at), align=2)


def _to_half(b, x, kind):
    if not HALVES:  # LLVM would call a function that is nowhere, and the process would die
        raise NotImplementedError("this processor has no instruction that makes float16 numbers")
    return b.fptrunc(x, kind)


def _emit_load_half(b, array, at):
    halves = ir.VectorType(HALF, LANES)
    if HALVES:
        return b.fpext(b.load(array.to(halves, at), align=2), F32.llvm)
    # Exponent and fraction move into their places of float32, and the difference of the two
    # exponents' offsets, 127 - 15 = 112, is made up by a product.
    bits = b.zext(b.load(array.to(ir.VectorType(SHORT, LANES), at), align=2), I32.llvm)
    size = b.shl(b.and_(bits, _all(I32.llvm, 0x7FFF)), _all(I32.llvm, 13))
    size = b.fmul(b.bitcast(size, F32.llvm), _all(F32.llvm, 2.0**112))
    sign = b.shl(b.and_(bits, _all(I32.llvm, 0x8000)), _all(I32.llvm, 16))
    return b.bitcast(b.or_(b.bitcast(size, I32.llvm), sign), F32.llvm)


@operation(F32, (ARRAY, types.intp), _emit_load)
def load(array, at):
    """Return the 16 numbers of a float32 array from `at` on; uint16 holds the bits of float16."""
    found = array[at : at + LANES]
    return found.copy() if found.dtype == np.float32 else found.view("f2").astype(np.float32)


@operation(types.none, (ARRAY, types.intp, F32), _emit_store)
def store(array, at, x):
    """Write 16 numbers to an array from `at` on; into uint16 as the bits of float16."""
    array[at : at + LANES] = x if array.dtype == np.float32 else x.astype("f2").view(np.uint16)


@operation(F32, (ARRAY, types.intp), _emit_load_half)
def load_halves(array, at):
    """Return 16 finite float16 numbers that lie in an array of bytes."""
    return array[at : at + 2 * LANES].view("f2").astype(np.float32)


@operation(F32, (ARRAY, types.intp), lambda b, a, at: b.load(a.to(F32.llvm, at), align=4))
def load_floats(array, at):
    """Return 16 float32 numbers that lie in an array of bytes."""
    return array[at : at + 4 * LANES].view(np.float32).copy()


@operation(BYTES, (ARRAY, types.intp), lambda b, a, at: b.load(a.to(BYTES.llvm, at), align=1))
def load_bytes(array, at):
    """Return 64 bytes."""
    return array[at : at + 64].view(np.uint8).copy()


def _emit_spread_four(b, array, at):
    return b.bitcast(_spread(b, b.load(array.to(INT, at), align=1), LANES), BYTES.llvm)


@operation(BYTES, (ARRAY, types.intp), _emit_spread_four)
def spread_four(array, at):
    """Return the 4 bytes from `at` on, 16 times."""
    return np.tile(array[at : at + 4].view(np.uint8), LANES)


def _emit_put(b, array, at, x):
    if array.dtype != types.float32:
        x = _to_half(b, x, HALF)
    b.store(x, array.to(x.type, at), align=2)


@operation(types.none, (ARRAY, types.intp, types.float32), _emit_put)
def put(array, at, x):
    """Write one number to a float32 array; into uint16 as the bits of float16."""
    array[at] = x if array.dtype == np.float32 else np.float16(x).view(np.uint16)


@operation(types.float32, (ARRAY, types.intp), lambda b, a, at: b.load(a.to(FLOAT, at)))
def get(array, at):
    """Return one number of a float32 array; unlike array[at] it takes no `at` from the end."""
    return array[at]


def _emit_store_bytes(b, array, at, x):
    small = b.trunc(x, ir.VectorType(BYTE, LANES))
    b.store(small, array.to(small.type, at), align=1)


@operation(types.none, (ARRAY, types.intp, I32), _emit_store_bytes)
def store_bytes(array, at, x):
    """Write 16 whole numbers as bytes: the lowest 8 bits of each."""
    array[at : at + LANES] = x.astype(array.dtype)


# ------------------------------------------------------------------ arithmetic


@operation(F32, (types.float32,), lambda b, x: _spread(b, x, LANES))
def spread(x):
    """Return one number, 16 times."""
    return np.full(LANES, x, np.float32)


@operation(F32, (ARRAY, types.intp), lambda b, a, at: _spread(b, b.load(a.to(FLOAT, at)), LANES))
def spread_at(array, at):
    """Return one number of a float32 array, 16 times."""
    return np.full(LANES, array[at], np.float32)


@operation(F32, (), lambda b: _all(F32.llvm, 0.0))
def zeros():
    """Return 16 zeros."""
    return np.zeros(LANES, np.float32)


def _emit_fma(b, x, y, z):
    if FUSED:
        return _call(b, "llvm.fma.v16f32", F32.llvm, x, y, z)
    return b.fadd(b.fmul(x, y), z)


@operation(F32, (F32, F32, F32), _emit_fma)
def fma(x, y, z):
    """Return x · y + z, rounded once where the processor can."""
    if not FUSED:
        return x * y + z
    return (x.astype(np.longdouble) * y + z).astype(np.float32)


@operation(F32, (F32, F32), lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
def larger(x, y):
    """Return the larger of each pair; y where one is NaN."""
    return np.where(x > y, x, y)


@operation(F32, (I32,), lambda b, x: b.sitofp(x, F32.llvm))
def to_float(x):
    """Return whole numbers as float32."""
    return x.astype(np.float32)


# Added to a number below 2²² and taken away again, it leaves the nearest whole number.
_ROUNDER = 1.5 * 2**23


def _emit_round(b, x):
    return b.fsub(b.fadd(x, _all(F32.llvm, _ROUNDER)), _all(F32.llvm, _ROUNDER))


@operation(F32, (F32,), _emit_round)
def nearest(x):
    """Return the nearest whole numbers, even ones at a half; for sizes below 2²²."""
    return (x + np.float32(_ROUNDER)) - np.float32(_ROUNDER)


@operation(I32, (F32,), lambda b, x: b.fptosi(x, I32.llvm))
def to_int(x):
    """Return the whole part of numbers below 2³¹ as int32."""
    return x.astype(np.int32)


def _emit_power(b, n):
    biased = b.add(b.fptosi(n, I32.llvm), _all(I32.llvm, 127))
    return b.bitcast(b.shl(biased, _all(I32.llvm, 23)), F32.llvm)


@operation(F32, (F32,), _emit_power)
def power_of_two(n):
    """Return 2ⁿ for whole n of -126 to 127, by writing n into the exponent's bits."""
    return ((n.astype(np.int32) + 127) << 23).view(np.float32)


def _emit_keep(b, x, n, other):
    lanes = ir.Constant(I32.llvm, list(range(LANES)))
    inside = b.icmp_signed("<", lanes, _spread(b, b.trunc(n, INT), LANES))
    return b.select(inside, x, _spread(b, other, LANES))


@operation(F32, (F32, types.intp, types.float32), _emit_keep)
def keep(x, n, other):
    """Return the first n numbers, and another in place of the rest."""
    return np.where(np.arange(LANES) < n, x, np.float32(other))


def _halved(join):
    """Reduce 16 lanes to one number: 8 pairs, 4 pairs, 2 pairs, 1 pair."""

    def emit(b, x):
        while x.type.count > 1:
            half = x.type.count // 2
            x = join(b, _pick(b, x, range(half)), _pick(b, x, range(half, 2 * half)))
        return b.extract_element(x, INT(0))

    return emit


@operation(types.float32, (F32,), _halved(lambda b, x, y: b.fadd(x, y)))
def total(x):
    """Return the sum of the 16 numbers, added by halves."""
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    return x[0]


@operation(
    types.float32,
    (F32,),
    _halved(lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y)),
)
def largest(x):
    """Return the largest of the 16 numbers."""
    while len(x) > 1:
        x = larger(x[: len(x) // 2], x[len(x) // 2 :])
    return x[0]


def _emit_largest_size(b, x, y):
    # Without its sign a float32 number orders as its bits do; NaN stands above infinity.
    size = lambda x: b.and_(b.bitcast(x, I32.llvm), _all(I32.llvm, 0x7FFFFFFF))  # noqa: E731
    most = lambda b, x, y: b.select(b.icmp_signed(">", x, y), x, y)  # noqa: E731
    return b.bitcast(_halved(most)(b, most(b, size(x), size(y))), FLOAT)


@operation(types.float32, (F32, F32), _emit_largest_size)
def largest_size(x, y):
    """Return the largest absolute value of 32 numbers; NaN if one is NaN."""
    sizes = np.abs(np.concatenate([x, y])).view(np.int32)
    return sizes.max().view(np.float32)


@operation(types.int32, (I32,), _halved(lambda b, x, y: b.add(x, y)))
def total_int(x):
    """Return the sum of the 16 whole numbers."""
    return x.sum(dtype=np.int32)


def _operator(symbol, vector, emit):
    @infer_global(symbol)
    class _(ConcreteTemplate):
        cases = (signature(vector, vector, vector),)

    lower_builtin(symbol, vector, vector)(lambda context, b, sig, pair: emit(b, *pair))


_operator(operator.add, F32, lambda b, x, y: b.fadd(x, y))
_operator(operator.sub, F32, lambda b, x, y: b.fsub(x, y))
_operator(operator.mul, F32, lambda b, x, y: b.fmul(x, y))
_operator(operator.truediv, F32, lambda b, x, y: b.fdiv(x, y))
_operator(operator.add, I32, lambda b, x, y: b.add(x, y))


# ------------------------------------------------------------------ dot products of bytes


@operation(BYTES, (BYTES,), lambda b, x: b.and_(x, _all(BYTES.llvm, 15)))
def low_nibbles(x):
    """Return the lower 4 bits of each byte."""
    return x & 15


@operation(BYTES, (BYTES,), lambda b, x: b.lshr(x, _all(BYTES.llvm, 4)))
def high_nibbles(x):
    """Return the upper 4 bits of each byte."""
    return x >> 4


# AVX2 adds pairs of products as 16-bit numbers. Eight steps of nibbles fit: 8 · 2 · 15 · 127 is
# 30,480. They become 32-bit numbers only at the end, in `total_dots`.
DOTS = Vector("i16x32", SHORT, 32) if BYTE_DOT == "avx2" else I32


def _pair_products(b, unsigned, signed):  # AVX2: 32 bytes each -> 16 sums of two products
    return _call(b, "llvm.x86.avx2.pmadd.ub.sw", ir.VectorType(SHORT, 16), unsigned, signed)


def _pair_sums(b, x):  # AVX2: 16 of 16 bits -> 8 sums of two, 32 bits
    return _call(b, "llvm.x86.avx2.pmadd.wd", _ints(8), x, _all(x.type, 1))


def _four_products(b, acc, unsigned, signed):
    """Add the products of groups of four to 32-bit lanes, with what the processor has."""
    if BYTE_DOT == "avx512vnni":
        return _vnni(b, "llvm.x86.avx512.vpdpbusd.512", 1, acc, unsigned, signed)
    if BYTE_DOT == "avxvnni":
        return _vnni(b, "llvm.x86.avx512.vpdpbusd.256", 2, acc, unsigned, signed)
    if BYTE_DOT == "dotprod":  # both signed: right for unsigned bytes below 128
        name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
        return _in_parts(b, 4, lambda *v: _call(b, name, _ints(4), *v), acc, unsigned, signed)
    if BYTE_DOT == "avx2":
        sums = lambda x, y: _pair_sums(b, _pair_products(b, x, y))  # noqa: E731
        return b.add(acc, _in_parts(b, 2, sums, unsigned, signed))
    wide = ir.VectorType(SHORT, 64)
    products = b.mul(b.zext(unsigned, wide), b.sext(signed, wide))
    for k in range(4):
        acc = b.add(acc, b.sext(_pick(b, products, range(k, 64, 4)), I32.llvm))
    return acc


def _vnni(b, name, parts, acc, *pair):
    if binding.llvm_version_info < (22,):  # which took bytes in disguise
        pair = [b.bitcast(x, I32.llvm) for x in pair]
    call = lambda *v: _call(b, name, v[0].type, *v)  # noqa: E731
    return call(acc, *pair) if parts == 1 else _in_parts(b, parts, call, acc, *pair)


def _emit_dot_nibbles(b, acc, w, x):
    if BYTE_DOT != "avx2":
        return _four_products(b, acc, w, x)
    return b.add(acc, _in_parts(b, 2, lambda w, x: _pair_products(b, w, x), w, x))


def _emit_total_dots(b, acc):
    if BYTE_DOT != "avx2":
        return acc
    return _in_parts(b, 2, lambda part: _pair_sums(b, part), acc)


@operation(DOTS, (), lambda b: _all(DOTS.llvm, 0))
def no_dots():
    """Return the empty sum that `dot_nibbles` adds to."""
    return np.zeros(LANES, np.int32)


@operation(DOTS, (DOTS, BYTES, BYTES), _emit_dot_nibbles)
def dot_nibbles(acc, w, x):
    """Add Σ w · x over groups of four, w of 0 to 15, x signed of at most 127: 8 times at most."""
    return acc + _groups_of_four(w.astype(np.int32) * x.view(np.int8))


@operation(I32, (DOTS,), _emit_total_dots)
def total_dots(acc):
    """Return the sums as 32-bit numbers."""
    return acc


def _emit_dot_bytes(b, acc, w, x):
    # The instructions want one side unsigned: |x|, and the sign of x moves over to w.
    negative = b.icmp_signed("<", x, _all(BYTES.llvm, 0))
    size = b.select(negative, b.sub(_all(BYTES.llvm, 0), x), x)
    if BYTE_DOT == "avx2":
        sign = lambda w, x: _call(b, "llvm.x86.avx2.psign.b", w.type, w, x)  # noqa: E731
        return _four_products(b, acc, size, _in_parts(b, 2, sign, w, x))
    signed = b.select(negative, b.sub(_all(BYTES.llvm, 0), w), w)
    return _four_products(b, acc, size, signed)


@operation(I32, (I32, BYTES, BYTES), _emit_dot_bytes)
def dot_bytes(acc, w, x):
    """Add Σ w · x over groups of four, both signed, -127 to 127."""
    return acc + _groups_of_four(w.view(np.int8).astype(np.int32) * x.view(np.int8))


def _emit_byte(b, x, j):
    up = b.sub(INT(24), b.mul(b.trunc(j, INT), INT(8)))
    words = b.shl(b.bitcast(x, I32.llvm), _spread(b, up, LANES))
    return b.ashr(words, _all(I32.llvm, 24))


@operation(I32, (BYTES, types.intp), _emit_byte)
def byte_of_four(x, j):
    """Return byte j of each group of four, signed."""
    return x.view(np.int8)[j::4].astype(np.int32)


@operation(I32, (), lambda b: _all(I32.llvm, 0))
def no_ints():
    """Return 16 whole zeros."""
    return np.zeros(LANES, np.int32)


def _groups_of_four(products):  # (64,) -> (16,)
    return products.reshape(LANES, 4).sum(1, dtype=np.int32)


# ------------------------------------------------------------------ threads


def _emit_atomic_add(b, array, at, x):
    return b.atomic_rmw("add", array.to(ir.IntType(64), at), x, "seq_cst")


@operation(types.int64, (ARRAY, types.intp, types.int64), _emit_atomic_add)
def atomic_add(array, at, x):
    """Add x to an item of an int64 array and return what was there, as one step for all threads."""
    found = array[at]
    array[at] += x
    return found


def _emit_atomic_load(b, array, at):
    return b.load_atomic(array.to(ir.IntType(64), at), "seq_cst", 8)


@operation(types.int64, (ARRAY, types.intp), _emit_atomic_load)
def atomic_load(array, at):
    """Return an item of an int64 array as other threads have last written it."""
    return array[at]


def _emit_pause(b):
    if "sse2" in HAS:
        _call(b, "llvm.x86.sse2.pause", ir.VoidType())


@operation(types.none, (), _emit_pause)
def pause():
    """Tell the processor that this thread is only waiting."""


def _emit_give_way(b):
    if os.name == "posix":
        _call(b, "sched_yield", INT)


@operation(types.none, (), _emit_give_way)
def give_way():
    """Let another program have this processor, where one waits for it; nothing on Windows."""
