"""A pytest plugin: the tests of a library that stands on Equinox run with `partax.equinox.accelerate()`."""

import pytest


@pytest.hookimpl(trylast=True)  # after jaxtyping has put its import hook, before a test file is imported
def pytest_sessionstart() -> None:
    import partax.equinox

    partax.equinox.accelerate()
