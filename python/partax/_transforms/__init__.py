"""The transformations other than `filter_jit`, loops and branches, and stacks of layers, on trees that hold anything.

Each returns a wrapper of a callable that passes the arrays of its arguments to jax, and the rest around it.
"""
