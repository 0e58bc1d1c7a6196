"""Make the fixtures of this folder: what other libraries compute, for tests that only read it.

None of these libraries is a dependency of the course. To make everything anew:

    python -m venv peers
    peers/bin/pip install torch transformers accelerate gguf llama-cpp-python
    peers/bin/python tests/witnesses/make.py MODEL.gguf

The model is that of the course (`course doctor` names its file); bench/README.md tells how to build
llama.cpp. Each step runs in a process of its own, since torch and llama.cpp both bring threads.

    operations.npz  attention, norms and activations by torch, a stack of its encoder layers
    llama.npz       two random Llamas of `transformers`, head tied and not: weights, tokens, logits
    tokens.json     texts and their tokens, by llama.cpp
    greedy.json     how the model goes on with ten prompts, by `transformers` in float64
"""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
STEPS = ("operations", "llama", "tokens", "prompts", "greedy", "rounded")


def versions(*names):
    return {name: importlib.metadata.version(name) for name in names}


def save_arrays(name, arrays, *makers):
    made_by = np.array(json.dumps(versions("numpy", *makers)))
    np.savez_compressed(HERE / name, made_by=made_by, **arrays)


def save_json(name, entry):
    lines = []
    for key, value in entry.items():
        rows = [json.dumps(row) for row in value] if isinstance(value, list) else None
        text = json.dumps(value) if rows is None else "[\n" + ",\n".join(rows) + "\n]"
        lines.append(f'"{key}": {text}')
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (HERE / name).write_text(text, encoding="utf-8", newline="\n")


def random_arrays(rng, **shapes):
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


# ------------------------------------------------------------------ torch


def operations():
    import torch

    torch.set_default_dtype(torch.float64)
    cases = {}
    for step in (attention_cases, head_cases, elementwise_cases, norm_cases, encoder_cases):
        cases |= {f"{step.__name__}.{name}": array for name, array in step(torch).items()}
    save_arrays("operations.npz", cases, "torch")


def attention_cases(torch):
    """One query; all queries; the last 4 of 7; and so many that blocks are taken."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    found, rng = {}, np.random.default_rng(1)
    for name, m, n in [("one", 1, 7), ("all", 6, 6), ("last", 4, 7), ("many", 70, 80)]:
        given = random_arrays(rng, Q=(m, 5), K=(n, 5), V=(n, 3))
        if name == "last":
            given["Q"] *= 30  # weights near 0 and 1
        Q, K, V = (torch.tensor(x).double()[None, None] for x in given.values())
        if m == n:
            out = sdpa(Q, K, V, is_causal=True)
        elif name == "one":
            out = sdpa(Q, K, V)
        else:
            # Of torch's two ways to lay a mask on fewer queries than keys, the one that decoding
            # means: the last query sees all keys.
            out = sdpa(Q, K, V, attn_mask=torch.ones(m, n, dtype=bool).tril(n - m))
        found |= {f"{name}.{key}": array for key, array in given.items()}
        found[f"{name}.out"] = out[0, 0].numpy()
    logits = np.float32([-249.9, -424.1, -460.3, 378.1, -292.6])  # fault 1
    pair = {"logits": logits, "near": np.float32([60.5, 61.25, 59.0, 61.0])}
    found |= pair
    found |= {
        f"{k}.softmax": torch.softmax(torch.tensor(v).double(), 0).numpy() for k, v in pair.items()
    }
    return found


def head_cases(torch):
    """Grouped key-value heads with rotary positions, between projections."""
    n, d, H, H_kv, d_head, base = 9, 10, 6, 2, 4, 700.0
    q, kv = H * d_head, H_kv * d_head
    rng = np.random.default_rng(2)
    given = random_arrays(rng, X=(n, d), W_Q=(d, q), W_K=(d, kv), W_V=(d, kv), W_O=(q, d))
    X, W_Q, W_K, W_V, W_O = (torch.tensor(x).double() for x in given.values())
    angles = torch.outer(torch.arange(n), base ** (-torch.arange(0, d_head, 2) / d_head))

    def heads(x, turned=True):  # (n, heads · d_head) -> (1, heads, n, d_head)
        x = x.reshape(n, -1, d_head // 2, 2).contiguous()
        if turned:
            turn = torch.polar(torch.ones_like(angles), angles)[:, None]
            x = torch.view_as_real(torch.view_as_complex(x) * turn)
        return x.flatten(2).transpose(0, 1)[None]

    out = torch.nn.functional.scaled_dot_product_attention(
        heads(X @ W_Q), heads(X @ W_K), heads(X @ W_V, False), is_causal=True, enable_gqa=True
    )
    out = out[0].transpose(0, 1).reshape(n, q) @ W_O
    return given | {
        "sizes": np.array([H, H_kv, d_head]),
        "base": np.array(base),
        "out": out.numpy(),
    }


def elementwise_cases(torch):
    F = torch.nn.functional
    rng = np.random.default_rng(3)
    x = np.concatenate([[0, -0.0, 2.7, -2.7, 1e-30, -90, 90], 4 * rng.standard_normal(60)])
    x = x.astype(np.float32)
    X = torch.tensor(x).double()
    out = {"gelu": F.gelu(X), "gelu_tanh": F.gelu(X, approximate="tanh"), "silu": F.silu(X)}
    return {"x": x, "relu": np.maximum(x, 0)} | {name: y.numpy() for name, y in out.items()}


def norm_cases(torch):
    given = random_arrays(np.random.default_rng(4), X=(5, 7), gain=(7,), bias=(7,))
    given["X"] *= np.float32([[1e-4], [1], [30], [1e4], [1]])
    given["X"][4] += 100  # the mean is far from zero
    X, gain, bias = (torch.tensor(x).double() for x in given.values())
    F, eps = torch.nn.functional, 1e-3
    layer_norm = F.layer_norm(X, (7,), gain, bias, eps)
    rms_norm = F.rms_norm(X, (7,), gain, eps)
    return given | {"layer_norm": layer_norm.numpy(), "rms_norm": rms_norm.numpy()}


def encoder_cases(torch):
    """Three of torch's encoder layers, norm first, one head: a stack of the course."""
    L, n, d, d_ff = 3, 6, 5, 11
    rng = np.random.default_rng(5)
    shapes = dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), (L, d, d)) | {"W_1": (L, d, d_ff)}
    shapes |= {"b_1": (L, d_ff), "W_2": (L, d_ff, d), "b_2": (L, d)}
    shapes |= dict.fromkeys(("gain_1", "bias_1", "gain_2", "bias_2"), (L, d))
    given = random_arrays(rng, X=(n, d), **shapes)
    x, outs = torch.tensor(given["X"]).double()[None], []
    mask = torch.nn.Transformer.generate_square_subsequent_mask(n, dtype=torch.float64)
    for k in range(L):
        layer = encoder_layer(torch, d, d_ff, {name: given[name][k] for name in shapes})
        with torch.no_grad():
            x = layer(x, src_mask=mask, is_causal=True)
        outs.append(x[0].numpy())
    return given | {"out": np.array(outs)}


def encoder_layer(torch, d, d_ff, weights):
    layer = torch.nn.TransformerEncoderLayer(
        d, 1, d_ff, dropout=0.0, activation="gelu", norm_first=True, batch_first=True
    ).eval()
    w = {name: torch.tensor(x).double() for name, x in weights.items()}
    layer.load_state_dict(
        {
            "self_attn.in_proj_weight": torch.cat([w["W_Q"], w["W_K"], w["W_V"]], dim=1).T,
            "self_attn.in_proj_bias": torch.zeros(3 * d),
            "self_attn.out_proj.weight": w["W_O"].T,
            "self_attn.out_proj.bias": torch.zeros(d),
            "linear1.weight": w["W_1"].T,
            "linear1.bias": w["b_1"],
            "linear2.weight": w["W_2"].T,
            "linear2.bias": w["b_2"],
            "norm1.weight": w["gain_1"],
            "norm1.bias": w["bias_1"],
            "norm2.weight": w["gain_2"],
            "norm2.bias": w["bias_2"],
        }
    )
    return layer


# ------------------------------------------------------------------ transformers


def llama():
    """Two Llamas that share all weights but the head. Weights are whole numbers of 1/64: a byte."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 37, "hidden_size": 18, "intermediate_size": 28, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4}
    options = {"rms_norm_eps": 1e-3, "max_position_embeddings": 16, "attn_implementation": "sdpa"}
    options["rope_parameters"] = {"rope_type": "default", "rope_theta": 500.0}
    tokens = np.array([17, 20, 3, 8, 8, 31, 36, 0, 13, 25, 2])
    found, rng = {"tokens": tokens}, np.random.default_rng(6)
    for head in ("untied", "tied"):
        config = LlamaConfig(**sizes, **options, tie_word_embeddings=head == "tied")
        model = LlamaForCausalLM(config).eval().double()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if f"weights.{name}" not in found:
                    found[f"weights.{name}"] = whole_64ths(rng, tuple(weight.shape))
                weight.copy_(torch.tensor(found[f"weights.{name}"] / 64.0))
            found[f"logits.{head}"] = model(torch.tensor(tokens)[None]).logits[0].numpy()
    found["sizes"] = np.array(json.dumps(sizes | {"eps": 1e-3, "base": 500.0, "context": 16}))
    save_arrays("llama.npz", found, "torch", "transformers")


def whole_64ths(rng, shape):
    """Return random weights of variance 1/columns, or gains near 1, times 64 and rounded."""
    x = rng.standard_normal(shape)
    x = 1 + x / 8 if len(shape) == 1 else x / shape[-1] ** 0.5
    return np.clip(np.rint(64 * x), -127, 127).astype(np.int8)


def greedy(model):
    """Go on with each prompt: the likeliest token, the next likeliest, and the gap of their logits.

    `transformers` reads the file, and keeps norms and angles in float32; all else is float64.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM

    entry = json.loads((HERE / "greedy.json").read_text(encoding="utf-8"))
    path = Path(model)
    peer = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name).eval().double()
    for prompt in entry["prompts"]:
        prompt["tokens"], prompt["second"], prompt["gaps"] = [], [], []
        with torch.no_grad():
            new, past = prompt["prompt"], None
            for _ in range(20):
                out = peer(torch.tensor([new]), past_key_values=past, use_cache=True)
                best = out.logits[0, -1].topk(2)
                past, new = out.past_key_values, best.indices[:1].tolist()
                prompt["tokens"] += new
                prompt["second"] += best.indices[1:].tolist()
                prompt["gaps"].append(round(float(best.values[0] - best.values[1]), 6))
    entry["made_by"] |= versions("torch", "transformers", "gguf")
    save_json("greedy.json", entry)


# ------------------------------------------------------------------ llama.cpp

PROMPTS = [
    "Once upon a time",
    "The capital of France is",
    "Water boils at",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 4, 5, 6,",
    "Die Hauptstadt von Deutschland ist",
    "Il était une fois",
    "The three laws of thermodynamics are:\n1.",
    "To be, or not to be,",
    "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n",
]


def tokens(model):
    """Tokens of every text, as plain text and with control tokens read."""
    from corpus import LOST, TEXTS
    from llama_cpp import Llama

    peer = Llama(model, vocab_only=True, verbose=False)

    def ids(text, special):
        return peer.tokenize(text.encode("utf-8"), add_bos=False, special=special)

    rows = [[text, ids(text, False)] for text in TEXTS]
    special = [[text, ids(text, True)] for text in TEXTS]
    special = [row for row, plain in zip(special, rows, strict=True) if row != plain]
    entry = {"made_by": versions("llama-cpp-python"), "texts": rows, "special": special}
    save_json("tokens.json", entry | {"lost": [[text, ids(text, False)] for text in LOST]})


def prompts(model):
    """The prompts of greedy.json and their tokens."""
    from llama_cpp import Llama

    peer = Llama(model, vocab_only=True, verbose=False)
    rows = [
        {"text": text, "prompt": peer.tokenize(text.encode("utf-8"), add_bos=False, special=True)}
        for text in PROMPTS
    ]
    save_json("greedy.json", {"made_by": versions("llama-cpp-python"), "prompts": rows})


def rounded(model):
    """The same gaps by llama.cpp, which rounds what enters a matrix to 8 bits, as ours does.

    How far they are from those in float64 is what such rounding costs: a measure for ours.
    """
    from llama_cpp import Llama

    entry = json.loads((HERE / "greedy.json").read_text(encoding="utf-8"))
    peer = Llama(model, n_ctx=256, logits_all=True, n_threads=1, verbose=False)
    for prompt in entry["prompts"]:
        peer.reset()
        peer.eval(prompt["prompt"] + prompt["tokens"][:-1])
        logits = peer.scores[len(prompt["prompt"]) - 1 : peer.n_tokens]
        rows = np.arange(len(logits))
        gaps = logits[rows, prompt["tokens"]] - logits[rows, prompt["second"]]
        prompt["rounded_gaps"] = [round(float(gap), 6) for gap in gaps]
    save_json("greedy.json", entry)


if __name__ == "__main__":
    model, *steps = sys.argv[1:]
    if len(steps) == 1:
        step = steps[0]
        globals()[step](*([] if step in ("operations", "llama") else [model]))
    else:
        for step in steps or STEPS:
            subprocess.run([sys.executable, __file__, model, step], check=True)
