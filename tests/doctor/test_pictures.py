"""Guards the promise that the pictures' figures are those of the program: each equation is in the icicle once, the
peak and the buffers of the live bytes are the walk's."""

from typing import Any

import jax
import jax.experimental

import partax
from doctor_pages import arguments, step
from partax._doctor.examined import Examined
from partax._doctor.lines import stack_of
from partax._doctor.page import Box, icicle


def examined(function: Any = step, *args: Any) -> Examined:
    found = partax.doctor(function, *(args or arguments())).examined
    assert found is not None
    return found


def levels(root: Box) -> list[list[Box]]:
    """The boxes by depth."""
    found = [[root]]
    while below := [inner for box in found[-1] for inner in box.below.values()]:
        found.append(below)
    return found


def all_equations(jaxpr: Any) -> int:
    """An independent count."""
    inner = 0
    for eqn in jaxpr.eqns:
        for leaf in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda it: hasattr(it, "eqns")):
            inner += all_equations(getattr(leaf, "jaxpr", leaf)) if hasattr(leaf, "eqns") else 0
    return len(jaxpr.eqns) + inner


def test_a_level_of_the_icicle_is_all_equations_that_are_so_deep() -> None:
    program = examined()
    found = levels(icicle(program))
    total = all_equations(program.jaxpr.jaxpr)
    assert total == len(program.equations) > 50
    assert [it.equations for it in found[0]] == [total]
    depths: list[int] = []  # jax knows the lines of inner programs from the inner function on
    for eqn, parent in zip(program.equations.eqns, program.equations.parents, strict=True):
        depths.append(len(stack_of(eqn)) + (depths[parent] if parent >= 0 else 0))
    for depth, level in enumerate(found):
        assert sum(it.equations for it in level) == sum(it >= depth for it in depths)
    assert len(found) == max(depths) + 1
