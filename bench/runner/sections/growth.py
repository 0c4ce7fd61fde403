"""What one call costs when there is more of everything else.

All points of an axis run at the same time and are driven in turn, so that a ratio to the first
point is taken within a round. The first point stands there twice: how far the two are apart is the
noise of the machine.
"""
from .. import peers, plot
from ..ostler import QUIET, Daemon, server
from ..peers import BY_NAME
from ..place import LEGACY
from ..spread import number, shown, size, spread

NAME, TITLE = "growth", "One call, with more of everything else"
CALLERS = 32
POINTS = {
    "servers": [1, 10, 100, 1_000],
    "tools": [10, 100, 1_000, 10_000, 100_000],
    "roles": [1, 10, 100, 1_000],
    "tokens": [1, 10, 100, 1_000],
    "sessions": [8, 100, 1_000, 10_000],
}
LOADS = {"callers": [1, 4, 16, 64, 256, 1_024], "payload": [60, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]}
WORDS = {
    "servers": "servers registered, one of them used", "tools": "tools of the server", "roles": "roles in the config",
    "tokens": "tokens, each call with the last", "sessions": "sessions of legacy clients open",
}
PAGE = 1_000  # tools per page that the stub lists
LARGE, LONGER = 1_000_000, 1.5  # calls of this size get at least so many seconds, for there to be some
_STARTING = 1.6  # seconds


def _axes(ctx):
    return {axis: points[:3] if ctx.quick else points for axis, points in POINTS.items()}


def _loads(ctx):
    return {axis: points[:-1] if ctx.quick else points for axis, points in LOADS.items()}


def estimate(ctx):
    driven = sum(len(points) + 1 for points in _axes(ctx).values()) + 2 * sum(map(len, _loads(ctx).values()))
    return ctx.rounds * driven * ctx.each + _STARTING * sum(len(points) + 1 for points in _axes(ctx).values())


def measure(ctx):
    for axis, points in _axes(ctx).items():
        _axis(ctx, axis, points)
    for axis, points in _loads(ctx).items():
        _load(ctx, axis, points)


class Point:
    """A daemon with so many of something, and how the driver must ask it."""

    def __init__(self, ctx, axis, count, name):
        self.count, self.name, self.more, config = count, name, [], QUIET
        tools = max(count, 8) if axis == "tools" else 8
        config += server(ctx.place, args=("--tools", str(tools), "--page", str(PAGE)))
        if axis == "servers":
            config += "".join(server(ctx.place, f"other{n}") for n in range(count - 1))
        if axis in ("roles", "tokens"):
            config += '[roles.local]\nallow = ["*"]\n'
        if axis == "roles":
            config += "".join(f'[roles.r{n}]\nallow = ["s0/*"]\ndeny = ["s0/x{n}_*"]\n' for n in range(count - 1))
        if axis == "sessions":
            config += "[gateway]\nmax_sessions = 20000\n"
        self.daemon = Daemon(ctx.place, f"{axis}-{name}", config)
        if axis == "tokens":
            made = [self.daemon.command("token", "create", "--name", f"t{n}", "--role", "local").strip() for n in range(count)]
            self.more = ["--header", f"Authorization: Bearer {made[-1]}"]
        # The last tool of the list, by its name: whoever looks for it one by one has the longest way.
        self.tool = f"s0__t{tools - 7}_echo"
        self.daemon.start()
        if axis == "sessions" and count > CALLERS:
            opened = ctx.place.drive("sessions", "--url", self.daemon.url, "--count", count, "--timeout", 60, "--no-delete", timeout=90)
            if opened.get("errors", 1):
                raise RuntimeError(f"sessions could not be opened: {opened}")

    def drive(self, ctx, **more):
        cell = {"callers": CALLERS, "payload": 60, "proto": LEGACY, "seconds": ctx.seconds, "warmup": ctx.warmup, **more}
        return ctx.place.load(self.daemon.url, self.daemon.pid, cell, "--exact", "--tool", self.tool, *self.more)


def _axis(ctx, axis, points):
    opened = []
    try:
        for place, count in enumerate([points[0], *points]):
            ctx.step(_STARTING, f"{axis}: starting with {count:,}")
            opened.append(Point(ctx, axis, count, f"{place}-{count}"))
            # Lists are fetched and names are learnt before anything is measured.
            opened[-1].drive(ctx, seconds=0.1, warmup=0.5)
        for turn in range(ctx.rounds):
            shift = turn % len(opened)
            for point in opened[shift:] + opened[:shift]:
                ctx.step(ctx.each, f"{axis}, round {turn + 1} of {ctx.rounds}: {point.count:,}")
                ctx.emit("point", axis=axis, round=turn, count=point.count, again=point is opened[0], **point.drive(ctx))
    except RuntimeError as error:
        ctx.emit("failed", axis=axis, error=str(error))
    finally:
        for point in opened:
            point.daemon.stop()


def _load(ctx, axis, points):
    """Callers and payload, beside the raw yardstick: what grows there grows for everybody."""
    roomy = "max_in_flight = 2048\nmax_queued = 4096\nmax_line = \"64MiB\"\n"
    daemon, runs = Daemon(ctx.place, f"load-{axis}", QUIET + "[gateway]\nmax_body = \"64MiB\"\nmax_connections = 4096\n" + server(ctx.place, more=roomy)), []
    try:
        runs = [("ostler", daemon.start())] + [("raw", run) for run in peers.open_all(ctx, [BY_NAME["raw"]])]
        for turn in range(ctx.rounds):
            for count in points:
                for way, run in runs if turn % 2 else runs[::-1]:
                    ctx.step(ctx.each, f"{axis}, round {turn + 1} of {ctx.rounds}: {count:,}, {way}")
                    seconds = max(ctx.seconds, LONGER) if axis == "payload" and count >= LARGE else ctx.seconds
                    cell = {"callers": 4, "payload": 60, "seconds": seconds, "warmup": ctx.warmup, axis: count}
                    ctx.emit("load", axis=axis, round=turn, count=count, way=way, **ctx.place.load(run.url, run.pid, cell))
    except RuntimeError as error:
        ctx.emit("failed", axis=axis, error=str(error))
    finally:
        for _, run in runs:
            run.stop()
        daemon.stop()


def rounds_of(records, axis, **want):
    return {one["round"]: one for one in records if one.get("axis") == axis and "error" not in one and "round" in one
            and all(one.get(key) == value for key, value in want.items())}


def ratio(records, axis, count, key="cpu_us_per_call", again=False):
    """To the first point of the axis, within a round."""
    base, found = rounds_of(records, axis, count=POINTS[axis][0], again=False), rounds_of(records, axis, count=count, again=again)
    return spread(one[key] / base[turn][key] for turn, one in found.items() if turn in base and base[turn][key])


def of_raw(records, axis, count, key):
    base, found = rounds_of(records, axis, count=count, way="raw"), rounds_of(records, axis, count=count, way="ostler")
    return spread(one[key] / base[turn][key] for turn, one in found.items() if turn in base and base[turn][key])


def worst(records, upto=1_000):
    """The largest median ratio of CPU per call over all axes, with its axis and count."""
    found = [(value.median, value, axis, count) for axis, points in POINTS.items() for count in points[1:]
             if count <= upto and (value := ratio(records, axis, count))]
    return max(found, key=lambda one: one[0], default=None)


def noise(records):
    """Ratios between the two equal daemons of every axis."""
    pairs = [spread_ for axis in POINTS if (spread_ := ratio(records, axis, POINTS[axis][0], again=True))]
    return (min(one.least for one in pairs), max(one.largest for one in pairs), spread(one.median for one in pairs)) if pairs else None


def render(records, page):
    page.text("![Processor time per call against how many servers, tools, roles, tokens and sessions there are](img/growth.svg)")
    page.text(f"{CALLERS} callers, 60 B, audit off. `to the first` divides by the first row of the axis in the same round; `again` is a second, equal "
              "daemon, so its ratio is the noise of the machine. The test "
              "[`growth`](../crates/ostler-gateway/tests/growth.rs) checks that a call makes the same allocations, and that its least time stays within 20 %.")
    rows = []
    for axis, points in POINTS.items():
        for again, count in [(False, points[0]), (True, points[0]), *((False, count) for count in points[1:])]:
            found = rounds_of(records, axis, count=count, again=again).values()
            if found:
                value = lambda key: shown(spread(one[key] for one in found))
                first = count == points[0] and not again
                to = lambda key: "1" if first else shown(ratio(records, axis, count, key, again), 2)
                rows.append([WORDS[axis] if first else "again" if again else "", f"{count:,}", value("cpu_us_per_call"), to("cpu_us_per_call"),
                             value("p50_us"), to("p50_us"), number(max(one["rss_mib"] for one in found))])
    page.table(["of what", "how many", "CPU per call µs", "to the first", "p50 µs", "to the first", "daemon MiB"], rows)
    page.text("More callers and larger calls cost every gateway more, so they are compared with the raw yardstick: sizes at 4 callers, callers at 60 B.")
    rows = []
    for axis, points in LOADS.items():
        for count in points:
            ours, raw = (rounds_of(records, axis, count=count, way=way).values() for way in ("ostler", "raw"))
            if ours:
                value = lambda found, key: shown(spread(one[key] for one in found))
                rows.append([f"{count:,} caller{'s' if count > 1 else ''}" if axis == "callers" else size(count), value(ours, "cpu_us_per_call"), value(raw, "cpu_us_per_call"),
                             shown(of_raw(records, axis, count, "cpu_us_per_call"), 2), value(ours, "p50_us"), value(raw, "p50_us"),
                             value(ours, "rps"), shown(of_raw(records, axis, count, "rps"), 2)])
    page.table(["", "CPU per call µs", "raw", "of raw", "p50 µs", "raw", "calls/s", "of raw"], rows)
    failed = {(one["axis"], one.get("count", ""), one["error"]) for one in records if one.get("axis") and "error" in one}
    for axis, count, error in sorted(failed, key=str):
        page.text(f"Not measured: {axis} {count}: {error}")


def plots(records, folder):
    lines = []
    for axis, points in POINTS.items():
        found = [(count, one) for count in points[1:] if (one := ratio(records, axis, count))]
        if found:
            first = spread([1.0])
            lines.append(plot.Line(axis, [(points[0], first), *found]))
    if lines:
        plot.lines(folder / "growth.svg", "Processor time per call, to that with the least", lines, noise(records))
