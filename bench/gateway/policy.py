#!/usr/bin/env python3
"""What rules, tokens, pins and the audit cost: CPU per call of two daemons, in turn, in one run.

Locations come from the environment:
  BENCH_BIN   directory of mcp-stub and mcp-drive (default: target/release)
  OSTLER      the binary (default: ../../target/release/ostler)
  BENCH_OUT   directory for configs, state and logs (default: results)

usage: policy.py [--cases rules,token,audit,pins] [--pairs 15] [--seconds 2] [--concurrency 32] [--proto 2026-07-28]

Each case has a config without and one with the thing. Both daemons run at the same time; one is
driven, then the other, and the order changes with every pair. Printed is the ratio of CPU per
call with to without: the median over all pairs, the quartiles, and the ratio of the best of each,
which noise of the machine touches least. The case `same` shows how large that noise is.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.environ.get("BENCH_BIN", os.path.join(HERE, "target", "release"))
OSTLER = os.environ.get("OSTLER", os.path.join(HERE, "..", "..", "target", "release", "ostler"))
OUT = os.path.abspath(os.environ.get("BENCH_OUT", os.path.join(HERE, "results")))
STUB, DRIVE = os.path.join(BIN, "mcp-stub"), os.path.join(BIN, "mcp-drive")
SERVERS, TOOLS, ROLES, RULES = 5, 100, 50, 200

QUIET = "[audit]\nenabled = false\n"


def servers():
    one = f'command = "{STUB}"\nargs = ["stdio", "--tools", "{TOOLS}"]\nlazy = false\n'
    return "".join(f"[servers.s{n}]\n{one}" for n in range(SERVERS))


def rules(role):
    """Half of them deny, none of those matches; the allow that decides is the last."""
    deny = [f"s{n % SERVERS}/x{n}_*" for n in range(RULES // 2)]
    allow = [f"s{n % SERVERS}/?{n}_other*" for n in range(RULES // 2 - 1)] + ["*/*echo"]
    return f"[roles.{role}]\nallow = {json.dumps(allow)}\ndeny = {json.dumps(deny)}\n"


def many_roles():
    return rules("local") + "".join(rules(f"r{n}") for n in range(ROLES - 1))


class Daemon:
    def __init__(self, name, config, token=None, lock=False):
        self.home = os.path.join(OUT, name)
        os.makedirs(self.home, exist_ok=True)
        self.config, port = os.path.join(self.home, "ostler.toml"), os.path.join(self.home, "port")
        for stale in (port, os.path.join(self.home, "ostler.lock")):
            if os.path.exists(stale):
                os.remove(stale)
        with open(self.config, "w") as f:
            f.write('version = 1\nlisten = "127.0.0.1:0"\n' + config + servers())
        keep = {k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}
        self.env = {**keep, "XDG_STATE_HOME": self.home, "XDG_RUNTIME_DIR": self.home, "XDG_CONFIG_HOME": self.home}
        self.header = []
        if token:
            text = self.ostler("token", "create", "--name", f"bench-{os.getpid()}", "--role", token).strip()
            self.header = ["--header", f"Authorization: Bearer {text}"]
        if lock:
            self.ostler("lock")
        log = open(os.path.join(self.home, "log"), "ab")
        self.p = subprocess.Popen([OSTLER, "serve", "--config", self.config, "--port-file", port], env=self.env,
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        until = time.time() + 30
        while not os.path.exists(port):
            if time.time() > until or self.p.poll() is not None:
                sys.exit(f"{name} did not start: see {self.home}/log")
            time.sleep(0.05)
        self.url = f"http://127.0.0.1:{open(port).read().strip()}/mcp"

    def ostler(self, *args):
        r = subprocess.run([OSTLER, *args, "--config", self.config], env=self.env, capture_output=True, text=True)
        if r.returncode != 0:
            sys.exit(f"ostler {' '.join(args)}: {r.stderr}")
        return r.stdout

    def drive(self, a):
        r = subprocess.run([DRIVE, "http", "--url", self.url, "--proto", a.proto, "--tool", "echo", "--spread",
                            "--payload", "60", "--concurrency", str(a.concurrency), "--sessions", "8", "--warmup", "0.3",
                            "--seconds", str(a.seconds), "--pid", str(self.p.pid), *self.header],
                           capture_output=True, text=True)
        v = json.loads(r.stdout)
        if "error" in v or v.get("errors"):
            sys.exit(f"{self.home}: {v}")
        return v["cpu_us_per_call"]

    def stop(self):
        try:
            os.killpg(self.p.pid, signal.SIGTERM)
            self.p.wait(15)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            self.p.kill()


CASES = {
    "same": lambda: (Daemon("same-a", QUIET), Daemon("same-b", QUIET)),
    "rules": lambda: (Daemon("open", QUIET), Daemon("ruled", QUIET + many_roles())),
    "token": lambda: (Daemon("local", QUIET + many_roles()), Daemon("token", QUIET + many_roles(), token="r7")),
    "audit": lambda: (Daemon("unheard", QUIET), Daemon("audited", "")),
    "pins": lambda: (Daemon("unpinned", QUIET), Daemon("pinned", QUIET, lock=True)),
}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--cases", default=",".join(CASES))
    ap.add_argument("--pairs", type=int, default=15)
    ap.add_argument("--seconds", type=float, default=2)
    ap.add_argument("--concurrency", type=int, default=32)
    ap.add_argument("--proto", default="2026-07-28")
    a = ap.parse_args()
    os.makedirs(OUT, exist_ok=True)
    for case in a.cases.split(","):
        without, with_ = CASES[case]()
        try:
            pairs = []
            for n in range(a.pairs):
                order = (without, with_) if n % 2 == 0 else (with_, without)
                got = {d: d.drive(a) for d in order}
                pairs.append((got[without], got[with_]))
        finally:
            without.stop()
            with_.stop()
        # A daemon that got no processor time in its turn has no cost per call either.
        pairs = [pair for pair in pairs if all(pair)]
        if len(pairs) < 2:
            sys.exit(f"{case}: the machine is too busy")
        ratios = sorted(w / o for o, w in pairs)
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(json.dumps({
            "case": case, "pairs": a.pairs, "median_ratio": round(middle, 4), "quartiles": [round(low, 4), round(high, 4)],
            "best_ratio": round(min(w for _, w in pairs) / min(o for o, _ in pairs), 4),
            "without_us": round(statistics.median(o for o, _ in pairs), 2), "with_us": round(statistics.median(w for _, w in pairs), 2),
        }), flush=True)


if __name__ == "__main__":
    main()
