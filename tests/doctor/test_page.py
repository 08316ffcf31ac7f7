"""Guards the promise that the doctor's page is one whole file: each finding is in it, as text and not as code; it needs
no network and no script; and a file is never half written.
"""

import os
from pathlib import Path

import pytest

from doctor_pages import LAYERS, diagnosis
from notebook_pages import ReadPage


def words_of(text: str) -> str:
    return " ".join(ReadPage(text).text.split())


@pytest.fixture
def text(tmp_path: Path) -> str:
    diagnosis().html(tmp_path / "page.html")
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def test_each_finding_is_there_as_text_the_worst_first(text: str) -> None:
    assert ReadPage(text).open == []
    words = words_of(text)
    for finding in diagnosis().findings:
        for part in (finding.message, finding.advice, finding.source, finding.severity, finding.kind, finding.path):
            # Without what no page may hold, and without the marks of code.
            shown = part.replace("\x00", "\ufffd").replace("\ud800", "\ufffd").replace("`", "")
            assert " ".join(shown.split()) in words, part
    assert f"doctor_pages.py:{diagnosis().findings[0].line} " in words
    assert "share: 94%" in words and "saved bytes: 96 KiB" in words
    assert "{{ 7 * 7 }}" in words  # a template in a name is not run
    assert f"argument bytes: {(LAYERS * 64 * 64 + 8 * 64 + 1) * 4 / 1024:.3g} KiB" in words
    names = [attributes.get("class", tag) for tag, attributes in ReadPage(text).elements]
    assert [name for name in names if name.startswith("card ")] == ["card high", "card medium", "card low"]


def test_a_page_needs_no_network_and_no_script(text: str) -> None:
    read = ReadPage(text)
    assert not any(map(read.those, ("script", "link", "iframe", "img")))
    for tag, attributes in read.elements:
        assert not {"src", "href", "xlink:href", "srcset", "action"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style and "@font-face" not in style


def test_a_failure_in_the_middle_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "page.html"
    file.write_text("older")

    def fsync(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left") as error:
        diagnosis().html(file)
    assert str(file) in str(error.value)
    assert file.read_text() == "older" and os.listdir(tmp_path) == ["page.html"]
