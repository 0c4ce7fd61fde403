"""A daemon with a rude server, a rude remote and a quiet one, and the promises that hold for all inputs."""

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))

from daemon import OSTLER, Program  # noqa: E402

# Longer than anything takes that works.
PATIENCE = 60
# What the daemon may grow by, in KiB, whatever comes.
ALLOWANCE = 64 << 10

CONFIG = """
version = 1
watch = false
[servers.quiet]
command = {ostler}
args = ["demo"]
lazy = false
[servers.rude]
command = {python}
args = [{rude}]
restart = {{ max = 1000000, window = "5m", first_delay = "1ms", max_delay = "1ms" }}
breaker = {{ failures = 0, reset = "30s" }}
lazy = false
[servers.remote]
url = {remote}
restart = {{ max = 1000000, window = "5m", first_delay = "1ms", max_delay = "1ms" }}
breaker = {{ failures = 0, reset = "30s" }}
call_timeout = "20s"
[roles.local]
allow = ["*"]
[roles.crew]
allow = ["*"]
{more}
"""


class Broken(Exception):
    """A promise that was not held."""


def environment(folder):
    env = dict(os.environ, NO_COLOR="1", HOME=str(folder))
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        env[name] = str(folder / name)
        Path(env[name]).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        env.pop(name, None)
    return env


class World:
    def __init__(self, folder, remote_url, more="", env=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.env = environment(self.folder) | (env or {})
        self.config = self.folder / "ostler.toml"
        quoted = json.dumps
        self.config.write_text(CONFIG.format(
            ostler=quoted(str(OSTLER)), python=quoted(sys.executable), rude=quoted(str(HERE / "rude_server.py")),
            remote=quoted(remote_url), more=more,
        ))
        self.restart()

    def restart(self):
        """Starts the daemon; it does not run yet, or no more."""
        (self.folder / "port").unlink(missing_ok=True)
        self.program = Program([OSTLER, "serve", "--config", self.config, "--listen", "127.0.0.1:0"], self.folder, self.env)
        try:
            host, _, port = self.program.address.rpartition(":")
            self.address = (host, int(port))
            self.good("quiet__echo")
            self.begin()
            self.pid_of_quiet = self.pid("quiet")
        except BaseException:
            self.program.stop()
            raise

    @property
    def said(self):
        return self.program.log.read_text(errors="replace")

    def memory(self, field):
        status = Path(f"/proc/{self.program.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(field + ":"))
        return int(line.split()[1])

    def begin(self):
        """Notes what the daemon has now; its peak is forgotten."""
        Path(f"/proc/{self.program.process.pid}/clear_refs").write_text("5")
        self.anonymous, self.file = self.memory("RssAnon"), self.memory("RssFile")

    def grown(self):
        """KiB of anonymous memory at its peak beyond the beginning. Pages of files come and go with the machine's load."""
        return max(0, self.memory("VmHWM") - max(self.file, self.memory("RssFile")) - self.anonymous)

    def admin_token(self):
        return next(self.folder.glob("XDG_STATE_HOME/ostler/*.token")).read_text().strip()

    def call(self, tool, arguments=None, timeout=PATIENCE):
        """The answer to a call of a tool, over a connection of its own."""
        body = {"jsonrpc": "2.0", "id": "good", "method": "tools/call", "params": {
            "name": tool, "arguments": arguments or {}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}}}}
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        try:
            connection.request("POST", "/mcp", json.dumps(body), {
                "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool})
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        finally:
            connection.close()
        if "text/event-stream" in (response.getheader("Content-Type") or ""):
            data = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
            text = data[-1] if data else "{}"
        return json.loads(text)

    def good(self, tool="rude__echo"):
        """The next good call works."""
        argument = {"text": f"good {time.monotonic_ns()}"}
        answer = self.call(tool, argument)
        if argument["text"] not in json.dumps(answer.get("result", {})):
            raise Broken(f"a good call of {tool} brought {json.dumps(answer)[:500]}")

    def pid(self, server):
        return json.loads(self.ostler("status", server, "--json").stdout)["servers"][0]["pid"]

    def reload(self, server):
        self.ostler("reload", server)

    def ostler(self, *words, **more):
        """Runs a command of the program."""
        command = [OSTLER, *words, "--config", self.config]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE, **more)

    def check(self, what):
        """Nothing has panicked, nothing has grown, nobody else has noticed."""
        if self.program.process.poll() is not None:
            raise Broken(f"the daemon has ended:\n{self.said[-2000:]}")
        if "panicked" in self.said:
            raise Broken(f"something has panicked:\n{self.said[self.said.index('panicked') - 200:][:2000]}")
        self.good("quiet__echo")
        if self.pid("quiet") != self.pid_of_quiet:
            raise Broken("another server was restarted")
        grown = self.grown()
        if grown > ALLOWANCE:
            raise Broken(f"{what}: {grown} KiB more than before")
        return grown

    def stop(self):
        return self.program.stop()
