#!/usr/bin/env python3
"""Runs single cells against the peers, interleaved, and prints JSON lines; `bench/run` is the whole.

Locations come from the environment:
  BENCH_BIN   directory of mcp-stub, mcp-drive, mcp-raw, mcp-typed (default: target/release)
  PEERS_DIR   where install-peers.sh put the peers
  OURS        command line of our gateway, optional; {config} and {port} are filled in
  BENCH_OUT   directory for configs, logs and results (default: results)

usage:
  run.py load     [--peers a,b] [--reps 3] [--seconds 2] [--upstream stdio|http]
  run.py start    [--peers a,b] [--reps 3] [--counts 1,20]
  run.py crash    [--peers a,b]
  run.py sessions [--peers a,b] [--count 2000]
"""
import argparse
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.environ.get("BENCH_BIN", os.path.join(HERE, "target", "release"))
PEERS = os.environ.get("PEERS_DIR", os.path.join(HERE, "peers"))
OUT = os.environ.get("BENCH_OUT", os.path.join(HERE, "results"))
STUB, DRIVE = os.path.join(BIN, "mcp-stub"), os.path.join(BIN, "mcp-drive")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


STUB_HTTP_PORT = free_port()
TOOLS_PER_STUB = 6


def npm(pkg, *args):
    return ["node", os.path.join(PEERS, "npm-" + pkg, "node_modules", ".bin", pkg), *args]


def py(pkg, prog, *args):
    return [os.path.join(PEERS, "py-" + pkg, "bin", prog), *args]


def config(name, count, upstream):
    """An mcpServers file with `count` stubs; most peers read this shape."""
    if upstream == "http":
        one = {"type": "streamable-http", "url": f"http://127.0.0.1:{STUB_HTTP_PORT}/mcp"}
    else:
        one = {"command": STUB, "args": ["stdio"]}
    path = os.path.join(OUT, f"{name}-{upstream}-{count}.json")
    with open(path, "w") as f:
        json.dump({"mcpServers": {f"s{i}": one for i in range(count)}}, f)
    return path


class Peer:
    def __init__(self, name, cmd, path="/mcp", http=None, many=True, tools=None, env=None, proto=None):
        self.name, self.cmd, self.path, self.http, self.many = name, cmd, path, http, many
        self.tools, self.env, self.proto = tools, env or {}, proto

    def argv(self, port, count, upstream):
        fn = self.cmd if upstream == "stdio" else self.http
        return None if fn is None or (count > 1 and not self.many) else fn(port, count)

    def min_tools(self, count):
        return self.tools(count) if self.tools else TOOLS_PER_STUB * count


S = [STUB, "stdio"]
UP = f"http://127.0.0.1:{STUB_HTTP_PORT}/mcp"
ALL = [
    # No gateway at all: the driver and the stub alone.
    Peer("direct", lambda p, n: [STUB, "http", "--port", str(p)], many=False),
    Peer("raw", lambda p, n: [os.path.join(BIN, "mcp-raw"), "--port", str(p), "--count", str(n), "--", *S],
         http=lambda p, n: [os.path.join(BIN, "mcp-raw"), "--port", str(p), "--upstream", UP]),
    Peer("raw-2t", lambda p, n: [os.path.join(BIN, "mcp-raw"), "--threads", "2", "--port", str(p), "--count", str(n), "--", *S],
         http=lambda p, n: [os.path.join(BIN, "mcp-raw"), "--threads", "2", "--port", str(p), "--upstream", UP]),
    Peer("typed", lambda p, n: [os.path.join(BIN, "mcp-typed"), "--port", str(p), "--count", str(n), "--", *S]),
    Peer("typed-json", lambda p, n: [os.path.join(BIN, "mcp-typed"), "--stateless", "--port", str(p), "--count", str(n), "--", *S]),
    Peer("supergateway", many=False, cmd=lambda p, n: npm(
        "supergateway", "--stdio", " ".join(S), "--outputTransport", "streamableHttp", "--stateful", "--port", str(p), "--logLevel", "none")),
    Peer("supergateway-stateless", many=False, cmd=lambda p, n: npm(
        "supergateway", "--stdio", " ".join(S), "--outputTransport", "streamableHttp", "--port", str(p), "--logLevel", "none")),
    Peer("npm-mcp-proxy", many=False, cmd=lambda p, n: npm(
        "mcp-proxy", "--host", "127.0.0.1", "--server", "stream", "--port", str(p), "--", *S)),
    Peer("py-mcp-proxy", path="/servers/s0/mcp", tools=lambda n: TOOLS_PER_STUB, cmd=lambda p, n: py(
        "mcp-proxy", "mcp-proxy", "--host", "127.0.0.1", "--log-level", "ERROR", "--port", str(p),
        "--named-server-config", config("py-mcp-proxy", n, "stdio"))),
    Peer("fastmcp", cmd=lambda p, n: py("fastmcp", "python", os.path.join(HERE, "fastmcp_proxy.py"), config("fastmcp", n, "stdio"), str(p)),
         http=lambda p, n: py("fastmcp", "python", os.path.join(HERE, "fastmcp_proxy.py"), config("fastmcp", n, "http"), str(p))),
]
if os.environ.get("OURS"):
    def ours(upstream):
        return lambda p, n: [a.format(config=config("ours", n, upstream), port=p) for a in shlex.split(os.environ["OURS"])]
    ALL.append(Peer("ours", ours("stdio"), http=ours("http")))


def drive(*args, timeout=300):
    r = subprocess.run([DRIVE, *map(str, args)], capture_output=True, text=True, timeout=timeout)
    try:
        return json.loads(r.stdout)
    except ValueError:
        return {"error": (r.stdout + r.stderr)[-400:]}


class Running:
    def __init__(self, peer, port, count=1, upstream="stdio"):
        self.peer, self.url = peer, f"http://127.0.0.1:{port}{peer.path}"
        log = open(os.path.join(OUT, f"{peer.name}.log"), "ab")
        self.p = subprocess.Popen(peer.argv(port, count, upstream), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  env={**os.environ, **peer.env}, start_new_session=True)
        self.ready = drive("ready", "--url", self.url, "--min-tools", peer.min_tools(count), "--timeout", 60)

    def stop(self):
        """Ends the process group that this object started, and nothing else."""
        for sig, wait in ((signal.SIGTERM, 4), (signal.SIGKILL, 4)):
            try:
                os.killpg(self.p.pid, sig)
                self.p.wait(wait)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass


def emit(**kw):
    print(json.dumps(kw), flush=True)


CELLS = [(1, 60, 1), (1, 10000, 1), (32, 60, 8), (64, 60, 8), (64, 10000, 8)]


def load(a, peers):
    stub = None
    if a.upstream == "http":
        stub = subprocess.Popen([STUB, "http", "--port", str(STUB_HTTP_PORT)], stderr=subprocess.DEVNULL)
        peers = [p for p in peers if p.http]
    runs = []
    try:
        for p in peers:
            r = Running(p, free_port(), upstream=a.upstream)
            emit(kind="ready", peer=p.name, **r.ready)
            if "error" in r.ready:
                r.stop()
            else:
                runs.append(r)
        time.sleep(2)
        for r in runs:
            emit(kind="idle", peer=r.peer.name, **drive("rss", "--pid", r.p.pid))
        for rep in range(a.reps):
            for conc, size, sessions in CELLS:
                for r in runs:
                    v = drive("http", "--url", r.url, "--proto", a.proto, "--concurrency", conc, "--payload", size, "--sessions", sessions,
                              "--seconds", a.seconds, "--warmup", 0.5, "--pid", r.p.pid)
                    emit(kind="load", upstream=a.upstream, era=a.proto, rep=rep, peer=r.peer.name, c=conc, size=size, **v)
    finally:
        for r in runs:
            r.stop()
        if stub:
            stub.terminate()


def start(a, peers):
    for rep in range(a.reps):
        for n in map(int, a.counts.split(",")):
            for p in peers:
                port = free_port()
                argv = p.argv(port, n, "stdio")
                if argv:
                    v = drive("start", "--url", f"http://127.0.0.1:{port}{p.path}", "--min-tools", p.min_tools(n),
                              "--timeout", 60, "--", *argv)
                    emit(kind="start", rep=rep, peer=p.name, n=n, **v)


def crash(a, peers):
    for p in peers:
        r = Running(p, free_port())
        emit(kind="crash", peer=p.name, **(r.ready if "error" in r.ready else drive("crash", "--url", r.url, "--timeout", 15)))
        r.stop()


def sessions(a, peers):
    for p in peers:
        for keep in ([], ["--no-delete"]):
            r = Running(p, free_port())
            v = r.ready if "error" in r.ready else drive("sessions", "--url", r.url, "--count", a.count, "--timeout", a.limit, "--pid", r.p.pid, *keep)
            emit(kind="sessions", peer=p.name, delete=not keep, **v)
            r.stop()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=["load", "start", "crash", "sessions"])
    ap.add_argument("--peers", default="")
    ap.add_argument("--reps", type=int, default=3)
    ap.add_argument("--seconds", type=float, default=2)
    ap.add_argument("--proto", default="2025-06-18", help="protocol revision of the driver; 2026-07-28 is the modern one")
    ap.add_argument("--upstream", choices=["stdio", "http"], default="stdio")
    ap.add_argument("--counts", default="1,20")
    ap.add_argument("--count", type=int, default=2000)
    ap.add_argument("--limit", type=float, default=60)
    a = ap.parse_args()
    os.makedirs(OUT, exist_ok=True)
    want = [n for n in a.peers.split(",") if n]
    peers = [p for p in ALL if not want or p.name in want]
    missing = set(want) - {p.name for p in peers}
    if missing:
        sys.exit(f"unknown peers: {', '.join(sorted(missing))}")
    globals()[a.what](a, peers)


if __name__ == "__main__":
    main()
