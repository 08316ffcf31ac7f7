"""Draws charts as SVG, for a light and for a dark page: the same text on every machine, nothing from elsewhere."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

WIDTH = 7.2
"""In inches; the text below a chart is a little wider."""
LABEL_GAP = 0.17
"""Inches between the labels of two lines."""
ROOM_FOR_LABELS = 1.75
"""Inches to the right of a panel."""
NARROW = 50
"""A logarithmic axis that spans less has ticks at 2 and 5 too."""


@dataclass(frozen=True)
class Theme:
    """Colours on a transparent ground; the page behind it is `page`."""

    name: str
    page: str
    text: str
    grid: str
    series: tuple[str, ...]


# Told apart also without seeing red, green or blue, as far as eight colours can be; markers and labels differ too.
LIGHT = Theme(
    *("light", "#ffffff", "#3B3E44", "#DADDE1"),
    ("#D0450B", "#5A5C63", "#0072B2", "#00A86B", "#531DA5", "#712614", "#9E60FB", "#500363"),
)
DARK = Theme(
    *("dark", "#131416", "#CFD0D0", "#34373B"),
    ("#FF8A4C", "#9CA0A5", "#56B4E9", "#8FE8B0", "#A424F9", "#D9264A", "#F9C806", "#7EFCFC"),
)
THEMES = (LIGHT, DARK)
MARKERS = "osD^vPX*"
FONTS = "'DejaVu Sans', Verdana, Arial, sans-serif"
"""Of which none is wider than the first, by which the room for the labels is measured."""


@dataclass(frozen=True)
class Line:
    """What one form takes, from place to place: medians between quartiles."""

    label: str
    style: int
    """Which colour and marker of the theme: equal forms look alike in all charts."""
    at: tuple[float, ...]
    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    lines: tuple[Line, ...]
    x: str
    y: str
    """What is along the axes; the unit is in the ticks."""
    y_unit: str = "seconds"
    x_unit: str = "count"
    y_log: bool = True
    places: tuple[float, ...] = ()
    """Ticks along x, where these are not the powers of ten."""
    level: float | None = None
    """A horizontal line to compare with."""


def readable(value: float, unit: str) -> str:
    """A tick or a figure: the unit is "seconds", "count", "ratio" or "share"."""
    if unit == "share":
        return f"{value:.0%}"
    if unit != "seconds":
        text = f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:.3g}"
        return f"{text}x" if unit == "ratio" else text
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g} {name}"
    return f"{value * 1e9:.3g} ns"


def lines_chart(panels: Sequence[Panel], theme: Theme, title: str, *, in_row: bool = False) -> str:
    """Panels below each other with the names at the ends of their lines; `in_row`: side by side, the names below."""
    with mpl.rc_context(_settings(theme)):
        if in_row:
            canvas = Canvas(figsize=(WIDTH, 4.1))
            spaces = canvas.subplots(1, len(panels), sharey=True, squeeze=False)[0]
            canvas.subplots_adjust(left=0.09, right=0.985, top=0.92, bottom=0.36, wspace=0.08)
        else:
            height = 3.1 * len(panels) + 0.25
            canvas = Canvas(figsize=(WIDTH, height))
            spaces = canvas.subplots(len(panels), 1, squeeze=False)[:, 0]
            canvas.subplots_adjust(left=0.105, right=1 - ROOM_FOR_LABELS / WIDTH, hspace=0.45)
            canvas.subplots_adjust(top=1 - 0.35 / height, bottom=0.55 / height)
        for number, (axes, panel) in enumerate(zip(spaces, panels, strict=True)):
            _draw_panel(axes, panel, theme, number)
            if in_row and number:
                axes.set_ylabel("")
        if in_row:
            _legend(canvas, panels[0].lines, theme, columns=3)
        else:
            for number, (axes, panel) in enumerate(zip(spaces, panels, strict=True)):
                _label_lines(axes, panel.lines, theme, number)
        return _as_svg(canvas, title)


def dots_chart(rows: Sequence[str], lines: Sequence[Line], theme: Theme, title: str, x: str) -> str:
    """A row for each case with a dot for each form: `at` is the number of the row, from the top."""
    with mpl.rc_context(_settings(theme)):
        height = 0.55 * len(rows) + 1.25
        canvas = Canvas(figsize=(WIDTH, height))
        axes = canvas.subplots()
        canvas.subplots_adjust(left=0.34, right=0.97, top=1 - 0.1 / height, bottom=1.0 / height)
        for number, line in enumerate(lines):
            shift = (number - (len(lines) - 1) / 2) * 0.24
            _draw_line(axes, line, theme, f"panel0-line{number}", [at + shift for at in line.at])
        axes.set_xscale("log")
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(x)
        _format(axes.xaxis, "seconds")
        axes.tick_params(axis="y", length=0)
        axes.yaxis.grid(visible=False)
        for row in range(1, len(rows)):
            axes.axhline(row - 0.5, color=theme.grid, linewidth=0.8)
        _legend(canvas, lines, theme, columns=len(lines))
        return _as_svg(canvas, title)


def _settings(theme: Theme) -> Any:
    return {
        **mpl.rcParamsDefault,
        "svg.hashsalt": "partax",
        "svg.fonttype": "none",
        "font.family": "DejaVu Sans",
        "font.size": 9.0,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": theme.text,
        "axes.labelcolor": theme.text,
        "axes.titlecolor": theme.text,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": theme.grid,
        "grid.linewidth": 0.8,
        "text.color": theme.text,
        "xtick.color": theme.text,
        "ytick.color": theme.text,
        "legend.frameon": False,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.5,
    }


def _draw_panel(axes: Axes, panel: Panel, theme: Theme, number: int) -> None:
    axes.set_xscale("log")
    if panel.y_log:
        axes.set_yscale("log")
    places = {at for line in panel.lines for at in line.at}
    if len(places) == 1:
        (place,) = places
        axes.set_xlim(place / 2, place * 2)
    if panel.level is not None:
        axes.axhline(panel.level, color=theme.text, linewidth=1, linestyle=(0, (4, 3)), gid=f"panel{number}-level")
    for line_number, line in enumerate(panel.lines):
        _draw_line(axes, line, theme, f"panel{number}-line{line_number}")
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    if panel.places:
        axes.xaxis.set_major_locator(FixedLocator(panel.places))
    _format(axes.xaxis, panel.x_unit)
    _format(axes.yaxis, panel.y_unit)


def _format(axis: Any, unit: str) -> None:
    low, high = axis.get_view_interval()
    if axis.get_scale() == "log" and isinstance(axis.get_major_locator(), LogLocator) and high / low < NARROW:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: readable(value, unit)))
    axis.set_minor_locator(NullLocator())


def _draw_line(axes: Axes, line: Line, theme: Theme, gid: str, rows: Sequence[float] | None = None) -> None:
    """With `rows`, the medians are along x and a dot is in each of the rows."""
    spread = [
        [median - low for median, low in zip(line.median, line.low, strict=True)],
        [high - median for median, high in zip(line.median, line.high, strict=True)],
    ]
    style: dict[str, Any] = {"color": theme.series[line.style], "marker": MARKERS[line.style], "capsize": 2.5}
    if rows is None:
        style["linestyle"] = (0, (4, 2)) if line.dashed else "-"
        drawn = axes.errorbar(line.at, line.median, yerr=spread, elinewidth=1.1, **style)
    else:
        drawn = axes.errorbar(line.median, rows, xerr=spread, elinewidth=1.1, linestyle="none", **style)
    points, _, bars = drawn.lines
    points.set_gid(f"{gid}-points")
    bars[0].set_gid(f"{gid}-bars")


def _label_lines(axes: Axes, lines: Sequence[Line], theme: Theme, number: int) -> None:
    """At the right of the axes, beside the last point of each line but not on each other."""
    height = axes.bbox.height / axes.figure.dpi
    axes.set_xlim(axes.get_xlim())  # The labels change no limits, on which their places depend.
    axes.set_ylim(axes.get_ylim())
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = [tuple(to_axes.transform((line.at[-1], line.median[-1]))) for line in lines]
    for place, (line, end, y) in enumerate(
        zip(lines, ends, spread_out([end[1] for end in ends], LABEL_GAP / height), strict=True)
    ):
        colour = theme.series[line.style]
        axes.plot(
            [end[0] + 0.008, 1.03, 1.05],
            [end[1], y, y],
            color=colour,
            linewidth=0.8,
            transform=axes.transAxes,
            clip_on=False,
            gid=f"panel{number}-lead{place}",
        )
        axes.text(1.06, y, line.label, transform=axes.transAxes, va="center", gid=f"panel{number}-label{place}")


def spread_out(wanted: Sequence[float], gap: float) -> list[float]:
    """Places in the order of those that are wanted, as near to them as they can be with `gap` between any two."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups: list[list[int]] = []
    for i in order:
        groups.append([i])
        while len(groups) > 1 and _first(groups[-1], wanted, gap) < _last(groups[-2], wanted, gap) + gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    places = list(wanted)
    for group in groups:
        for step, i in enumerate(group):
            places[i] = _first(group, wanted, gap) + step * gap
    assert all(places[b] - places[a] > gap * 0.999 for a, b in pairwise(order))
    return places


def _first(group: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    """Where a group of neighbours begins, whose middle is the mean of what they want."""
    return sum(wanted[i] for i in group) / len(group) - (len(group) - 1) * gap / 2


def _last(group: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return _first(group, wanted, gap) + (len(group) - 1) * gap


def _legend(canvas: Canvas, lines: Sequence[Line], theme: Theme, columns: int) -> None:
    """Below the axes, where it hides nothing."""
    handles = [
        Line2D([], [], color=theme.series[line.style], marker=MARKERS[line.style], label=line.label) for line in lines
    ]
    canvas.legend(handles=handles, loc="lower center", ncols=columns, bbox_to_anchor=(0.5, 0.0))


def _as_svg(canvas: Canvas, title: str) -> str:
    """Without date, prolog and metadata, and with fonts to take where the first is not there."""
    file = io.StringIO()
    canvas.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg ") :]
    text = re.sub(r"\n <metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r" +$", "", text, flags=re.MULTILINE).replace("'DejaVu Sans'", FONTS)
    head, rest = text.split(">", 1)
    return f'{head} role="img">\n <title>{escape(title)}</title>\n <!-- matplotlib {mpl.__version__} -->{rest}'
