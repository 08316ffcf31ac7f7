"""Equinox's own functions done by partax, for code that imports equinox.

Enters: what a library calls of Equinox. Leaves: the same, by what partax has for it.
"""
