"""What XLA does not give a buffer of its own: a rule of thumb, by the names of primitives."""

import math
from typing import Any

# How an operation treats its operands.
OPAQUE = 0  # reads buffers and writes one
VIEW = 1  # its result is its operand, seen otherwise
CHEAP = 2  # elementwise, computed again for each use rather than kept
COSTLY = 3  # elementwise, kept where it is used twice
REDUCE = 4  # reads what elementwise operations give as they give it
IN_PLACE = 5  # writes into the buffer of its operand, where nothing else needs that

_NAMES: dict[int, str] = {
    # Without inner programs, all of them: what is not named here is asked for some.
    OPAQUE: """
        dot_general conv_general_dilated gather sort top_k cumsum cumprod cummax cummin cumlogsumexp fft
        random_bits random_seed random_split random_fold_in random_wrap random_unwrap rng_bit_generator threefry2x32
        reduce_window_sum reduce_window_max reduce_window_min cholesky lu qr eigh svd triangular_solve
    """,
    VIEW: """
        reshape squeeze expand_dims transpose bitcast_convert_type copy copy_p stop_gradient name sharding_constraint
    """,
    CHEAP: """
        add sub mul neg abs sign max min add_any eq ne lt le gt ge eq_to le_to lt_to and or not xor select_n clamp
        convert_element_type reduce_precision broadcast_in_dim iota integer_pow square slice split rev real imag complex
        conj is_finite floor ceil round shift_left shift_right_logical shift_right_arithmetic pad
    """,
    COSTLY: """
        div rem exp exp2 expm1 log log1p tanh logistic sin cos tan sinh cosh asin acos atan asinh acosh atanh atan2
        sqrt rsqrt cbrt pow erf erfc erf_inv lgamma digamma nextafter clz population_count dynamic_slice
    """,
    REDUCE: "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin concatenate",
    IN_PLACE: "dynamic_update_slice",
}
TREATMENT: dict[str, int] = {name: treatment for treatment, names in _NAMES.items() for name in names.split()}
ELEMENTWISE = (VIEW, CHEAP, COSTLY)
# Whose inner program XLA takes as if it stood there itself.
INLINED = frozenset({"jit", "pjit", "closed_call", "core_call", "call", "custom_jvp_call", "custom_vjp_call"})
# Of matrices, by calls of libraries.
DECOMPOSITIONS = frozenset(
    {"cholesky", "lu", "qr", "geqrf", "householder_product", "eigh", "eig", "svd", "schur", "triangular_solve"}
)


def treatment_of(eqn: Any) -> int | None:
    """How an operation treats its operands; None of one that is not known, and may have inner programs."""
    name = eqn.primitive.name
    found = TREATMENT.get(name)
    return IN_PLACE if found is None and name.startswith("scatter") else found


def multiplications(eqn: Any) -> int:
    """Those of a product of matrices or a convolution; 0 of others."""
    operand, result = eqn.invars[0].aval, eqn.outvars[0].aval
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return math.prod(result.shape) * math.prod(operand.shape[axis] for axis in contracted)
    if eqn.primitive.name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        outputs = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return math.prod(result.shape) * math.prod(kernel) // max(outputs, 1)
    return 0
