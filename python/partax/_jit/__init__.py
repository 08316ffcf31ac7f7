"""`filter_jit`, its stages and options.

In come a callable and options; out comes a wrapper, whose calls run in the native module on targets made here.
"""
