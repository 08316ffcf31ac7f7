"""What an object of each library is to a tree: a file for each family of classes, none of which is imported here.

In come classes and their registered functions; out come the attributes that are the children and the static fields,
once these functions have been seen to do the same.
"""
