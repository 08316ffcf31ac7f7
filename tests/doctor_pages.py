"""A program with findings, of which the doctor writes a page."""

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp

from partax import doctor
from partax.reports import Diagnosis, Finding

LAYERS = 6


def layer(w: Any, h: Any) -> Any:
    h = jnp.tanh(h @ w)
    return h / (1 + jnp.abs(h).mean())


def model(ws: Any, x: Any) -> Any:
    for w in ws:
        x = layer(w, x)
    return x.sum()


def step(ws: Any, x: Any, rate: Any) -> Any:
    loss, grads = jax.value_and_grad(model)(ws, x)
    return [w - rate * g for w, g in zip(ws, grads, strict=True)], loss


def arguments(rows: int = 8) -> tuple[Any, ...]:
    array = jax.ShapeDtypeStruct
    return [array((64, 64), "float32")] * LAYERS, array((rows, 64), "float32"), array((), "float32")


def diagnosis(**options: Any) -> Diagnosis:
    """Of `step`, with findings of each severity, one of which would break a page that escapes nothing."""
    found = doctor(step, *arguments(), **options)
    lines, first = inspect.getsourcelines(layer)
    at = (__file__, first + 1, lines[1].strip())
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
    return dataclasses.replace(found, findings=findings, name=f"step {hostile}")
