"""Trees in files.

In comes a tree, or one to fill; out comes a safetensors file, or the tree filled from one.
"""
