"""A reader of the HTML that a notebook shows."""

from __future__ import annotations

from html.parser import HTMLParser


class ReadPage(HTMLParser):
    """The tags of a page, their attributes, the tags that nobody has closed, and the texts between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes |= {f"{name}={value}" for name, value in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells.append(data)
