"""A program with findings, of which the doctor writes a page."""

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp

from partax import doctor
from partax.reports import Diagnosis, Finding

LAYERS = 6


def step(ws: Any, x: Any, rate: Any) -> Any:
    for w in ws:
        x = jnp.tanh(x @ w)
    return [w - rate * x.sum() for w in ws]


def diagnosis() -> Diagnosis:
    """Of `step`, with findings of each severity, one of which would break a page that escapes nothing."""
    array = jax.ShapeDtypeStruct
    plain = doctor(step, [array((64, 64), "float32")] * LAYERS, array((8, 64), "float32"), array((), "float32"))
    lines, first = inspect.getsourcelines(step)
    at = (__file__, first + 2, lines[2].strip())
    hostile = '<script>alert("1")</script> & {{ 7 * 7 }} \x00 \ud800'
    findings = (
        Finding(
            "repeat", "high", *at, "", {"count": LAYERS, "share": 0.935}, "The same 4 equations, 6 times in a row.",
            "Write the loop as `partax.scan_layers`.",
        ),
        Finding(
            "donation", "medium", "", 0, "", f"ws['{hostile}']", {"saved_bytes": 98304}, hostile, f"Mend {hostile}.",
        ),
        Finding("host", "low", f"/a/{hostile}.py", 3, hostile, "x", {"note": hostile}, "x" * 500, "Cast it."),
    )  # fmt: skip
    return dataclasses.replace(plain, findings=findings, name=f"step {hostile}")
