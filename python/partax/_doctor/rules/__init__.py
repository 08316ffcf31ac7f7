"""The rules: each file looks for one kind of cost, by `find(program)`, and imports no other rule."""
