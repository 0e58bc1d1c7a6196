"""The operations of `lib.engine.simd` as instructions of LLVM, the compiler beneath Numba.

Plain vector instructions exist for every processor. Where it has a better one (a dot product of
bytes, a product that adds, 16-bit floats), `lib.engine.processor` says so and that is used. A dot
product of bytes is one instruction with AVX-512 VNNI, AVX-VNNI or ARM's dotprod; AVX2 needs two
to three for each half.
"""

import inspect
import operator
import os

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model, type_callable

from lib.engine import simd
from lib.engine.processor import BYTE_DOT, FUSED, HALVES, HAS
from lib.engine.simd import LANES

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


def lower(definition, result, parameters, emit):
    """Let compiled code use an operation: `emit(builder, *values)` writes LLVM's instructions."""

    def typer(*found):
        fits = len(found) == len(parameters) and all(
            isinstance(a, types.Array) if p is ARRAY else not isinstance(p, Vector) or a == p
            for p, a in zip(parameters, found, strict=False)
        )
        if fits:
            pairs = zip(parameters, found, strict=True)
            return signature(result, *(a if p is ARRAY else p for p, a in pairs))
        return None

    def write(context, builder, sig, arguments):
        values = [
            _Pointer(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(sig.args, arguments, strict=True)
        ]
        made = emit(builder, *values)
        return context.get_dummy_value() if result is types.none else made

    typer.__signature__ = inspect.signature(definition)
    type_callable(definition)(lambda context: typer)
    lower_builtin(definition, types.VarArg(types.Any))(write)


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


lower(simd.load, F32, (ARRAY, types.intp), _emit_load)
lower(simd.store, types.none, (ARRAY, types.intp, F32), _emit_store)
lower(simd.load_halves, F32, (ARRAY, types.intp), _emit_load_half)
lower(
    simd.load_floats, F32, (ARRAY, types.intp), lambda b, a, at: b.load(a.to(F32.llvm, at), align=4)
)
lower(
    simd.load_bytes,
    BYTES,
    (ARRAY, types.intp),
    lambda b, a, at: b.load(a.to(BYTES.llvm, at), align=1),
)


def _emit_spread_four(b, array, at):
    return b.bitcast(_spread(b, b.load(array.to(INT, at), align=1), LANES), BYTES.llvm)


lower(simd.spread_four, BYTES, (ARRAY, types.intp), _emit_spread_four)


def _emit_put(b, array, at, x):
    if array.dtype != types.float32:
        x = _to_half(b, x, HALF)
    b.store(x, array.to(x.type, at), align=2)


lower(simd.put, types.none, (ARRAY, types.intp, types.float32), _emit_put)
lower(simd.get, types.float32, (ARRAY, types.intp), lambda b, a, at: b.load(a.to(FLOAT, at)))


def _emit_store_bytes(b, array, at, x):
    small = b.trunc(x, ir.VectorType(BYTE, LANES))
    b.store(small, array.to(small.type, at), align=1)


lower(simd.store_bytes, types.none, (ARRAY, types.intp, I32), _emit_store_bytes)
lower(simd.spread, F32, (types.float32,), lambda b, x: _spread(b, x, LANES))
lower(
    simd.spread_at,
    F32,
    (ARRAY, types.intp),
    lambda b, a, at: _spread(b, b.load(a.to(FLOAT, at)), LANES),
)
lower(simd.zeros, F32, (), lambda b: _all(F32.llvm, 0.0))


# ------------------------------------------------------------------ arithmetic


def _emit_fma(b, x, y, z):
    if FUSED:
        return _call(b, "llvm.fma.v16f32", F32.llvm, x, y, z)
    return b.fadd(b.fmul(x, y), z)


def _larger(b, x, y):
    return b.select(b.fcmp_ordered(">", x, y), x, y)


lower(simd.fma, F32, (F32, F32, F32), _emit_fma)
lower(simd.larger, F32, (F32, F32), _larger)
lower(simd.to_float, F32, (I32,), lambda b, x: b.sitofp(x, F32.llvm))


def _emit_round(b, x):
    return b.fsub(b.fadd(x, _all(F32.llvm, simd.ROUNDER)), _all(F32.llvm, simd.ROUNDER))


lower(simd.nearest, F32, (F32,), _emit_round)
lower(simd.to_int, I32, (F32,), lambda b, x: b.fptosi(x, I32.llvm))


def _emit_power(b, n):
    biased = b.add(b.fptosi(n, I32.llvm), _all(I32.llvm, 127))
    return b.bitcast(b.shl(biased, _all(I32.llvm, 23)), F32.llvm)


lower(simd.power_of_two, F32, (F32,), _emit_power)


def _emit_keep(b, x, n, other):
    lanes = ir.Constant(I32.llvm, list(range(LANES)))
    inside = b.icmp_signed("<", lanes, _spread(b, b.trunc(n, INT), LANES))
    return b.select(inside, x, _spread(b, other, LANES))


lower(simd.keep, F32, (F32, types.intp, types.float32), _emit_keep)


def _halved(join):
    """Reduce 16 lanes to one number: 8 pairs, 4 pairs, 2 pairs, 1 pair."""

    def emit(b, x):
        while x.type.count > 1:
            half = x.type.count // 2
            x = join(b, _pick(b, x, range(half)), _pick(b, x, range(half, 2 * half)))
        return b.extract_element(x, INT(0))

    return emit


lower(simd.total, types.float32, (F32,), _halved(lambda b, x, y: b.fadd(x, y)))
lower(simd.largest, types.float32, (F32,), _halved(_larger))


def _emit_largest_size(b, x, y):
    # Without its sign a float32 number orders as its bits do; NaN stands above infinity.
    size = lambda x: b.and_(b.bitcast(x, I32.llvm), _all(I32.llvm, 0x7FFFFFFF))  # noqa: E731
    most = lambda b, x, y: b.select(b.icmp_signed(">", x, y), x, y)  # noqa: E731
    return b.bitcast(_halved(most)(b, most(b, size(x), size(y))), FLOAT)


lower(simd.largest_size, types.float32, (F32, F32), _emit_largest_size)
lower(simd.total_int, types.int32, (I32,), _halved(lambda b, x, y: b.add(x, y)))


def _operator(symbol, vector, emit):
    class Template(ConcreteTemplate):
        cases = (signature(vector, vector, vector),)

    infer_global(symbol)(Template)  # pyright: ignore[reportOptionalCall]
    lower_builtin(symbol, vector, vector)(lambda context, b, sig, pair: emit(b, *pair))


_operator(operator.add, F32, lambda b, x, y: b.fadd(x, y))
_operator(operator.sub, F32, lambda b, x, y: b.fsub(x, y))
_operator(operator.mul, F32, lambda b, x, y: b.fmul(x, y))
_operator(operator.truediv, F32, lambda b, x, y: b.fdiv(x, y))
_operator(operator.add, I32, lambda b, x, y: b.add(x, y))


# ------------------------------------------------------------------ dot products of bytes


lower(simd.low_nibbles, BYTES, (BYTES,), lambda b, x: b.and_(x, _all(BYTES.llvm, 15)))
lower(simd.high_nibbles, BYTES, (BYTES,), lambda b, x: b.lshr(x, _all(BYTES.llvm, 4)))

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
    if BYTE_DOT == "simd128":
        return _in_parts(b, 4, lambda *v: _wasm_dot(b, *v), acc, unsigned, signed)
    wide = ir.VectorType(SHORT, 64)
    products = b.mul(b.zext(unsigned, wide), b.sext(signed, wide))
    for k in range(4):
        acc = b.add(acc, b.sext(_pick(b, products, range(k, 64, 4)), I32.llvm))
    return acc


def _wasm_dot(b, acc, unsigned, signed):
    """WebAssembly: 16 bytes each -> 4 sums, by products of 16-bit numbers that add in pairs."""
    wide = ir.VectorType(SHORT, 8)
    pairs = [
        # The name is that of this processor's own while its compiler runs; `lib.wasm.build` puts
        # in the instruction's, i32x4.dot_i16x8_s.
        _call(
            b,
            "wasm_dot",
            _ints(4),
            b.zext(_pick(b, unsigned, k), wide),
            b.sext(_pick(b, signed, k), wide),
        )
        for k in (range(8), range(8, 16))
    ]
    even, odd = (
        b.shuffle_vector(*pairs, ir.Constant(_ints(4), list(range(first, 8, 2))))
        for first in (0, 1)
    )
    return b.add(acc, b.add(even, odd))


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


lower(simd.no_dots, DOTS, (), lambda b: _all(DOTS.llvm, 0))
lower(simd.dot_nibbles, DOTS, (DOTS, BYTES, BYTES), _emit_dot_nibbles)
lower(simd.total_dots, I32, (DOTS,), _emit_total_dots)


def _emit_dot_bytes(b, acc, w, x):
    # The instructions want one side unsigned: |x|, and the sign of x moves over to w.
    negative = b.icmp_signed("<", x, _all(BYTES.llvm, 0))
    size = b.select(negative, b.sub(_all(BYTES.llvm, 0), x), x)
    if BYTE_DOT == "avx2":
        sign = lambda w, x: _call(b, "llvm.x86.avx2.psign.b", w.type, w, x)  # noqa: E731
        return _four_products(b, acc, size, _in_parts(b, 2, sign, w, x))
    signed = b.select(negative, b.sub(_all(BYTES.llvm, 0), w), w)
    return _four_products(b, acc, size, signed)


lower(simd.dot_bytes, I32, (I32, BYTES, BYTES), _emit_dot_bytes)


def _emit_byte(b, x, j):
    up = b.sub(INT(24), b.mul(b.trunc(j, INT), INT(8)))
    words = b.shl(b.bitcast(x, I32.llvm), _spread(b, up, LANES))
    return b.ashr(words, _all(I32.llvm, 24))


lower(simd.byte_of_four, I32, (BYTES, types.intp), _emit_byte)
lower(simd.no_ints, I32, (), lambda b: _all(I32.llvm, 0))


# ------------------------------------------------------------------ threads


def _emit_atomic_add(b, array, at, x):
    return b.atomic_rmw("add", array.to(ir.IntType(64), at), x, "seq_cst")


lower(simd.atomic_add, types.int64, (ARRAY, types.intp, types.int64), _emit_atomic_add)


def _emit_atomic_load(b, array, at):
    return b.load_atomic(array.to(ir.IntType(64), at), "seq_cst", 8)


lower(simd.atomic_load, types.int64, (ARRAY, types.intp), _emit_atomic_load)


def _emit_pause(b):
    if "sse2" in HAS:
        _call(b, "llvm.x86.sse2.pause", ir.VoidType())


lower(simd.pause, types.none, (), _emit_pause)


def _emit_give_way(b):
    if os.name == "posix":
        _call(b, "sched_yield", INT)


lower(simd.give_way, types.none, (), _emit_give_way)
