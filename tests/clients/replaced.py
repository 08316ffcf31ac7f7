"""A pytest plugin: the tests of a library that stands on Equinox run with `partax.equinox` in the place of Equinox."""

import sys

import partax.equinox

sys.modules["equinox"] = partax.equinox  # before a `conftest.py` imports the library
