"""How long it takes until a session whose server has died gets a good answer again."""
import json
import subprocess
import time

from .. import peers, plot
from ..peers import WAYS
from ..spread import number, shown, spread

NAME, TITLE = "crash", "After a crash"
LIMIT = 5  # seconds in which a session may come back


def _turns(ctx, way):
    return (2 if ctx.quick else 7) if way.name == "ostler" else 1


def estimate(ctx):
    return sum(_turns(ctx, way) * _each(way) for way in _chosen(ctx)) + 1


def _each(way):
    return 2 if way.name == "ostler" else LIMIT + 3


def _chosen(ctx):
    return list(peers.ways({"ostler", *ctx.peers}))


def measure(ctx):
    for _ in range(10):
        ctx.emit("own", ms=_own_start(ctx.place))
    for way in _chosen(ctx):
        for turn in range(_turns(ctx, way)):
            ctx.step(_each(way), f"{way.label}, crash {turn + 1} of {_turns(ctx, way)}")
            for run in peers.open_all(ctx, [way]):
                try:
                    found = ctx.place.drive("crash", "--url", run.url, "--timeout", LIMIT, timeout=LIMIT * 4 + 20)
                finally:
                    run.stop()
                kept = {key: found[key] for key in ("same_session", "new_session", "inflight_call", "error") if key in found}
                ctx.emit("crash", way=way.name, round=turn, **kept)


def _own_start(place):
    """From starting the stub to its answer to `initialize`: what nobody can be faster than."""
    ask = {"jsonrpc": "2.0", "id": 1, "method": "initialize",
           "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}}
    began = time.perf_counter()
    with subprocess.Popen([str(place.stub), "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        p.stdin.write(json.dumps(ask).encode() + b"\n")
        p.stdin.flush()
        p.stdout.readline()
        took = time.perf_counter() - began
        p.stdin.close()
    return round(took * 1000, 2)


def own_start(records):
    return spread(one["ms"] for one in records if one["kind"] == "own")


def recovered(records, way, key="same_session"):
    """What was found, and how often it did not come back."""
    found = [one.get(key, {}).get("recovered_ms") for one in records if one["kind"] == "crash" and one["way"] == way and "error" not in one]
    return spread(found), sum(one is None for one in found), len(found)


def render(records, page):
    page.text("![From the crash to the next good answer, by gateway](img/crash.svg)")
    own = own_start(records)
    page.text(f"The server exits during a call while another runs. Times run from there to the next good answer, in the same session and in "
              f"a new one. The stub's start takes {shown(own)} ms. `never` means not within {LIMIT} s.")
    rows = []
    for way in WAYS:
        same, new = recovered(records, way.name), recovered(records, way.name, "new_session")
        if same[2]:
            inflight = next(one["inflight_call"] for one in records if one["kind"] == "crash" and one["way"] == way.name and "inflight_call" in one)
            words = "no answer" if inflight["outcome"] == "TIMEOUT" else f"error after {number(max(0, inflight['ms'] - 200))} ms"
            rows.append([f"**{way.label}**" if way.name == "ostler" else way.label, _cell(same), _cell(new), words, same[2]])
    page.table(["way", "same session, ms", "new session, ms", "the other call", "crashes"], rows)


def _cell(found):
    times, never, of = found
    if not times:
        return "never"
    return shown(times) + (f", never in {never} of {of}" if never else "")


def plots(records, folder):
    bars = []
    for way in WAYS:
        times, never, of = recovered(records, way.name)
        if of:
            tone = "ours" if way.name == "ostler" else "peer"
            bars.append(plot.Bar(way.label, times if not never else None, f"{number(times.median)} ms" if not never else "never", tone))
    if bars:
        plot.bars(folder / "crash.svg", "From a server's crash to the next good answer", [plot.Panel("Same session", f"within {LIMIT} s", bars)])
