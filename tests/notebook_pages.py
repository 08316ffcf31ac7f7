"""A reader of HTML, for tests of what a notebook shows and of the doctor's page."""

from html.parser import HTMLParser


class ReadPage(HTMLParser):
    """What a page consists of.

    Attributes:
      elements: each element's name and attributes, in order.
      open: the tags that nobody has closed.
      cells: the texts between the tags, but for the style sheet.
      text: all that is to be read.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.cells: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]

    @property
    def attributes(self) -> set[str]:
        return {f"{name}={value}" for _, them in self.elements for name, value in them.items()}

    def those(self, tag: str, kind: str = "") -> list[dict[str, str]]:
        """The attributes of all elements of a name, and of a class."""
        return [it for name, it in self.elements if name == tag and (not kind or kind in it.get("class", "").split())]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag not in ("code", "strong", "span"):
            self.text += " "

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.cells.append(data)
            self.text += data
