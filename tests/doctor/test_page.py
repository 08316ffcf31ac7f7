"""Guards the promise that the doctor's page is one whole file: each finding is in it, as text and not as code, then the
pictures; it needs no network and no script; it can be read in both colour schemes; and a file is never half written."""

import dataclasses
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import partax
from doctor_pages import LAYERS, diagnosis
from notebook_pages import ReadPage
from partax._doctor import page as page_module
from partax._doctor.page import page


@pytest.fixture(scope="module")
def text() -> str:
    return page([diagnosis()])


def words_of(text: str) -> str:
    return " ".join(ReadPage(text).text.split())


def test_each_finding_is_there_as_text(text: str) -> None:
    assert ReadPage(text).open == []
    words = words_of(text)
    for finding in diagnosis().findings:
        for part in (finding.message, finding.advice, finding.source, finding.severity, finding.kind, finding.path):
            # Without what no page may hold, and without the marks of code.
            shown = part.replace("\x00", "\ufffd").replace("\ud800", "\ufffd").replace("`", "")
            assert " ".join(shown.split()) in words, part
    assert f"doctor_pages.py:{diagnosis().findings[0].line} " in words
    assert "h = jnp.tanh(h @ w)" in words
    assert "share 94%" in words and "saved bytes 96 KiB" in words
    assert "{{ 7 * 7 }}" in words  # a template in a name is not run
    assert f"equations {diagnosis().figures['equations']:,}" in words
    assert f"argument bytes {(LAYERS * 64 * 64 + 8 * 64 + 1) * 4 / 1024:.3g} KiB" in words


def test_findings_come_before_pictures_the_worst_first(text: str) -> None:
    names = [attributes.get("class", tag) for tag, attributes in ReadPage(text).elements]
    cards = [name for name in names if name.startswith("card ")]
    assert cards == ["card high", "card medium", "card low"]
    assert names.index("box") > max(i for i, name in enumerate(names) if name in cards)
    assert len([it for _, it in ReadPage(text).elements if it.get("role") == "img"]) >= 2


def test_it_needs_no_network_and_no_script(text: str) -> None:
    read = ReadPage(text)
    assert not any(map(read.those, ("script", "link", "iframe", "img")))
    for tag, attributes in read.elements:
        assert not {"src", "href", "xlink:href", "srcset", "action"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert "url(" not in attributes.get("style", "")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style and "@font-face" not in style


def test_a_loop_outside_of_any_function_was_not_traced() -> None:
    finding = partax.Finding("dispatch", "high", "", 0, "", "", {}, "The loop runs.", "Compile it.")
    words = words_of(page([partax.Diagnosis("forgotten", "a.py:3", (finding,), {"operations": 900})]))
    assert "The costliest function is forgotten (a.py:3). The loop runs." in words


@pytest.mark.parametrize("at", ["rendering", "writing"])
def test_a_failure_in_the_middle_leaves_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text("older")

    def fsync(_: int) -> None:
        raise OSError(28, "No space left on device")

    def icicle(*_: Any) -> Any:
        raise RuntimeError("in the middle")

    if at == "writing":
        monkeypatch.setattr(os, "fsync", fsync)
    else:
        monkeypatch.setattr(page_module, "icicle", icicle)
    with pytest.raises(OSError if at == "writing" else RuntimeError) as caught:
        diagnosis().html(file)
    assert at == "rendering" or (str(file) in str(caught.value) and "No space left" in str(caught.value))
    assert file.read_text() == "older" and os.listdir(tmp_path) == ["page.html"]


def test_an_unwritable_path_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    found = diagnosis()
    for path in (tmp_path / "nowhere" / "page.html", tmp_path):  # no such folder; a folder
        with pytest.raises(OSError, match="give a file in a folder that exists") as caught:
            found.html(path)
        assert str(path) in str(caught.value) and caught.value.filename == str(path)
    assert os.listdir(tmp_path) == []


def test_without_jinja2_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = diagnosis()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'partax[doctor]'")) as caught:
        found.html(tmp_path / "page.html")
    assert caught.value.name == "jinja2"
    assert os.listdir(tmp_path) == []


def test_many_programs_stay_under_a_megabyte() -> None:
    text = page([diagnosis()] * 30)
    assert len(text.encode()) < 1_000_000
    assert len(ReadPage(text).those("div", "icicle")) == 20


def test_functions_of_libraries_are_folded() -> None:
    users = dataclasses.replace(partax.doctor(lambda x: x, 1.0), name="<script>of_a_library</script>")
    assert users.findings == () and "Nothing was found" in words_of(page([users]))
    text = page([users, dataclasses.replace(users, is_of_library=True)])
    (folded,) = re.findall(r"<details>(.*?)</details>", text, re.DOTALL)
    assert "of_a_library" in folded and text.count("<details>") == 1
    assert "<script" not in text and "of_a_library" in text[text.index('class="summary"') :]
