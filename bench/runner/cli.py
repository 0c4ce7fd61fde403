"""The command: what was typed, and the sections in turn."""
import argparse
import os
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from . import build, page, procs
from .context import Context, Progress
from .peers import WAYS
from .place import BENCH, Place, machine_load
from .sections import SECTIONS
from .store import Store

HELP = """Measures Ostler beside other gateways and writes the results down.

examples:
  bench/run                                  everything, into bench/RESULTS.md and bench/img
  bench/run --quick                          a look, in minutes, into target/bench
  bench/run --only latency,growth --rounds 9
  bench/run --from bench/results.jsonl       page and pictures again, nothing is measured
  bench/run --no-build --bin target/release --peers-dir /scratch/peers

sections: """ + ", ".join(section.NAME for section in SECTIONS) + """
ways beside the yardsticks and Ostler (--peers): """ + ", ".join(way.name for way in WAYS if way.is_peer)


# Load per core from which on a run says that it is not alone.
BUSY = 0.4
QUICK_PEERS = ("supergateway", "py-mcp-proxy")


def read(typed):
    ap = argparse.ArgumentParser(prog="bench/run", description=HELP,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--quick", action="store_true", help="fewer rounds, shorter, fewer points; into target/bench unless --out says otherwise")
    ap.add_argument("--only", metavar="SECTION,…", help="these sections alone; the others keep what they have")
    ap.add_argument("--rounds", type=int, help="rounds in which every way is driven (5, quick 2)")
    ap.add_argument("--seconds", type=float, help="how long each cell is driven in each round (0.6, quick 0.3)")
    ap.add_argument("--out", type=Path, metavar="DIR", help="where RESULTS.md, img/ and results.jsonl go (bench)")
    ap.add_argument("--from", dest="since", type=Path, metavar="FILE", help="make page and pictures from these raw results")
    ap.add_argument("--peers", metavar="WAY,…", help="other gateways to drive; `none` for none (all, quick two)")
    ap.add_argument("--peers-dir", type=Path, metavar="DIR", help="where the peers are installed (target/bench-peers)")
    ap.add_argument("--no-build", action="store_true", help="build and install nothing")
    ap.add_argument("--bin", type=Path, metavar="DIR", help="built programs of this repository (target/release)")
    ap.add_argument("--beside", type=Path, metavar="PROGRAM", help="another build of `ostler`, driven beside this one in `latency`")
    ap.add_argument("--keep", action="store_true", help="keep configs and logs, and say where")
    o = ap.parse_args(typed)
    o.line = _line(o)
    o.sections = _named(ap, "--only", o.only, {section.NAME: section for section in SECTIONS})
    known = {way.name: way.name for way in WAYS if way.is_peer}
    if o.quick and not o.peers:
        o.peers = ",".join(QUICK_PEERS)
    o.peers = [] if o.peers == "none" else _named(ap, "--peers", o.peers, known)
    o.rounds = o.rounds or (2 if o.quick else 5)
    o.seconds = o.seconds or (0.3 if o.quick else 0.6)
    if o.since and not o.since.is_file():
        ap.error(f"--from: there is no file {o.since}")
    o.out = o.out or (build.target() / "bench" if o.quick else BENCH)
    return o


def _line(o):
    """What was typed, without where things lie on this machine."""
    words = ["bench/run"] + ["--quick"] * o.quick
    words += [word for key in ("only", "rounds", "seconds", "peers") if getattr(o, key) is not None for word in (f"--{key}", str(getattr(o, key)))]
    return shlex.join(words)


def _named(ap, option, typed, known):
    if typed is None:
        return list(known.values())
    unknown = [name for name in typed.split(",") if name not in known]
    if unknown:
        ap.error(f"{option}: no {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in typed.split(",")]


def main(typed):
    o = read(typed)
    if o.since:
        page.write(Store(o.out / "results.jsonl", o.since), o.out)
        return _done(o)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    peers_folder = o.peers_dir or Path(os.environ.get("PEERS_DIR", build.target() / "bench-peers"))
    try:
        _prepare(o, peers_folder)
    except KeyboardInterrupt:
        return 130
    scratch = Path(tempfile.mkdtemp(prefix="ostler-bench-"))
    place = Place(o.bin or build.target() / "release", peers_folder, scratch, o.beside)
    lacking = [str(path) for path in (place.ostler, place.driver, place.stub, place.raw) if not path.exists()]
    if lacking:
        sys.exit(f"not built: {', '.join(lacking)}; without --no-build this command builds them")
    try:
        return _measure(o, place)
    except KeyboardInterrupt:
        print("\nstopping what was started; once more kills it", file=sys.stderr)
        return 130
    finally:
        _clean(o, scratch)


def _prepare(o, peers_folder):
    if o.no_build:
        return
    build.build()
    if o.peers:
        build.install_peers(peers_folder)


def _clean(o, scratch):
    try:
        procs.stop_all()
    except KeyboardInterrupt:
        procs.stop_all(grace=0.1)
    if o.keep:
        print(f"configs and logs are in {scratch}", file=sys.stderr)
    else:
        shutil.rmtree(scratch, ignore_errors=True)


def _measure(o, place):
    store = Store(o.out / "results.jsonl")
    progress = Progress(0)
    ctx = Context(place, o, progress)
    planned = {section.NAME: section.estimate(ctx) for section in o.sections}
    progress.total = sum(planned.values())
    if machine_load()[0] > BUSY * os.cpu_count():
        progress.say(f"the machine is busy (load {machine_load()[0]}): figures will differ much between rounds")
    head, before, is_whole = build.describe(o, place.peers), 0.0, True
    for section in o.sections:
        ctx.begin(section.NAME, head)
        try:
            section.measure(ctx)
        except Exception as error:  # One section that breaks must not cost the others.
            is_whole = False
            ctx.emit("broken", error=f"{type(error).__name__}: {error}")
        finally:
            procs.stop_all()
        store.put(section.NAME, ctx.end())
        page.write(store, o.out)
        progress.settle(planned[section.NAME], before)
        before += planned[section.NAME]
    progress.say("")
    _done(o)
    return 0 if is_whole else 1


def _done(o):
    print(o.out / "RESULTS.md")
    return 0
