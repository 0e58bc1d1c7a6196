"""Blocks of 4 and 8 bits: laid out anew, they hold the same numbers."""

import gguf
import numpy as np
import pytest

pytest.importorskip("numba")
from lib.engine import kernels, quant
from lib.engine.layout import MATRIX
from lib.errors import CourseError
from lib.jit import vector_kernel

ROWS, COLUMNS = 37, 96  # rows don't fill the last group of 16


def raw(kind, rng, rows=ROWS, columns=COLUMNS):
    """Return a random matrix in a GGUF type: its bytes, and the numbers that gguf reads there."""
    qtype = gguf.GGMLQuantizationType[kind]
    W = (rng.standard_normal((rows, columns)) * 3 + 0.5).astype(np.float32)
    data = gguf.quants.quantize(W, qtype).reshape(-1).view(np.uint8)
    numbers = gguf.quants.dequantize(data.reshape(rows, -1), qtype)
    return data, numbers.reshape(rows, columns)


def packed(source, kind, other="float32", rows=ROWS, columns=COLUMNS):
    k = quant.kind_of(kind, other)
    out = np.full(quant.layout(k, rows, columns), 0xAB, np.uint8)
    return quant.pack(source, kind, rows, columns, k, out)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_the_numbers_stay_the_same_bits(kind):
    data, numbers = raw(kind, np.random.default_rng(3))
    found = quant.unpack_rows(packed(data, kind), np.arange(ROWS))
    np.testing.assert_array_equal(found, numbers)
    order = [36, 0, 16, 15, 36]
    np.testing.assert_array_equal(quant.unpack_rows(packed(data, kind), order), numbers[order])


def test_floats_stay_and_any_number_of_columns_goes():
    W = np.random.default_rng(4).standard_normal((21, 7)).astype(np.float32)
    found = packed(W, "F32", rows=21, columns=7)
    np.testing.assert_array_equal(quant.unpack_rows(found, np.arange(21)), W)


def test_other_types_in_8_bits_if_asked():
    rng = np.random.default_rng(5)
    W = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    W[3, :32] = 0  # a block without a scale
    found = quant.unpack_rows(packed(W, "F16", "int8"), np.arange(ROWS))
    # Half a step of q, and the rounding of d to float16, each against a block's largest number.
    blocks = np.abs(W.reshape(ROWS, -1, 32)).max(2)
    bound = np.repeat(blocks * (0.5 / 127 + 2.0**-11), 32, axis=1)
    assert (np.abs(found - W) <= bound + 1e-7).all()
    expected = gguf.quants.quantize(W, gguf.GGMLQuantizationType.Q8_0)
    same = (quant.to_q8_0(W).reshape(ROWS, -1) == expected).mean()
    assert same > 0.99  # gguf rounds halves away from zero and divides in another order


def test_damaged_blocks_are_refused():
    rng = np.random.default_rng(6)
    data, _ = raw("Q4_1", rng)
    data[:2] = np.array([np.nan], np.float16).view(np.uint8)
    with pytest.raises(CourseError, match="scale of the weights should be finite"):
        packed(data, "Q4_1")
    data, _ = raw("Q4_0", rng)
    data[:2] = np.array([60000.0], np.float16).view(np.uint8)  # times -8 leaves float16
    with pytest.raises(CourseError, match="scale of the weights should be finite"):
        packed(data, "Q4_0")
    data, _ = raw("Q8_0", rng)
    data[2] = 0x80
    with pytest.raises(CourseError, match="-128, where -127 is the least"):
        packed(data, "Q8_0")
    with pytest.raises(CourseError, match="NaN or infinity"):
        packed(np.full((3, 4), np.inf, np.float32), "F32", rows=3, columns=4)


def test_other_has_to_be_known():
    with pytest.raises(CourseError, match="other should be float32 or int8; it is 'int4'"):
        quant.kind_of("Q6_K", "int4")


@vector_kernel
def quantise_all(rows, columns, tokens):
    for t in range(tokens):
        kernels.round_to_bytes(rows, t, columns)


def activations(X):
    tokens, width = X.shape
    blocks = tokens * width // 32
    floats = [np.zeros(blocks, np.float32) for _ in range(2)]
    rows = kernels.Activations(X.ravel(), np.zeros(X.size, np.int8), *floats, width)
    quantise_all(rows, width, tokens)
    return rows


def multiply(matrix, X, onto=False, before=0.0, kind=None):
    kind = matrix.kind if kind is None else kind
    record = kind, 0, matrix.groups, matrix.columns, matrix.data[0].nbytes, 4, 16, onto, 2
    where = np.array([record], MATRIX).view(np.recarray)
    width = 16 + 16 * matrix.groups
    out = np.full(len(X) * width, before, np.float32)
    arena, sync = matrix.data.reshape(-1), np.zeros(9, np.int64)
    kernels.multiply(arena, where[0], activations(X), len(X), out, width, sync, 3)
    assert (out.reshape(len(X), width)[:, :16] == before).all()  # the place before is another's
    return out.reshape(len(X), width)[:, 16 : 16 + matrix.rows]


def test_activations_are_rounded_to_the_nearest_of_255():
    X = (np.random.default_rng(7).standard_normal((3, COLUMNS)) * 5).astype(np.float32)
    X[1, 32:64] = 0
    rows = activations(X)
    blocks = X.reshape(3, -1, 32).astype(np.float64)
    scale = np.abs(blocks).max(2) / 127
    np.testing.assert_allclose(rows.scale.reshape(3, -1), scale, rtol=1e-6)
    q = rows.q.reshape(blocks.shape).astype(np.float64)
    # Half a step, and what float32 rounds in x · 127 / largest.
    assert (np.abs(q * scale[..., None] - blocks) <= scale[..., None] * (0.5 + 1e-4)).all()
    np.testing.assert_allclose(rows.sum.reshape(3, -1), q.sum(2) * scale, rtol=1e-5, atol=1e-6)


def test_a_block_of_next_to_nothing_counts_as_zeros():
    X = np.full((1, 64), 1e-39, np.float32)
    X[0, 32:] = 1e-29
    rows = activations(X)
    assert not rows.q[:32].any()
    assert (rows.q[32:] == 127).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_stays_so(bad):
    X = np.ones((1, 64), np.float32)
    X[0, 40] = bad
    with np.errstate(invalid="ignore"):  # where the twins run, NumPy warns
        rows = activations(X)
    assert np.isfinite(rows.scale[0])
    assert not np.isfinite(rows.scale[1])


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "F32"])
@pytest.mark.parametrize("tokens", [1, 3, 4, 19])
def test_products_against_float64(kind, tokens):
    rng = np.random.default_rng(8)
    if kind == "F32":
        source = W = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    else:
        source, W = raw(kind, rng)
    X = rng.standard_normal((tokens, COLUMNS)).astype(np.float32)
    x = X.astype(np.float64)
    if kind != "F32":  # the definition: W times the rounded vectors
        rows = activations(X)
        x = rows.q.reshape(tokens, -1, 32) * rows.scale.reshape(tokens, -1, 1).astype(np.float64)
        x = x.reshape(tokens, -1)
    expected = x @ W.astype(np.float64).T
    # Each result sums at most 96 terms in float32, each step rounding by 2⁻²⁴ of the sums' size.
    bound = (np.abs(x) @ np.abs(W.T) * 100 + np.abs(x).sum(1, keepdims=True) * 64) * 2.0**-24
    matrix = packed(source, kind)
    assert (np.abs(multiply(matrix, X) - expected) <= bound).all()
    np.testing.assert_allclose(multiply(matrix, X, True, 2.0), expected + 2, rtol=0, atol=1e-3)


@pytest.mark.parametrize("tokens", [3, 11])
def test_a_head_of_bytes_meets_float32(tokens):
    rng = np.random.default_rng(10)
    data, W = raw("Q8_0", rng)
    X = rng.standard_normal((tokens, COLUMNS)).astype(np.float32)
    found = multiply(packed(data, "Q8_0"), X, kind=kernels.BYTES_HEAD)
    bound = np.abs(X) @ np.abs(W.T) * 100 * 2.0**-24  # as above
    assert (np.abs(found - X.astype(np.float64) @ W.astype(np.float64).T) <= bound).all()


@pytest.mark.parametrize(
    ("form", "kind"), [("Q4_1", None), ("Q8_0", None), ("Q8_0", kernels.BYTES_HEAD)]
)
def test_a_token_is_the_same_bits_alone_and_among_others(form, kind):
    rng = np.random.default_rng(9)
    matrix = packed(raw(form, rng)[0], form)
    X = rng.standard_normal((19, COLUMNS)).astype(np.float32)
    together = multiply(matrix, X, kind=kind)
    for t in range(19):
        np.testing.assert_array_equal(multiply(matrix, X[t : t + 1], kind=kind)[0], together[t])


def test_exp():
    @vector_kernel
    def exps(x):
        for i in range(0, len(x), 16):
            kernels.store(x, i, kernels.exp_lanes(kernels.load(x, i)))

    x = np.linspace(-86.9, 87.9, 1 << 16).astype(np.float32)
    found = x.copy()
    exps(found)
    true = np.exp(x.astype(np.float64))
    assert np.abs(found / true - 1).max() < 2e-7
    edges = np.array([-np.inf, -200, 88, 200, np.inf, 0] + [1.0] * 10, np.float32)
    exps(edges)
    held = np.exp(np.array([-87, -87, 88, 88, 88, 0], np.float64))
    np.testing.assert_allclose(edges[:6], held, rtol=2e-7)
