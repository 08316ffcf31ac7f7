"""Equinox's own functions done by partax, for code that imports equinox."""
