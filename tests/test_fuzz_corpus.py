"""Guards the promise that no input breaks anything: each file of the fuzzers' corpus goes through its target, without
the fuzzer. `.ci/fuzz` looks for more."""

from __future__ import annotations

import base64
import random
import warnings
from pathlib import Path

import pytest

from fuzz import targets

pytestmark = pytest.mark.compiled_anew  # a file that is written is one that no input may lead to

RANDOM = 30


@pytest.fixture(autouse=True)
def _no_warnings(request: pytest.FixtureRequest) -> object:
    if request.node.name.endswith("[files]"):
        pytest.importorskip("safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of re, about patterns that nobody would write
        yield


def inputs(name: str) -> list[Path]:
    return sorted((targets.CORPUS / name).iterdir())


def replay(name: str) -> None:
    check = targets.load(name)
    for file in inputs(name):
        try:
            check(file.read_bytes())
        except BaseException as error:
            error.add_note(f"with {name}/{file.name}")
            raise


@pytest.mark.parametrize("name", targets.NAMES)
def test_the_corpus(name: str) -> None:
    assert len(inputs(name)) >= 10
    replay(name)


@pytest.mark.parametrize("name", targets.NAMES)
def test_random_bytes(name: str) -> None:
    check, generator = targets.load(name), random.Random(name)
    for _ in range(RANDOM):
        data = generator.randbytes(generator.randrange(200))
        try:
            check(data)
        except BaseException as error:
            error.add_note(f"with {base64.b64encode(data).decode()}")
            raise
