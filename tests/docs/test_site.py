"""Guards the promise that the site builds without a warning, and that each of its pages has all that it shows: nothing
is missing, and nothing is asked of another host."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("sphinx", "myst_parser", "furo", "sphinx_copybutton", "sphinx_design")

pytestmark = pytest.mark.skipif(None in map(find_spec, NEEDED), reason="needs the extra `docs`")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as the README says; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    ran = subprocess.run([*build, str(ROOT / "docs"), str(folder / "html")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return folder / "html"


def test_each_page_is_there(site: Path) -> None:
    sources = [page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")]
    for page in sources:
        text = (site / page).read_text(encoding="utf-8")
        assert "<h1>" in text, page
        # What MyST could not make a link of, and what autodoc could not read.
        assert "```" not in text and "{py:" not in text, page


def test_what_a_page_loads_is_there_and_of_no_other_host(site: Path) -> None:
    """The pages have no script of their own that could load more."""
    loaded = 0
    for file in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = file.read_text(encoding="utf-8")
        tags = re.findall(r"<(?:img|script|link|iframe|source|object)\b[^>]*>", text) if file.suffix == ".html" else []
        named = [link for tag in tags for link in re.findall(r'\b(?:src|href|data)="([^"]*)"', tag)]
        named += re.findall(r"url\(['\"]?([^)'\"]+)", text) + re.findall(r'@import\s+"([^"]+)', text)
        for name in named:
            if not name.startswith(("data:", "#")):
                assert (file.parent / unquote(name.partition("?")[0])).exists(), f"{file.relative_to(site)}: {name}"
                loaded += 1
    assert loaded > 100
