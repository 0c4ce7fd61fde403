"""Where a run finds its programs and puts its files, and how the driver is asked."""
import json
import os
import subprocess
from pathlib import Path

from . import procs

BENCH = Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
PEERS = BENCH / "peers"
LEGACY, MODERN = "2025-06-18", "2026-07-28"
TOOLS_PER_STUB = 6


class Place:
    """Programs and folders of one run."""

    def __init__(self, programs, peers, scratch, beside=None):
        self.programs, self.peers, self.scratch = (Path(path).resolve() for path in (programs, peers, scratch))
        names = ("ostler", "bench", "mcp-drive", "mcp-stub", "mcp-raw", "mcp-typed")
        self.ostler, self.bench, self.driver, self.stub, self.raw, self.typed = (self.programs / name for name in names)
        self.beside = beside and beside.resolve()

    def log(self, name):
        return str(self.scratch / f"{name}.log")

    def drive(self, *args, timeout=120):
        """One JSON object from `mcp-drive`; `error` in it when there is none to be had."""
        out = procs.run([str(self.driver), *map(str, args)], timeout, log=self.log("drive"))
        try:
            return json.loads(out)
        except (TypeError, ValueError):
            return {"error": "the driver gave no answer" if out is None else out[-300:] or "the driver failed"}

    def load(self, url, pid, cell, *more):
        """Calls for a while. `cell`: callers, payload, sessions, proto, seconds, warmup."""
        args = ["http", "--url", url, "--pid", pid, "--proto", cell.get("proto", LEGACY), "--concurrency", cell["callers"],
                "--payload", cell["payload"], "--sessions", cell.get("sessions", min(8, cell["callers"])),
                "--seconds", cell["seconds"], "--warmup", cell.get("warmup", 0.25), *more]
        found = self.drive(*args, timeout=cell["seconds"] + 90)
        if "error" in found:
            return found
        if found["errors"] > found["calls"] / 100 or not found["calls"]:
            return {"error": f"{found['errors']} of {found['calls'] + found['errors']} calls failed: {found['error_samples'][:1]}"}
        kept = ("calls", "errors", "rps", "p50_us", "p99_us", "cpu_us_per_call", "seconds")
        return {key: found[key] for key in kept} | {"rss_mib": found["rss"]["gateway"]["rss_mib"]}


def said(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=20, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def machine_load():
    return [round(one, 2) for one in os.getloadavg()]
