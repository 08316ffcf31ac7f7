"""Control flow of `jax.lax` for any tree.

In come functions and trees; their arrays pass through jax's primitive, their static parts around it.
"""
