"""Which of Equinox's public names partax has, and where."""

OURS: dict[str, str] = {
    **dict.fromkeys(
        (
            "apply_updates",
            "combine",
            "filter",
            "filter_checkpoint",
            "filter_closure_convert",
            "filter_custom_jvp",
            "filter_custom_vjp",
            "filter_eval_shape",
            "filter_grad",
            "filter_hessian",
            "filter_jacfwd",
            "filter_jacrev",
            "filter_jit",
            "filter_jvp",
            "filter_make_jaxpr",
            "filter_pure_callback",
            "filter_shard",
            "filter_value_and_grad",
            "filter_vjp",
            "filter_vmap",
            "if_array",
            "is_array",
            "is_array_like",
            "is_inexact_array",
            "is_inexact_array_like",
            "partition",
        ),
        "partax",
    ),
    **dict.fromkeys(("tree_at", "tree_pformat"), "partax.tree"),
}
"""The module that has the name; in `partax.tree` it is without `tree_`.

Equinox's `tree_equal` gives an array where ours gives a bool.
"""
