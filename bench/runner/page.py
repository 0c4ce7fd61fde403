"""RESULTS.md: what stands between two marks is generated, everything else is written by people and kept."""
import re
import sys

from . import aims
from .sections import SECTIONS
from .spread import number


class Page:
    def __init__(self):
        self.parts = []

    def text(self, words):
        self.parts.append(words)

    def table(self, heads, rows):
        if not rows:
            return
        lines = ["| " + " | ".join(map(str, row)) + " |" for row in [heads, *rows]]
        lines.insert(1, "|" + "---|" * len(heads))
        self.parts.append("\n".join(lines))

    def __str__(self):
        return "\n\n".join(self.parts)


def marks(name):
    return f"<!-- generated: {name} -->", f"<!-- end: {name} -->"


def replace(page, name, text):
    """Puts the text between its marks, or at the end when the page has none."""
    begin, end = marks(name)
    block = f"{begin}\n\n{text}\n\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(page):
        return pattern.sub(lambda _: block, page, count=1)
    return page.rstrip() + f"\n\n{block}\n"


def write(store, out):
    """Every section that was measured, and the aims, into the page; the pictures beside it."""
    path = out / "RESULTS.md"
    text = path.read_text() if path.exists() else "# Results\n"
    overview = Page()
    aims.render({section.NAME: store.get(section.NAME) for section in SECTIONS}, overview)
    text = replace(text, "aims", str(overview))
    for section in SECTIONS:
        records = store.get(section.NAME)
        if records:
            try:
                text = replace(text, section.NAME, _section(section, records))
                section.plots(records, out / "img")
            except (KeyError, TypeError, ValueError, StopIteration) as error:
                # Records of another version of this program must not cost the rest of the page.
                print(f"{section.NAME} can't be written: {error!r}; measure it again", file=sys.stderr)
    path.write_text(text)


def _section(section, records):
    page = Page()
    page.text(f"## {section.TITLE}")
    head = next(one for one in records if one["kind"] == "head")
    foot = next((one for one in records if one["kind"] == "foot"), {})
    load = f"load {number(head['load'][0], 2)} before and {number(foot['load'][0], 2)} after" if foot else f"load {head['load'][0]} before"
    page.text(f"Measured on {head['when']} in {foot.get('seconds', 0) / 60:.1f} min, {head['machine']}, {load}; commit {head['commit']}, {head['rustc']}; "
              f"`{head['command']}`: {head['rounds']} rounds of {head['seconds']:g} s.{_versions(section, head)}")
    section.render(records, page)
    left_out = {(one["label"], one["error"]) for one in records if one["kind"] == "left-out"}
    for label, error in sorted(left_out):
        page.text(f"Left out: {label}. {error}")
    if any(one["kind"] == "broken" for one in records):
        page.text("Broken off: " + "; ".join(one["error"] for one in records if one["kind"] == "broken"))
    return str(page)


def _versions(section, head):
    if section.NAME not in ("latency", "idle", "crash", "sessions") or not head.get("peers"):
        return ""
    return " Peers: " + ", ".join(f"{name} {version}" for name, version in sorted(head["peers"].items())) + "."
