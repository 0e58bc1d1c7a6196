"""Functions for exercise 09: the right ones, and plausible wrong ones with their messages."""

import re

import numpy as np


def at(mechanism):
    return f"fails at {re.escape(mechanism)}"


EMPTY, SHAPE = "returns nothing yet", "should have shape"


def softmax(s):
    powers = np.exp(s - s.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


# --- norm ---


def rms_norm(X, gain, eps):
    return X / np.sqrt((X**2).mean(axis=1, keepdims=True) + eps) * gain


def norm(size=lambda X: np.mean(X**2, axis=1, keepdims=True),
         scale=lambda s, eps: 1 / np.sqrt(s + eps), move=lambda X: X,
         end=lambda Y, gain: Y * gain):  # fmt: skip
    """A family: how the size is taken, where eps is, what is subtracted, what the gain does."""
    return lambda X, gain, eps: end(move(X) * scale(size(X), eps), gain)


def norm_loops(X, gain, eps):
    out = []
    for row in X:
        total = 0.0
        for x in row:
            total += x * x
        root = (total / len(row) + eps) ** 0.5
        out.append([x / root * g for x, g in zip(row, gain, strict=True)])
    return out


def norm_einsum(X, gain, eps):
    return X * gain / np.sqrt(np.einsum("ij,ij->i", X, X) / X.shape[1] + eps)[:, None]


def norm_in_place(X, gain, eps):
    out = np.square(X)
    root = out.mean(1)
    root += eps
    np.sqrt(root, out=root)
    np.divide(X, root[:, None], out=out)
    out *= gain
    return out


def norm_float32(X, gain, eps):
    X = X.astype(np.float32)
    return X * gain.astype(np.float32) / np.sqrt(np.mean(X * X, -1)[:, None] + np.float32(eps))


def norm_linalg(X, gain, eps):
    return X / np.hypot(np.linalg.norm(X, axis=1, keepdims=True) / X.shape[1] ** 0.5,
                        np.sqrt(eps)) * gain  # fmt: skip


def norm_rows(X, gain, eps):
    return np.stack([row * gain * (row @ row / row.size + eps) ** -0.5 for row in X])


def norm_of_position(X, gain, eps):
    out = X.copy()
    out[0] = rms_norm(X[:1], gain, eps)[0]
    out[1:] = X[1:] / np.sqrt((X[0] ** 2).mean() + eps) * gain
    return out


# --- rotary positions ---


def rotate(X, first, base):
    n, _, d_head = X.shape
    angle = np.arange(first, first + n)[:, None] * base ** (-np.arange(0, d_head, 2) / d_head)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    out = np.empty_like(X)
    x, y = X[..., ::2], X[..., 1::2]
    out[..., ::2], out[..., 1::2] = x * cos - y * sin, x * sin + y * cos
    return out


def rotating(pairs="neighbours", sign=1, power=lambda k, d: -2 * k / d, place=lambda i, first:
             first + i, turn=None, base=lambda b: b, mixed=False, only=None):  # fmt: skip
    """A family with one fault: pairs, direction, exponent, position, base, or what is turned."""

    def f(X, first, b):
        n, _, d = X.shape
        k = np.arange(d // 2)
        angle = sign * place(np.arange(n), first)[:, None] * base(b) ** power(k, d)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        one, two = (slice(0, None, 2), slice(1, None, 2))
        if pairs == "halves":
            one, two = slice(0, d // 2), slice(d // 2, None)
        x, y = X[..., one], X[..., two]
        out = np.array(X, float)
        out[..., one] = x * cos - y * sin
        out[..., two] = (out[..., one] if mixed else x) * sin + y * cos
        if only is not None:
            out[:, only:] = X[:, only:]
        return out

    return f


def rotate_complex(X, first, base):
    n, H, d = X.shape
    z = X.reshape(n, H, -1, 2) @ np.array([1, 1j])
    turn = np.arange(first, first + n)[:, None] * base ** (-2 * np.arange(d // 2) / d)
    z = z * np.exp(1j * turn)[:, None]
    return np.stack([z.real, z.imag], -1).reshape(X.shape)


def rotate_loops(X, first, base):
    out = X.copy()
    n, H, d = X.shape
    for i in range(n):
        for h in range(H):
            for k in range(d // 2):
                a = (first + i) / base ** (2 * k / d)
                x, y = X[i, h, 2 * k], X[i, h, 2 * k + 1]
                out[i, h, 2 * k] = x * np.cos(a) - y * np.sin(a)
                out[i, h, 2 * k + 1] = x * np.sin(a) + y * np.cos(a)
    return out


def rotate_einsum(X, first, base):
    n, H, d = X.shape
    a = np.outer(np.arange(n) + first, base ** (-np.arange(d // 2) * 2 / d))
    turn = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])  # (2, 2, n, pairs)
    return np.einsum("abnk,nhkb->nhka", turn, X.reshape(n, H, -1, 2)).reshape(n, H, d)


def rotate_swapped(X, first, base):
    n, d = len(X), X.shape[2]
    a = np.outer(np.arange(n) + first, base ** (-np.arange(d // 2) * 2 / d))
    a = a.repeat(2, 1)[:, None]
    other = np.stack([-X[..., 1::2], X[..., ::2]], -1).reshape(X.shape)
    return X * np.cos(a) + other * np.sin(a)


def rotate_in_place(X, first, base):
    out = X.copy()
    for i, head in enumerate(out):
        a = (first + i) * base ** (-np.arange(0, X.shape[2], 2) / X.shape[2])
        x = head[:, ::2].copy()
        head[:, ::2] = x * np.cos(a) - head[:, 1::2] * np.sin(a)
        head[:, 1::2] *= np.cos(a)
        head[:, 1::2] += x * np.sin(a)
    return out


def rotate_float32(X, first, base):
    return rotate(X, first, base).astype(np.float32)


# --- grouped heads ---


def attend_grouped(Q, K, V):
    (m, H, d_head), n = Q.shape, len(K)
    seen = np.tri(m, n, n - m, dtype=bool)
    out = np.empty(Q.shape)
    for h in range(H):
        kv = h // (H // K.shape[1])
        s = np.where(seen, Q[:, h] @ K[:, kv].T / np.sqrt(d_head), -np.inf)
        out[:, h] = softmax(s) @ V[:, kv]
    return out


def grouping(kv=lambda h, H, H_kv: h // (H // H_kv), k=lambda m, n: n - m,
             scale=lambda d, H: d**0.5, weigh=softmax, value=None, hide=-np.inf,
             end=lambda out: out):  # fmt: skip
    """A family with one fault: groups, mask, scale, softmax, or the order of the result."""

    def f(Q, K, V):
        (m, H, d), n = Q.shape, len(K)
        seen = np.tri(m, n, k(m, n), dtype=bool)
        out = np.empty(Q.shape)
        for h in range(H):
            g = kv(h, H, K.shape[1])
            s = np.where(seen, Q[:, h] @ K[:, g].T / scale(d, H), hide)
            out[:, h] = weigh(s) @ V[:, value(h, H, K.shape[1]) if value else g]
        return end(out)

    return f


def repeated(Q, K, V):
    group = Q.shape[1] // K.shape[1]
    K, V = np.repeat(K, group, 1), np.repeat(V, group, 1)
    s = np.einsum("mhd,nhd->hmn", Q, K) / np.sqrt(Q.shape[2])
    s = np.where(np.tri(len(Q), len(K), len(K) - len(Q), dtype=bool), s, -np.inf)
    return np.einsum("hmn,nhd->mhd", softmax(s), V)


def in_groups(Q, K, V):
    m, H, d = Q.shape
    n, H_kv, _ = K.shape
    Q = Q.reshape(m, H_kv, H // H_kv, d)
    s = np.einsum("mgrd,ngd->grmn", Q, K) / d**0.5
    s[..., ~np.tri(m, n, n - m, dtype=bool)] = -np.inf
    return np.einsum("grmn,ngd->mgrd", softmax(s), V).reshape(m, H, d)


def by_loops(Q, K, V):
    m, H, d = Q.shape
    n = len(K)
    out = np.zeros(Q.shape)
    for i in range(m):
        end = n - m + i + 1
        for h in range(H):
            g = h * K.shape[1] // H
            p = softmax(np.array([Q[i, h] @ K[j, g] for j in range(end)]) / np.sqrt(d))
            for j in range(end):
                out[i, h] += p[j] * V[j, g]
    return out


def batched(Q, K, V):
    m, H, d = Q.shape
    group = H // K.shape[1]
    K = K.swapaxes(0, 1).repeat(group, 0)
    s = Q.swapaxes(0, 1) @ K.swapaxes(1, 2) / np.sqrt(d)
    s += np.triu(np.full((m, len(V)), -np.inf), len(V) - m + 1)
    return (softmax(s) @ V.swapaxes(0, 1).repeat(group, 0)).swapaxes(0, 1)


def online(Q, K, V):
    m, H, d = Q.shape
    group, n = H // K.shape[1], len(K)
    Q = Q.reshape(m, -1, group, d) / np.sqrt(d)
    out, top, total = np.zeros(Q.shape), np.full(Q.shape[:3], -np.inf), np.zeros(Q.shape[:3])
    for j in range(n):
        s = np.einsum("mgrd,gd->mgr", Q, K[j])
        s[: max(0, j - (n - m))] = -np.inf
        new = np.maximum(top, s)
        with np.errstate(invalid="ignore"):
            keep = np.where(top == -np.inf, 0, np.exp(top - new))
            p = np.where(s == -np.inf, 0, np.exp(s - new))
        total = total * keep + p
        out = out * keep[..., None] + p[..., None] * V[j][None, :, None]
        top = new
    return (out / total[..., None]).reshape(m, H, d)


def grouped_float32(Q, K, V):
    return attend_grouped(*(A.astype(np.float32) for A in (Q, K, V))).astype(np.float32)


def naive(s):
    powers = np.exp(s)
    return powers / powers.sum(-1, keepdims=True)


def largest_before_the_mask(Q, K, V):
    (m, H, d), n = Q.shape, len(K)
    out = np.empty(Q.shape)
    for h in range(H):
        g = h // (H // K.shape[1])
        s = Q[:, h] @ K[:, g].T / d**0.5
        p = np.exp(s - s.max(1, keepdims=True)) * np.tri(m, n, n - m)
        out[:, h] = p / p.sum(1, keepdims=True) @ V[:, g]
    return out


# --- FFN ---


def silu(x):
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


def swiglu(X, W_gate, W_up, W_down):
    return (silu(X @ W_gate) * (X @ W_up)) @ W_down


def gated(act=silu, put=lambda gate, up, act: act(gate) * up, down=lambda h, W: h @ W):
    """A family: the activation, how gate and up meet, what leads down."""
    return lambda X, W_gate, W_up, W_down: down(put(X @ W_gate, X @ W_up, act), W_down)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def swiglu_loops(X, W_gate, W_up, W_down):
    rows = []
    for x in X:
        hidden = []
        for j in range(W_gate.shape[1]):
            gate, up = x @ W_gate[:, j], x @ W_up[:, j]
            hidden.append(gate * up / (1 + np.exp(min(-gate, 700))))
        rows.append(np.array(hidden) @ W_down)
    return rows


def swiglu_einsum(X, W_gate, W_up, W_down):
    gate, up = (np.einsum("nd,df->nf", X, W) for W in (W_gate, W_up))
    return np.einsum("nf,nf,fd->nd", silu(gate), up, W_down)


def swiglu_tanh(X, W_gate, W_up, W_down):
    gate = X @ W_gate
    return (gate * (1 + np.tanh(gate / 2)) / 2 * (X @ W_up)) @ W_down


def swiglu_in_place(X, W_gate, W_up, W_down):
    hidden = X @ W_gate
    hidden *= sigmoid(hidden)
    hidden *= X @ W_up
    return np.dot(hidden, W_down)


def swiglu_blocked(X, W_gate, W_up, W_down):
    out = np.zeros((len(X), W_down.shape[1]))
    for k in range(0, W_gate.shape[1], 2):
        part = slice(k, k + 2)
        out += (silu(X @ W_gate[:, part]) * (X @ W_up[:, part])) @ W_down[part]
    return out


def swiglu_float32(X, W_gate, W_up, W_down):
    return swiglu(*(A.astype(np.float32) for A in (X, W_gate, W_up, W_down)))


def swiglu_together(X, W_gate, W_up, W_down):
    gate, up = np.split(X @ np.hstack([W_gate, W_up]), 2, axis=1)
    return (up * silu(gate)) @ W_down


# --- layer ---


def llama_layer(X, w, K_cache, V_cache, H, eps, base):
    n, first = len(X), len(K_cache)
    normed = rms_norm(X, w["attention_gain"], eps)
    Q = rotate((normed @ w["W_Q"]).reshape(n, H, -1), first, base)
    d_head = Q.shape[2]
    K = np.vstack([K_cache, rotate((normed @ w["W_K"]).reshape(n, -1, d_head), first, base)])
    V = np.vstack([V_cache, (normed @ w["W_V"]).reshape(n, -1, d_head)])
    X = X + attend_grouped(Q, K, V).reshape(n, -1) @ w["W_O"]
    normed = rms_norm(X, w["ffn_gain"], eps)
    return X + swiglu(normed, w["W_gate"], w["W_up"], w["W_down"]), K, V


def layering(norm=rms_norm, turn=rotate, turn_keys=None, turn_values=None, attend=attend_grouped,
             ffn=swiglu, first=len, residual=(1, 1), norm_2=None, reads="added", store="both",
             turn_again=False, gains=("attention_gain", "ffn_gain"), heads=None,
             merge=lambda out: out.reshape(len(out), -1)):  # fmt: skip
    """A family of layers with one fault."""
    cut = heads or (lambda Y, count: Y.reshape(len(Y), count, -1))

    def f(X, w, K_cache, V_cache, H, eps, base):
        begin = first(K_cache)
        normed = norm(X, w[gains[0]], eps)
        Q = turn(cut(normed @ w["W_Q"], H), begin, base)
        H_kv = K_cache.shape[1]
        K = (turn_keys or turn)(cut(normed @ w["W_K"], H_kv), begin, base)
        V = cut(normed @ w["W_V"], H_kv)
        if turn_values:
            V = turn_values(V, begin, base)
        K, V = np.concatenate([K_cache, K]), np.concatenate([V_cache, V])
        if turn_again:
            K = turn(np.concatenate([K_cache, cut(normed @ w["W_K"], H_kv)]), 0, base)
        seen = slice(None) if store == "both" else slice(begin, None)
        step = merge(attend(Q, K[seen], V[seen])) @ w["W_O"]
        middle = residual[0] * X + step
        read = {"added": middle, "X": X, "step": step}[reads]
        read = (norm_2 or norm)(read, w[gains[1]], eps)
        out = residual[1] * middle + ffn(read, w["W_gate"], w["W_up"], w["W_down"])
        return out, K, V

    return f


def layer_of_lists(*given):
    return [part.tolist() for part in llama_layer(*given)]


def layer_by_token(X, w, K, V, H, eps, base):
    out = []
    for x in X:
        y, K, V = llama_layer(x[None], w, K, V, H, eps, base)
        out.append(y[0])
    return np.array(out), K, V


def layer_filled(X, w, K_cache, V_cache, H, eps, base):
    n, first = len(X), len(K_cache)
    d_head = K_cache.shape[2]
    K = np.empty((first + n, *K_cache.shape[1:]))
    V = np.empty(K.shape)
    K[:first], V[:first] = K_cache, V_cache
    normed = norm_in_place(X, w["attention_gain"], eps)
    K[first:] = rotate_in_place((normed @ w["W_K"]).reshape(n, -1, d_head), first, base)
    V[first:] = (normed @ w["W_V"]).reshape(n, -1, d_head)
    Q = rotate_in_place((normed @ w["W_Q"]).reshape(n, H, d_head), first, base)
    out = X.copy()
    out += online(Q, K, V).reshape(n, -1) @ w["W_O"]
    out += swiglu_in_place(rms_norm(out, w["ffn_gain"], eps), w["W_gate"], w["W_up"], w["W_down"])
    return out, K, V


def layer_float32(X, w, K, V, *rest):
    w = {name: part.astype(np.float32) for name, part in w.items()}
    return llama_layer(*(A.astype(np.float32) for A in (X,)), w, K, V, *rest)


FULL = "fails at"


def in_place_layer(X, w, K_cache, V_cache, H, eps, base):
    out, K, V = llama_layer(X, w, K_cache, V_cache, H, eps, base)
    X[:] = out
    return X, K, V


# --- head ---


def logits(X, gain, embedding, eps):
    x = X[-1]
    return embedding @ (x / np.sqrt((x**2).mean() + eps) * gain)


def heading(row=lambda X: X[-1], norm=lambda x, g, e: x / np.sqrt((x**2).mean() + e) * g,
            head=lambda x, E: E @ x):  # fmt: skip
    """A family: which row, which norm, which head."""
    return lambda X, gain, embedding, eps: head(norm(row(X), gain, eps), embedding)


def of_the_mean(X):
    return X.mean(0)


# --- the next token ---


def top_p(p, share):
    order = np.argsort(-p, kind="stable")
    count = int(np.searchsorted(np.cumsum(p[order]), share * (1 - 1e-12))) + 1
    out = np.zeros(len(p))
    out[order[:count]] = p[order[:count]]
    return out / out.sum()


def keeping(order=lambda p: np.argsort(-p, kind="stable"), enough=None,
            end=lambda out: out / out.sum(), base=lambda p: p):  # fmt: skip
    """A family: the order, how many are kept, what is done with what is left."""
    enough = enough or (lambda sums, share: int(np.searchsorted(sums, share * (1 - 1e-12))) + 1)

    def f(p, share):
        places = order(p)
        chosen = places[: enough(np.cumsum(p[places]), share)]
        out = np.zeros(len(p))
        out[chosen] = base(p)[chosen]
        return end(out)

    return f


def top_p_loop(p, share):
    out, total = [0.0] * len(p), 0.0
    for token in sorted(range(len(p)), key=lambda t: -p[t]):
        if total >= share * (1 - 1e-12):
            break
        out[token] = p[token]
        total += p[token]
    return [x / total for x in out]


def top_p_before(p, share):
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    out = p.copy()
    out[order[before >= share * (1 - 1e-12)]] = 0
    return out / out.sum()


def top_p_reversed(p, share):
    order = np.argsort(p[::-1], kind="stable")[::-1]
    order = len(p) - 1 - order
    found = np.cumsum(p[order]) >= share - 1e-12
    count = int(found.argmax()) + 1
    out = np.where(np.isin(np.arange(len(p)), order[:count]), p, 0)
    return out / out.sum()


def top_p_taking(p, share):
    left, out = p.copy(), np.zeros_like(p)
    while out.sum() < share - 1e-12:
        k = left.argmax()
        out[k], left[k] = p[k], -1
    return out / out.sum()


def top_p_mask(p, share):
    rank = np.empty(len(p), int)
    order = np.lexsort((np.arange(len(p)), -p))
    rank[order] = np.arange(len(p))
    before = np.r_[0, np.cumsum(p[order])[:-1]]
    out = p * (before < share - 1e-12)[rank]
    return out / out.sum()


def min_p(p, ratio):
    out = np.where(p < ratio * p.max(), 0, p)
    return out / out.sum()


def at_least(line=lambda p, ratio: ratio * p.max(), keep=lambda p, line: p >= line,
             end=lambda out: out / out.sum(), fill=lambda p: p):  # fmt: skip
    """A family: the line, which side of it is kept, what is done with what is left."""
    return lambda p, ratio: end(np.where(keep(p, line(p, ratio)), fill(p), 0.0))


def min_p_loop(p, ratio):
    top = max(p)
    out = [x if x >= ratio * top else 0.0 for x in p]
    return [x / sum(out) for x in out]


def min_p_in_place(p, ratio):
    out = p.copy()
    out[out < ratio * out.max()] = 0
    out /= out.sum()
    return out


def min_p_product(p, ratio):
    out = p * (p >= ratio * p.max())
    return out / np.sum(out)


def min_p_logs(p, ratio):
    out = p / p.max()
    out = np.where(out >= ratio, out, 0)
    return out / out.sum()


def min_p_index(p, ratio):
    kept = np.flatnonzero(p >= p.max() * ratio)
    out = np.zeros(p.shape)
    out[kept] = p[kept] / p[kept].sum()
    return out


def min_p_float32(p, ratio):
    return min_p(p, ratio).astype(np.float32)


def sample(logits, temperature, share, ratio, seed):
    if temperature == 0:
        return int(np.argmax(logits))
    p = top_p(min_p(softmax(logits / temperature), ratio), share)
    u = np.random.default_rng(seed).random()
    return int(np.searchsorted(np.cumsum(p), u, side="right"))


def sampling(soft=lambda x, t: softmax(x / t), filters=lambda p, share, ratio: top_p(
             min_p(p, ratio), share), u=lambda seed: np.random.default_rng(seed).random(),
             draw=lambda p, u: int(np.searchsorted(np.cumsum(p), u, side="right")),
             greedy=np.argmax):  # fmt: skip
    """A family: softmax, filters, what a seed draws, how a token is drawn."""

    def f(logits, temperature, share, ratio, seed):
        if temperature == 0:
            return int(greedy(logits))
        return draw(filters(soft(logits, temperature), share, ratio), u(seed))

    return f


def sample_loop(logits, temperature, share, ratio, seed):
    if temperature == 0:
        return int(logits.argmax())
    p = top_p_loop(np.array(min_p_loop(softmax(logits / temperature), ratio)), share)
    u, total = np.random.default_rng(seed).random(), 0.0
    for token, q in enumerate(p):
        total += q
        if u < total:
            return token
    return len(p) - 1


def sample_sum(logits, temperature, share, ratio, seed):
    if not temperature:
        return np.argmax(logits)
    p = top_p_before(min_p_in_place(softmax(logits / temperature), ratio), share)
    return (np.cumsum(p) <= np.random.default_rng(seed).random()).sum()


def sample_first(logits, temperature, share, ratio, seed):
    if temperature == 0:
        return int(np.argmax(logits))
    p = top_p_taking(min_p_product(softmax(logits / temperature), ratio), share)
    return int(np.argmax(np.cumsum(p) > np.random.default_rng(seed).random()))


def sample_digitize(logits, temperature, share, ratio, seed):
    if temperature == 0:
        return int(np.argmax(logits))
    p = top_p_mask(min_p_index(softmax(logits / temperature), ratio), share)
    return np.digitize(np.random.default_rng(seed).random(), np.cumsum(p))


def sample_float(logits, temperature, share, ratio, seed):
    return float(sample(logits, temperature, share, ratio, seed))


def sample_choice(logits, temperature, share, ratio, seed):
    if temperature == 0:
        return int(np.argmax(logits))
    p = top_p(min_p(softmax(logits / temperature), ratio), share)
    return int(np.random.default_rng(seed).choice(len(p), p=p))  # draws one random() too


def first_then_filters(x, t):
    return softmax(x)


def unscaled(logits, temperature, share, ratio, seed):
    if temperature == 0:
        return int(np.argmax(logits))
    p = top_p(min_p(softmax(logits), ratio), share) ** (1 / temperature)
    u = np.random.default_rng(seed).random()
    return int(np.searchsorted(np.cumsum(p / p.sum()), u, side="right"))


RIGHT = {
    "09.rms_norm": rms_norm,
    "09.rotate": rotate,
    "09.attend_grouped": attend_grouped,
    "09.swiglu": swiglu,
    "09.layer": llama_layer,
    "09.logits": logits,
    "09.top_p": top_p,
    "09.min_p": min_p,
    "09.sample": sample,
}
ALSO_RIGHT = {
    "09.rms_norm": [norm_loops, norm_einsum, norm_in_place, norm_float32, norm_linalg, norm_rows],
    "09.rotate": [rotate_complex, rotate_loops, rotate_einsum, rotate_swapped, rotate_in_place,
                  rotate_float32],
    "09.attend_grouped": [repeated, in_groups, by_loops, batched, online, grouped_float32],
    "09.swiglu": [swiglu_loops, swiglu_einsum, swiglu_tanh, swiglu_in_place, swiglu_blocked,
                  swiglu_float32, swiglu_together],
    "09.layer": [layer_of_lists, layer_by_token, layer_filled, layer_float32,
                 layering(norm=norm_einsum, turn=rotate_complex, attend=in_groups),
                 layering(norm=norm_rows, turn=rotate_swapped, attend=batched,
                          ffn=swiglu_together)],
    "09.logits": [
        lambda X, gain, E, eps: (rms_norm(X, gain, eps) @ E.T)[-1],
        lambda X, gain, E, eps: norm_loops(X[-1:], gain, eps)[0] @ E.T,
        lambda X, gain, E, eps: [float(row @ norm_rows(X, gain, eps)[-1]) for row in E],
        lambda X, gain, E, eps: np.einsum("d,vd->v", norm_einsum(X, gain, eps)[-1], E),
        lambda X, gain, E, eps: (E * gain) @ X[-1] / np.sqrt(np.mean(X[-1] ** 2) + eps),
        lambda X, gain, E, eps: logits(X, gain, E, eps).astype(np.float32),
    ],
    "09.top_p": [top_p_loop, top_p_before, top_p_reversed, top_p_taking, top_p_mask, keeping()],
    "09.min_p": [min_p_loop, min_p_in_place, min_p_product, min_p_logs, min_p_index, at_least()],
    "09.sample": [sample_loop, sample_sum, sample_first, sample_digitize, sample_float,
                  sample_choice],
}  # fmt: skip


def row_of(k):
    return lambda X: X[k]


def filter_order(p, share, ratio):
    return min_p(top_p(p, share), ratio)


WRONG = {
    "09.rms_norm": [
        ("empty", lambda X, gain, eps: None, EMPTY),
        ("the sum of the squares", norm(size=lambda X: (X**2).sum(1, keepdims=True)),
         at("the size")),
        ("not squared", norm(size=lambda X: X.mean(1, keepdims=True)), at("the size")),
        ("sizes, not squares", norm(size=lambda X: np.abs(X).mean(1, keepdims=True)),
         at("the size")),
        ("no root", norm(scale=lambda s, eps: 1 / (s + eps)), at("the size")),
        ("multiplied", norm(scale=lambda s, eps: np.sqrt(s + eps)), at("the size")),
        ("n for d", norm(size=lambda X: (X**2).sum(1, keepdims=True) / len(X)), at("the size")),
        ("the largest", norm(size=lambda X: (X**2).max(1, keepdims=True)), at("the size")),
        ("d - 1", norm(size=lambda X: (X**2).sum(1, keepdims=True) / (X.shape[1] - 1)),
         at("the size")),
        ("layer norm", norm(size=lambda X: X.var(1, keepdims=True),
                            move=lambda X: X - X.mean(1, keepdims=True)), at("the size")),
        ("centred, its own size", norm(move=lambda X: X - X.mean(1, keepdims=True)),
         at("the size")),
        ("the variance", norm(size=lambda X: X.var(1, keepdims=True)), at("the size")),
        ("columns", norm(size=lambda X: (X**2).mean(0, keepdims=True)), at("the size")),
        ("all rows together", norm(size=lambda X: (X**2).mean()), at("each row for itself")),
        ("by the first row", norm_of_position, at("each row for itself")),
        ("no gain", norm(end=lambda Y, gain: Y), at("the gain")),
        ("1 + gain", norm(end=lambda Y, gain: Y * (1 + gain)), at("the size")),
        ("gain added", norm(end=lambda Y, gain: Y + gain), at("the size")),
        ("gain squared", norm(end=lambda Y, gain: Y * gain**2), at("the gain")),
        ("one gain for all", norm(end=lambda Y, gain: Y * gain[0]), at("the gain")),
        ("eps after the root", norm(scale=lambda s, eps: 1 / (np.sqrt(s) + eps)),
         at("the place of eps")),
        ("no eps", norm(scale=lambda s, eps: 1 / np.sqrt(s)), at("the place of eps")),
        ("eps squared", norm(scale=lambda s, eps: 1 / np.sqrt(s + eps**2)),
         at("the place of eps")),
        ("eps or the size", norm(scale=lambda s, eps: 1 / np.sqrt(np.maximum(s, eps))),
         at("the place of eps")),
        ("a fixed eps", norm(scale=lambda s, eps: 1 / np.sqrt(s + 1e-6)),
         at("the place of eps")),
    ],
    "09.rotate": [
        ("empty", lambda X, first, base: None, EMPTY),
        ("halves", rotating(pairs="halves"), at("the pairing")),
        ("the other way", rotating(sign=-1), at("the direction")),
        ("from position 1", rotating(place=lambda i, f: f + i + 1), at("position 0")),
        ("all at the first position", rotating(place=lambda i, f: f + 0 * i),
         at("the position of each token")),
        ("no offset", rotating(place=lambda i, f: i), at("the direction")),
        ("an offset of one", rotating(place=lambda i, f: i + min(f, 1)),
         at("the offset of a cached position")),
        ("offset times place", rotating(place=lambda i, f: i * (f + 1) + (i == 0) * f),
         "fails at"),
        ("the offset subtracted", rotating(place=lambda i, f: abs(i - f)), "fails at"),
        ("backwards", rotating(place=lambda i, f: f + i[::-1]), at("the position of each token")),
        ("one angle for all pairs", rotating(power=lambda k, d: 0.0 * k),
         at("the angle of each pair")),
        ("k / d", rotating(power=lambda k, d: -k / d), at("the angle of each pair")),
        ("2 k over d / 2", rotating(power=lambda k, d: -4 * k / d), at("the angle of each pair")),
        ("a growing angle", rotating(power=lambda k, d: 2 * k / d), at("the angle of each pair")),
        ("pairs in reverse", rotating(power=lambda k, d: -2 * k[::-1] / d),
         "fails at"),
        ("2 k over d - 2", rotating(power=lambda k, d: -2 * k / max(d - 2, 1)),
         at("the angle of each pair")),
        ("a fixed base", rotating(base=lambda b: 10000.0), "fails at"),
        ("the root of the base", rotating(base=np.sqrt), at("the angle of each pair")),
        ("what was turned already", rotating(mixed=True), at("the direction")),
        ("only head 0", rotating(only=1), at("the same for all heads")),
        ("cosine alone", lambda X, first, base: X * np.cos(first), at("the direction")),
        ("in degrees", rotating(place=lambda i, f: (f + i) * np.pi / 180), at("the direction")),
        ("the head as position", lambda X, first, base: rotate(
            X.swapaxes(0, 1), first, base).swapaxes(0, 1), at("the position of each token")),
        ("flat", lambda X, first, base: rotate(X, first, base).reshape(len(X), -1), SHAPE),
    ],
    "09.attend_grouped": [
        ("empty", lambda Q, K, V: None, EMPTY),
        ("heads in turn", grouping(kv=lambda h, H, g: h % g), at("the order of the groups")),
        ("always group 0", grouping(kv=lambda h, H, g: 0), at("the order of the groups")),
        ("groups backwards", grouping(kv=lambda h, H, g: g - 1 - h // (H // g)),
         at("the order of the groups")),
        ("the last group", grouping(kv=lambda h, H, g: g - 1), at("the order of the groups")),
        ("values in turn", grouping(value=lambda h, H, g: h % g), at("the order of the groups")),
        ("keys of group 0", grouping(kv=lambda h, H, g: 0, value=lambda h, H, g: h // (H // g)),
         at("the keys of each group")),
        ("as many heads as keys", grouping(kv=lambda h, H, g: h), "raises IndexError"),
        ("no mask", grouping(k=lambda m, n: n), at("the future")),
        ("without itself", grouping(k=lambda m, n: n - m - 1), at("the values")),
        ("the first positions", grouping(k=lambda m, n: 0), at("the last of the positions")),
        ("one too many", grouping(k=lambda m, n: n - m + 1), at("the future")),
        ("no scale", grouping(scale=lambda d, H: 1), at("the scale")),
        ("scaled by d_head", grouping(scale=lambda d, H: d), at("the scale")),
        ("scaled by all heads", grouping(scale=lambda d, H: (d * H) ** 0.5), at("the scale")),
        ("naive softmax", grouping(weigh=naive), at("large scores")),
        ("the largest of all", grouping(weigh=lambda s: np.exp(s - s.max()) / np.exp(
            s - s.max()).sum(-1, keepdims=True)), at("scores far apart")),
        ("the largest before the mask", largest_before_the_mask, at("scores far apart")),
        ("over the queries", grouping(weigh=lambda s: np.nan_to_num(np.exp(s)) / np.exp(s).sum(
            0, keepdims=True)), at("the future")),
        ("zero in place of the mask", grouping(hide=0.0), at("the future")),
        ("heads first", grouping(end=lambda out: out.swapaxes(0, 1)), "shape|places"),
        ("flat", grouping(end=lambda out: out.reshape(len(out), -1)), SHAPE),
        ("the mean of the heads", grouping(end=lambda out: out * 0 + out.mean(1, keepdims=True)),
         at("the order of the groups")),
    ],
    "09.swiglu": [
        ("empty", lambda X, W_gate, W_up, W_down: None, EMPTY),
        ("ReLU", gated(act=lambda x: np.maximum(x, 0)), at("what is gated")),
        ("GELU", gated(act=gelu), at("what is gated")),
        ("sigmoid alone", gated(act=sigmoid), at("the way up and down")),
        ("no activation", gated(act=lambda x: x), at("a closed gate")),
        ("gate and up exchanged", gated(put=lambda g, u, act: g * act(u)),
         at("the way up and down|a closed gate").replace(r"\|", "|")),
        ("both activated", gated(put=lambda g, u, act: act(g) * act(u)),
         at("the way up and down")),
        ("added", gated(put=lambda g, u, act: act(g) + u), at("the way up and down")),
        ("gate alone", gated(put=lambda g, u, act: act(g)), at("the way up and down")),
        ("up alone", gated(put=lambda g, u, act: u), at("the way up and down")),
        ("activated after the product", gated(put=lambda g, u, act: act(g * u)),
         at("what is gated")),
        ("down transposed", gated(down=lambda h, W: h @ W.T), "raises ValueError|fails at"),
        ("no way down", gated(down=lambda h, W: h), "fails at|shape"),
        ("SiLU with + in the exponent", gated(act=lambda x: x / (1 + np.exp(x))),
         at("the way up and down")),
        ("sigmoid by e^x", gated(act=lambda x: x * np.exp(x) / (1 + np.exp(x))),
         at("a gate far from zero")),
        ("clipped too early", gated(act=lambda x: x / (1 + np.exp(np.minimum(-x, 30)))
                                    if np.abs(x).max() > 500 else silu(np.clip(x, -25, 25))),
         at("the way up and down")),
        ("SiLU of 1.702 x", gated(act=lambda x: x * sigmoid(1.702 * x)), at("what is gated")),
        ("tanh", gated(act=np.tanh), at("the way up and down")),
        ("divided by two", gated(act=lambda x: silu(x) / 2), at("the way up and down")),
        ("residual inside", lambda X, *w: X + swiglu(X, *w), at("the way up and down")),
        ("normed over the rows", lambda X, *w: swiglu(X, *w) - swiglu(X, *w).mean(0),
         at("the way up and down")),
        ("a mean over rows", lambda X, *w: swiglu(X - X.mean(0) + X[:1], *w),
         at("each row for itself")),
    ],
    "09.layer": [
        ("empty", lambda *given: None, EMPTY),
        ("the vectors alone", lambda *given: llama_layer(*given)[0], "should return 3 things"),
        ("no residual", layering(residual=(0, 1)), at("the residuals")),
        ("no second residual", layering(residual=(1, 0)), at("the residuals")),
        ("X twice", layering(residual=(2, 1)), at("the residuals")),
        ("values turned", layering(turn_values=rotate), at("the values that are stored")),
        ("values of X", layering(norm=lambda X, g, e: X, norm_2=rms_norm),
         at("the values that are stored")),
        ("the FFN's gain", layering(gains=("ffn_gain", "ffn_gain")),
         at("the values that are stored")),
        ("heads cut across", layering(heads=lambda Y, count: Y.reshape(
            len(Y), -1, count).swapaxes(1, 2)), at("the values that are stored")),
        ("keys not turned", layering(turn_keys=lambda K, first, base: K),
         at("the keys that are stored")),
        ("halves", layering(turn=rotating(pairs="halves")), at("the keys that are stored")),
        ("a fixed base", layering(turn=lambda A, first, base: rotate(A, first, 10000.0)),
         at("the keys that are stored")),
        ("always from position 0", layering(first=lambda K: 0),
         at("the offset of a cached position")),
        ("one position too far", layering(first=lambda K: len(K) + (len(K) > 0)),
         at("the offset of a cached position")),
        ("the cache turned again", layering(turn_again=True),
         at("the offset of a cached position")),
        ("groups in turn", layering(attend=grouping(kv=lambda h, H, g: h % g)),
         at("values and their way out")),
        ("heads merged in the wrong order", layering(
            merge=lambda out: out.swapaxes(1, 2).reshape(len(out), -1)),
         at("values and their way out")),
        ("queries not turned", layering(turn=lambda A, f, b: A, turn_keys=rotate),
         at("queries and keys")),
        ("no mask", layering(attend=grouping(k=lambda m, n: n)), at("queries and keys")),
        ("no scale", layering(attend=grouping(scale=lambda d, H: 1)), at("queries and keys")),
        ("the cache not seen", layering(store="new"), at("the left context in the cache")),
        ("the first gain again", layering(gains=("attention_gain", "attention_gain")),
         at("the FFN and its norm")),
        ("no second norm", layering(norm_2=lambda X, g, e: X), at("the FFN and its norm")),
        ("ReLU", layering(ffn=gated(act=lambda x: np.maximum(x, 0))), at("the FFN and its norm")),
        ("both steps read X", layering(reads="X"), at("what the FFN reads")),
        ("the FFN reads the step alone", layering(reads="step"), at("the FFN and its norm")),
        ("a fixed eps", layering(norm=lambda X, g, e: rms_norm(X, g, 1e-5)),
         at("the place of eps")),
        ("eps after the root", layering(norm=norm(scale=lambda s, e: 1 / (np.sqrt(s) + e))),
         "fails at"),
        ("in place", in_place_layer, "changes its argument X in place"),
    ],
    "09.logits": [
        ("empty", lambda *given: None, EMPTY),
        ("all rows", lambda X, gain, E, eps: rms_norm(X, gain, eps) @ E.T, SHAPE),
        ("the first token", heading(row=row_of(0)), at("the last token")),
        ("the mean of the tokens", heading(row=of_the_mean), at("the last token")),
        ("the sum of the tokens", heading(row=lambda X: X.sum(0)), at("the last token")),
        ("no norm", heading(norm=lambda x, g, e: x * g), at("the norm")),
        ("layer norm", heading(norm=lambda x, g, e: (x - x.mean()) / np.sqrt(x.var() + e) * g),
         at("the mean stays")),
        ("the length", heading(norm=lambda x, g, e: x / np.sqrt((x**2).sum() + e) * g),
         at("the head is the embedding")),
        ("no gain", heading(norm=lambda x, g, e: x / np.sqrt((x**2).mean() + e)), at("the gain")),
        ("the gain after the head", lambda X, g, E, e: (E @ heading(
            norm=lambda x, g, e: x / np.sqrt((x**2).mean() + e), head=lambda x, E: x)(
            X, g, E, e)) * g[0], at("the gain")),
        ("1 + gain", heading(norm=lambda x, g, e: x / np.sqrt((x**2).mean() + e) * (1 + g)),
         at("the head is the embedding")),
        ("eps after the root", heading(norm=lambda x, g, e: x / (np.sqrt((x**2).mean()) + e) * g),
         at("the place of eps")),
        ("no eps", heading(norm=lambda x, g, e: x / np.sqrt((x**2).mean()) * g),
         at("the place of eps")),
        ("probabilities", heading(head=lambda x, E: softmax(E @ x)),
         at("the head is the embedding")),
        ("the token", heading(head=lambda x, E: np.argmax(E @ x)), SHAPE),
        ("the largest alone", heading(head=lambda x, E: np.where(E @ x == (E @ x).max(), E @ x, 0)),
         at("the head is the embedding")),
        ("divided by the root of d", heading(head=lambda x, E: E @ x / np.sqrt(len(x))),
         at("the head is the embedding")),
        ("cosines", heading(head=lambda x, E: E @ x / np.linalg.norm(E, axis=1)),
         at("the head is the embedding")),
        ("distances", heading(head=lambda x, E: -((E - x) ** 2).sum(1)),
         at("the head is the embedding")),
        ("softmaxed logs", heading(head=lambda x, E: np.log(softmax(E @ x))),
         "off by"),
    ],
    "09.top_p": [
        ("empty", lambda p, share: None, EMPTY),
        ("the last one left out", keeping(enough=lambda s, share: int((s <= share).sum())),
         "fails at the most likely alone|fails at the token"),
        ("one at least, the last left out",
         keeping(enough=lambda s, share: max(1, int((s <= share).sum()))),
         at("the token that crosses the line")),
        ("one too many", keeping(enough=lambda s, share: int(np.searchsorted(s, share)) + 2),
         at("the most likely alone")),
        ("not sorted", keeping(order=lambda p: np.arange(len(p))), at("the order of likelihood")),
        ("the least likely first", keeping(order=lambda p: np.argsort(p, kind="stable")),
         at("the most likely alone")),
        ("not rescaled", keeping(end=lambda out: out), at("the most likely alone")),
        ("softmax again", keeping(end=lambda out: np.where(out > 0, np.exp(out), 0) / np.where(
            out > 0, np.exp(out), 0).sum()), at("the token that crosses the line")),
        ("even shares", keeping(base=lambda p: np.ones(len(p))),
         at("the token that crosses the line")),
        ("reached and one more",
         keeping(enough=lambda s, share: int(np.searchsorted(s, share, side="right")) + 1),
         at("what is reached exactly")),
        ("the last of equals", keeping(order=lambda p: np.argsort(p, kind="stable")[::-1]),
         at("equals|what is reached exactly").replace(r"\|", "|")),
        ("above the share", lambda p, share: at_least(line=lambda p, r: r)(p, share),
         "fails at"),
        ("of the largest", lambda p, share: min_p(p, share), "fails at"),
        ("sorted", lambda p, share: np.sort(top_p(p, share))[::-1], at("the order of likelihood")),
        ("only those kept", lambda p, share: top_p(p, share)[top_p(p, share) > 0], SHAPE),
        ("the tokens", lambda p, share: np.argsort(-p).astype(float), at("the most likely alone")),
        ("a count", lambda p, share: keeping(enough=lambda s, sh: round(sh * len(s)))(p, share),
         "fails at"),
        ("all", lambda p, share: p, at("the most likely alone")),
        ("the largest alone", lambda p, share: np.eye(len(p))[p.argmax()],
         at("the token that crosses the line")),
        ("none if too much", keeping(enough=lambda s, share: int((s <= share).sum()) + (
            s[0] <= share)), "fails at"),
        ("the last one in part", lambda p, share: (lambda o: (lambda c: np.put(
            c, o, np.diff(np.minimum(np.r_[0, np.cumsum(p[o])], share))) or c / c.sum())(
            np.zeros(len(p))))(np.argsort(-p, kind="stable")),
         at("the token that crosses the line")),
    ],
    "09.min_p": [
        ("empty", lambda p, ratio: None, EMPTY),
        ("above the ratio", at_least(line=lambda p, r: r), at("relative to the largest")),
        ("above, not at least", at_least(keep=lambda p, line: p > line), at("exactly the ratio")),
        ("below", at_least(keep=lambda p, line: p < line), at("relative to the largest")),
        ("not rescaled", at_least(end=lambda out: out), at("relative to the largest")),
        ("of the mean", at_least(line=lambda p, r: r * p.mean()), at("relative to the largest")),
        ("of the smallest", at_least(line=lambda p, r: r * p.min()),
         at("relative to the largest")),
        ("divided by the ratio", at_least(line=lambda p, r: p.max() / max(r, 1e-9)),
         at("relative to the largest")),
        ("the largest less the ratio", at_least(line=lambda p, r: p.max() - r),
         at("relative to the largest")),
        ("1 - ratio", at_least(line=lambda p, r: (1 - r) * p.max()), at("the sum|none goes")
         .replace(r"\|", "|")),
        ("of the first", at_least(line=lambda p, r: r * p[0]), at("relative to the largest")),
        ("even shares", at_least(fill=np.ones_like), at("relative to the largest")),
        ("by the largest", at_least(end=lambda out: out / out.max()),
         at("relative to the largest")),
        ("softmax again", at_least(end=lambda out: np.where(out > 0, np.exp(out), 0) / np.where(
            out > 0, np.exp(out), 0).sum()), at("relative to the largest")),
        ("top-p", lambda p, ratio: top_p(p, ratio), at("relative to the largest")),
        ("the ratio squared", at_least(line=lambda p, r: r**2 * p.max()),
         at("relative to the largest")),
        ("the largest only", lambda p, ratio: np.eye(len(p))[p.argmax()],
         at("relative to the largest")),
        ("all", lambda p, ratio: p, at("relative to the largest")),
        ("only those kept", lambda p, ratio: min_p(p, ratio)[min_p(p, ratio) > 0], SHAPE),
        ("sorted", lambda p, ratio: np.sort(min_p(p, ratio))[::-1], at("relative to the largest")),
        ("the rest to the largest", lambda p, r: np.where(
            p == p.max(), p + (1 - at_least(end=lambda o: o)(p, r).sum()) / (p == p.max()).sum(),
            at_least(end=lambda o: o)(p, r)), at("relative to the largest")),
    ],
    "09.sample": [
        ("empty", lambda *given: None, EMPTY),
        ("a list", lambda *given: [sample(*given)], SHAPE),
        ("divided by zero", lambda x, t, s, r, seed: int(np.searchsorted(np.cumsum(top_p(min_p(
            softmax(x / max(t, 1e-3)), r), s)), np.random.default_rng(seed).random() * 0 + 0.99999
            if t == 0 else np.random.default_rng(seed).random(), side="right")) if t else 0,
         at("temperature 0")),
        ("the least likely", sampling(greedy=np.argmin), at("temperature 0")),
        ("greedy always", lambda x, *rest: int(np.argmax(x)), at("the seed")),
        ("the old generator", sampling(u=lambda seed: np.random.RandomState(seed).rand()),
         at("the seed")),
        ("no seed", sampling(u=lambda seed: np.random.default_rng().random() * 0.01),
         at("the seed")),
        ("always the first seed", sampling(u=lambda seed: np.random.default_rng(0).random()),
         at("the seed")),
        ("the second number", sampling(u=lambda seed: np.random.default_rng(seed).random(2)[1]),
         at("the seed")),
        ("1 - u", sampling(u=lambda seed: 1 - np.random.default_rng(seed).random()),
         at("the seed")),
        ("the likeliest first", sampling(draw=lambda p, u: int(np.argsort(-p, kind="stable")[
            np.searchsorted(np.cumsum(np.sort(p)[::-1]), u, side="right")])), at("the seed")),
        ("evenly", sampling(draw=lambda p, u: int(u * len(p))), at("the seed")),
        ("multiplied", sampling(soft=lambda x, t: softmax(x * t)), at("the temperature")),
        ("no temperature", sampling(soft=first_then_filters), at("the temperature")),
        ("the root of the temperature", sampling(soft=lambda x, t: softmax(x / np.sqrt(t))),
         at("the temperature")),
        ("the temperature on probabilities", sampling(soft=lambda x, t: softmax(x) / t / (
            softmax(x) / t).sum()), at("the temperature")),
        ("no min-p", sampling(filters=lambda p, share, ratio: top_p(p, share)), at("min-p")),
        ("not rescaled", sampling(filters=lambda p, share, ratio: p * (
            top_p(min_p(p, ratio), share) > 0),
            draw=lambda p, u: min(int(np.searchsorted(np.cumsum(p), u, side="right")),
                                  len(p) - 1)), at("top-p")),
        ("no top-p", sampling(filters=lambda p, share, ratio: min_p(p, ratio)), at("top-p")),
        ("filters before the temperature", unscaled, at("temperature before the filters")),
        ("top-p before min-p", sampling(filters=filter_order), at("min-p before top-p")),
        ("naive softmax", sampling(soft=lambda x, t: naive(x / t)), at("large logits")
         + "|raises"),
    ],
}  # fmt: skip
