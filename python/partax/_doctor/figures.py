"""Figures of findings and of programs as text."""


def bytes_text(size: float) -> str:
    """`1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{_three(size)} {unit}"
        size /= 1024
    return f"{_three(size)} TiB"


def seconds_text(seconds: float) -> str:
    """`1.5 s`, `12 ms`."""
    if seconds >= 1:
        return f"{_three(seconds)} s"
    return f"{_three(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{_three(seconds * 1e6)} us"


def _three(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
