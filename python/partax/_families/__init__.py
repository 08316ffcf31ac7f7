"""How objects of each library are read as nodes: a file for each family of classes, which imports none of them."""
