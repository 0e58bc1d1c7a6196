"""The layer of `lib.engine.llama` at full speed: vectors, quantised weights, threads in step.

The steps and their order are those of `llama_layer`. What changes:

- Weights stay in blocks of 32 numbers of 4 or 8 bits, as in the file, since the time of a token
  is the time to read them. The vectors that meet them are rounded to 8 bits too, each block of 32
  with a scale of its own, so that one product of whole numbers serves the block.
- 16 rows of a matrix lie interleaved: a lane of a vector is a row, and no sum runs across lanes.
- Weights unpacked for one token serve three more, when there are many (prefill). When there are
  not, the time is spent on waiting for memory, which gives four streams faster than one.
- Softmax runs along the keys in blocks, with a running maximum (Milakov and Gimelshein 2018,
  section 3; Dao et al. 2022, section 3.1), so scores need no memory that grows with the text.
- Threads walk through the layers together. Each step is cut into pieces that they take in turn,
  and all meet before the next step, which reads what the last one wrote.

A number is computed by the same instructions in the same order however many tokens come at once
and however many threads there are: the results are the same bits.
"""

import math
from collections import namedtuple

import numpy as np

from lib.engine.layout import BYTES_HEAD
from lib.engine.quant import BYTES, FLOATS, NIBBLES, UNIT
from lib.engine.simd import (
    atomic_add,
    atomic_load,
    byte_of_four,
    dot_bytes,
    dot_nibbles,
    fma,
    get,
    give_way,
    high_nibbles,
    keep,
    larger,
    largest,
    largest_size,
    load,
    load_bytes,
    load_floats,
    load_halves,
    low_nibbles,
    nearest,
    no_dots,
    no_ints,
    pause,
    power_of_two,
    put,
    spread,
    spread_at,
    spread_four,
    store,
    store_bytes,
    to_float,
    to_int,
    total,
    total_dots,
    total_int,
    zeros,
)
from lib.jit import vector_kernel

# Bytes of 16 rows: of one column of floats, of a block of 32 columns of 4 or of 8 bits.
COLUMN, NIBBLE_BLOCK, BYTE_BLOCK = UNIT[FLOATS], UNIT[NIBBLES], UNIT[BYTES]

SMALLEST_TOP = np.float32(
    1e-30
)  # a block of numbers below it counts as zeros: 127 / top has to be finite
ROUNDS_BEFORE_GIVING_WAY = 5000  # of a thread that waits
KEYS_AT_ONCE = 64  # keys that a query meets before the running maximum is brought up to date
TOKENS_FOR_TILES, TOKENS_FOR_HEAD_TILES = 16, 8  # measured; the results are the same either way
SCRATCH_ROWS = 5  # rows of value_width + KEYS_AT_ONCE that a thread needs for four queries
# What is kept of each query, four numbers each: the largest score so far, the largest of these
# keys too, what earlier sums shrink by, and the sum of weights.
TOP, BEST, FADE, WEIGHT = 0, 16, 32, 48

# Counters that a layer takes: two for each of seven products, one for each of six other steps.
COUNTERS = 20

# Vectors of some tokens, `width` numbers apart: as floats, and in blocks of 32 as whole numbers
# `q` with a scale; `sum` is the sum of a block of q · scale.
Activations = namedtuple("Activations", "x q scale sum width")
# What a pass writes to: for each token X (d), q k v side by side (qkv), gate and up side by side
# (gates); the activations that enter the matrices; rotations (tokens, d_head / 2); scratch.
State = namedtuple("State", "X normed mixed hidden qkv gates cos sin scratch qkv_width gates_width")
# keys (L, H_kv, capacity / 16, d_head, 16), values (L, H_kv, capacity, value_width), flat.
Store = namedtuple("Store", "keys values capacity value_width")
# The tokens of a pass, which may be of several texts: the place of each in the store (places); the
# block tables of the texts, one behind the other (pages); what `attend` does at a time (pieces);
# the tokens whose logits are wanted.
Batch = namedtuple("Batch", "places pages pieces wanted")
# Of a piece: its first query, the last query of its text, what is added to a token's number for
# its position, and where the text's block table begins.
PIECE = 4
Sizes = namedtuple("Sizes", "d H H_kv d_head d_ff eps")


# ------------------------------------------------------------------ steps of one token


@vector_kernel
def exp_lanes(x):  # F32 -> F32
    """Return eˣ, wrong by at most 2e-7 of it, for x held to -87 … 88.

    x = n ln 2 + r, and eʳ by the polynomial of Cephes (Moshier, `expf`).
    """
    x = spread(0.0) - larger(spread(-88.0), spread(0.0) - larger(x, spread(-87.0)))
    n = nearest(x * spread(1.44269504))
    r = fma(n, spread(-0.693359375), x)
    r = fma(n, spread(2.12194440e-4), r)
    p = fma(spread(1.9875691500e-4), r, spread(1.3981999507e-3))
    p = fma(p, r, spread(8.3334519073e-3))
    p = fma(p, r, spread(4.1665795894e-2))
    p = fma(p, r, spread(1.6666665459e-1))
    p = fma(p, r, spread(5.0000001201e-1))
    return fma(p, r * r, r + spread(1.0)) * power_of_two(n)


@vector_kernel
def round_to_bytes(rows, t, columns):
    """Round the vector of token t to 8 bits, each block of 32 with its own scale."""
    for block in range((columns + 31) // 32):
        at = t * rows.width + 32 * block
        a, b = load(rows.x, at), load(rows.x, at + 16)
        top = largest_size(a, b)
        back = np.float32(127) / top if top > SMALLEST_TOP else np.float32(0)
        a = to_int(nearest(a * spread(back)))
        b = to_int(nearest(b * spread(back)))
        store_bytes(rows.q, at, a)
        store_bytes(rows.q, at + 16, b)
        rows.scale[at // 32] = top / np.float32(127)
        rows.sum[at // 32] = rows.scale[at // 32] * np.float32(total_int(a + b))


@vector_kernel
def norm(X, at, sizes, gains, gain, rows, t):  # X[at], gains from `gain` on -> rows[t]
    """RMSNorm of one vector, rounded to bytes."""
    squares = zeros()
    for i in range(at * rows.width, (at + 1) * rows.width, 16):
        squares = fma(load(X, i), load(X, i), squares)
    sum_of = total(squares)
    # Squares that leave float32 must not make zeros of a vector: ∞ − ∞ is NaN, and shows.
    r = spread(1.0 / math.sqrt(sum_of / sizes.d + sizes.eps) + (sum_of - sum_of))
    for i in range(0, rows.width, 16):
        x = load(X, at * rows.width + i) * r * load(gains, gain + i)
        store(rows.x, t * rows.width + i, x)
    round_to_bytes(rows, t, sizes.d)


@vector_kernel
def gate(state, d_ff, t):
    """SwiGLU's hidden vector of token t, SiLU(gate) · up, quantised."""
    half = state.gates_width // 2
    at, rows = t * state.gates_width, state.hidden
    for i in range(0, d_ff, 16):
        x = load(state.gates, at + i)
        x = x / (spread(1.0) + exp_lanes(spread(0.0) - x))
        store(rows.x, t * rows.width + i, x * load(state.gates, at + half + i))
    round_to_bytes(rows, t, d_ff)


@vector_kernel
def turn_and_keep(state, cache, sizes, layer, places, t):
    """Rotate queries and keys of token t to its position; keep its keys and values."""
    pairs, width = sizes.d_head // 2, sizes.d_head
    for h in range(sizes.H + sizes.H_kv):
        head = t * state.qkv_width + h * width
        if h >= sizes.H:  # keys begin at a multiple of 64
            head = t * state.qkv_width + _up(sizes.H * width, 64) + (h - sizes.H) * width
        for i in range(pairs):
            c, s = get(state.cos, t * pairs + i), get(state.sin, t * pairs + i)
            a, b = get(state.qkv, head + 2 * i), get(state.qkv, head + 2 * i + 1)
            put(state.qkv, head + 2 * i, a * c - b * s)
            put(state.qkv, head + 2 * i + 1, a * s + b * c)
    keys = t * state.qkv_width + _up(sizes.H * width, 64)
    values = keys + _up(sizes.H_kv * width, 64)
    for h in range(sizes.H_kv):
        place = (layer * sizes.H_kv + h) * cache.capacity + places[t]
        for i in range(width):
            lane = (place // 16 * width + i) * 16 + place % 16
            put(cache.keys, lane, get(state.qkv, keys + h * width + i))
            value = get(state.qkv, values + h * width + i)
            put(cache.values, place * cache.value_width + i, value)


@vector_kernel
def attend(state, cache, sizes, layer, batch, kv, piece, out):
    """Softmax(q Kᵀ / √d_head) V for four queries that share the keys and values of head kv.

    The queries of a key-value head are numbered token by token, head by head; these are r to
    r + 3, of one text, the last of all again where there are no more. In the scratch from `out`
    on lie, for each, the weighted sum of values, then the scores, then what `soften` keeps.
    """
    r, last = batch.pieces[PIECE * piece], batch.pieces[PIECE * piece + 1]
    n, table = batch.pieces[PIECE * piece + 2], batch.pieces[PIECE * piece + 3]
    width, scratch, many = cache.value_width, state.scratch, sizes.H // sizes.H_kv
    row = (layer * sizes.H_kv + kv) * cache.capacity
    p, facts = out + 4 * width, out + 4 * (width + KEYS_AT_ONCE)
    for i in range(out, p, 16):
        store(scratch, i, zeros())
    store(scratch, facts + TOP, spread(-np.inf))
    store(scratch, facts + WEIGHT, zeros())
    seen = n + min(r + 3, last) // many + 1  # keys that the last query meets
    for start in range(0, seen, KEYS_AT_ONCE):
        m = min(KEYS_AT_ONCE, seen - start)
        pages = table + start // 16
        scores(state, sizes, kv, r, last, cache.keys, row, batch.pages, pages, m, p)
        soften(scratch, p, m, n + 1 - start, r, last, many, facts)
        mix(scratch, p, cache.values, row, batch.pages, pages, width, m, out, facts + FADE)
    for i in range(4):
        t, h = min(r + i, last) // many, kv * many + min(r + i, last) % many
        at, weight = t * state.mixed.width + h * sizes.d_head, get(scratch, facts + WEIGHT + i)
        for c in range(sizes.d_head):
            put(state.mixed.x, at + c, get(scratch, out + i * width + c) / weight)


@vector_kernel
def query(state, sizes, kv, r):
    """Return where query r of key-value head kv lies."""
    many = sizes.H // sizes.H_kv
    return r // many * state.qkv_width + (kv * many + r % many) * sizes.d_head


@vector_kernel
def scores(state, sizes, kv, r, last, keys, row, pages, first, m, p):
    """q Kᵀ / √d_head of four queries for m keys, in pages from `first` on; a lane is a key.

    The keys of the head begin at `row`. The scores of query i go to p + i · KEYS_AT_ONCE.
    """
    q_0, q_1 = query(state, sizes, kv, r), query(state, sizes, kv, min(r + 1, last))
    q_2, q_3 = query(state, sizes, kv, min(r + 2, last)), query(state, sizes, kv, min(r + 3, last))
    scale, x, out = spread(1.0 / math.sqrt(sizes.d_head)), state.qkv, state.scratch
    for j in range(0, m, 16):
        a, b, c, d = zeros(), zeros(), zeros(), zeros()
        k = (row + 16 * pages[first + j // 16]) * sizes.d_head
        for i in range(sizes.d_head):
            key = load(keys, k + i * 16)
            a = fma(key, spread_at(x, q_0 + i), a)
            b = fma(key, spread_at(x, q_1 + i), b)
            c = fma(key, spread_at(x, q_2 + i), c)
            d = fma(key, spread_at(x, q_3 + i), d)
        store(out, p + j, a * scale)
        store(out, p + KEYS_AT_ONCE + j, b * scale)
        store(out, p + 2 * KEYS_AT_ONCE + j, c * scale)
        store(out, p + 3 * KEYS_AT_ONCE + j, d * scale)


@vector_kernel
def soften(scratch, p, m, first, r, last, many, facts):
    """Replace m scores of four queries by exp(score - largest so far), 0 past what one may see.

    A query of token t may see the first `first` + t of these keys. When a larger score comes, what
    was summed before shrinks by FADE = exp(largest before - largest now).
    """
    for i in range(4):
        own, most = first + min(r + i, last) // many, spread(-np.inf)
        for j in range(0, m, 16):
            most = larger(keep(load(scratch, p + i * KEYS_AT_ONCE + j), own - j, -np.inf), most)
        top = get(scratch, facts + TOP + i)
        put(scratch, facts + BEST + i, max(top, largest(most)))
    best = load(scratch, facts + BEST)
    store(scratch, facts + FADE, exp_lanes(load(scratch, facts + TOP) - best))
    store(scratch, facts + TOP, best)
    for i in range(4):
        own, summed = first + min(r + i, last) // many, zeros()
        best = spread_at(scratch, facts + TOP + i)
        for j in range(p + i * KEYS_AT_ONCE, p + i * KEYS_AT_ONCE + m, 16):
            power = keep(exp_lanes(load(scratch, j) - best), own - (j - p - i * KEYS_AT_ONCE), 0.0)
            store(scratch, j, power)
            summed = summed + power
        faded = get(scratch, facts + WEIGHT + i) * get(scratch, facts + FADE + i)
        put(scratch, facts + WEIGHT + i, faded + total(summed))


@vector_kernel
def mix(scratch, p, values, row, pages, first, width, m, out, fades):
    """Σ weight · value over m values in pages from `first` on, added to what fades."""
    for i in range(0, width, 16):
        a = load(scratch, out + i) * spread_at(scratch, fades)
        b = load(scratch, out + width + i) * spread_at(scratch, fades + 1)
        c = load(scratch, out + 2 * width + i) * spread_at(scratch, fades + 2)
        d = load(scratch, out + 3 * width + i) * spread_at(scratch, fades + 3)
        for block in range(0, m, 16):
            v = (row + 16 * pages[first + block // 16] - block) * width + i
            for j in range(block, min(block + 16, m)):
                value = load(values, v + j * width)
                a = fma(value, spread_at(scratch, p + j), a)
                b = fma(value, spread_at(scratch, p + KEYS_AT_ONCE + j), b)
                c = fma(value, spread_at(scratch, p + 2 * KEYS_AT_ONCE + j), c)
                d = fma(value, spread_at(scratch, p + 3 * KEYS_AT_ONCE + j), d)
        store(scratch, out + i, a)
        store(scratch, out + width + i, b)
        store(scratch, out + 2 * width + i, c)
        store(scratch, out + 3 * width + i, d)


@vector_kernel
def _up(n, step):  # -> the next multiple of step
    return (n + step - 1) // step * step


# ------------------------------------------------------------------ products: 16 rows of a matrix


@vector_kernel
def finish(out, to, step, a, b, c, d, onto):
    """Write four times 16 results, or add them to what is there."""
    if onto:
        a, b = a + load(out, to), b + load(out, to + step)
        c, d = c + load(out, to + 2 * step), d + load(out, to + 3 * step)
    store(out, to, a)
    store(out, to + step, b)
    store(out, to + 2 * step, c)
    store(out, to + 3 * step, d)


@vector_kernel
def nibbles_1(arena, at, gap, blocks, rows, t, out, to, next_to, onto):
    """One token, 4 bits, for four groups of rows `gap` bytes apart: Σ d · scale · Σ w q + m · sum.

    Four streams of weights come from memory faster than one.
    """
    q, s = t * rows.width, t * rows.width // 32
    acc_0, acc_1, acc_2, acc_3 = zeros(), zeros(), zeros(), zeros()
    for block in range(s, s + blocks):
        dots_0, dots_1, dots_2, dots_3 = no_dots(), no_dots(), no_dots(), no_dots()
        for v in range(4):
            x_low, x_high = spread_four(rows.q, q + 4 * v), spread_four(rows.q, q + 16 + 4 * v)
            w = at + COLUMN * (v + 1)
            dots_0 = dot_both(dots_0, load_bytes(arena, w), x_low, x_high)
            dots_1 = dot_both(dots_1, load_bytes(arena, w + gap), x_low, x_high)
            dots_2 = dot_both(dots_2, load_bytes(arena, w + 2 * gap), x_low, x_high)
            dots_3 = dot_both(dots_3, load_bytes(arena, w + 3 * gap), x_low, x_high)
        acc_0 = add_block(acc_0, dots_0, arena, at, rows, block)
        acc_1 = add_block(acc_1, dots_1, arena, at + gap, rows, block)
        acc_2 = add_block(acc_2, dots_2, arena, at + 2 * gap, rows, block)
        acc_3 = add_block(acc_3, dots_3, arena, at + 3 * gap, rows, block)
        at += NIBBLE_BLOCK
        q += 32
    finish(out, to, next_to, acc_0, acc_1, acc_2, acc_3, onto)


@vector_kernel
def dot_both(dots, w, x_low, x_high):
    """Add the products of both halves of 64 bytes."""
    return dot_nibbles(dot_nibbles(dots, low_nibbles(w), x_low), high_nibbles(w), x_high)


@vector_kernel
def add_block(acc, dots, arena, at, rows, block):
    """Add d · scale · Σ w q + m · sum of one block, whose d and m lie at `at`."""
    d, m = load_halves(arena, at), load_halves(arena, at + 32)
    acc = fma(to_float(total_dots(dots)), d * spread_at(rows.scale, block), acc)
    return fma(m, spread_at(rows.sum, block), acc)


@vector_kernel
def nibbles_4(arena, at, blocks, rows, t, out, to, width, onto, vectors):
    """The same for tokens t … t + 3: weights are unpacked once.

    `vectors` is 4. As an argument it keeps the compiler from unrolling the inner loop, whose sums
    then stay in registers.
    """
    q, s, step, next_s = t * rows.width, t * rows.width // 32, rows.width, rows.width // 32
    acc_0, acc_1, acc_2, acc_3 = zeros(), zeros(), zeros(), zeros()
    for block in range(s, s + blocks):
        dots_0, dots_1, dots_2, dots_3 = no_dots(), no_dots(), no_dots(), no_dots()
        for v in range(vectors):
            w = load_bytes(arena, at + COLUMN * (v + 1))
            low, high, i = low_nibbles(w), high_nibbles(w), q + 4 * v
            dots_0 = dot_nibbles(dots_0, low, spread_four(rows.q, i))
            dots_1 = dot_nibbles(dots_1, low, spread_four(rows.q, i + step))
            dots_2 = dot_nibbles(dots_2, low, spread_four(rows.q, i + 2 * step))
            dots_3 = dot_nibbles(dots_3, low, spread_four(rows.q, i + 3 * step))
            dots_0 = dot_nibbles(dots_0, high, spread_four(rows.q, i + 16))
            dots_1 = dot_nibbles(dots_1, high, spread_four(rows.q, i + 16 + step))
            dots_2 = dot_nibbles(dots_2, high, spread_four(rows.q, i + 16 + 2 * step))
            dots_3 = dot_nibbles(dots_3, high, spread_four(rows.q, i + 16 + 3 * step))
        acc_0 = add_block(acc_0, dots_0, arena, at, rows, block)
        acc_1 = add_block(acc_1, dots_1, arena, at, rows, block + next_s)
        acc_2 = add_block(acc_2, dots_2, arena, at, rows, block + 2 * next_s)
        acc_3 = add_block(acc_3, dots_3, arena, at, rows, block + 3 * next_s)
        at += NIBBLE_BLOCK
        q += 32
    finish(out, to, width, acc_0, acc_1, acc_2, acc_3, onto)


@vector_kernel
def bytes_1(arena, at, gap, blocks, rows, t, out, to, next_to, onto):
    """One token, 8 bits, for four groups of rows: Σ d · scale · Σ w q."""
    q, s = t * rows.width, t * rows.width // 32
    acc_0, acc_1, acc_2, acc_3 = zeros(), zeros(), zeros(), zeros()
    for block in range(s, s + blocks):
        dots_0, dots_1, dots_2, dots_3 = no_ints(), no_ints(), no_ints(), no_ints()
        for v in range(8):
            x, w = spread_four(rows.q, q + 4 * v), at + 32 + COLUMN * v
            dots_0 = dot_bytes(dots_0, load_bytes(arena, w), x)
            dots_1 = dot_bytes(dots_1, load_bytes(arena, w + gap), x)
            dots_2 = dot_bytes(dots_2, load_bytes(arena, w + 2 * gap), x)
            dots_3 = dot_bytes(dots_3, load_bytes(arena, w + 3 * gap), x)
        scale = spread_at(rows.scale, block)
        acc_0 = fma(to_float(dots_0), load_halves(arena, at) * scale, acc_0)
        acc_1 = fma(to_float(dots_1), load_halves(arena, at + gap) * scale, acc_1)
        acc_2 = fma(to_float(dots_2), load_halves(arena, at + 2 * gap) * scale, acc_2)
        acc_3 = fma(to_float(dots_3), load_halves(arena, at + 3 * gap) * scale, acc_3)
        at += BYTE_BLOCK
        q += 32
    finish(out, to, next_to, acc_0, acc_1, acc_2, acc_3, onto)


@vector_kernel
def bytes_head_1(arena, at, gap, blocks, rows, t, out, to, next_to, onto):
    """One token in float32, 8 bits, for four groups of rows: Σ d · Σ w x."""
    i, acc_0, acc_1, acc_2, acc_3 = t * rows.width, zeros(), zeros(), zeros(), zeros()
    for _ in range(blocks):
        sum_0, sum_1, sum_2, sum_3 = zeros(), zeros(), zeros(), zeros()
        for v in range(8):
            w = at + 32 + COLUMN * v
            w_0, w_1 = load_bytes(arena, w), load_bytes(arena, w + gap)
            w_2, w_3 = load_bytes(arena, w + 2 * gap), load_bytes(arena, w + 3 * gap)
            for j in range(4):
                x = spread_at(rows.x, i + 4 * v + j)
                sum_0 = fma(to_float(byte_of_four(w_0, j)), x, sum_0)
                sum_1 = fma(to_float(byte_of_four(w_1, j)), x, sum_1)
                sum_2 = fma(to_float(byte_of_four(w_2, j)), x, sum_2)
                sum_3 = fma(to_float(byte_of_four(w_3, j)), x, sum_3)
        acc_0 = fma(sum_0, load_halves(arena, at), acc_0)
        acc_1 = fma(sum_1, load_halves(arena, at + gap), acc_1)
        acc_2 = fma(sum_2, load_halves(arena, at + 2 * gap), acc_2)
        acc_3 = fma(sum_3, load_halves(arena, at + 3 * gap), acc_3)
        at += BYTE_BLOCK
        i += 32
    finish(out, to, next_to, acc_0, acc_1, acc_2, acc_3, onto)


@vector_kernel
def bytes_head_4(arena, at, blocks, rows, t, out, to, width, onto, steps):
    """The same for tokens t … t + 3: weights become floats once. `steps` is 8; see `nibbles_4`."""
    i, step = t * rows.width, rows.width
    acc_0, acc_1, acc_2, acc_3 = zeros(), zeros(), zeros(), zeros()
    for _ in range(blocks):
        sum_0, sum_1, sum_2, sum_3 = zeros(), zeros(), zeros(), zeros()
        for v in range(steps):
            w = load_bytes(arena, at + 32 + COLUMN * v)
            for j in range(4):
                weight, x = to_float(byte_of_four(w, j)), i + 4 * v + j
                sum_0 = fma(weight, spread_at(rows.x, x), sum_0)
                sum_1 = fma(weight, spread_at(rows.x, x + step), sum_1)
                sum_2 = fma(weight, spread_at(rows.x, x + 2 * step), sum_2)
                sum_3 = fma(weight, spread_at(rows.x, x + 3 * step), sum_3)
        scale = load_halves(arena, at)
        acc_0, acc_1 = fma(sum_0, scale, acc_0), fma(sum_1, scale, acc_1)
        acc_2, acc_3 = fma(sum_2, scale, acc_2), fma(sum_3, scale, acc_3)
        at += BYTE_BLOCK
        i += 32
    finish(out, to, width, acc_0, acc_1, acc_2, acc_3, onto)


@vector_kernel
def floats_1(arena, at, gap, columns, rows, t, out, to, next_to, onto):
    """One token, float32, for four groups of rows: Σ w · x."""
    acc_0, acc_1, acc_2, acc_3 = zeros(), zeros(), zeros(), zeros()
    for i in range(t * rows.width, t * rows.width + columns):
        x = spread_at(rows.x, i)
        acc_0 = fma(load_floats(arena, at), x, acc_0)
        acc_1 = fma(load_floats(arena, at + gap), x, acc_1)
        acc_2 = fma(load_floats(arena, at + 2 * gap), x, acc_2)
        acc_3 = fma(load_floats(arena, at + 3 * gap), x, acc_3)
        at += COLUMN
    finish(out, to, next_to, acc_0, acc_1, acc_2, acc_3, onto)


@vector_kernel
def multiply(arena, matrix, rows, tokens, out, width, sync, slot):
    """Multiply a matrix with the vectors of all tokens, together with the other threads.

    A thread takes the next piece by adding to a counter: with many tokens a group of rows at a
    time, which then stays in the nearest cache; for what is left four groups. Returns the first
    counter that is not used yet.
    """
    together = tokens // 4 * 4 if are_tiled(matrix.kind, tokens) else 0
    if together > 0:
        g = atomic_add(sync, slot, 1)
        while g < matrix.groups:
            tiles(arena, matrix, g, rows, together, out, width)
            g = atomic_add(sync, slot, 1)
    if together < tokens:
        start = atomic_add(sync, slot + 1, matrix.step)
        while start < matrix.groups // 4:
            for g in range(start, min(start + matrix.step, matrix.groups // 4)):
                four_groups(arena, matrix, g, rows, together, tokens, out, width)
            start = atomic_add(sync, slot + 1, matrix.step)
    return slot + 2


@vector_kernel
def are_tiled(kind, tokens):
    """Tell whether four tokens are taken at a time: a few come faster one by one."""
    if kind == BYTES_HEAD:
        return tokens >= TOKENS_FOR_HEAD_TILES
    return kind == NIBBLES and tokens >= TOKENS_FOR_TILES


@vector_kernel
def tiles(arena, matrix, g, rows, tokens, out, width):
    """Group g of a matrix times the vectors of all tokens, four at a time."""
    at, to = matrix.at + g * matrix.group_bytes, matrix.to + 16 * g
    blocks, vectors, onto = matrix.columns // 32, matrix.vectors, matrix.onto
    for t in range(0, tokens, 4):
        here = to + t * width
        if matrix.kind == NIBBLES:
            nibbles_4(arena, at, blocks, rows, t, out, here, width, onto, vectors)
        else:
            bytes_head_4(arena, at, blocks, rows, t, out, here, width, onto, 2 * vectors)


@vector_kernel
def four_groups(arena, matrix, g, rows, first, tokens, out, width):
    """Groups g, g + n, g + 2 n, g + 3 n of 4 n times the vectors of tokens from `first` on."""
    n = matrix.groups // 4
    at, gap = matrix.at + g * matrix.group_bytes, n * matrix.group_bytes
    to, next_to, columns, onto = matrix.to + 16 * g, 16 * n, matrix.columns, matrix.onto
    for t in range(first, tokens):
        here = to + t * width
        if matrix.kind == NIBBLES:
            nibbles_1(arena, at, gap, columns // 32, rows, t, out, here, next_to, onto)
        elif matrix.kind == BYTES:
            bytes_1(arena, at, gap, columns // 32, rows, t, out, here, next_to, onto)
        elif matrix.kind == BYTES_HEAD:
            bytes_head_1(arena, at, gap, columns // 32, rows, t, out, here, next_to, onto)
        else:
            floats_1(arena, at, gap, columns, rows, t, out, here, next_to, onto)


# ------------------------------------------------------------------ all layers, all threads


@vector_kernel
def meet(sync, arrivals):
    """Wait until `arrivals` threads have come here, those of earlier meetings included.

    A wait takes less than a microsecond, unless the one waited for has lost its processor to
    another program: then this thread holds up others too, and gives way.
    """
    atomic_add(sync, 0, 1)
    rounds = 0
    while atomic_load(sync, 0) < arrivals:
        pause()
        rounds += 1
        if rounds > ROUNDS_BEFORE_GIVING_WAY:
            give_way()
    return arrivals


@vector_kernel
def forward(thread, threads, sync, weights, state, cache, sizes, batch, first, last, logits):
    """Run layers first … last - 1 on the vectors in state.X, of the tokens of a batch.

    Then, for the tokens that are wanted, the norm and head behind the last layer: logits
    (wanted, vocabulary filled up to a multiple of 16). The steps are those of `llama_layer`; all
    threads take part in each, and meet where the next step reads what this one writes.
    """
    arena, gains, width = weights.arena, weights.gains, state.normed.width
    tokens, heads, slot, met = len(batch.places), len(batch.wanted), 1, 0
    for layer in range(first, last):
        w = weights.layers[layer]
        # X + attention(norm(X))
        slot = norm_all(state, sizes, gains, w.attention_gain, tokens, sync, slot)
        met = meet(sync, met + threads)
        slot = multiply(arena, w.W_Q, state.normed, tokens, state.qkv, state.qkv_width, sync, slot)
        slot = multiply(arena, w.W_K, state.normed, tokens, state.qkv, state.qkv_width, sync, slot)
        slot = multiply(arena, w.W_V, state.normed, tokens, state.qkv, state.qkv_width, sync, slot)
        met = meet(sync, met + threads)
        slot = turn_and_keep_all(state, cache, sizes, layer, batch.places, sync, slot)
        met = meet(sync, met + threads)
        slot = attend_all(state, cache, sizes, layer, batch, thread, sync, slot)
        met = meet(sync, met + threads)
        slot = round_all_to_bytes(state.mixed, sizes.H * sizes.d_head, tokens, sync, slot)
        met = meet(sync, met + threads)
        slot = multiply(arena, w.W_O, state.mixed, tokens, state.X, width, sync, slot)
        met = meet(sync, met + threads)
        # X + ffn(norm(X))
        slot = norm_all(state, sizes, gains, w.ffn_gain, tokens, sync, slot)
        met = meet(sync, met + threads)
        gates, gates_width = state.gates, state.gates_width
        slot = multiply(arena, w.W_gate, state.normed, tokens, gates, gates_width, sync, slot)
        slot = multiply(arena, w.W_up, state.normed, tokens, gates, gates_width, sync, slot)
        met = meet(sync, met + threads)
        slot = gate_all(state, sizes.d_ff, tokens, sync, slot)
        met = meet(sync, met + threads)
        slot = multiply(arena, w.W_down, state.hidden, tokens, state.X, width, sync, slot)
        met = meet(sync, met + threads)
    if heads > 0:
        slot = norm_wanted(state, batch.wanted, sizes, gains, weights.output_gain, sync, slot)
        met = meet(sync, met + threads)
        head, vocabulary = weights.head[0], len(logits) // heads
        multiply(arena, head, state.normed, heads, logits, vocabulary, sync, slot)


@vector_kernel
def norm_all(state, sizes, gains, gain, tokens, sync, slot):
    """RMSNorm of all vectors of X."""
    t = atomic_add(sync, slot, 1)
    while t < tokens:
        norm(state.X, t, sizes, gains, gain, state.normed, t)
        t = atomic_add(sync, slot, 1)
    return slot + 1


@vector_kernel
def norm_wanted(state, wanted, sizes, gains, gain, sync, slot):
    """RMSNorm of the vectors of X that meet the head, side by side."""
    k = atomic_add(sync, slot, 1)
    while k < len(wanted):
        norm(state.X, wanted[k], sizes, gains, gain, state.normed, k)
        k = atomic_add(sync, slot, 1)
    return slot + 1


@vector_kernel
def turn_and_keep_all(state, cache, sizes, layer, places, sync, slot):
    """Rotations, and keys and values to the cache, of all tokens."""
    t = atomic_add(sync, slot, 1)
    while t < len(places):
        turn_and_keep(state, cache, sizes, layer, places, t)
        t = atomic_add(sync, slot, 1)
    return slot + 1


@vector_kernel
def attend_all(state, cache, sizes, layer, batch, thread, sync, slot):
    """All queries, four at a time; those that meet the most keys first."""
    out = thread * SCRATCH_ROWS * (cache.value_width + KEYS_AT_ONCE)
    work = len(batch.pieces) // PIECE * sizes.H_kv
    k = atomic_add(sync, slot, 1)
    while k < work:
        attend(state, cache, sizes, layer, batch, k % sizes.H_kv, k // sizes.H_kv, out)
        k = atomic_add(sync, slot, 1)
    return slot + 1


@vector_kernel
def round_all_to_bytes(rows, columns, tokens, sync, slot):
    """What enters a matrix, rounded to 8 bits, of all tokens."""
    t = atomic_add(sync, slot, 1)
    while t < tokens:
        round_to_bytes(rows, t, columns)
        t = atomic_add(sync, slot, 1)
    return slot + 1


@vector_kernel
def gate_all(state, d_ff, tokens, sync, slot):
    """SwiGLU's hidden vectors of all tokens."""
    t = atomic_add(sync, slot, 1)
    while t < tokens:
        gate(state, d_ff, t)
        t = atomic_add(sync, slot, 1)
    return slot + 1
