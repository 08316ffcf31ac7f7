"""What partax needs of jax that jax does not promise, and nothing else; each name with what serves where it is gone.

In come names of jax's; out come functions and settings that the rooms below may rely on.
"""

from partax._jax.interpreter import refuse_subinterpreters

refuse_subinterpreters()  # this package is imported before all others and before jax
