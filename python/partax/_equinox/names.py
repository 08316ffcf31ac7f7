"""Which of Equinox's names partax has."""

OURS = frozenset(
    {
        "apply_updates",
        "combine",
        "filter",
        "filter_grad",
        "filter_jit",
        "filter_shard",
        "filter_value_and_grad",
        "is_array",
        "is_array_like",
        "is_inexact_array",
        "is_inexact_array_like",
        "partition",
    }
)
