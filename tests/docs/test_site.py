"""Guards the promise that the site builds without a warning, and that each of its pages can be read in a real browser:
at 1280 and 400 pixels nothing runs over, the console is quiet, and nothing is asked of another host."""

from __future__ import annotations

import http.server
import importlib.metadata
import json
import re
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from browser import BROWSER, NO_BROWSER, command

ROOT = Path(__file__).parents[2]
WIDTHS = (1280, 400)

pytestmark = pytest.mark.skipif(
    any(
        find_spec(module) is None for module in ("sphinx", "myst_parser", "furo", "sphinx_copybutton", "sphinx_design")
    ),
    reason="needs the extra `docs`",
)

# Loads each page into a frame of each width, and sends what it finds there.
MEASURE = """
<!DOCTYPE html><meta charset="utf-8"><body><script>
const found = [];
const one = (page, width) => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:900px;border:0`;
  frame.src = page;
  frame.onload = () => {
    const inner = frame.contentDocument, root = inner.documentElement;
    const outside = [...inner.querySelectorAll(".content *")].filter(it => {
      const place = it.getBoundingClientRect();
      return place.width && place.right > width + 0.5 && !it.closest("pre, .table-wrapper, svg, .sd-tab-set, .sig");
    }).map(it => it.outerHTML.slice(0, 99));
    const broken = [...inner.images].filter(it => it.complete && !it.naturalWidth && it.loading != "lazy");
    found.push({
      page, width, title: inner.title, scroll: root.scrollWidth, client: root.clientWidth, outside,
      requests: frame.contentWindow.performance.getEntriesByType("resource").map(it => it.name),
      broken: broken.map(it => it.src), text: inner.body.innerText.length,
    });
    frame.remove();
    done();
  };
  document.body.append(frame);
});
(async () => {
  for (const page of PAGES) for (const width of WIDTHS) await one(page, width);
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
})();
</script>
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as the README says; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    ran = subprocess.run(
        [*build, "-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return folder / "html"


def pages_of(site: Path) -> list[str]:
    return sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))


def test_each_page_is_there(site: Path) -> None:
    sources = {str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")}
    assert sources <= set(pages_of(site))
    for page in sources:
        text = (site / page).read_text(encoding="utf-8")
        assert "<h1>" in text, page
        # What MyST could not make a link of, and what autodoc could not read.
        assert "```" not in text and "{py:" not in text, page


def test_the_first_page_leads_everywhere(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert "pip install ." in re.sub(r"<[^>]+>", "", text)
    for part in ("arrays-light.svg", "arrays-dark.svg", "doctor_compile.png", "Equinox", "Flax nnx"):
        assert part in text
    for page in ("start", "slow/index", "guides/warm_start", "guides/below_the_floor", "coming_from/jax_jit"):
        assert f'href="{page}.html' in text
    assert text.count("sd-tab-label") == 3
    assert f"partax {importlib.metadata.version('partax')}" in text


def test_code_can_be_copied_without_its_prompts(site: Path) -> None:
    assert "copybutton.js" in (site / "start.html").read_text(encoding="utf-8")
    assert ">>> " in (site / "_static/copybutton.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def seen(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a browser makes of each page at each width; the site is served from here, and no other host is known."""
    if BROWSER is None:
        pytest.skip(NO_BROWSER)
    script = MEASURE.replace("PAGES", json.dumps(pages_of(site))).replace("WIDTHS", json.dumps(WIDTHS))
    (site / "measure.html").write_text(script, encoding="utf-8")
    done = threading.Event()
    answer: dict[str, Any] = {"missing": []}

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(site))

        def do_POST(self) -> None:
            answer["pages"] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()
            done.set()

        def send_error(self, code: int, *args: Any, **kwargs: Any) -> None:
            if self.path != "/favicon.ico":
                answer["missing"].append(self.path)
            super().send_error(code, *args, **kwargs)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    profile, console = tmp_path_factory.mktemp("profile"), tmp_path_factory.mktemp("console") / "stderr"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, console.open("w") as errors:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answer["origin"] = f"http://127.0.0.1:{server.server_port}/"
        logged = ("--enable-logging=stderr", "--remote-debugging-port=0")
        shows = command(profile, ", EXCLUDE 127.0.0.1", *logged, f"{answer['origin']}measure.html")
        browser = subprocess.Popen(shows, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            assert done.wait(180), console.read_text()
        finally:
            browser.terminate()
            browser.wait(30)
            server.shutdown()
    answer["console"] = [line for line in console.read_text().splitlines() if "CONSOLE" in line]
    return answer


def test_every_page_is_opened_at_each_width(seen: dict[str, Any], site: Path) -> None:
    opened = {(it["page"], it["width"]) for it in seen["pages"]}
    assert opened >= {(page, width) for page in pages_of(site) if page != "measure.html" for width in WIDTHS}
    assert all(it["title"] and it["text"] > 100 for it in seen["pages"] if it["page"] not in ("search.html",))


def test_nothing_runs_over(seen: dict[str, Any]) -> None:
    wide = [(it["page"], it["width"], it["scroll"]) for it in seen["pages"] if it["scroll"] > it["client"]]
    assert wide == []
    assert [(it["page"], it["width"], it["outside"][:3]) for it in seen["pages"] if it["outside"]] == []


def test_the_console_is_quiet_and_nothing_is_missing(seen: dict[str, Any]) -> None:
    assert [line for line in seen["console"] if "favicon" not in line] == []
    assert seen["missing"] == []
    assert [it for it in seen["pages"] if it["broken"]] == []


def test_nothing_is_asked_of_another_host(seen: dict[str, Any]) -> None:
    asked = {name for it in seen["pages"] for name in it["requests"]}
    assert asked
    assert [name for name in asked if not name.startswith((seen["origin"], "data:"))] == []
