"""What all pictures are made of: escaped and fitted texts, boxes, scales."""

import html
import math
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 1200.0  # of each picture, in its own units
TEXT = 12.0  # the size of letters
_LETTER = 0.62 * TEXT  # how wide one of a monospaced font is; none of the usual ones is wider


class Picture(NamedTuple):
    """A picture of the page.

    Attributes:
      title: its heading.
      caption: what it shows.
      svg: the picture.
      legend: pairs of a class of boxes and what it means.
    """

    title: str
    caption: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()


def width_of(text: str) -> float:
    """How wide a text is at most."""
    return sum(_LETTER * (1.7 if unicodedata.east_asian_width(c) in "WF" else 1) for c in text)


def fitted(text: str, width: float) -> str:
    """A text cut to a width; empty where not even three letters have room."""
    if width_of(text) <= width:
        return text
    kept = text
    while kept and width_of(kept + "…") > width:
        kept = kept[: min(len(kept) - 1, int(width / _LETTER))]
    return kept + "…" if len(kept) >= 3 else ""


def label(x: float, y: float, text: str, kind: str = "", end: bool = False) -> str:
    """A text whose baseline begins, or ends, at a place."""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{anchor}>{html.escape(text)}</text>' if text else ""


def box(x: float, y: float, width: float, height: float, kind: str, title: str, data: str = "") -> str:
    """A rectangle of a class, with the text that a pointer over it shows; `data` are further attributes as written."""
    place = f'x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}"'
    return f'<rect {place} class="{kind}"{" " + data if data else ""}><title>{html.escape(title)}</title></rect>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def drawing(height: float, told: str, parts: Sequence[str]) -> str:
    """A picture as one element, `WIDTH` wide; `told` is for readers who cannot see it."""
    head = f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{html.escape(told)}">'
    return "\n".join([head, *(part for part in parts if part), "</svg>"])


def ticks(most: float, about: int, base: int = 10) -> list[float]:
    """Some `about` numbers from 0 to `most` that are round in a system: 10, or 2 for bytes."""
    if most <= 0:
        return [0.0]
    step = most / about
    power = float(base) ** math.floor(math.log(step, base))
    steps = (1, 2) if base == 2 else (1, 2, 5, 10)
    chosen = next(power * factor for factor in steps if power * factor >= step * 0.999)
    return [i * chosen for i in range(int(most / chosen * 1.0001) + 1)]
