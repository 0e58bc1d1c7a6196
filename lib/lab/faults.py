"""Patients: layers with one fault each, and a healthy twin beside every one.

A patient can be examined from outside: the whole layer, its two steps, its weights. Its fault is
drawn from a seed. The toy patients are the layer of `lib.reference.residual_layer`, in float64, so
that what should be zero is zero. The others are layers of the real model, put together from the
functions of the engine, which is not changed.
"""

import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from lib import reference
from lib.errors import CourseError
from lib.lab.installed import real_model
from lib.lab.probes import movements
from lib.layer import random_layer

N, D, D_FF, L = 6, 8, 20, 4  # the toy patients: tokens, width, hidden width, layers of the stack
PROMPT = "The capital of France is"


# --- What a layer is put together from ---


@dataclass(frozen=True)
class Parts:
    """The parts of one layer; a fault replaces one of them.

    The steps are without their residuals. ``finish`` ends the layer: it takes what enters the
    second step and what the FFN makes of it.
    """

    attend: Callable  # X (n, d) -> (n, d)
    feed: Callable  # M (n, d) -> (n, d)
    finish: Callable = np.add  # M (n, d), F (n, d) -> (n, d)
    weigh: Callable | None = None  # X (n, d) -> (n, n); the real model has no single weights


class Patient:
    """One layer under examination, and the vectors that enter it.

    Parameters
    ----------
    label : str
        What it is called; never what it has.
    make : callable
        Returns X, the layer's `Parts`, and those of the healthy twin. It is called when the patient
        is first examined, so that a patient of the real model costs nothing before.

    Attributes
    ----------
    X : ndarray, (n, d)
        The vectors that enter; read only.
    M : ndarray, (n, d)
        The vectors that enter the second step: X + attention_step(X).
    Y : ndarray, (n, d)
        The vectors that leave: layer(X).
    healthy : Patient
        The same layer without the fault, with the same X.
    """

    def __init__(self, label, make):
        self.label = label
        self._make = make

    def __repr__(self):
        return f"<{self.label}>"

    @functools.cached_property
    def _made(self):
        X, parts, healthy = self._make()
        return _read_only(X), parts, healthy

    @property
    def X(self):  # noqa: D102, an attribute of the class
        return self._made[0]

    @property
    def M(self):  # noqa: D102
        return self.X + self.attention_step(self.X)

    @property
    def Y(self):  # noqa: D102
        return self.layer(self.X)

    @functools.cached_property
    def healthy(self):  # noqa: D102
        X, _, twin = self._made
        return Patient(f"the healthy twin of {self.label}", lambda: (X, twin, twin))

    @property
    def tolerance(self):
        """The relative size below which a reading is rounding."""
        return float(100 * np.finfo(self.X.dtype).eps)

    def weights(self, X):
        """Return the weights of the attention step, a row for each query: (n, d) -> (n, n)."""
        weigh = self._made[1].weigh
        if weigh is None:
            raise CourseError(
                "weights should be asked of a toy patient; a layer of the real model has a matrix "
                "of weights for each of its heads"
            )
        return weigh(X)

    def attention_step(self, X):
        """Run the first step, without its residual: (n, d) -> (n, d)."""
        return self._made[1].attend(X)

    def ffn_step(self, M):
        """Run the second step, without its residual: (n, d) -> (n, d)."""
        return self._made[1].feed(M)

    def second_half(self, M):
        """Run the second step with its residual: (n, d) -> (n, d)."""
        return self._made[1].finish(M, self.ffn_step(M))

    def layer(self, X):
        """Run the layer: (n, d) -> (n, d)."""
        return self.second_half(X + self.attention_step(X))


class PatientStack:
    """A stack with one sick layer, and the vectors that enter it.

    Parameters
    ----------
    label : str
    make : callable
        Returns the first stages (at least X, the rest is computed when somebody asks), the list of
        the layers' `Parts`, and the `PatientStack` of the healthy twins; None if it is healthy.
    suspect : int, optional
        The sick layer, where the reader is told.

    Attributes
    ----------
    L : int
        The number of layers; they are counted from 1.
    stages : list of ndarray, L + 1 long
        What enters the first layer and what leaves each; read only.
    healthy : PatientStack
    """

    def __init__(self, label, make, suspect=None):
        self.label = label
        self.suspect = suspect
        self._make = make

    def __repr__(self):
        return f"<{self.label}>"

    @functools.cached_property
    def _made(self):
        first, parts, healthy = self._make()
        return [_read_only(stage) for stage in first], parts, healthy or self

    @property
    def L(self):  # noqa: D102, an attribute of the class
        return len(self._made[1])

    @property
    def stages(self):  # noqa: D102
        return [self._entering(k) for k in range(1, self.L + 2)]

    @property
    def healthy(self):  # noqa: D102
        return self._made[2]

    def layer(self, k):
        """Return layer k, from 1, as a `Patient`; its X is what enters it in this stack.

        Raises
        ------
        CourseError
            There is no such layer.
        """
        if type(k) is not int or not 1 <= k <= self.L:
            raise CourseError(f"k should be a layer from 1 to {self.L}; it is {k!r}")
        _, parts, healthy = self._made
        twin = healthy._made[1][k - 1]
        return Patient(
            f"layer {k} of {self.label}", lambda: (self._entering(k), parts[k - 1], twin)
        )

    def _entering(self, k):
        known = self._made[0]
        while len(known) < k:  # only as far as somebody asks: a real stack takes its time
            known.append(_read_only(self.layer(len(known)).Y))
        return known[k - 1]


def _read_only(array):
    array = np.array(array)
    array.setflags(write=False)
    return array


# --- Faults of the toy layer ---


@dataclass(frozen=True)
class Fault:
    """What is wrong, and in which of the two components.

    The functions stand in for the healthy ones of `toy_parts` or `real_parts` of the same name.
    """

    component: str  # "attention" or "FFN"
    functions: dict


def keep(K, V, K_old, V_old):
    """Give the queries the keys and values of this text: the healthy way."""
    return K, V


def forget_the_first(K, V, K_old, V_old):
    """Leave the first key and value of the cache at the zeros that it was made with."""
    first = np.arange(len(K))[:, None] == 0
    return np.where(first, 0.0, K), np.where(first, 0.0, V)


def keep_the_old(K, V, K_old, V_old):
    """Find the first half of another text in the cache."""
    old = np.arange(len(K))[:, None] < len(K) // 2
    return np.where(old, K_old, K), np.where(old, V_old, V)


def scores_of(Q, K):
    """Return Q Kᵀ / √d: (n, d), (n, d) -> (n, n)."""
    return Q @ K.T / math.sqrt(K.shape[1])


def visible_to(n, last):
    """Return a mask under which query i sees the keys 0 … i + last: bool (n, n)."""
    visible = np.tri(n, k=last, dtype=bool)
    visible[0, 0] = True  # somebody has patched the row that would see nothing
    return visible


def masked(Q, K, last):
    """Return causal weights with a mask that is too long or too short by some keys."""
    return reference.softmax(scores_of(Q, K), visible_to(len(K), last))


def over_queries(Q, K):
    """Return weights whose softmax runs over the queries of a key: columns sum to 1, not rows."""
    return reference.softmax(scores_of(Q, K).T, visible_to(len(K), 0).T).T


def shift(M):
    """Give each position the vector of its left neighbour; the first keeps its own."""
    return np.vstack([M[:1], M[:-1]])


def scramble(M):
    """Read the columns where the rows are meant: a reshape in the place of a transpose."""
    return M.T.reshape(M.shape)


def without_activation(M, w, old):
    """Return (M W₁ + b₁) W₂ + b₂."""
    return (M @ w.W_1 + w.b_1) @ w.W_2 + w.b_2


def _ffn_on(change):
    return lambda M, w, old: reference.ffn_step(change(M, old), w)


TOY_FAULTS = {
    "no_scaling": Fault("attention", {
        "weigh": lambda Q, K: reference.causal_weights(math.sqrt(Q.shape[1]) * Q, K)}),
    "no_mask": Fault("attention", {"weigh": lambda Q, K: reference.softmax(scores_of(Q, K))}),
    "mask_ahead": Fault("attention", {"weigh": functools.partial(masked, last=1)}),
    "mask_behind": Fault("attention", {"weigh": functools.partial(masked, last=-1)}),
    "wrong_axis": Fault("attention", {"weigh": over_queries}),
    "uniform_weights": Fault("attention", {
        "weigh": lambda Q, K: reference.causal_weights(np.zeros_like(Q), K)}),
    "values_unmixed": Fault("attention", {"weigh": lambda Q, K: np.eye(len(K))}),
    "stale_cache": Fault("attention", {"remember": keep_the_old}),
    "first_key_lost": Fault("attention", {"remember": forget_the_first}),
    "left_out": Fault("FFN", {"feed": lambda M, w, old: np.zeros_like(M)}),
    "no_activation": Fault("FFN", {"feed": without_activation}),
    "same_everywhere": Fault("FFN", {"feed": _ffn_on(lambda M, old: old[0] + 0 * M)}),
    "scrambled": Fault("FFN", {"feed": _ffn_on(lambda M, old: scramble(M))}),
    "shifted": Fault("FFN", {"feed": _ffn_on(lambda M, old: shift(M))}),
    "residual_lost": Fault("FFN", {"finish": lambda M, F: F}),
}  # fmt: skip


def toy_parts(w, old, fault=None):
    """Return the parts of a toy layer, with one of `TOY_FAULTS` or none.

    Parameters
    ----------
    w : LayerWeights
    old : ndarray, (n, d)
        The vectors of another text, for faults that remember one.
    fault : str, optional
    """
    changed = TOY_FAULTS[fault].functions if fault else {}
    weigh = changed.get("weigh", reference.causal_weights)
    remember = changed.get("remember", keep)
    feed = changed.get("feed", lambda M, w, old: reference.ffn_step(M, w))

    def remembered(K, V):
        return remember(K, V, old @ w.W_K, old @ w.W_V)

    def attend(Q, K, V):
        K, V = remembered(K, V)
        return weigh(Q, K) @ V

    return Parts(
        attend=functools.partial(reference.attention_step, w=w, attend=attend),
        feed=lambda M: feed(M, w, old),
        finish=changed.get("finish", np.add),
        weigh=lambda X: weigh(X @ w.W_Q, remembered(X @ w.W_K, X @ w.W_V)[0]),
    )


# --- Faults of a layer of the real model ---


def own_values(X, weights, config):
    """Give each token its own value in the place of a mean: (n, d) -> (n, d)."""
    from lib.engine.llama import merge_heads, split_heads

    V = split_heads(X @ weights.W_V, config.H_kv)  # (n, H_kv, d_head)
    group = config.H // config.H_kv
    return merge_heads([V[:, h // group] for h in range(config.H)]) @ weights.W_O


def healthy_attention(X, weights, config):
    """Attend as the engine does, with a cache of its own: (n, d) -> (n, d)."""
    from lib.engine.cache import Cache
    from lib.engine.llama import llama_attention

    cache = Cache(1, config.H_kv, len(X), config.d_head).layers[0]
    return llama_attention(X, weights, cache, config)


def healthy_ffn(X, weights):
    """Run the engine's FFN: (n, d) -> (n, d)."""
    from lib.ffn import swiglu

    return swiglu(X, weights.W_gate, weights.W_up, weights.W_down)


REAL_FAULTS = {
    "attention_left_out": Fault("attention", {"attend": lambda X, w, c: np.zeros_like(X)}),
    "values_unmixed": Fault("attention", {"attend": own_values}),
    "left_out": Fault("FFN", {"feed": lambda X, w: np.zeros_like(X)}),
    "shifted": Fault("FFN", {"feed": lambda X, w: healthy_ffn(shift(X), w)}),
}


def real_parts(weights, config, fault=None):
    """Return the parts of a layer of the real model, with one of `REAL_FAULTS` or none."""
    from lib.norm import rms_norm

    changed = REAL_FAULTS[fault].functions if fault else {}
    attend = changed.get("attend", healthy_attention)
    feed = changed.get("feed", healthy_ffn)
    return Parts(
        attend=lambda X: attend(rms_norm(X, weights.attention_gain, config.eps), weights, config),
        feed=lambda M: feed(rms_norm(M, weights.ffn_gain, config.eps), weights),
    )


def real_probabilities(stages, word=" Paris"):
    """Read the real model's probability of a word after each stage: (L + 1,), float64.

    Parameters
    ----------
    stages : list of ndarray, (n, d)
        The last vector of each goes through the model's last norm and its head.
    word : str
        One token.
    """
    from lib.engine.sampling import probabilities

    model = real_model()
    token = model.tokenizer.encode(word)[0]
    logits = model.head(np.stack([stage[-1] for stage in stages]))  # (L + 1, vocabulary)
    return np.array([probabilities(row)[token] for row in logits])


# --- Which patient a seed gives ---


@dataclass(frozen=True)
class Ward:
    """The faults that one task draws from, by component, and the kind of its patients."""

    attention: tuple[str, ...]
    FFN: tuple[str, ...] = ()
    kind: str = "layer"  # or "stack", or "real"
    told: bool = False  # whether the reader is told which layer of the stack is sick


WARDS = {
    "scenario": Ward(("values_unmixed",)),
    "patient_1": Ward(("wrong_axis", "uniform_weights"), ("left_out", "same_everywhere")),
    "patient_2": Ward(("no_mask", "mask_ahead", "wrong_axis"), ("scrambled",)),
    "patient_3": Ward(("mask_behind", "no_scaling", "uniform_weights"), ("shifted",)),
    "patient_4": Ward(("stale_cache", "first_key_lost"), ("no_activation", "residual_lost")),
    "patient_5": Ward(
        ("no_scaling", "uniform_weights"),
        ("no_activation", "residual_lost", "same_everywhere", "left_out"),
    ),
    "stack": Ward(
        tuple(name for name, fault in TOY_FAULTS.items() if fault.component == "attention"),
        tuple(name for name, fault in TOY_FAULTS.items() if fault.component == "FFN"),
        kind="stack",
    ),
    "real_1": Ward(
        ("attention_left_out", "values_unmixed"), ("left_out", "shifted"), kind="real", told=True
    ),
    "real_2": Ward(("attention_left_out", "values_unmixed"), ("left_out", "shifted"), kind="real"),
}

# Layers of the real model where the fault can be read from the last prediction.
REAL_LAYERS = {
    "attention_left_out": (1, 2, 3, 24),
    "values_unmixed": (3, 4, 10, 24),
    "left_out": (2, 3, 9, 12, 30),
    "shifted": (2, 3, 9, 10),
}


def patient(seed, task):
    """Return the patient that a seed gives in a task.

    Parameters
    ----------
    seed : int
        From 0 to 10¹⁸: the year, a student number.
    task : str
        One of `WARDS`.

    Returns
    -------
    Patient or PatientStack
        The same one for the same seed. Of six toy patients three have their fault in attention and
        three in the FFN; of two real ones, one each.

    Raises
    ------
    CourseError
        A seed or task of another kind.
    """
    check_patient(seed, task, WARDS)
    make = {"layer": toy_patient, "stack": toy_stack, "real": real_stack}[WARDS[task].kind]
    return make(seed, task, deal(seed)[task])


def check_patient(seed, task, tasks):
    """Raise a CourseError where a seed, or a task, gives no patient."""
    if type(seed) is not int or not 0 <= seed <= 10**18:
        raise CourseError(f"seed should be a whole number from 0 to 10¹⁸; it is {seed!r:.40}")
    if task not in tasks:
        raise CourseError(f"task should be one of {', '.join(tasks)}; it is {task!r}")


def deal(seed):
    """Return the fault that a seed gives in each task: both components as often, few faults twice.

    The draws are those of `random.Random` with a string, the same on every machine.
    """
    draw = random.Random(f"patients of {seed}")
    dealt = {}
    for tasks in (_drawn("layer", "stack"), _drawn("real")):
        components = ["attention", "FFN"] * (len(tasks) // 2)
        draw.shuffle(components)
        for task, component in zip(tasks, components, strict=True):
            choice = getattr(WARDS[task], component)
            new = [fault for fault in choice if fault not in dealt.values()]
            dealt[task] = draw.choice(new or choice)
    return {"scenario": WARDS["scenario"].attention[0], **dealt}


def _drawn(*kinds):
    """Return the tasks of these kinds whose fault may be in either component."""
    return [task for task, ward in WARDS.items() if ward.FFN and ward.kind in kinds]


def toy_patient(seed, task, fault):
    """Return a toy layer with the given fault; ``seed`` and ``task`` make its numbers."""
    X, old, (w, *_) = _toy_numbers(seed, task)
    parts, healthy = toy_parts(w, old, fault), toy_parts(w, old)
    return Patient(f"{task} of seed {seed}", lambda: (X, parts, healthy))


def toy_stack(seed, task, fault):
    """Return a stack of L toy layers, one of which has the given fault."""
    X, old, layers = _toy_numbers(seed, task)
    sick = random.Random(f"layer of {task} of {seed}").randrange(L)
    label = f"{task} of seed {seed}"
    twins = [toy_parts(w, old) for w in layers]
    parts = [toy_parts(w, old, fault if k == sick else None) for k, w in enumerate(layers)]
    healthy = PatientStack(f"the healthy twin of {label}", lambda: ([X], twins, None))
    return PatientStack(label, lambda: ([X], parts, healthy))


def _toy_numbers(seed, task):
    """Return the vectors of a text, those of another, and the weights of L layers."""
    number = list(WARDS).index(task)
    X, old = np.random.default_rng([seed, number]).standard_normal((2, N, D))
    layers = [random_layer(D, D_FF, [seed, number, k]) for k in range(L)]
    # What a step adds is scaled by 1 / √(number of steps), so that vectors keep their size through
    # the stack without a norm (Radford et al. 2019, section 2.3).
    calm = np.float32(1 / math.sqrt(2 * L))
    return X, old, [replace(w, W_O=calm * w.W_O, W_2=calm * w.W_2) for w in layers]


def real_stack(seed, task, fault):
    """Return the layers of the real model, one of which has the given fault."""
    sick = random.Random(f"layer of {task} of {seed}").choice(REAL_LAYERS[fault])

    def make():
        model, healthy = real_model(), healthy_real_stack()
        parts = [real_parts(weights, model.config) for weights in model.layers]
        parts[sick - 1] = real_parts(model.layers[sick - 1], model.config, fault)
        known = [healthy.layer(k).X for k in range(1, sick + 1)]  # up to the fault the two agree
        return known, parts, healthy

    told = sick if WARDS[task].told else None
    return PatientStack(f"{task} of seed {seed}", make, suspect=told)


@functools.cache
def healthy_real_stack():
    """Return the layers of the real model without a fault; their stages are computed once."""

    def make():
        model = real_model()
        parts = [real_parts(weights, model.config) for weights in model.layers]
        return [model.embed(model.tokenizer.encode(PROMPT))], parts, None

    return PatientStack("the real model", make)


def healthy_layer(seed=0):
    """Return a toy layer without a fault, to try the instruments on."""
    sound = toy_patient(seed, "scenario", None)
    return Patient("a healthy layer", lambda: sound._made)


def chart(subject):
    """Draw a layer from outside: what moves when a token changes, and what leaves, by position."""
    from lib.lab import figures

    twin = subject.healthy
    off = np.abs(np.float64(subject.Y) - twin.Y).max(axis=1)
    return figures.matrices(
        {
            "this layer": movements(subject.layer, subject.X),
            "healthy twin": movements(twin.layer, twin.X),
            "apart": off[:, None],
        },
        rows=range(len(off)),
        form=".2f",
    )
