"""Figures of findings and of programs as text."""

from collections.abc import Mapping


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


def figure_text(name: str, value: float | str) -> str:
    """A figure of a finding or of a program, in the unit that its name tells."""
    if isinstance(value, (str, bool)):
        return str(value)
    if name.endswith("bytes"):
        return bytes_text(value)
    if name.endswith("seconds"):
        return seconds_text(value)
    if name == "share" or name.endswith("_share"):
        return f"{value:.0%}" if value >= 0.01 else f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else _three(value)


def figure_texts(figures: Mapping[str, float | str]) -> list[tuple[str, str]]:
    """Figures by what they are called: `compile_seconds` is `compile`."""
    return [(name.removesuffix("_seconds").replace("_", " "), figure_text(name, it)) for name, it in figures.items()]


def _three(number: float) -> str:
    """Three digits, but no power of ten."""
    return f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
