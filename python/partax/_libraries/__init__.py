"""Libraries whose own transformations partax does in their place: a folder for each.

In comes what a user calls of the library; out comes the same, by what partax has for it.
"""
