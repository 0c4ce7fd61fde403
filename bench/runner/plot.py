"""Pictures as SVG by hand: bars and lines, for light and dark pages, without fonts of their own."""
import math
from dataclasses import dataclass
from html import escape

WIDTH = 720
LABELS = 190  # room for names on the left of bars
VALUES = 96  # room for figures on the right of bars
ROW, BAR = 25, 15

STYLE = """
  text { font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; }
  .head { font-size: 15px; font-weight: 600; }
  .note, .tick { fill: #59636e; font-size: 13px; }
  .is-ours { font-weight: 600; }
  .page { fill: #ffffff; }
  .axis, .grid { stroke: #d1d9e0; }
  .peer { fill: #afb8c1; } .yard { fill: #8c959f; } .ours { fill: #0969da; }
  .whisker { stroke: #1f2328; stroke-opacity: .55; }
  .noise { fill: #afb8c1; fill-opacity: .3; }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
  .s0 { stroke: #0969da; } .s1 { stroke: #bc4c00; } .s2 { stroke: #8250df; } .s3 { stroke: #1a7f37; } .s4 { stroke: #bf3989; }
  .dot.s0 { fill: #0969da; } .dot.s1 { fill: #bc4c00; } .dot.s2 { fill: #8250df; } .dot.s3 { fill: #1a7f37; } .dot.s4 { fill: #bf3989; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; } .note, .tick { fill: #9198a1; } .page { fill: #0d1117; }
    .axis, .grid { stroke: #3d444d; }
    .peer { fill: #565e67; } .yard { fill: #7d858e; } .ours { fill: #4493f8; }
    .whisker { stroke: #f0f6fc; } .noise { fill: #9198a1; fill-opacity: .22; }
    .s0 { stroke: #4493f8; } .s1 { stroke: #f0883e; } .s2 { stroke: #ab7df8; } .s3 { stroke: #3fb950; } .s4 { stroke: #db61a2; }
    .dot.s0 { fill: #4493f8; } .dot.s1 { fill: #f0883e; } .dot.s2 { fill: #ab7df8; } .dot.s3 { fill: #3fb950; } .dot.s4 { fill: #db61a2; }
  }
"""


@dataclass
class Bar:
    """`found` is a Spread, or None for what never happened."""
    label: str
    found: object
    text: str
    tone: str


@dataclass
class Panel:
    title: str
    note: str
    bars: list


@dataclass
class Line:
    """`points`: how many, and a Spread."""
    label: str
    points: list


class Canvas:
    def __init__(self, title):
        self.title, self.parts, self.height = title, [], 0

    def text(self, x, y, words, kind="", anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>')

    def rect(self, x, y, width, height, kind):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1.5):.1f}" height="{height:.1f}" rx="2" class="{kind}"/>')

    def line(self, x1, y1, x2, y2, kind):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        body = "\n".join(self.parts)
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:.0f}" width="{WIDTH}" height="{self.height:.0f}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n"
            f'<rect class="page" width="{WIDTH}" height="{self.height:.0f}" rx="6"/>\n{body}\n</svg>\n')


def bars(path, title, panels):
    """Panels below each other, each with a scale of its own that begins at zero."""
    canvas, y = Canvas(title), 32
    canvas.text(16, y, title, "title")
    for panel in panels:
        y += 34
        canvas.text(16, y, panel.title, "head")
        canvas.text(WIDTH - 16, y, panel.note, "note", "end")
        y += 8
        largest = max((bar.found.largest for bar in panel.bars if bar.found), default=1) or 1
        reach = WIDTH - LABELS - VALUES - 16
        for bar in panel.bars:
            _bar(canvas, y, bar, reach / largest)
            y += ROW
    canvas.height = y + 14
    canvas.write(path)


def _bar(canvas, y, bar, scale):
    middle = y + ROW / 2
    kind = "is-ours" if bar.tone == "ours" else ""
    canvas.text(LABELS - 10, middle + 5, bar.label, kind, "end")
    if not bar.found:
        return canvas.text(LABELS + 4, middle + 5, bar.text, f"note {kind}")
    value = max(bar.found.median, 0)
    canvas.rect(LABELS, middle - BAR / 2, value * scale, BAR, bar.tone)
    end = LABELS + value * scale
    if bar.found.n > 1 and (bar.found.largest - bar.found.least) * scale > 3:
        canvas.line(LABELS + max(bar.found.least, 0) * scale, middle, LABELS + bar.found.largest * scale, middle, "whisker")
        end = LABELS + bar.found.largest * scale
    canvas.text(end + 8, middle + 5, bar.text, kind)


def lines(path, title, drawn, noise=None):
    """Ratios over a count, both to the first point: a flat line is what one wants to see."""
    canvas, left, right, top, bottom = Canvas(title), 60, WIDTH - 120, 66, 330
    most = max(count for line in drawn for count, _ in line.points)
    tallest = max([1.5, *(found.median for line in drawn for _, found in line.points)]) * 1.15
    x = lambda count: left + (right - left) * math.log10(max(count, 1)) / math.log10(most)
    y = lambda value: bottom - (bottom - top) * min(value, tallest) / tallest
    canvas.text(16, 32, title, "title")
    step = 0.5 if tallest < 4 else max(1, round(tallest / 5))
    for tick in range(int(tallest / step) + 1):
        canvas.line(left, y(tick * step), right, y(tick * step), "grid")
        canvas.text(left - 8, y(tick * step) + 5, f"{tick * step:g} ×", "tick", "end")
    for power in range(int(math.log10(most)) + 1):
        canvas.text(x(10 ** power), bottom + 20, f"{10 ** power:,}", "tick", "middle")
    if noise:
        canvas.rect(left, y(noise[1]), right - left, y(noise[0]) - y(noise[1]), "noise")
    _draw(canvas, drawn, x, y, right)
    foot = "how many there are"
    canvas.text((left + right) / 2, bottom + 42, foot, "note", "middle")
    if noise:
        canvas.rect(left, bottom + 54, 26, 13, "noise")
        canvas.text(left + 34, bottom + 65, "two equal daemons differ by this much", "note")
    canvas.height = bottom + 82
    canvas.write(path)


def _draw(canvas, drawn, x, y, right):
    ends = []
    for place, line in enumerate(drawn):
        at = " ".join(f"{x(count):.1f},{y(found.median):.1f}" for count, found in line.points)
        canvas.parts.append(f'<polyline points="{at}" class="line s{place % 5}"/>')
        for count, found in line.points:
            canvas.parts.append(f'<circle cx="{x(count):.1f}" cy="{y(found.median):.1f}" r="3.5" class="dot s{place % 5}"/>')
        ends.append([y(line.points[-1][1].median), place, line.label])
    # Names at the right end, kept apart where lines end close to each other.
    ends.sort()
    for before, after in zip(ends, ends[1:]):
        after[0] = max(after[0], before[0] + 19)
    for at, place, label in ends:
        canvas.parts.append(f'<circle cx="{right + 20}" cy="{at:.1f}" r="5" class="dot s{place % 5}"/>')
        canvas.text(right + 31, at + 5, label)
