"""A plain MCP client of both eras over the pipes of a program that it starts.

Like its sister over HTTP it takes what it gets.
"""

import json
import queue
import subprocess
import threading

from mcp_http import PATIENCE, LegacyClient, ModernClient, Refused

# What is left of a program that was told to end ends by force.
STOP_TIMEOUT = 10


class Pipe:
    """A program that speaks MCP on its stdin and stdout. `options` go to `Popen`."""

    def __init__(self, command, answer, patience=PATIENCE, **options):
        self.patience = patience
        # Every message that was no answer to what was asked, in order.
        self.heard = []
        self.headers = {"Mcp-Session-Id": None}
        self.arrived = queue.Queue()
        self.process = subprocess.Popen(
            [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options,
        )
        threading.Thread(target=self.read, daemon=True).start()
        try:
            super().__init__("", answer)
        except BaseException:
            self.close()
            raise

    def read(self):
        for line in self.process.stdout:
            try:
                self.arrived.put(json.loads(line))
            except ValueError:
                continue
        self.arrived.put(None)

    def post(self, message, _headers):
        """Yields every message up to the answer."""
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as problem:
            raise Refused(f"the program has ended: {problem}") from problem
        while "method" in message and "id" in message:
            heard = self.next_message()
            if "method" not in heard and heard.get("id") == message["id"]:
                yield heard
                return
            self.heard.append(heard)
            yield heard

    def next_message(self):
        try:
            heard = self.arrived.get(timeout=self.patience)
        except queue.Empty as late:
            raise Refused(f"no answer after {self.patience} s") from late
        if heard is None:
            raise Refused(f"the program has ended with {self.process.wait()}")
        return heard

    def close(self):
        """Closes its stdin, as clients do, and waits for its end."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class ModernPipe(Pipe, ModernClient):
    """Every request stands alone."""


class LegacyPipe(Pipe, LegacyClient):
    """One session."""
