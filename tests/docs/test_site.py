"""Guards the promise that the site builds without a warning, and that each of its pages opens in a real browser: the
console is quiet, nothing is missing, and nothing is asked of another host."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from browser import BROWSER, NO_BROWSER, command

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    any(
        find_spec(module) is None for module in ("sphinx", "myst_parser", "furo", "sphinx_copybutton", "sphinx_design")
    ),
    reason="needs the extra `docs`",
)

# Loads each page into a frame, and sends what it finds there.
MEASURE = """
<!DOCTYPE html><meta charset="utf-8"><body><script>
const found = [];
const one = page => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.src = page;
  frame.onload = () => {
    const inner = frame.contentDocument, resources = frame.contentWindow.performance.getEntriesByType("resource");
    found.push({page, title: inner.title, requests: resources.map(it => it.name), text: inner.body.innerText.length});
    frame.remove();
    done();
  };
  document.body.append(frame);
});
(async () => {
  for (const page of PAGES) await one(page);
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


@pytest.fixture(scope="module")
def seen(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a browser makes of each page; the site is served from here, and no other host is known."""
    if BROWSER is None:
        pytest.skip(NO_BROWSER)
    script = MEASURE.replace("PAGES", json.dumps(pages_of(site)))
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


def test_every_page_is_opened(seen: dict[str, Any], site: Path) -> None:
    assert {it["page"] for it in seen["pages"]} >= {*pages_of(site)} - {"measure.html"}
    assert all(it["title"] and it["text"] > 100 for it in seen["pages"] if it["page"] != "search.html")


def test_the_console_is_quiet_and_nothing_is_missing(seen: dict[str, Any]) -> None:
    assert [line for line in seen["console"] if "favicon" not in line] == []
    assert seen["missing"] == []


def test_nothing_is_asked_of_another_host(seen: dict[str, Any]) -> None:
    asked = {name for it in seen["pages"] for name in it["requests"]}
    assert asked
    assert [name for name in asked if not name.startswith((seen["origin"], "data:"))] == []
