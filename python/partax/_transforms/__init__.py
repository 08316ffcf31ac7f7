"""The transformations other than `filter_jit`, loops and branches: they pass arrays to jax, and the rest around it."""
