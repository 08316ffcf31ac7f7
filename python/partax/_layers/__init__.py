"""Layers that are equal but for their arrays, as one tree with a leading axis.

In come modules; out comes a stack of them, and the result of one after the other as a scan over it.
"""
