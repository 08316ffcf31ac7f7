"""The tables of the page on benchmarks, as markdown, from the rows of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from plot_charts import readable
from plot_results import Results, Row

NOTHING = "-"
SECONDS = {"ms": 1e-3, "µs": 1e-6}


def as_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def number(value: float) -> str:
    """Three digits, or two behind the point."""
    return f"{value:.{3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def seconds(row: Row, form: str) -> str:
    return readable(row.seconds[form], "seconds") if form in row.seconds else NOTHING


def other_form(row: Row, form: str) -> str:
    """A form as a multiple of what the budget is a multiple of, or its seconds."""
    if row.base is None or row.base not in row.seconds or form == row.base:
        return NOTHING if form == row.base else seconds(row, form)
    return number(row.seconds[form] / row.seconds[row.base]) if form in row.seconds else NOTHING


def measured(row: Row) -> str:
    """What the budget is about; bold where it is missed."""
    text = with_unit(row, row.measured)
    return text if row.met else f"**{text}**"


def with_unit(row: Row, value: float) -> str:
    if row.unit in SECONDS:
        return readable(value * SECONDS[row.unit], "seconds")
    return number(value) if row.base else f"{value:.3g} {row.unit}"


def budget(row: Row) -> str:
    if row.budget is None:
        return NOTHING
    return f"≤ {row.budget:g}" if row.base else f"≤ {row.budget:g} {row.unit}"


def work(row: Row, floor: str = "floor") -> str:
    """With what it is compared with, where that is not the floor of the table."""
    notes = [] if row.quantity == "a call" else [row.quantity]
    if row.base not in (None, floor) and "over" not in row.work + row.quantity:
        notes.append(f"over {row.base}")
    return f"{row.work} ({'; '.join(notes)})" if notes else row.work


def dispatch(results: Results) -> str:
    head = ("work", "`jax.jit` on the pytree", "Equinox", "partax", "budget")
    peers = ("jax.jit", "equinox")
    rows = ((work(row), *(other_form(row, form) for form in peers), measured(row), budget(row)) for row in results.rows)
    return as_table(head, rows)


def families(results: Results) -> str:
    """A line for each kind of node: all in, and all out."""
    by_name: dict[str, dict[str, Row]] = {}
    for row in results.rows:
        name, _, direction = row.work.rpartition(", ")
        by_name.setdefault(name, {})[direction] = row
    head = ("nodes", "`jax.jit`, in", "partax, in", "budget", "`jax.jit`, out", "partax, out", "budget")
    lines: list[list[str]] = []
    for name, rows in by_name.items():
        cells = [name if rows["in"].base == "floor" else f"{name}, over {rows['in'].base}"]
        for direction in ("in", "out"):
            row = rows[direction]
            cells += [other_form(row, "jax.jit"), measured(row), budget(row)]
        lines.append(cells)
    return as_table(head, lines)


def nnx(results: Results) -> str:
    forms = ("split, merge", "nnx.jit", "tree mode", "cached_partial", "jit_partial")
    head = ("work", *forms, "partax", "budget")
    rows = ((work(row), *(other_form(row, form) for form in forms), measured(row), budget(row)) for row in results.rows)
    return as_table(head, rows)


def gpu(results: Results) -> str:
    """Of training: what serves there is in the list of what is over its budget, if it is."""
    columns = {
        "jax.jit": "`jax.jit` on the pytree",
        "equinox": "Equinox",
        "partax": "partax",
        "partax.scan_steps": "`partax.scan_steps`, 32 in a call",
        "one loop": "one `fori_loop`",
    }
    head = ("work", "`jax.jit` on flat arrays", *columns.values())
    rows = (
        (row.work, seconds(row, "floor"), *(other_form(row, form) for form in columns))
        for row in results.rows
        if "one loop" in row.seconds
    )
    return as_table(head, rows)


def warm_start(results: Results) -> str:
    """First calls in a new process, and whole processes, in seconds."""
    names = {"cold": "cold", "jax's cache": "JAX's cache", "partax.store": "`partax.store`", "both": "both"}
    tables: list[str] = []
    for first, last, *forms in (
        ("first call", "`partax.store` over JAX's cache", "cold", "jax's cache", "partax.store"),
        ("whole process", "both over JAX's cache", "jax's cache", "partax.store", "both"),
    ):
        rows = (
            (row.work.removeprefix(f"{first}, "), *(seconds(row, form) for form in forms), measured(row), budget(row))
            for row in results.rows
            if row.seconds.keys() == {*forms}
        )
        tables.append(as_table((first, *(names[form] for form in forms), last, "budget"), rows))
    return "\n\n".join(tables)


def missed(results: Sequence[Results]) -> str:
    """Why rows are over their budgets, as far as that is known."""
    lines = [f"- {said(of.name, row)}" for of in results for row in of.rows if not row.met]
    return "\n".join(lines) or "Every row is within its budget."


def said(name: str, row: Row) -> str:
    what = f"`bench/{name}.py`, {row.work}: {with_unit(row, row.measured)}, budget {budget(row)}"
    if row.known is None:
        return f"{what}. The samples of this run spread by {100 * row.spread:.0f} %."
    limit, reason = row.known
    sentence = reason if reason.startswith("jax") else reason[0].upper() + reason[1:]
    return f"{what}. {sentence}." + ("" if row.held else f" But no more than {limit:g} is known.")


def summary(results: Sequence[Results]) -> str:
    """How many rows each benchmark has, and how many are within their budgets."""
    head = ("benchmark", "rows with a budget", "within it", "over it, for a known reason", "over it")
    lines: list[list[str]] = []
    for of in results:
        rows = [row for row in of.rows if row.budget is not None]
        known = sum(row.held and not row.met for row in rows)
        counts = (len(rows), sum(row.met for row in rows), known, sum(not row.held for row in rows))
        lines.append([f"`bench/{of.name}.py`", *map(str, counts)])
    return as_table(head, lines)


TABLES: dict[str, Callable[[Results], str]] = {
    "dispatch": dispatch,
    "families": families,
    "nnx": nnx,
    "gpu": gpu,
    "warm_start": warm_start,
}
