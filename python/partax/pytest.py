"""A plugin of pytest, as in `pytest -p partax.pytest`: tests, and the code that they test, have `partax.jit` instead of
`jax.jit`. Programs are stored in the directory of `PARTAX_STORE`, or else in the cache directory of pytest.
"""

import os

import pytest

from partax._jit.replacement import replace_jax_jit
from partax._store.programs import store_or_warn

replace_jax_jit()  # before the first `conftest.py` is imported


def pytest_configure(config: pytest.Config) -> None:
    # A suite may make warnings errors, and `jax.jit` does not warn of a function that is re-created.
    config.addinivalue_line("filterwarnings", "ignore::partax.RetraceWarning")
    cache = getattr(config, "cache", None)  # absent with `-p no:cacheprovider`
    if cache is not None and not os.environ.get("PARTAX_STORE"):
        store_or_warn(cache.mkdir("partax") / "programs")
