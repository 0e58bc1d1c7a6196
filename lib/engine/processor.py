"""What the processor can do that vectors profit from, as Numba compiles for it."""

from lib import jit
from lib.jit import NUMBA

# Processors that go by a name in NUMBA_CPU_NAME, and what of interest they have.
_V3 = {"avx2", "fma", "f16c"}
_V4 = _V3 | {"avx512f", "avx512bw"}
_NAMED = {"x86-64-v3": _V3, "haswell": _V3, "x86-64-v4": _V4, "skylake-avx512": _V4}
_NAMED |= dict.fromkeys(("icelake-server", "sapphirerapids"), _V4 | {"avx512vnni"})
_NAMED |= {"alderlake": _V3 | {"avxvnni"}, "apple-m1": {"dotprod"}}


def _features() -> set[str]:
    """Return the features of the processor that Numba compiles for; none without Numba."""
    if jit.TARGET == "wasm32":
        return {"simd128"}
    if not NUMBA:
        return set()
    from llvmlite import binding
    from numba import config

    arm = {"arm"} if binding.get_default_triple().startswith(("aarch64", "arm64")) else set()
    name = getattr(config, "CPU_NAME", None)  # from NUMBA_CPU_NAME
    if name not in (None, "", "host"):
        return _NAMED.get(name, set()) | arm  # unknown to us: plain vectors
    return {name for name, has in binding.get_host_cpu_features().items() if has} | arm


HAS = frozenset(_features())
FUSED = "fma" in HAS or "arm" in HAS  # x · y + z with one rounding
HALVES = "f16c" in HAS or "arm" in HAS  # float16 to float32 and back
# How the four products of a group are added up.
BYTE_DOT = next(
    (name for name in ("avx512vnni", "avxvnni", "dotprod", "avx2", "simd128") if name in HAS),
    "plain",
)
