"""What one call costs on its way through a gateway: time, processor, calls per second."""
from .. import peers, plot
from ..peers import BY_NAME, WAYS
from ..place import LEGACY, MODERN
from ..spread import micros, number, ratio, size, spread

NAME, TITLE = "latency", "One call through a gateway"
CELLS = [(1, 60), (32, 60), (64, 60), (1, 10_000), (64, 10_000)]
PEER_CELLS = [(1, 60), (32, 60), (64, 60)]
OURS = ("direct", "raw", "ostler", "ostler-quiet")
SETS = [("stdio", LEGACY), ("stdio", MODERN), ("http", LEGACY), ("http", MODERN)]


def _plan(ctx):
    """Every set with its ways. Peers are driven where they can do it; without audit only in front of pipes."""
    ours = {*OURS, "ostler-beside"} if ctx.place.beside else {*OURS}
    for upstream, era in [SETS[0], SETS[1], SETS[3]] if ctx.quick else SETS:
        wanted = set(ctx.peers) | ours - ({"ostler-quiet"} if upstream == "http" else set())
        yield upstream, era, list(peers.ways(wanted, upstream, era))


def _cells(way):
    return PEER_CELLS if way.is_peer else CELLS


def estimate(ctx):
    turns = lambda way: ctx.peer_rounds if way.is_peer else ctx.rounds
    return sum(len(_cells(way)) * turns(way) * ctx.each for _, _, chosen in _plan(ctx) for way in chosen) + 12


def measure(ctx):
    stub = BY_NAME["direct"].open(ctx.place)
    sets, opened = [], {}
    try:
        for upstream, era, chosen in _plan(ctx):
            fresh = [way for way in chosen if (upstream, way) not in opened]
            ctx.step(6, f"starting {len(fresh)} ways for {upstream}") if fresh else None
            for run in peers.open_all(ctx, fresh, upstream=upstream, to=stub.url if upstream == "http" else None):
                opened[upstream, run.way] = run
            sets.append((upstream, era, [opened[upstream, way] for way in chosen if (upstream, way) in opened]))
        for turn in range(ctx.rounds):
            for upstream, era, runs in sets:
                _round(ctx, turn, upstream, era, runs)
    finally:
        for run in [*opened.values(), stub]:
            run.stop()


def _round(ctx, turn, upstream, era, runs):
    """Every cell by all ways in turn; each round begins with another way."""
    for callers, payload in CELLS:
        able = [run for run in runs if (callers, payload) in _cells(run.way) and not (run.way.is_peer and turn >= ctx.peer_rounds)]
        shift = turn % len(able) if able else 0
        for run in able[shift:] + able[:shift]:
            ctx.step(ctx.each, f"round {turn + 1} of {ctx.rounds}: {upstream} upstream, {era}, {callers} x {size(payload)}, {run.way.label}")
            cell = {"callers": callers, "payload": payload, "proto": era, "seconds": ctx.seconds, "warmup": ctx.warmup}
            found = ctx.place.load(run.url, run.pid, cell)
            ctx.emit("load", round=turn, upstream=upstream, era=era, way=run.way.name, callers=callers, payload=payload, **found)


class Loads:
    """The measurements of a run, by cell. Differences and ratios are taken within a round."""

    def __init__(self, records):
        self.found = {}
        for one in records:
            if one["kind"] == "load" and "error" not in one:
                key = (one["upstream"], one["era"], one["callers"], one["payload"], one["way"])
                self.found.setdefault(key, {})[one["round"]] = one

    def of(self, cell, way):
        return self.found.get((*cell, way), {})

    def value(self, cell, way, key):
        return spread(one.get(key) for one in self.of(cell, way).values())

    def added(self, cell, way, key="p50_us"):
        base = self.of(cell, "direct")
        return spread(one[key] - base[turn][key] for turn, one in self.of(cell, way).items() if turn in base)

    def ratio(self, cell, way, key, to="raw", added=False):
        direct, base, found = self.of(cell, "direct"), self.of(cell, to), []
        for turn, one in self.of(cell, way).items():
            if turn not in base or (added and turn not in direct):
                continue
            less = direct[turn][key] if added else 0
            if base[turn][key] - less > 0:
                found.append((one[key] - less) / (base[turn][key] - less))
        return spread(found)


CLIENTS = {LEGACY: "until 2025-11-25", MODERN: "2026-07-28"}
TRANSPORTS = {"stdio": "Servers on stdio", "http": "Servers on HTTP"}
AT = (1, 32, 64)  # callers


def render(records, page):
    loads = Loads(records)
    page.text("![Processor time per call, time added to a call, and calls per second, by gateway](img/latency.svg)")
    page.text("Medians over the rounds, at 1, 32 and 64 callers. `of raw` divides by the raw yardstick of the same round, at 32 callers, or at 64 for "
              "10 KB, with the least and the largest in brackets. CPU is the gateway's own, without driver and stubs. All rounds are in `results.jsonl`.")
    for upstream, title in TRANSPORTS.items():
        rows = [_row(loads, upstream, era, payload, way) for payload in (60, 10_000) for era in CLIENTS for way in WAYS
                if any(loads.of((upstream, era, callers, payload), way.name) for callers in AT)]
        if rows:
            page.text(f"### {title}")
            page.table(["way", "clients of", "payload", "p50 µs", "p99 µs", "CPU per call µs", "of raw", "calls/s", "of raw"], rows)
    failed = {(one["way"], one["error"]) for one in records if one["kind"] == "load" and "error" in one}
    for way, error in sorted(failed):
        page.text(f"Not measured: {BY_NAME[way].label}: {error}")


def _row(loads, upstream, era, payload, way):
    cells = [(upstream, era, callers, payload) for callers in AT if (callers, payload) in CELLS]
    medians = lambda key: " / ".join(number(found.median) if (found := loads.value(cell, way.name, key)) else "–" for cell in cells)
    is_gateway = way.name != "direct"
    # Ratios are taken where callers compete: at 32 callers, or at the most there are.
    compared = cells[1]
    of_raw = lambda key: ratio(loads.ratio(compared, way.name, key)) if is_gateway and way.name != "raw" else ""
    name = f"**{way.label}**" if way.name == "ostler" else way.label
    return [name, CLIENTS[era], size(payload), medians("p50_us"), medians("p99_us"),
            medians("cpu_us_per_call") if is_gateway else "", of_raw("cpu_us_per_call"), medians("rps"), of_raw("rps")]


def plots(records, folder):
    loads = Loads(records)
    cell = lambda callers: ("stdio", LEGACY, callers, 60)
    shown_ways = [way for way in WAYS if way.name not in ("direct", "ostler-quiet")]
    panels = []
    for title, note, callers, find, text in (
        ("Time added to a call", "p50, one caller", 1, lambda way: loads.added(cell(1), way), micros),
        ("Processor time per call", "32 callers", 32, lambda way: loads.value(cell(32), way, "cpu_us_per_call"), micros),
        ("Calls per second", "64 callers, more is better", 64, lambda way: loads.value(cell(64), way, "rps"), lambda v: f"{v:,.0f}"),
    ):
        bars = [plot.Bar(way.label, found, text(found.median), _tone(way)) for way in shown_ways if (found := find(way.name))]
        if bars:
            panels.append(plot.Panel(title, note, bars))
    if panels:
        plot.bars(folder / "latency.svg", "One call through a gateway to a server on stdio, 60 B", panels)


def _tone(way):
    return {"ostler": "ours", "raw": "yard", "typed": "yard"}.get(way.name, "peer")
