"""Guards the promise that the doctor's page is one whole file: each finding is in it, as text and not as code, and it
needs no network and no script.
"""

import dataclasses
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax.numpy as jnp

import partax
from partax.reports import Diagnosis, Finding

HOSTILE = '<script>alert("1")</script> & {{ 7 * 7 }} \x00 \ud800'
FINDINGS = (
    Finding("repeat", "high", __file__, 3, "x = f(x)", "", {"count": 6, "share": 0.935}, "6 times.", "Use `scan`."),
    Finding("donation", "medium", "", 0, "", f"ws['{HOSTILE}']", {"saved_bytes": 98304}, HOSTILE, f"Mend {HOSTILE}."),
    Finding("host", "low", f"/a/{HOSTILE}.py", 3, HOSTILE, "x", {"note": HOSTILE}, "x" * 500, "Cast it."),
)


class Page(HTMLParser):
    """The elements of a page, and its text without style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open += [tag] if tag != "meta" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.text += "" if tag in ("code", "strong") else " "

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] != ["style"] else ""


def page_of(diagnosis: Diagnosis, folder: Path) -> Page:
    diagnosis.html(folder / "page.html")
    return Page((folder / "page.html").read_text(encoding="utf-8"))


def test_each_finding_is_there_as_text_the_worst_first(tmp_path: Path) -> None:
    diagnosis = partax.doctor(lambda x: x + 1, jnp.ones(256))
    page = page_of(dataclasses.replace(diagnosis, findings=FINDINGS, name=f"step {HOSTILE}"), tmp_path)
    words = " ".join(page.text.split())
    for finding in FINDINGS:
        for part in (finding.message, finding.advice, finding.source, finding.severity, finding.kind, finding.path):
            # Without what no page may hold, and without the marks of code.
            text = part.replace("\x00", "\ufffd").replace("\ud800", "\ufffd").replace("`", "")
            assert " ".join(text.split()) in words, part
    assert f"{Path(__file__).name}:3 " in words and "argument bytes: 1 KiB" in words
    assert "share: 94%" in words and "saved bytes: 96 KiB" in words
    names: list[Any] = [attributes.get("class") for tag, attributes in page.elements if tag == "article"]
    assert names == ["card high", "card medium", "card low"]


def test_a_page_needs_no_network_and_no_script(tmp_path: Path) -> None:
    page = page_of(partax.doctor(lambda x: x + 1, jnp.ones(3)), tmp_path)
    assert page.open == [] and "Nothing was found" in page.text
    for tag, attributes in page.elements:
        assert tag not in ("script", "link", "iframe", "img") and not {"src", "href", "srcset"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")], tag
