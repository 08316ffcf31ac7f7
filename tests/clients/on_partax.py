"""A pytest plugin: the tests of a library run on partax, in the way that PARTAX_WAY names (see run.py)."""

import os
import sys

import pytest

WAY = os.environ["PARTAX_WAY"]

if WAY == "replaced":
    import partax.equinox

    sys.modules["equinox"] = partax.equinox  # before a `conftest.py` imports the library

if WAY == "jit":
    pytest_plugins = ["partax.pytest"]

if WAY == "nnx_replaced":
    from flax import nnx

    import partax.nnx

    nnx.jit = partax.nnx.jit


@pytest.hookimpl(trylast=True)  # after the import hook of jaxtyping, and before a test file is imported
def pytest_sessionstart() -> None:
    if WAY == "accelerated":
        import partax.equinox

        partax.equinox.accelerate()
