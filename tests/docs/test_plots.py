"""Guards the promise that the site shows no figure that the results in the repository do not hold, and that each file
of these names its commit, versions and machine."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import platform
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "bench" / "results"
sys.path += [str(DOCS), str(ROOT / "bench")]
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")
pytestmark = pytest.mark.nightly
plots, charts, figures, tables, plot_results, record = map(
    importlib.import_module, ("plots", "plot_charts", "plot_figures", "plot_tables", "plot_results", "record")
)

HEAD = {
    "commit": "0123456789" * 4,
    "changed": False,
    "date": "2031-02-03",
    "versions": {"python": "3.99.1", "jax": "9.8.7", "equinox": "6.5.4"},
    "machine": {"system": "TestOS t64", "cpu": "Abacus 7", "cores": 3},
    "device": "cpu",
    "quick": False,
}
FORMS = ("floor", "jax.jit", "equinox", "partax")


def points(panel: str, quantity: str, forms: Any, places: Any, values: Callable[[], tuple[float, float, float]]) -> Any:
    for form, at in itertools.product(forms, places):
        low, median, high = sorted(values())
        named = {"panel": panel, "form": form, "at": at, "quantity": quantity}
        yield {**named, "low": low, "median": median, "high": high, "samples": 17}


def made_up(folder: Path, seed: int = 0) -> Path:
    """All files of results that there are, with random figures."""
    chance = random.Random(seed)

    def seconds() -> tuple[float, float, float]:
        return tuple(10 ** chance.uniform(-6, 0) for _ in range(3))  # type: ignore[return-value]

    def shares() -> tuple[float, float, float]:
        return tuple(chance.uniform(-0.1, 0.9) for _ in range(3))  # type: ignore[return-value]

    jits, others = FORMS, FORMS[1:]
    places = (1, 10, 1000)
    sweeps: dict[str, list[Any]] = {
        "sweep_arrays": [*points("a call", "seconds", jits, places, seconds)],
        "sweep_nodes": [point for form in others for point in points(form, "ratio", figures.FAMILIES, places, seconds)],
        "sweep_work": [],
        "sweep_leaves": [],
        "sweep_retraces": [point for case in figures.CASES for point in points(case, "seconds", others, (8,), seconds)],
        "sweep_devices": [],
        "sweep_nnx": [],
    }
    sweeps["sweep_arrays"] += points("a call", "ratio", others, places, seconds)
    for panel in (figures.WAITED, figures.IN_A_ROW):
        sweeps["sweep_work"] += points(panel, "seconds", jits, places, seconds)
        sweeps["sweep_work"] += points(panel, "share", others, places, shares)
    for panel in ("partition", "combine"):
        sweeps["sweep_leaves"] += points(panel, "seconds", figures.TREES, places, seconds)
    for panel in ("a call until it returns", "a step until it has ended"):
        sweeps["sweep_devices"] += points(panel, "seconds", jits, (1, 2), seconds)
    for panel in (figures.NOTHING, figures.TRAINING):
        sweeps["sweep_nnx"] += points(panel, "seconds", figures.NNX, (1, 4), seconds)
        sweeps["sweep_nnx"] += points(panel, "ratio", figures.NNX, (1, 4), seconds)
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in sweeps.items():
        write(folder, name, {**HEAD, "points": found})
    for name in plot_results.BENCHMARKS:
        works = ("a, in", "a, out") if name == "families" else ("a work",)
        write(folder, name, {**HEAD, "rows": [row(work, chance.uniform(0.5, 2)) for work in works]})
    return folder


def row(work: str, measured: float, **changed: Any) -> dict[str, Any]:
    seconds = {"floor": 2e-6, "jax.jit": 7e-6, "equinox": 62e-6, "partax": 2e-6 * measured}
    found = {"work": work, "seconds": seconds, "quantity": "a call", "measured": measured, "budget": 1.1}
    return {**found, "unit": "x floor", "met": measured <= 1.1, "known": None, **changed}


def write(folder: Path, name: str, found: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All that is drawn from made-up results, by its path."""
    return plots.drawn(made_up(tmp_path_factory.mktemp("results")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made_up(tmp_path / "results")


def drawing(folder: Path, name: str) -> ElementTree.Element:
    figure = figures.FIGURES[name]
    return ElementTree.fromstring(figure.draw(plot_results.read(folder, figure.source), charts.LIGHT, figure.title))


def named(root: ElementTree.Element, gid: str) -> ElementTree.Element:
    (found,) = (element for element in root.iter() if element.get("id") == gid)
    return found


def corners(path: ElementTree.Element) -> list[tuple[float, float]]:
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.attrib["d"])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def drawn_points(root: ElementTree.Element, gid: str) -> list[tuple[float, float]]:
    group = named(root, f"{gid}-points")
    return [(float(e.attrib["x"]), float(e.attrib["y"])) for e in group.iter() if e.tag.endswith("}use")]


def drawn_bars(root: ElementTree.Element, gid: str) -> list[list[tuple[float, float]]]:
    return [corners(e) for e in named(root, f"{gid}-bars").iter() if e.tag.endswith("}path")]


def along(values: list[float], places: list[float]) -> Callable[[float], float]:
    """Where a logarithmic axis has a value, by where it has the least and the greatest of some."""
    (low, start), (high, end) = min(zip(values, places, strict=True)), max(zip(values, places, strict=True))
    return lambda value: start + (end - start) * math.log(value / low) / math.log(high / low)


# What, its panels and its names: in all of these both axes are logarithmic.
LINES = [
    ("arrays", [("a call", "seconds")], {form: figures.JITS[form] for form in FORMS}),
    ("nodes", [(form, "ratio") for form in FORMS[1:]], figures.FAMILIES),
    ("leaves", [("partition", "seconds"), ("combine", "seconds")], figures.TREES),
    ("nnx", [(figures.NOTHING, "seconds"), (figures.TRAINING, "seconds")], figures.NNX),
    ("devices", [("a call until it returns", "seconds")], {form: figures.JITS[form] for form in FORMS}),
]


@pytest.mark.parametrize(("name", "panels", "forms"), LINES, ids=[line[0] for line in LINES])
def test_points_and_bars_are_where_the_results_have_them(folder: Path, name: str, panels: Any, forms: Any) -> None:
    root = drawing(folder, name)
    source = json.loads((folder / f"{figures.FIGURES[name].source}.json").read_text())["points"]
    for number, (panel, quantity) in enumerate(panels):
        of_panel = [p for p in source if (p["panel"], p["quantity"]) == (panel, quantity)]
        lines = [[p for p in of_panel if p["form"] == form] for form in figures_in_order(name, forms)]
        drawn = [drawn_points(root, f"panel{number}-line{i}") for i in range(len(lines))]
        assert [len(line) for line in drawn] == [len(line) for line in lines]
        flat, flat_drawn = [p for line in lines for p in line], [xy for line in drawn for xy in line]
        assert len(flat) == len(of_panel)
        x = along([p["at"] for p in flat], [at for at, _ in flat_drawn])
        y = along([p["median"] for p in flat], [at for _, at in flat_drawn])
        for p, place in zip(flat, flat_drawn, strict=True):
            assert place == pytest.approx((x(p["at"]), y(p["median"])), abs=1e-3)
        bars = [bar for i in range(len(lines)) for bar in drawn_bars(root, f"panel{number}-line{i}")]
        for p, bar in zip(flat, bars, strict=True):
            wanted = [(x(p["at"]), y(p[end])) for end in ("low", "high")]
            assert [at for end in bar for at in end] == pytest.approx([at for end in wanted for at in end], abs=1e-3)


def figures_in_order(name: str, forms: Any) -> list[str]:
    order = {"arrays": figures.JITS, "devices": figures.JITS}.get(name, forms)
    return [form for form in order if form in forms]


def test_ticks_say_what_the_points_are(tmp_path: Path) -> None:
    """A point at 1,000 arrays and 1 ms is above and beside the ticks that say so."""
    folder = made_up(tmp_path)
    exact = iter([1e-5, 1e-4, 1e-3] * 4)
    found = list(points("a call", "seconds", FORMS, (10, 100, 1000), lambda: (next(exact),) * 3))
    write(folder, "sweep_arrays", {**HEAD, "points": found})
    root = drawing(folder, "arrays")
    texts = {e.text: e for e in root.iter() if e.tag.endswith("}text")}
    last = drawn_points(root, "panel0-line0")[-1]
    assert float(texts["1,000"].attrib["x"]) == pytest.approx(last[0], abs=0.01)
    assert float(texts["1 ms"].attrib["y"]) == pytest.approx(last[1], abs=4)  # its baseline
    assert float(texts["100 µs"].attrib["y"]) > last[1] + 10


def test_shares_stand_over_the_time_of_the_floor(folder: Path) -> None:
    root = drawing(folder, "work")
    source = json.loads((folder / "sweep_work.json").read_text())["points"]
    for number, panel in enumerate((figures.WAITED, figures.IN_A_ROW)):
        floor = {p["at"]: p["median"] for p in source if (p["panel"], p["form"]) == (panel, "floor")}
        wanted = [p for p in source if (p["panel"], p["quantity"]) == (panel, "share")]
        wanted.sort(key=lambda p: (list(figures.JITS).index(p["form"]), p["at"]))
        drawn = [xy for i in range(3) for xy in drawn_points(root, f"panel{number}-line{i}")]
        x = along([floor[p["at"]] for p in wanted], [at for at, _ in drawn])
        assert [at for at, _ in drawn] == pytest.approx([x(floor[p["at"]]) for p in wanted], abs=1e-3)
        heights = np.polyfit([p["median"] for p in wanted], [-at for _, at in drawn], 1)
        assert heights[0] > 0
        assert np.polyval(heights, [p["median"] for p in wanted]) == pytest.approx([-at for _, at in drawn], abs=1e-3)


def test_dots_of_retraces_stand_in_the_rows_of_their_cases(folder: Path) -> None:
    root = drawing(folder, "retraces")
    source = json.loads((folder / "sweep_retraces.json").read_text())["points"]
    drawn = [drawn_points(root, f"panel0-line{i}") for i in range(3)]
    assert [len(line) for line in drawn] == [len(figures.CASES)] * 3
    wanted = [
        p for form in FORMS[1:] for case in figures.CASES for p in source if (p["form"], p["panel"]) == (form, case)
    ]
    flat = [xy for line in drawn for xy in line]
    x = along([p["median"] for p in wanted], [at for at, _ in flat])
    assert [at for at, _ in flat] == pytest.approx([x(p["median"]) for p in wanted], abs=1e-3)
    rows = [[line[i][1] for line in drawn] for i in range(len(figures.CASES))]
    assert all(max(above) < min(below) for above, below in itertools.pairwise(rows))


@pytest.mark.parametrize("name", figures.FIGURES)
def test_every_form_has_its_name_and_no_name_is_on_another(folder: Path, name: str) -> None:
    root = drawing(folder, name)
    texts = [e for e in root.iter() if e.tag.endswith("}text")]
    shown = {e.text for e in texts}
    of_jits = figures.JITS if name in ("arrays", "devices") else {form: figures.JITS[form] for form in FORMS[1:]}
    forms = {"leaves": figures.TREES, "nnx": figures.NNX, "nodes": figures.FAMILIES}.get(name, of_jits)
    assert {label for label, _ in forms.values()} <= shown
    for number in itertools.count():
        labels = [e for e in root.iter() if (e.get("id") or "").startswith(f"panel{number}-label")]
        if not labels:
            break
        heights = sorted(float(e.attrib["y"]) for label in labels for e in label.iter() if e.tag.endswith("}text"))
        assert len(heights) == len(forms)
        assert all(below - above > 9 for above, below in itertools.pairwise(heights))  # the size of the letters
    assert len({style for _, style in forms.values()}) == len(forms)


def test_labels_are_as_near_as_they_can_be() -> None:
    chance = random.Random(1)
    for _ in range(300):
        wanted = [chance.choice([0.1, 0.5, 0.52, chance.random()]) for _ in range(chance.randint(1, 8))]
        places = charts.spread_out(wanted, 0.07)
        assert all(abs(a - b) > 0.0699 for a, b in itertools.combinations(places, 2))
        pairs = list(itertools.combinations(zip(wanted, places, strict=True), 2))
        assert all(p < q for (a, p), (b, q) in pairs if a < b)
        if all(abs(a - b) > 0.07 for a, b in itertools.combinations(wanted, 2)):
            assert places == pytest.approx(wanted)


@pytest.mark.parametrize("name", figures.FIGURES)
def test_dark_and_light_differ_in_colours_alone_and_need_nothing_from_elsewhere(folder: Path, name: str) -> None:
    figure = figures.FIGURES[name]
    light, dark = (
        figure.draw(plot_results.read(folder, figure.source), theme, figure.title) for theme in charts.THEMES
    )
    assert light != dark
    marker = r"#m[0-9a-f]{10}|m[0-9a-f]{10}|#[0-9a-f]{6}"  # markers are named by what they look like
    assert re.sub(marker, "", light) == re.sub(marker, "", dark)
    addresses = set(re.findall(r"[a-z]+://[^\"\s]+", light))
    assert addresses == {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', light))
    assert "<title>" in light and "<image" not in light and "@import" not in light


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    dark, light = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


# What those see who have no cones for long, for middle or for short waves (Machado, Oliveira and Fernandes, 2009).
EYES = {
    "all": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(colour: np.ndarray) -> np.ndarray:
    """CIE 1976 L*a*b*, white D65."""
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = matrix @ np.clip(colour, 0, 1) / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", charts.THEMES, ids=lambda theme: theme.name)
def test_colours_are_seen_on_the_page_and_told_apart(theme: Any) -> None:
    assert contrast(theme.text, theme.page) >= 7
    for colour in theme.series:
        assert contrast(colour, theme.page) >= 3, colour
    for eyes, matrix in EYES.items():
        seen = [lab(np.array(matrix) @ linear(colour)) for colour in theme.series]
        for (one, a), (other, b) in itertools.combinations(zip(theme.series, seen, strict=True), 2):
            assert np.linalg.norm(a - b) > 15, (eyes, one, other)


# ---- Tables.


def results_of(tmp_path: Path, name: str, rows: list[Any]) -> Any:
    write(tmp_path, name, {**HEAD, "rows": rows})
    return plot_results.read(tmp_path, name)


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def test_tables_have_the_multiples_that_the_rows_have(tmp_path: Path) -> None:
    rows = [
        row("a", 1.05),
        row("b", 1.25),
        row("c", 0.024, unit="ms", budget=0.15, met=True),
        row("d", 1.0, unit="x tuples", seconds={"tuples": 1e-3, "equinox": 4e-3, "partax": 1e-3}),
        row("e", 1.2, known={"limit": 1.3, "reason": "a cause"}),
    ]
    lines = cells(tables.dispatch(results_of(tmp_path, "dispatch", rows)))[2:]
    assert lines == [
        ["a", "3.50", "31.0", "1.05", "≤ 1.1"],
        ["b", "3.50", "31.0", "**1.25**", "≤ 1.1"],
        ["c", "7 µs", "62 µs", "24 µs", "≤ 0.15 ms"],
        ["d (over tuples)", "-", "4.00", "1.00", "≤ 1.1"],
        ["e", "3.50", "31.0", "**1.20**", "≤ 1.1"],
    ]
    of_families = [row("t, in", 1.0), row("t, out", 1.2), row("o, in", 0.9, unit="x jax.jit"), row("o, out", 0.8)]
    lines = cells(tables.families(results_of(tmp_path, "families", of_families)))[2:]
    assert lines[0] == ["t", "3.50", "1.00", "≤ 1.1", "3.50", "**1.20**", "≤ 1.1"]
    assert lines[1][:4] == ["o, over jax.jit", "-", "0.90", "≤ 1.1"]


def test_rows_over_their_budgets_are_named_with_what_is_known(tmp_path: Path) -> None:
    known = {"limit": 1.3, "reason": "a cause"}
    rows = [row("met", 1.0), row("why", 1.2, known=known), row("worse", 1.4, known=known), row("unknown", 1.5)]
    of = results_of(tmp_path, "dispatch", rows)
    lines = tables.missed([of]).splitlines()
    assert [line.split(", ")[1].split(":")[0] for line in lines] == ["why", "worse", "unknown"]
    assert lines[0].endswith("1.20, budget ≤ 1.1. A cause.")
    assert "no more than 1.3" in lines[1] and "No reason" in lines[2]
    assert cells(tables.summary([of]))[2] == ["`bench/dispatch.py`", "4", "1", "1", "2"]
    assert tables.missed([results_of(tmp_path, "nnx", rows[:1])]) == "Every row is within its budget."


# ---- The command.


def draw(results: Path, into: Path, *more: str) -> int:
    return plots.main(["--results", str(results), "--into", str(into), *more])


def test_captions_name_machine_versions_and_commit(drawn: Any, folder: Path) -> None:
    page = drawn["benchmarks.md"]
    assert page.count("Abacus 7, 3 cores, TestOS t64") == len(figures.FIGURES) + len(tables.TABLES)
    assert page.count("Python 3.99.1, jax 9.8.7, Equinox 6.5.4; commit 0123456789, 2031-02-03.") == page.count(
        "Abacus 7"
    )
    assert page.count("Medians of 17 samples") == len(figures.FIGURES)
    origin = plot_results.read(folder, "dispatch").origin
    assert "quick" not in origin and "changes" not in origin
    write(folder, "dispatch", {**HEAD, "quick": True, "changed": True, "rows": [row("a", 1.0)]})
    origin = plot_results.read(folder, "dispatch").origin
    assert "with changes" in origin and "a quick run" in origin


def test_the_same_results_give_the_same_bytes_in_another_process(drawn: Any, folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "plots.py"), "--results", str(folder), "--into", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert {str(file.relative_to(tmp_path / "out")): file.read_text(encoding="utf-8") for file in files} == drawn
    assert len(drawn) == 2 * len(figures.FIGURES) + 1


def replace_in(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


CHANGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "a point in a figure": (
        "arrays-light.svg",
        lambda out: replace_in(out / "figures" / "arrays-light.svg", 'x="6', 'x="7'),
    ),
    "a figure that is gone": ("nnx-dark.svg", lambda out: (out / "figures" / "nnx-dark.svg").unlink()),
    "a figure that nothing draws": ("old.svg", lambda out: (out / "figures" / "old.svg").write_text("<svg/>")),
    "a number in a table": ("benchmarks.md", lambda out: replace_in(out / "benchmarks.md", "| 31.0 |", "| 41.0 |")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_difference_is_noticed(drawn: Any, tmp_path: Path, change: str) -> None:
    plots.write(drawn, tmp_path)
    assert plots.differing(drawn, tmp_path) == []
    name, make = CHANGES[change]
    make(tmp_path)
    (found,) = plots.differing(drawn, tmp_path)
    assert name in found


def test_figures_of_another_matplotlib_are_not_compared(
    drawn: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plots.write(drawn, tmp_path)
    file = tmp_path / "figures" / "arrays-light.svg"
    file.write_text(re.sub(r"<!-- matplotlib \S+ -->", "<!-- matplotlib 0.0.1 -->", file.read_text(encoding="utf-8")))
    assert plots.differing(drawn, tmp_path) == []
    assert "arrays-light.svg is by matplotlib 0.0.1" in capsys.readouterr().out


def test_the_check_fails_for_other_results_and_writes_nothing(
    drawn: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    plots.write(drawn, out)
    assert draw(made_up(tmp_path / "others", seed=1), out, "--check") == 1
    error = capsys.readouterr().err
    assert all(name in error for name in drawn) and "docs/plots.py" in error
    assert plots.differing(drawn, out) == []


def changed(**members: Any) -> Callable[[Path], Any]:
    def change(file: Path) -> None:
        file.write_text(json.dumps({**json.loads(file.read_text()), **members}))

    return change


def without(member: str) -> Callable[[Path], Any]:
    def change(file: Path) -> None:
        found = json.loads(file.read_text())
        del found[member]
        file.write_text(json.dumps(found))

    return change


def with_point(**members: Any) -> Callable[[Path], Any]:
    def change(file: Path) -> None:
        found = json.loads(file.read_text())
        found["points"][0].update(members)
        file.write_text(json.dumps(found))

    return change


DAMAGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "missing": ("is missing", lambda file: file.unlink()),
    "half written": ("is damaged", lambda file: file.write_text(file.read_text()[:-30])),
    "a list": ("is damaged", lambda file: file.write_text("[]")),
    "without commit": ("has no 'commit'", without("commit")),
    "without versions": ("has no 'versions'", without("versions")),
    "without machine": ("has no 'machine'", without("machine")),
    "half a machine": ("has no 'cores'", changed(machine={"cpu": "Abacus 7", "system": "TestOS"})),
    "no points": ("holds no figures", changed(points=[])),
    "not a number": ("not a number", with_point(median=math.nan)),
    "a text for a number": ("not a number", with_point(at="many")),
    "a median above the quartiles": ("between the quartiles", with_point(median=1e9)),
    "a form that nothing names": ("does not name: ['abacus']", with_point(form="abacus")),
    "another panel": ("sweep_leaves", changed(points=[{**next(points("z", "ratio", "a", (1,), lambda: (1, 1, 1)))}])),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_results_are_refused_with_what_to_do(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    said, make = DAMAGES[damage]
    make(folder / "sweep_leaves.json")
    assert draw(folder, tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert said in error and "sweep_leaves" in error and "Traceback" not in error
    assert damage == "a form that nothing names" or "bench/record.py --only sweep_leaves" in error
    assert not (tmp_path / "out").exists()


def test_a_form_that_was_not_measured_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads((folder / "sweep_arrays.json").read_text())
    found["points"] = [point for point in found["points"] if point["form"] != "equinox"]
    write(folder, "sweep_arrays", found)
    assert draw(folder, tmp_path / "out") == 2
    assert "'equinox'" in (error := capsys.readouterr().err) and "bench/record.py" in error


# ---- What the repository holds.


def test_figures_and_tables_are_what_the_results_of_the_repository_give() -> None:
    assert plots.main(["--check"]) == 0


def test_every_benchmark_that_is_recorded_is_read_and_the_other_way_round() -> None:
    assert set(record.COMMANDS) == {*plot_results.BENCHMARKS, *plot_results.SWEEPS}
    assert {file.stem for file in RESULTS.iterdir()} == set(record.COMMANDS)


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_results_name_commit_versions_and_machine_and_nothing_of_the_host(file: Path) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"]) and isinstance(found["changed"], bool)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert found["versions"].keys() >= {"python", "partax", "jax", "jaxlib"}
    assert all(re.fullmatch(r"\d+\.\d+[\w.+]*", version) for version in found["versions"].values())
    assert found["machine"].keys() == {"system", "cpu", "cores"}
    assert found["machine"]["cores"] > 0 and found["machine"]["cpu"] and isinstance(found["quick"], bool)
    head = json.dumps({key: value for key, value in found.items() if key not in ("rows", "points")})
    assert "/" not in head
    assert len(platform.node()) < 4 or platform.node() not in head
