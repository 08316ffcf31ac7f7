"""Partition and combine, with filters and paths.

In come any tree and filters; out come parts of it, as trees or as path-to-leaf dictionaries, and trees again.
"""
