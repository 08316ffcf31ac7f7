"""What types and values are made of, and when two callables are the same: all that the code of one can read.

In comes a type, a value or a callable; out come traits of the type, a copy of the value, or the checks that the native
module makes of another callable, or why there are none.
"""
