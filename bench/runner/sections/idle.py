"""What a gateway takes when nothing happens, and how long it needs to begin."""
import shutil
import time

from .. import peers, plot, procs
from ..ostler import Daemon, server
from ..peers import BY_NAME, WAYS
from ..spread import number, shown, spread

NAME, TITLE = "idle", "Memory at rest, and the start"
COUNTS, START_COUNTS = (1, 20, 100), (1, 20)
SETTLE = 1.5
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


def _memory_seconds(count):
    return 1.5 + SETTLE + count / 15


def _start_seconds(ctx, turn, count):
    return 2 + (2.3 * len(_chosen(ctx, count)) if turn < _peer_turns(ctx) else 0)


def estimate(ctx):
    memory = sum(len(_remembered(ctx, count)) * _memory_seconds(count) for count in _counts(ctx))
    return memory + sum(_start_seconds(ctx, turn, count) for turn in range(ctx.rounds) for count in START_COUNTS)


def measure(ctx):
    for count in _counts(ctx):
        for way in _remembered(ctx, count):
            ctx.step(_memory_seconds(count), f"memory of {way.label} with {count} servers")
            for run in peers.open_all(ctx, [way], count=count):
                try:
                    time.sleep(SETTLE)
                    ctx.emit("memory", way=way.name, servers=count, **procs.memory(run.pid))
                finally:
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


def find_memory(records, way, servers):
    return next((one for one in records if one["kind"] == "memory" and (one["way"], one["servers"]) == (way, servers)), None)


def find_start(records, way, servers, state=None):
    return spread(one.get("full_list_ms") for one in records
                  if one["kind"] == "start" and (one["way"], one["servers"], one.get("state")) == (way, servers, state))


def render(records, page):
    page.text("![Memory at rest, by gateway](img/memory.svg)")
    page.text("Resident and proportional memory of everything but the stub servers, which belong to nobody. Proportional size divides shared "
              "pages among those who share them; of the guards, one beside each server, nearly everything is shared.")
    rows = []
    for way in WAYS:
        for one in (one for one in records if one["kind"] == "memory" and one["way"] == way.name):
            rows.append([one["servers"], _bold(way), one["procs"], f"{one['largest_mib']:.1f}", f"{one['rss_mib']:.1f}", f"{one['pss_mib']:.1f}"])
    page.table(["servers", "way", "processes", "largest process MiB", "all, resident MiB", "all, proportional MiB"], sorted(rows, key=lambda row: row[0]))
    page.text("From starting the program to a full `tools/list`, with the stub's own start in it; stubs start in about 2 ms. Lazy servers of Ostler's "
              "answer from the lists kept before; `nothing kept` is the first start ever.")
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
