"""Guards the promise that the doctor is silent on healthy programs, such as users write: they compile and run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from healthy_corpus import CORPUS, Healthy, filled

from partax._doctor.doctor import doctor

COMPILED = CORPUS[3::6]
MEMORY = 64 << 30  # of the machine that the programs are for, whichever runs the tests


@pytest.mark.parametrize("program", CORPUS, ids=lambda program: program.name)
def test_nothing_is_found_in_a_healthy_program(program: Healthy) -> None:
    function, args = program.make()
    diagnosis = doctor(function, *args, memory_limit=MEMORY)
    assert diagnosis.findings == (), str(diagnosis)
    assert int(diagnosis.figures["equations"]) > 0


@pytest.mark.parametrize("program", CORPUS[::8], ids=lambda program: program.name)
def test_nothing_is_found_with_arrays_in_the_place_of_types(program: Healthy) -> None:
    function, args = program.make()
    assert doctor(function, *filled(args), memory_limit=MEMORY).findings == ()


@pytest.mark.nightly
@pytest.mark.parametrize("program", COMPILED, ids=lambda program: program.name)
def test_a_healthy_program_runs(program: Healthy) -> None:
    function, args = program.make()
    result = function(*filled(args))
    arrays = [leaf for leaf in jax.tree.leaves((result, args)) if isinstance(leaf, jax.Array)]
    assert arrays
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in arrays if jnp.issubdtype(leaf.dtype, jnp.number))
