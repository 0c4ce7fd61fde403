"""What a gateway takes when nothing happens, and how long it needs to begin."""
import shutil
import time

from .. import peers, plot, procs
from ..ostler import Daemon, server
from ..peers import BY_NAME, WAYS
from ..spread import number, shown, spread

NAME, TITLE = "idle", "Memory at rest, and the start"
COUNTS, START_COUNTS = (1, 20, 100), (1, 20)
SETTLE = 0.3
REST = 13  # seconds; background work of the start is over by then
START_TIMEOUT = 40


def _chosen(ctx, count):
    wanted = {"raw", "ostler", *ctx.peers}
    return list(peers.ways(wanted, many=count > 1))


def _counts(ctx):
    return COUNTS[:2] if ctx.quick else COUNTS


def _remembered(ctx, count):
    """Whose memory is looked at. Of a hundred servers, only where that is not a hundred interpreters."""
    return _chosen(ctx, count) if count <= 20 else [BY_NAME["raw"], BY_NAME["ostler"]]


def _peer_turns(ctx):
    return min(ctx.peer_rounds, 2)


def _memory_seconds(ctx, count):
    return REST + len(_remembered(ctx, count)) * (1 + count / 30)


def _start_seconds(ctx, turn, count):
    return 2 + (2.3 * len(_chosen(ctx, count)) if turn < _peer_turns(ctx) else 0)


def estimate(ctx):
    memory = sum(_memory_seconds(ctx, count) for count in _counts(ctx))
    return memory + sum(_start_seconds(ctx, turn, count) for turn in range(ctx.rounds) for count in START_COUNTS)


def measure(ctx):
    for count in _counts(ctx):
        ctx.step(_memory_seconds(ctx, count), f"memory with {count} servers: starting, then {REST} s of rest")
        runs = peers.open_all(ctx, _remembered(ctx, count), count=count)
        try:
            for moment, wait in (("after a list", SETTLE), ("at rest", REST)):
                time.sleep(wait)
                for run in runs:
                    ctx.emit("memory", way=run.way.name, servers=count, moment=moment, **procs.memory(run.pid))
        finally:
            for run in runs:
                run.stop()
    for turn in range(ctx.rounds):
        for count in START_COUNTS:
            ctx.step(_start_seconds(ctx, turn, count), f"round {turn + 1} of {ctx.rounds}: cold start with {count} servers")
            for way in _chosen(ctx, count):
                if way.name != "ostler" and not way.missing(ctx.place) and turn < _peer_turns(ctx):
                    port = procs.free_port()
                    _start(ctx, turn, way, count, f"http://127.0.0.1:{port}{way.path}", way.commands["stdio"](ctx.place, port, count, None))
            _ostler(ctx, turn, count)


def _ostler(ctx, turn, count):
    """Once with nothing kept from before, once with the lists that the first start left."""
    way, port = BY_NAME["ostler"], procs.free_port()
    config = f"[pool]\nmax_processes = {max(16, count + 8)}\n" + "".join(server(ctx.place, f"s{n}") for n in range(count))
    daemon = Daemon(ctx.place, "start", config)
    argv = ["env", "-i", *(f"{key}={value}" for key, value in daemon.env.items()), *daemon.argv("--listen", f"127.0.0.1:{port}")]
    for state in ("nothing kept", "lists kept"):
        _start(ctx, turn, way, count, f"http://127.0.0.1:{port}/mcp", argv, state=state)
    shutil.rmtree(daemon.home, ignore_errors=True)


def _start(ctx, turn, way, count, url, argv, **more):
    found = ctx.place.drive("start", "--url", url, "--min-tools", way.tools(count), "--timeout", START_TIMEOUT, "--settle", 0.1,
                            "--", *argv, timeout=START_TIMEOUT + 20)
    kept = {key: found[key] for key in ("full_list_ms", "error") if found.get(key) is not None}
    ctx.emit("start", round=turn, way=way.name, servers=count, **more, **kept)


def find_memory(records, way, servers, moment="at rest"):
    wanted = (way, servers, moment)
    return next((one for one in records if one["kind"] == "memory" and (one["way"], one["servers"], one["moment"]) == wanted), None)


def find_start(records, way, servers, state=None):
    return spread(one.get("full_list_ms") for one in records
                  if one["kind"] == "start" and (one["way"], one["servers"], one.get("state")) == (way, servers, state))


def render(records, page):
    page.text("![Memory at rest, by gateway](img/memory.svg)")
    page.text(f"Memory without the stub servers, just after a full list and after {REST} s of rest. Own memory is "
              "`Private_Dirty`: written to and shared with no other process. Resident memory is what `ps` shows; it counts shared "
              "pages in each process. Proportional memory divides them. Each server of Ostler's has a guard, which is counted.")
    rows = []
    for count in COUNTS:
        for way in WAYS:
            listed, rest = (find_memory(records, way.name, count, moment) for moment in ("after a list", "at rest"))
            if listed and rest:
                both = lambda key: f"{listed[key]:.1f}, {rest[key]:.1f}" if key in rest else ""
                rows.append([count, _bold(way), rest["procs"], both("own_mib"), both("rss_mib"), both("pss_mib"), both("largest_mib")])
    page.table(["servers", "way", "processes", "own MiB: after a list, at rest", "resident MiB", "proportional MiB", "largest process, resident MiB"], rows)
    page.text("From starting the program to a full `tools/list`, the stub's start included. `nothing kept` is the first start; with `lists kept`, "
              "lazy servers answer from their persisted lists.")
    rows = []
    for way in WAYS:
        for state in ("nothing kept", "lists kept", None):
            cells = [shown(find_start(records, way.name, count, state)) for count in START_COUNTS]
            if any(cells):
                rows.append([_bold(way), state or "", *cells])
    page.table(["way", "", "1 server, ms", "20 servers, ms"], rows)


def _bold(way):
    return f"**{way.label}**" if way.name == "ostler" else way.label


def plots(records, folder):
    panels = []
    for servers in COUNTS:
        found = [(way, one) for way in WAYS if (one := find_memory(records, way.name, servers))]
        bars = [plot.Bar(way.label, spread([one["pss_mib"]]), f"{number(one['pss_mib'])} MiB",
                         {"ostler": "ours", "raw": "yard", "typed": "yard"}.get(way.name, "peer")) for way, one in found]
        if bars:
            panels.append(plot.Panel(f"{servers} server{'s' if servers > 1 else ''}", "all processes but the servers, shared pages divided", bars))
    if panels:
        plot.bars(folder / "memory.svg", "Memory at rest", panels)
