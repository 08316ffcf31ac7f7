"""Reports as tables."""

from typing import TYPE_CHECKING

from partax._views.table import Table

if TYPE_CHECKING:
    from partax._explain.report import FunctionReport, KeyReport, Report, TraceReport

_HEADINGS = (
    "static key", "calls", "trace", "calls", "trace s", "lower s", "compile s", "equations", "constants", "fast path",
)  # fmt: skip
_SHOWN = 5


def function_table(report: "FunctionReport") -> Table:
    """What one function has cost: a row for each trace, and below why it was made."""
    rows = tuple(_row(key, trace, i == 0) for key in report.keys for i, trace in enumerate(key.traces))
    notes: list[str] = []
    for trace in report.traces:
        notes.append(f"  trace {trace.number} at {trace.site}: {trace.reason}")
        if trace.slow_because:
            notes.append(f"    not on jax's fast path because of {trace.slow_because}")
        for constant in trace.constants[:_SHOWN]:
            name = constant.name or "an array without a name"
            notes.append(f"    captured {name}: {constant.type}, {_bytes_text(constant.bytes)}")
    notes += [
        f"  {node.type} x {node.count} flattened by a Python function: {node.microseconds:.1f} us a call"
        + (f"; {node.because}" if node.because else "")
        for node in report.slow_nodes
    ]
    return Table(_HEADINGS, (rows,), frozenset({0, 9}), function_line(report), tuple(notes), indent=2, apart=True)


def function_line(report: "FunctionReport") -> str:
    """The same in one line."""
    calls = "gone" if report.hits is None or report.misses is None else f"{report.hits + report.misses} calls"
    head = f"{report.name} ({report.defined}): {calls}, {len(report.traces)} traces, "
    return head + f"{report.seconds:.3g} s to trace and compile"


def report_tables(report: "Report") -> list[Table]:
    """What each function has cost."""
    nothing = Table((), (), frozenset(), "no partax function has been traced")
    return [function_table(function) for function in report.functions] or [nothing]


def report_line(report: "Report") -> str:
    """The same in one line."""
    functions, traces = len(report.functions), sum(len(function.traces) for function in report.functions)
    counts = f"{functions} function{'' if functions == 1 else 's'}, {traces} trace{'' if traces == 1 else 's'}"
    return f"{counts}, {sum(function.seconds for function in report.functions):.3g} s to trace and compile"


def _row(key: "KeyReport", trace: "TraceReport", first: bool) -> tuple[str, ...]:
    def number(value: int | None) -> str:
        return "-" if value is None else str(value)

    path = {True: "yes", False: "no", None: "-"}[trace.fast_path]
    return (
        (key.static or "-") if first else "",
        ("dropped" if key.calls is None else str(key.calls)) if first else "",
        str(trace.number) + (" failed" if trace.failed else ""),
        number(trace.calls),
        f"{trace.trace_seconds:.4f}",
        f"{trace.lower_seconds:.4f}",
        f"{trace.compile_seconds:.4f}" + (f" ({trace.executables} x)" if trace.executables > 1 else ""),
        number(trace.equations),
        _bytes_text(sum(constant.bytes for constant in trace.constants)),
        path,
    )


def _bytes_text(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{size} B"
        size /= 1000
    return f"{size:.3g} GB"
