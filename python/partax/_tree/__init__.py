"""The structure of a tree in words, and its arrays.

In comes a flattened tree as plain data; out come the paths of its leaves and the texts of its nodes and values.
"""
