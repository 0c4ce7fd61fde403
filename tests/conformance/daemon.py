"""Starts programs, waits until their port is open, and ends them for sure."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
OSTLER = Path(os.environ.get("OSTLER_BIN", TARGET / "debug" / "ostler"))
FIXTURE = TARGET / "debug" / "fixture-mcp"
FAKE = TARGET / "debug" / "fake-mcp"
# Nothing takes this long but something that hangs.
START_TIMEOUT = 30
STOP_TIMEOUT = 15


class Program:
    """A running program that says in a file where it listens."""

    def __init__(self, command, folder, env=None, cwd=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        port_file = self.folder / "port"
        self.log = self.folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*map(str, command), "--port-file", port_file],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=cwd,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not port_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise SystemExit(f"{command[0]} did not start:\n{self.log.read_text(errors='replace')}")
            time.sleep(0.02)
        # Some programs write the address, some the port alone.
        self.address = f"127.0.0.1:{port_file.read_text().strip().rpartition(':')[2]}"

    def stop(self):
        """Ends the program; whether it ended when it was told to."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT)
            return True
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Home:
    """A home directory; what runs on its user's behalf is known by it."""

    def __init__(self, folder):
        self.path = Path(folder)
        self.path.mkdir(parents=True)

    def processes(self):
        """Command lines by process id."""
        wanted = f"HOME={self.path}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
        return found

    def daemons(self):
        return [pid for pid, line in self.processes().items() if Path(line[0]).name == "ostler" and "serve" in line]

    def end_daemons(self):
        """Ends them, and returns what is left after that."""
        for pid in self.daemons():
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left


def fixture(folder, *switches):
    """A fixture on a free port; its url is `.url`."""
    program = Program([FIXTURE, "--http", "127.0.0.1:0", *switches], folder)
    program.url = f"http://{program.address}/mcp"
    return program


def ostler(folder, servers, env=None):
    """`ostler serve` over these servers, with a state of its own unless the environment has one."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}, indent=2))
    if env is None:
        env = dict(os.environ)
        for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
            env[name] = str(folder / name)
            Path(env[name]).mkdir(mode=0o700, exist_ok=True)
    return Program([OSTLER, "serve", "--config", config, "--listen", "127.0.0.1:0"], folder, env)
