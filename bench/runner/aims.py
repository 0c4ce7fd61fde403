"""Aims that users feel, one row each, with what was found."""
import re
import tomllib

from .place import BENCH, LEGACY
from .sections import crash, growth, idle, sessions
from .sections.latency import Loads
from .spread import number, shown

ONE, MANY, MORE = (("stdio", LEGACY, callers, 60) for callers in (1, 32, 64))


class Found:
    """A figure beside its aim. `value` and `aim` are comparable numbers."""

    def __init__(self, text, value, aim, at_least=False, noise=None):
        self.text, self.value, self.aim, self.noise = text, value, aim, noise
        self.is_reached = value >= aim if at_least else value <= aim
        self.distance = aim / value if at_least else value / aim

    def verdict(self):
        if self.noise and not self.is_reached and self.value <= self.noise:
            return "within the noise of this run"
        return "reached" if self.is_reached else f"missed, {number(self.distance, 2)} × the aim"


def _ratio(key, cell, aim, at_least=False, added=False):
    def find(data):
        found = Loads(data["latency"]).ratio(cell, "ostler", key, added=added)
        return found and Found(f"{shown(found, 2)} ×", found.median, aim, at_least)
    return find


def _memory(servers, aim):
    def find(data):
        one = idle.find_memory(data["idle"], "ostler", servers)
        return one and "own_mib" in one and Found(
            f"{one['own_mib']:.1f} MiB in {one['procs']} processes, spawner and guards included; {one['rss_mib']:.1f} MiB resident, "
            f"{one['pss_mib']:.1f} MiB proportional", one["own_mib"], aim)
    return find


def _start(servers, aim):
    def find(data):
        found = idle.find_start(data["idle"], "ostler", servers, "nothing kept")
        return found and Found(f"{shown(found)} ms", found.median, aim)
    return find


def _crash(data):
    own, (times, never, of) = crash.own_start(data["crash"]), crash.recovered(data["crash"], "ostler")
    if not own or not of:
        return None
    if never:
        return Found(f"never in {never} of {of}", 1e9, 20)
    return Found(f"{shown(times)} ms; the server's start {number(own.median)} ms", times.median - own.median, 20)


def _sessions(data):
    found = sessions.each(data["sessions"], "ostler-quiet")
    if not found:
        return None
    text = f"{found['kib']:.2f} KiB resident, {number(found['fds'], 2)} descriptors and {number(found['procs'], 2)} processes each"
    return Found(text, found["kib"], 1.0)


def _growth(data):
    worst, noise = growth.worst(data["growth"]), growth.noise(data["growth"])
    if not worst or not noise:
        return None
    median, found, axis, count = worst
    text = f"at most {shown(found, 2)} × ({count:,} {axis}); equal daemons {noise[0]:.2f}-{noise[1]:.2f} ×"
    return Found(text, median, 1.1, noise=noise[1])


class Judged:
    """Rows of the load section that were judged where they were measured."""

    def __init__(self, rows, text):
        self.text, self.is_reached = text, all(one["met"] for one in rows)

    def verdict(self):
        return "reached" if self.is_reached else "missed"


OVERLOAD = "a tool of 50 ms, "


def _rows(records, part=None, contains=""):
    return [one for one in records if one["kind"] == "row" and one["met"] is not None and part in (None, one["part"]) and contains in one["figure"]]


def _overload(figure):
    """Both ways to overload a tool of 50 ms: callers that are paced, and callers that come back at once."""
    def find(data):
        rows = [one for one in _rows(data["load"], "overload", figure) if one["figure"].startswith(OVERLOAD)]
        named = lambda one: "callers at once: " if "at once" in one["figure"] else "paced: "
        return Judged(rows, "; ".join(named(one) + one["found"] for one in rows)) if rows else None
    return find


def _good_client(data):
    rows = _rows(data["load"], contains="good client")
    errors = sum(int(found.group(1)) for one in rows if (found := re.search(r"(\d+) errors", one["found"])))
    return Judged(rows, f"{errors} errors in {len(rows)} kinds of load") if rows else None


AIMS = [
    ("added-p50", "time added to a call, p50, 1 caller: ≤ 1.5 × raw", "latency", _ratio("p50_us", ONE, 1.5, added=True)),
    ("cpu", "CPU per call, 32 callers: ≤ 1.5 × raw", "latency", _ratio("cpu_us_per_call", MANY, 1.5)),
    ("p99", "p99 of a call, 32 callers: ≤ 2 × raw", "latency", _ratio("p99_us", MANY, 2)),
    ("rate", "calls per second, 64 callers: ≥ 0.7 × raw", "latency", _ratio("rps", MORE, 0.7, at_least=True)),
    ("growth", "CPU per call with 1,000 servers, tools, roles, tokens or sessions: as with the fewest", "growth", _growth),
    ("idle-1", "memory at rest, 1 server: ≤ 4 MiB of its own", "idle", _memory(1, 4)),
    ("idle-20", "memory at rest, 20 servers: ≤ 10 MiB of its own", "idle", _memory(20, 10)),
    ("sessions", "an abandoned session: ≤ 1 KiB, no process, no descriptor", "sessions", _sessions),
    ("start-20", "start to a full list, 20 servers: ≤ 100 ms", "idle", _start(20, 100)),
    ("crash", "crash to the next answer, same session: ≤ the server's start + 20 ms", "crash", _crash),
    ("overload-done", "ten times overload: ≥ 90 % of capacity done", "load", _overload("done, of capacity")),
    ("overload-reject", "ten times overload: calls rejected within 10 ms", "load", _overload("time of a reject")),
    ("good-client", "a good client beside any load: no error", "load", _good_client),
]


def reasons():
    with open(BENCH / "reasons.toml", "rb") as f:
        return tomllib.load(f)


def render(data, page):
    why, rows = reasons(), []
    for name, words, section, find in AIMS:
        try:
            found = find(data) if data.get(section) else None
        except (KeyError, TypeError):  # Records of another version of this program.
            found = None
        if not found:
            rows.append([words, "not measured", "", ""])
        else:
            rows.append([words, found.text, found.verdict(), "" if found.is_reached else why.get(name, "")])
    page.table(["aim", "found", "", "why"], rows)
