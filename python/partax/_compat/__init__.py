"""What partax stands on: names that jax does not promise, interpreters, the node families of libraries.

In come jax's registry and classes of users; out comes how the native module is to read each of them.
"""
