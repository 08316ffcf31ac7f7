"""Flax nnx: functions that change the objects in their arguments in place.

In: a call with nnx objects anywhere in its arguments. Out: its result, and the caller's objects changed.
"""
