"""Guards the promise that the doctor's page can be read in a real browser: on wide and narrow screens, light and dark,
nothing runs over its place, no text is cut or over another one, and nothing is asked of a network."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import partax
from browser import BROWSER, NO_BROWSER, command
from doctor_pages import diagnosis
from partax._doctor.page import page

WIDTHS = (1280, 400)

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(BROWSER is None, reason=NO_BROWSER)]

# Puts the page into a frame of each width, and what it finds there into the outer page.
MEASURE = """
const told = [];
for (const frame of document.querySelectorAll("iframe")) {
  const inner = frame.contentDocument, root = inner.documentElement, wide = frame.clientWidth;
  const within = (one, other) =>
    one.left >= other.left - 0.5 && one.right <= other.right + 0.5 &&
    one.top >= other.top - 1 && one.bottom <= other.bottom + 1;
  const level = (one, other) => one.top < other.bottom - 4 && other.top < one.bottom - 4;
  const outside = [], cut = [], over = [];
  for (const element of inner.querySelectorAll("body *")) {
    const place = element.getBoundingClientRect();
    if (!element.closest(".box, pre") && (place.right > wide + 0.5 || place.left < -0.5))
      outside.push(element.outerHTML.slice(0, 99));
  }
  for (const svg of inner.querySelectorAll(".box svg")) {
    const texts = [...svg.querySelectorAll("text")].map(it => [it.getBoundingClientRect(), it.textContent]);
    const all = svg.getBoundingClientRect();
    texts.forEach(([place, text], i) => {
      if (!within(place, all)) cut.push(text);
      for (const [other, second] of texts.slice(0, i))
        if (place.left < other.right - 1 && other.left < place.right - 1 && level(place, other))
          over.push([text, second]);
    });
    for (const box of svg.querySelectorAll("rect[data-depth]")) {
      const place = box.getBoundingClientRect();
      for (const [other, text] of texts)
        if (other.left >= place.left && other.left < place.right && level(place, other) && other.right > place.right)
          cut.push(text);
    }
  }
  const style = it => frame.contentWindow.getComputedStyle(it);
  const boxes = [...inner.querySelectorAll(".box svg")].map(it => it.getBoundingClientRect());
  told.push({
    width: frame.contentWindow.innerWidth, scroll: root.scrollWidth, client: root.clientWidth, outside, cut, over,
    requests: frame.contentWindow.performance.getEntriesByType("resource").map(it => it.name),
    background: style(inner.body).backgroundColor, colour: style(inner.body).color,
    fill: style(inner.querySelector("svg text")).fill,
    pictures: boxes.map(it => [it.width, it.height]),
    scrolls: [...inner.querySelectorAll(".box")].filter(it => it.scrollWidth > it.clientWidth + 1).length,
    cards: inner.querySelectorAll("article.card").length, text: inner.body.innerText,
  });
}
document.body.innerHTML = "";
const found = document.body.appendChild(document.createElement("pre"));
found.id = "found";
found.textContent = JSON.stringify(told);
"""


def shown(folder: Path, text: str, dark: bool) -> list[dict[str, Any]]:
    """What a browser makes of a page, at each width."""
    frames = [
        f'<iframe style="width:{w}px;height:900px;border:0" srcdoc="{html.escape(text)}"></iframe>' for w in WIDTHS
    ]
    outer = folder / "outer.html"
    script = f'<script>addEventListener("load", () => {{{MEASURE}}});</script>'
    outer.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body>{"".join(frames)}{script}', encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    shows = command(folder / "profile", "", scheme, "--dump-dom", outer.as_uri())
    ran = subprocess.run(shows, capture_output=True, timeout=120, check=True)
    found = re.search(r'<pre id="found">(.*?)</pre>', ran.stdout.decode(), re.DOTALL)
    assert found is not None, ran.stderr.decode()
    return json.loads(html.unescape(found[1]))


@pytest.fixture(scope="module")
def text() -> str:
    """A page with all that there is: findings, pictures, retraces."""

    @partax.filter_jit
    def retraced_with_a_rather_long_name(x: Any, options: Any) -> Any:
        return x * options["scale"]

    for size in range(2, 6):
        retraced_with_a_rather_long_name(jnp.ones(size), {"scale": float(size), "a_name_without_spaces" * 8: 1})
    # Of this function alone: a page has no room for all that the tests before it have traced.
    functions = [it for it in partax.report().functions if it.name.endswith("retraced_with_a_rather_long_name")]
    diagnoses = [diagnosis(memory_limit=400_000), partax.doctor(lambda x: x + 1, jnp.ones(3))]
    return page(diagnoses, dataclasses.replace(partax.report(), functions=tuple(functions)))


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request: pytest.FixtureRequest, text: str, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return shown(tmp_path_factory.mktemp(request.param), text, request.param == "dark")


def test_it_is_drawn_in_the_scheme_of_the_system(text: str, tmp_path: Path) -> None:
    light, dark = (shown(tmp_path, text, is_dark)[0] for is_dark in (False, True))
    assert light["background"] == "rgb(255, 255, 255)" and dark["background"] == "rgb(20, 23, 27)"
    assert light["colour"] == light["fill"] != dark["colour"] == dark["fill"]


def test_nothing_runs_over(seen: list[dict[str, Any]]) -> None:
    assert [it["width"] for it in seen] == list(WIDTHS)
    for it in seen:
        assert it["scroll"] <= it["client"]
        assert it["outside"] == []


def test_no_text_of_a_picture_is_cut_or_over_another_one(seen: list[dict[str, Any]]) -> None:
    for it in seen:
        assert it["cut"] == [] and it["over"] == []


def test_all_is_there(seen: list[dict[str, Any]]) -> None:
    for it in seen:
        assert it["cards"] == 3
        assert len(it["pictures"]) == 5  # an icicle and the live bytes of two programs, and the timeline
        assert all(width > 300 and height > 20 for width, height in it["pictures"])
        assert "The same 4 equations, 6 times in a row." in it["text"]
        assert '<script>alert("1")</script>' in it["text"]
        assert "Traces of retraced_with_a_rather_long_name" in it["text"]


def test_pictures_fit_wide_screens_and_scroll_in_their_own_box_on_narrow_ones(seen: list[dict[str, Any]]) -> None:
    wide, narrow = seen
    assert wide["scrolls"] == 0 and narrow["scrolls"] >= 5
    assert all(width >= 900 for width, _ in narrow["pictures"])


def test_nothing_is_asked_of_a_network(seen: list[dict[str, Any]]) -> None:
    assert [it["requests"] for it in seen] == [[], []]


def test_what_is_wrong_is_seen(tmp_path: Path, text: str) -> None:
    """That the measures above see what they are for."""
    wide = '<p style="width:1500px">wide</p><img src="https://example.org/a.png" alt="">'
    long = '<text x="1150" y="12">a text that is cut off at the end</text><text x="1150" y="14">over it</text>'
    broken = text.replace("<main>", f"<main>{wide}", 1).replace("</svg>\n</div>", f"{long}</svg>\n</div>", 1)
    assert broken.count(long) == 1
    for it in shown(tmp_path, broken, dark=False):
        assert it["scroll"] > it["client"] and it["outside"] != []
        assert it["requests"] == ["https://example.org/a.png"]
        assert "a text that is cut off at the end" in it["cut"]
        assert ["over it", "a text that is cut off at the end"] in it["over"]
