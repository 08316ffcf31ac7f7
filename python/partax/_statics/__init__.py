"""When two callables are the same: all that the code of one can read.

In comes a callable; out come the checks that the native module makes of another one, or why there are none.
"""
