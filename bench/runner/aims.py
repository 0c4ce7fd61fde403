"""What was aimed at, and what was found: one row per aim."""
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
            f"{one['own_mib']:.1f} MiB of its own with warden and guards, {one['procs']} processes; {one['rss_mib']:.1f} MiB resident, "
            f"{one['pss_mib']:.1f} MiB proportional; the largest process {one['largest_mib']:.1f} MiB resident", one["own_mib"], aim)
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
    return Found(f"{shown(times)} ms, of which the stub's own start {number(own.median)}", times.median - own.median, 20)


def _sessions(data):
    found = sessions.each(data["sessions"], "ostler-quiet")
    if not found:
        return None
    text = f"{found['kib']:.2f} KiB of resident memory, {number(found['fds'], 2)} descriptors and {number(found['procs'], 2)} processes each"
    return Found(text, found["kib"], 1.0)


def _growth(data):
    worst, noise = growth.worst(data["growth"]), growth.noise(data["growth"])
    if not worst or not noise:
        return None
    median, found, axis, count = worst
    text = f"at most {shown(found, 2)} × ({count:,} {axis}); equal daemons {noise[0]:.2f}-{noise[1]:.2f} ×"
    return Found(text, median, 1.1, noise=noise[1])


AIMS = [
    ("added-p50", "added p50 at one caller ≤ 1.5 × raw", "latency", _ratio("p50_us", ONE, 1.5, added=True)),
    ("cpu", "CPU per call at 32 callers ≤ 1.5 × raw", "latency", _ratio("cpu_us_per_call", MANY, 1.5)),
    ("p99", "p99 at 32 callers ≤ 2 × raw", "latency", _ratio("p99_us", MANY, 2)),
    ("rate", "calls/s at 64 callers ≥ 0.7 × raw", "latency", _ratio("rps", MORE, 0.7, at_least=True)),
    ("idle-1", "daemon at rest with 1 server: anonymous memory ≤ 4 MiB", "idle", _memory(1, 4)),
    ("idle-20", "daemon at rest with 20 servers: anonymous memory ≤ 10 MiB", "idle", _memory(20, 10)),
    ("start-1", "full list after a cold start with 1 server ≤ 50 ms", "idle", _start(1, 50)),
    ("start-20", "full list after a cold start with 20 servers ≤ 100 ms", "idle", _start(20, 100)),
    ("crash", "next good answer after a crash, same session ≤ the server's start + 20 ms", "crash", _crash),
    ("sessions", "10,000 abandoned sessions ≤ 1 KiB each, no process, no descriptor", "sessions", _sessions),
    ("growth", "one call costs the same with 1 and with 1,000 servers, tools, roles, tokens or sessions", "growth", _growth),
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
    for one in data.get("load") or []:
        if one["kind"] == "row" and one["met"] is not None:
            key = f"{one['part']}: {one['figure']}"
            rows.append([f"{one['figure']}: {one['aim']}", one["found"], "reached" if one["met"] else "missed", "" if one["met"] else why.get(key, "")])
    page.table(["aim", "found", "", "why"], rows)
