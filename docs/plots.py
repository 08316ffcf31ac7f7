"""Draws the figures and writes the tables of the pages on benchmarks and on the store, from bench/results/*.json alone.

    python docs/plots.py [--check] [--results FOLDER] [--into FOLDER]

`bench/record.py` measures and runs this. `--check` writes nothing, and fails where a figure or a table is not what the
results give. Another version of matplotlib draws other text: figures of another version are not compared.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

try:
    import matplotlib as mpl
except ImportError as error:
    sys.exit(f'This needs {error.name}: run pip install "partax[docs]"')

import plot_tables
from plot_charts import THEMES
from plot_figures import FIGURES, Figure
from plot_results import BENCHMARKS, SWEEPS, Results, ResultsError, read

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "bench" / "results"
PAGE = "benchmarks.md"
PAGE_OF_BLOCK = {"warm_start table": "guides/warm_start.md"}  # else PAGE
VERSION = re.compile(r"<!-- matplotlib (\S+) -->")


def shown_figure(name: str, figure: Figure, results: Results) -> str:
    """What the page has of a figure: both pictures and the caption."""
    alt = f"{figure.title}. {figure.reading(results)}".replace("`", "")
    pictures = [f"![{alt}](figures/{name}-{theme.name}.svg){{.only-{theme.name}}}" for theme in THEMES]
    samples = sorted({point.samples for point in results.points})
    counted = f"{samples[0]}" if len(samples) == 1 else f"{samples[0]} to {samples[-1]}"
    how = f"Medians of {counted} samples, taken in turns; the bars are quartiles."
    return "\n".join([*pictures, "", f"{figure.reading(results)}", "", f"*{how} {results.origin}*"])


def shown_table(name: str, results: Results) -> str:
    return f"{plot_tables.TABLES[name](results)}\n\n*{results.origin}*"


def blocks(results: Mapping[str, Results]) -> dict[str, str]:
    """The text between `<!-- NAME begin -->` and `<!-- NAME end -->` of a page, by name."""
    benchmarks = [results[name] for name in BENCHMARKS]
    return {
        **{f"{name} plot": shown_figure(name, figure, results[figure.source]) for name, figure in FIGURES.items()},
        **{f"{name} table": shown_table(name, results[name]) for name in plot_tables.TABLES},
        "missed": plot_tables.missed(benchmarks),
        "summary": plot_tables.summary(benchmarks),
    }


def filled(file: str, blocks: Mapping[str, str]) -> str:
    """A page with its blocks between their markers."""
    page = (DOCS / file).read_text(encoding="utf-8")
    for name, text in blocks.items():
        begin, end = f"<!-- {name} begin -->\n", f"<!-- {name} end -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ResultsError(f"docs/{file} has no {begin.strip()} and {end}, or more than one")
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{text}\n\n{end}{rest.partition(end)[2]}"
    return page


def drawn(folder: Path) -> dict[str, str]:
    """The text of every file, by its path below docs/."""
    results = {name: read(folder, name) for name in (*BENCHMARKS, *SWEEPS)}
    try:
        files = {
            f"figures/{name}-{theme.name}.svg": figure.draw(results[figure.source], theme, figure.title)
            for name, figure in FIGURES.items()
            for theme in THEMES
        }
        texts = blocks(results)
    except KeyError as error:
        raise ResultsError(
            f"{folder} has nothing of {error}: run `python bench/record.py`, which measures it"
        ) from error
    pages: dict[str, dict[str, str]] = {}
    for name, text in texts.items():
        pages.setdefault(PAGE_OF_BLOCK.get(name, PAGE), {})[name] = text
    return files | {file: filled(file, blocks_of_page) for file, blocks_of_page in pages.items()}


def differing(files: Mapping[str, str], docs: Path) -> list[str]:
    """Which are not as they are drawn; also figures that nothing draws."""
    wrong: list[str] = []
    for name, text in files.items():
        file = docs / name
        found = file.read_text(encoding="utf-8") if file.exists() else ""
        version = VERSION.search(found)
        if version is not None and version[1] != mpl.__version__:
            print(f"docs/{name} is by matplotlib {version[1]}, this is {mpl.__version__}: not compared")
        elif found != text:
            wrong.append(f"docs/{name}")
    extra = {f"figures/{file.name}" for file in (docs / "figures").glob("*.svg")} - files.keys()
    return wrong + [f"docs/{name} (nothing draws it)" for name in sorted(extra)]


def write(files: Mapping[str, str], docs: Path) -> None:
    for name, text in files.items():
        file = docs / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Draw the figures and write the tables of the page on benchmarks.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if they are not up to date")
    parser.add_argument("--results", metavar="FOLDER", type=Path, default=RESULTS, help="where the JSON is")
    parser.add_argument("--into", metavar="FOLDER", type=Path, default=DOCS, help="write here instead of into docs/")
    options = parser.parse_args(arguments)
    try:
        files = drawn(options.results)
    except ResultsError as error:
        print(error, file=sys.stderr)
        return 2
    if options.check:
        wrong = differing(files, options.into)
        if wrong:
            print(f"Not what {options.results} gives: {', '.join(wrong)}. Run python docs/plots.py", file=sys.stderr)
        return 1 if wrong else 0
    write(files, options.into)
    return 0


if __name__ == "__main__":
    sys.exit(main())
