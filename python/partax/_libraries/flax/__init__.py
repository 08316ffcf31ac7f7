"""Flax nnx: functions that change the objects in their arguments in place."""
