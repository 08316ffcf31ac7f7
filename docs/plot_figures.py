"""The figures of the page on benchmarks: which points of the results each shows, and what can be read off it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from plot_charts import Line, Panel, Theme, dots_chart, lines_chart, readable
from plot_results import Point, Results, ResultsError

PARTAX, FLOOR, JAX_JIT, EQUINOX = "partax", "floor", "jax.jit", "equinox"

# The name and the style of each form: equal forms look alike in all figures.
JITS = {
    FLOOR: ("jax.jit, flat tuple", 1),
    JAX_JIT: ("jax.jit, pytree", 2),
    EQUINOX: ("Equinox", 3),
    PARTAX: ("partax", 0),
}
TREES = {
    "jax.tree": ("jax.tree", 2),
    EQUINOX: ("Equinox", 3),
    "inox": ("Inox", 4),
    "optree": ("optree", 5),
    PARTAX: ("partax", 0),
}
NNX = {
    FLOOR: ("jax.jit, flat tuples", 1),
    "split, merge": ("split, merge by hand", 5),
    "nnx.jit": ("nnx.jit", 2),
    "tree mode": ("nnx.jit, tree mode", 3),
    "cached_partial": ("nnx.cached_partial", 4),
    "jit_partial": ("nnx.jit_partial", 6),
    PARTAX: ("partax.nnx.jit", 0),
}
BOUND = {
    FLOOR: ("jax.jit, flat tuple", 1),
    "all arguments": ("partax, all arguments", 2),
    "bound": ("partax, bound", 0),
}
STEPS = {FLOOR: ("jax.jit, one by one", 1), "partax.scan_steps": ("partax.scan_steps", 0)}
FAMILIES = {
    "dict": ("dict", 1),
    "NamedTuple": ("NamedTuple", 2),
    "equinox.Module": ("equinox.Module", 3),
    "flax.struct.dataclass": ("flax.struct.dataclass", 4),
    "chex.dataclass": ("chex.dataclass", 5),
    "penzai Struct": ("penzai Struct", 6),
    "nnx.Module": ("nnx.Module", 7),
    "own class, register_pytree_node": ("your own, registered", 0),
}
Names = Mapping[str, tuple[str, int]]


@dataclass(frozen=True)
class Figure:
    """A chart of one file of results."""

    source: str
    title: str
    draw: Callable[[Results, Theme, str], str]
    """As SVG, with a title for those who cannot see it."""
    reading: Callable[[Results], str]
    """In a sentence or two, with figures of the results."""


def line(points: Sequence[Point], form: str, names: Names) -> Line:
    of = sorted((point for point in points if point.form == form), key=lambda point: point.at)
    label, style = names[form]
    return Line(
        label,
        style,
        tuple(point.at for point in of),
        tuple(point.low for point in of),
        tuple(point.median for point in of),
        tuple(point.high for point in of),
        dashed=form == FLOOR,
    )


def lines(results: Results, panel: str, quantity: str, names: Names) -> tuple[Line, ...]:
    """A line for each form that has been measured."""
    points = of_panel(results, panel, quantity)
    unknown = {point.form for point in points} - names.keys()
    if unknown:
        raise ResultsError(f"{results.name} has forms that docs/plot_figures.py does not name: {sorted(unknown)}")
    forms = {point.form for point in points}
    return tuple(line(points, form, names) for form in names if form in forms)


def of_panel(results: Results, panel: str, quantity: str) -> list[Point]:
    found = [point for point in results.points if (point.panel, point.quantity) == (panel, quantity)]
    if not found:
        raise ResultsError(
            f"{results.name} has no {quantity} of {panel!r}: run `python bench/record.py --only {results.name}`"
        )
    return found


def places(results: Results) -> tuple[float, ...]:
    return tuple(sorted({point.at for point in results.points}))


def medians(results: Results, panel: str, quantity: str, at: float) -> dict[str, float]:
    """By form, at one place."""
    return {point.form: point.median for point in of_panel(results, panel, quantity) if point.at == at}


def times(ratio: float) -> str:
    return f"{ratio:.{2 if ratio < 10 else 0}f} times"


# ---- The figures.


def _calls(panel: str, forms: Names, over: str) -> Callable[[Results, Theme, str], str]:
    """A chart of one panel of calls."""

    def draw(results: Results, theme: Theme, title: str) -> str:
        return lines_chart([Panel("", lines(results, panel, "seconds", forms), over, "time of a call")], theme, title)

    return draw


arrays = _calls("a call", JITS, "arrays in the model")
bound = _calls("a call with bound arrays", BOUND, "bound arrays")


def read_arrays(results: Results) -> str:
    at = places(results)[-1]
    over = medians(results, "a call", "ratio", at)
    return (
        f"With {at:,.0f} arrays a call takes {times(over[PARTAX])} the floor with partax, {times(over[JAX_JIT])} with "
        f"`jax.jit` on the pytree and {times(over[EQUINOX])} with Equinox."
    )


def nodes(results: Results, theme: Theme, title: str) -> str:
    titles = {JAX_JIT: "jax.jit", EQUINOX: "Equinox", PARTAX: "partax"}
    panels = [
        Panel(
            shown,
            lines(results, form, "ratio", FAMILIES),
            "nodes",
            "time of a call over the floor",
            y_unit="ratio",
            level=1.0,
        )
        for form, shown in titles.items()
    ]
    return lines_chart(panels, theme, title, in_row=True)


def read_nodes(results: Results) -> str:
    at = places(results)[-1]
    found = {form: medians(results, form, "ratio", at) for form in (JAX_JIT, EQUINOX, PARTAX)}
    spans = {form: f"{min(of.values()):.2f} to {max(of.values()):.2f}" for form, of in found.items()}
    return (
        f"With {at:,.0f} nodes the kinds of nodes take from {spans[PARTAX]} times the floor with partax, "
        f"{spans[JAX_JIT]} with `jax.jit` on the pytree and {spans[EQUINOX]} with Equinox."
    )


WAITED, IN_A_ROW = "each step is waited for", "steps in a row, the last is waited for"


def work(results: Results, theme: Theme, title: str) -> str:
    panels: list[Panel] = []
    for panel in (WAITED, IN_A_ROW):
        steps = medians_by_place(results, panel, FLOOR)
        moved = [
            Line(one.label, one.style, tuple(steps[at] for at in one.at), one.low, one.median, one.high)
            for one in lines(results, panel, "share", JITS)
        ]
        panels.append(
            Panel(
                panel,
                tuple(moved),
                "time of a step by the floor",
                "overhead, part of a step",
                y_unit="share",
                x_unit="seconds",
                y_log=False,
                level=0.0,
            )
        )
    return lines_chart(panels, theme, title)


def medians_by_place(results: Results, panel: str, form: str) -> dict[float, float]:
    return {point.at: point.median for point in of_panel(results, panel, "seconds") if point.form == form}


def read_work(results: Results) -> str:
    steps = medians_by_place(results, WAITED, FLOOR)
    short, long = (medians(results, WAITED, "share", at) for at in (min(steps), max(steps)))
    shortest, longest = (readable(steps[at], "seconds") for at in (min(steps), max(steps)))
    return (
        f"Where each step is waited for and takes the floor {shortest}, overhead is {short[PARTAX]:.0%} of a step with "
        f"partax, {short[JAX_JIT]:.0%} with `jax.jit` on the pytree and {short[EQUINOX]:.0%} with Equinox. Where it "
        f"takes the floor {longest}, it is {long[PARTAX]:z.0%}, {long[JAX_JIT]:z.0%} and {long[EQUINOX]:z.0%}."
    )


def leaves(results: Results, theme: Theme, title: str) -> str:
    panels = [
        Panel(panel, lines(results, panel, "seconds", TREES), "leaves", "time of a call")
        for panel in ("partition", "combine")
    ]
    return lines_chart(panels, theme, title)


def read_leaves(results: Results) -> str:
    at = places(results)[-1]
    sentences = []
    for panel in ("partition", "combine"):
        found = medians(results, panel, "seconds", at)
        others = [f"{name} {readable(found[form], 'seconds')}" for form, (name, _) in TREES.items() if form != PARTAX]
        sentences.append(f"{panel} takes {readable(found[PARTAX], 'seconds')} with partax ({', '.join(others)})")
    return f"With {at:,.0f} leaves, {'; '.join(sentences)}."


CASES = {
    "nothing has changed": "nothing has changed",
    "a static value that was seen before": "a static value\nthat was seen before",
    "the function is re-created and wrapped again": "the function is re-created\nand wrapped again",
    "a lambda in an argument is re-created": "a lambda in an argument\nis re-created",
    "a static value that is new": "a static value that is new",
}


def retraces(results: Results, theme: Theme, title: str) -> str:
    found = {case: of_panel(results, case, "seconds") for case in CASES}
    rows: list[Line] = []
    for form, (label, style) in JITS.items():
        of = [(row, point) for row, case in enumerate(found) for point in found[case] if point.form == form]
        if of:
            at, low, median, high = zip(
                *((float(row), point.low, point.median, point.high) for row, point in of), strict=True
            )
            rows.append(Line(label, style, at, low, median, high))
    return dots_chart(list(CASES.values()), rows, theme, title, "time of a call until its result is there")


def read_retraces(results: Results) -> str:
    (at,) = places(results)[:1]
    found = {case: medians(results, case, "seconds", at) for case in CASES}
    shown = {case: {form: readable(value, "seconds") for form, value in of.items()} for case, of in found.items()}
    again, new = shown["the function is re-created and wrapped again"], shown["a static value that is new"]
    return (
        f"For a model of {at:.0f} layers, a call of a function that is re-created and wrapped again takes "
        f"{again[PARTAX]} with partax, which proves that it is the same, {again[JAX_JIT]} with "
        f"`jax.jit` and {again[EQUINOX]} with Equinox, which trace and compile. With a static value that is new "
        f"it takes {new[PARTAX]}, {new[JAX_JIT]} and {new[EQUINOX]}: all three trace and compile."
    )


def devices(results: Results, theme: Theme, title: str) -> str:
    panels = [
        Panel(panel, lines(results, panel, "seconds", JITS), "devices of the CPU", "time", places=places(results))
        for panel in ("a call until it returns", "a step until it has ended")
    ]
    return lines_chart(panels, theme, title)


def read_devices(results: Results) -> str:
    at = places(results)[-1]
    found = medians(results, "a call until it returns", "seconds", at)
    over = {form: times(value / found[FLOOR]) for form, value in found.items()}
    return (
        f"On {at:.0f} devices it takes {over[PARTAX]} the floor until a call returns with partax, {over[JAX_JIT]} with "
        f"`jax.jit` on the pytree and {over[EQUINOX]} with Equinox, which waits for the step to end."
    )


NOTHING, TRAINING = "a call that does nothing", "an Adam step in place"


def nnx(results: Results, theme: Theme, title: str) -> str:
    panels = [
        Panel(panel, lines(results, panel, "seconds", NNX), "layers", "time of a call", places=places(results))
        for panel in (NOTHING, TRAINING)
    ]
    return lines_chart(panels, theme, title)


def read_nnx(results: Results) -> str:
    at = places(results)[-1]
    parts = []
    for panel in (NOTHING, TRAINING):
        over = medians(results, panel, "ratio", at)
        parts.append(
            f"{panel} takes {times(over[PARTAX])} the floor with `partax.nnx.jit`, {times(over['jit_partial'])} with "
            f"`nnx.jit_partial` and {times(over['nnx.jit'])} with `nnx.jit`"
        )
    return f"With {at:.0f} layers, {'; '.join(parts)}."


def read_bound(results: Results) -> str:
    at = places(results)[-1]
    over = medians(results, "a call with bound arrays", "ratio", at)
    return (
        f"With {at:,.0f} arrays a call takes {times(over['bound'])} the floor where they are bound, and "
        f"{times(over['all arguments'])} where they are passed."
    )


def steps(results: Results, theme: Theme, title: str) -> str:
    panels = [
        Panel(panel, lines(results, panel, "seconds", STEPS), "steps in a call", "time of a step")
        for panel in ("Adam, 64 layers", "Adam, digits")
    ]
    return lines_chart(panels, theme, title)


def read_steps(results: Results) -> str:
    at = places(results)[-1]
    deep, digits = (
        times(medians(results, panel, "ratio", at)["partax.scan_steps"])
        for panel in ("Adam, 64 layers", "Adam, digits")
    )
    return (
        f"With {at:,.0f} steps in a call, a step of the model of 64 layers takes {deep} the floor, and one of the "
        f"digits {digits}."
    )


FIGURES = {
    "arrays": Figure("sweep_arrays", "Time of a call against the number of arrays", arrays, read_arrays),
    "nodes": Figure("sweep_nodes", "Time of a call over the floor against the number of nodes", nodes, read_nodes),
    "work": Figure("sweep_work", "Share of overhead against the time of a step", work, read_work),
    "leaves": Figure("sweep_leaves", "Time of partition and combine against the number of leaves", leaves, read_leaves),
    "retraces": Figure("sweep_retraces", "Time of a call that may trace again", retraces, read_retraces),
    "devices": Figure("sweep_devices", "Time of a train step against the number of devices", devices, read_devices),
    "nnx": Figure("sweep_nnx", "Time of a call that updates nnx objects, against layers", nnx, read_nnx),
    "bound": Figure("sweep_bound", "Time of a call against the number of bound arrays", bound, read_bound),
    "steps": Figure("sweep_steps", "Time of a step against the steps in one call", steps, read_steps),
}
