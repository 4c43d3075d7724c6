"""A page of HTML, taken apart."""

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Every element, attribute and text of a page; complains about tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.svg_texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {attrs}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            (self.svg_texts if "svg" in self.open else self.texts).append(data)

    @property
    def words(self):
        """All text outside figures, spaces made equal."""
        return " ".join("".join(self.texts).split())

    def tags(self):
        return {tag for tag, _ in self.elements}

    def ids(self):
        return [attrs["id"] for _, attrs in self.elements if "id" in attrs]
