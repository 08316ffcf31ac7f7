"""Guards the promise that no input breaks anything: each file of the fuzzers' corpus goes through its target, without
the fuzzer. `.ci/fuzz` looks for more."""

import base64
import random

import pytest

import fuzz

pytestmark = pytest.mark.filterwarnings("ignore")  # of re, about odd patterns


def replay(name: str, inputs: dict[str, bytes]) -> None:
    for file, data in inputs.items():
        try:
            fuzz.TARGETS[name](data)
        except BaseException as error:
            error.add_note(f"with {name}/{file}")
            raise


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_the_corpus(name: str) -> None:
    inputs = {file.name: file.read_bytes() for file in sorted((fuzz.CORPUS / name).iterdir())}
    assert len(inputs) >= 10
    replay(name, inputs)


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_random_bytes(name: str) -> None:
    generator = random.Random(name)
    inputs = [generator.randbytes(generator.randrange(200)) for _ in range(30)]
    replay(name, {base64.b64encode(data).decode(): data for data in inputs})
