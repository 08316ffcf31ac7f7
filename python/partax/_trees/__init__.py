"""What is done with whole trees: the functions of `partax.tree`.

In come trees of any kind, and functions of their leaves; out come trees, leaves and structures.
"""
