"""Medians with their spread, and how figures are written."""
import statistics


class Spread:
    """Median, least and largest of what several rounds found."""

    def __init__(self, values):
        values = sorted(values)
        self.n, self.median, self.least, self.largest = len(values), statistics.median(values), values[0], values[-1]

    def text(self, digits=None, unit=""):
        one = lambda value: number(value, digits)
        if self.n == 1 or one(self.least) == one(self.largest):
            return one(self.median) + unit
        return f"{one(self.median)}{unit} ({one(self.least)}-{one(self.largest)})"


def spread(values):
    values = [value for value in values if value is not None]
    return Spread(values) if values else None


def shown(found, digits=None, unit=""):
    return found.text(digits, unit) if found else ""


def ratio(found):
    """Two digits while they mean something."""
    return shown(found, 2 if found and found.largest < 10 else None)


def number(value, digits=None):
    """Three figures that count unless told how many digits; thousands are set apart."""
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def micros(value):
    return f"{number(value)} µs" if value < 10_000 else f"{number(value / 1000)} ms"


def size(payload):
    for limit, unit in ((1_000_000, "MB"), (1_000, "KB")):
        if payload >= limit:
            return f"{payload // limit} {unit}"
    return f"{payload} B"
