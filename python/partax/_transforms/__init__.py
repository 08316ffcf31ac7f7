"""The transformations other than `filter_jit`, loops and branches, and stacks of layers, on trees that hold anything.

In comes a callable; out comes a wrapper that gives jax the arrays of its arguments and keeps the rest out of jax's way.
"""
