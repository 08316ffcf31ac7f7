"""Trees of any kind: their paths and texts, the functions of `partax.tree`, filters, and parts of them.

In come trees, filters and functions of leaves; out come trees, leaves, structures, and parts as trees or dictionaries.
"""
