"""How the classes of each library lie in memory: a file for each library, none of which is imported here.

In come classes and their registered functions; out come the attributes that are the children and the static fields,
once these functions have been seen to do the same.
"""
