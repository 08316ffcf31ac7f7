"""How objects of each library are read as nodes: a file for each family of classes, which imports none of them.

The input is a class and its registered functions. The output is the names of the attributes that are the children and
of those that are static, after a comparison with what these functions do.
"""
