"""What XLA computes while it compiles: operations on captured arrays, and how long its slow evaluator takes for them.

The seconds are measured: `x * operation(captured)` of 10,000 to 40,000,000 elements, compiled once for the CPU on two
shared cores. They tell seconds from minutes, no more.
"""

import math
from typing import Any

from partax._doctor.fusion import DECOMPOSITIONS, multiplications

# Of one element of the result, where nothing else is said: 1e7 elements of `sin`, `+`, `where`, slices or a transpose
# take 3 to 4.7 s more than the captured array alone.
_ELEMENT = 0.3e-6
# Of one element of the operand: a sum of 1e7 takes 2 to 3.4 s more.
_REDUCED = 0.25e-6
_GATHERED = 0.8e-6  # 1e7 elements take 8.6 s
_SCATTERED = 6.7e-6  # 1e6 updates take 6.7 s
_COMPARED = 25e-6  # one of n log2(n) comparisons: a sort of 4e3 elements takes 0.8 s, of 1e4 5.8 s, of 1e5 45 s
_ACCUMULATED = 29e-6  # of a cumulative sum: 1e5 elements take 2.9 s
_IN_WINDOW = 4e-6  # one element in one window: a 3 x 3 window over 1e5 elements takes 3.7 s
_CONVOLVED = 0.1e-6  # one multiplication: 1e6 elements and a kernel of 5 x 5 take 2.8 s
_MULTIPLIED = 0.35e-9  # one of a matrix product: 3162 x 3162 takes 10 s

# Larger results XLA leaves to be computed when the program runs (`kMaximumConstantSizeElements`).
_LARGEST = 45_000_000
_CUMULATIVE = {"cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"}


# What costs next to nothing, or is evaluated as a part of what uses it.
_FREE = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "stop_gradient", "copy"}
# What XLA does not evaluate: Fourier transforms, what runs on the host or in a library, loops.
_NEVER = DECOMPOSITIONS | {
    "iota", "fft", "rng_bit_generator", "threefry2x32", "pure_callback", "io_callback", "debug_callback", "debug_print",
    "scan", "while", "cond", "custom_call", "ffi_call", "pallas_call", "shard_map", "device_put", "sharding_constraint",
    "optimization_barrier", "top_k",
}  # fmt: skip


def folding_seconds(eqn: Any) -> float | None:
    """How long XLA takes to evaluate an operation whose operands are all known, about; None where it does not."""
    name = eqn.primitive.name
    result, operand = _size_of(eqn.outvars[0]), _size_of(eqn.invars[0])
    if name in _NEVER or name.startswith("random_") or max(result, operand) > _LARGEST:
        return None
    if name in _FREE:
        return 0.0
    if name == "sort":
        length = eqn.invars[0].aval.shape[eqn.params["dimension"]]
        return operand * math.log2(max(length, 2)) * _COMPARED
    if name in _CUMULATIVE:
        return operand * _ACCUMULATED
    if name.startswith("reduce_window"):
        return result * math.prod(eqn.params["window_dimensions"]) * _IN_WINDOW
    if name.startswith("scatter"):
        # One place is a slice that is written, and that is quick: 4e7 elements take 0.4 s.
        places = _size_of(eqn.invars[1]) // max(eqn.invars[1].aval.shape[-1], 1)
        return _size_of(eqn.invars[2]) * _SCATTERED if places > 1 else result * _ELEMENT / 30
    if name == "gather":
        return result * _GATHERED
    if name in ("dot_general", "conv_general_dilated"):
        return multiplications(eqn) * (_MULTIPLIED if name == "dot_general" else _CONVOLVED)
    return operand * _REDUCED if name.startswith(("reduce_", "arg")) else result * _ELEMENT


def _size_of(var: Any) -> int:
    return math.prod(var.aval.shape) if hasattr(var.aval, "shape") else 0
