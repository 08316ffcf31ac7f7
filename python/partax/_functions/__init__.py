"""When two functions are the same: what the code of one can read, and whether another one reads the same.

In goes a function, or another callable; out comes a proof to which a re-created function is compared, or the reason why
there is none. docs/design/static_keys.md has the rules.
"""
