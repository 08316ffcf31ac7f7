"""Guards the promise that README and site are true: every Python block of a page runs, in order, and gives the output
below it, and every link to a file or a heading has a target."""

import pathlib
import re
from typing import Any

import pytest
from shown_code import FENCE, run_blocks

ROOT = pathlib.Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
AT_ONCE = [ROOT / "README.md", ROOT / "docs" / "guides" / "filter_jit.md"]  # many others train
WITH_PYTHON = [
    pytest.param(page, marks=[pytest.mark.slow] * (page not in AT_ONCE))
    for page in TEXTS
    if "```python" in page.read_text(encoding="utf-8")
]
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_every_block_runs_and_gives_what_it_shows(page: pathlib.Path, names: dict[str, Any]) -> None:
    for library in ("flax", "orbax", "safetensors"):
        if re.search(rf"import {library}|from {library}|\.{library}\"", page.read_text(encoding="utf-8")):
            pytest.importorskip(library)
    assert run_blocks(page.read_text(encoding="utf-8"), names, str(page)) > 0


def anchors(page: pathlib.Path) -> set[str]:
    """The names that headings of a page have in links, as GitHub and MyST make them."""
    without_code = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", without_code, re.MULTILINE)
    targets = re.findall(r"^\(([\w-]+)\)=$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings} | {*targets}


@pytest.mark.parametrize("page", TEXTS, ids=name_of)
def test_every_fence_is_closed_and_every_link_inside_leads_somewhere(page: pathlib.Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(FENCE.findall(text))
    assert {fence[1] for fence in FENCE.finditer(text)}.isdisjoint({"py", "Python", "python3", "pycon", "ipython"})
    for link in LINK.findall(FENCE.sub("", text)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{name_of(page)}: {link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)}: {link}, but {name_of(target)} has no such heading"


PAGE = """
```python
x = [1, 2]
[x[0],
 x[1]]  # -> [1, 2]
print("a", x)  # -> a [1, ...]
```

```text
a [1, 2]
```

```python
>>> x[0] + 3
4
```
"""


@pytest.mark.parametrize(("right", "wrong"), [("-> [1, 2]", "-> [1, 3]"), ("a [1, 2]\n```", "a\n```"), ("4\n", "5\n")])
def test_wrong_output_is_detected(names: dict[str, Any], right: str, wrong: str) -> None:
    assert run_blocks(PAGE, names, "page.md") == 2
    with pytest.raises(AssertionError):
        run_blocks(PAGE.replace(right, wrong), names, "page.md")
