"""What partax stands on: names that jax does not promise, interpreters, the node families of libraries.

In come jax's registry and classes of users; out comes how the native module is to read each of them.
"""

from partax._compat.interpreter import refuse_subinterpreters

refuse_subinterpreters()  # this package is imported before all others and before jax
