"""A package registry on loopback that is slow: npm's and PyPI's in one.

Every request is on record: what was asked for, from when to when, how many
bytes of how many were taken. A client that was killed during a download shows
there as one that left early.
"""

import http.server
import json
import threading
import time
from dataclasses import dataclass, field

# Pieces that a slow download comes in, so that it never pauses for long.
PIECES = 80


@dataclass
class Asked:
    """One request. `ended` is none as long as it is being answered."""

    path: str
    began: float
    length: int = 0
    sent: int = 0
    ended: float | None = None

    def was_cut(self):
        return self.ended is not None and self.sent < self.length

    def __str__(self):
        lasted = "under way" if self.ended is None else f"{self.ended - self.began:.1f} s"
        return f"{self.path}: {self.sent} of {self.length} bytes, {lasted}"


@dataclass
class Download:
    """A file, and how long its download takes: first nothing, then a trickle."""

    body: bytes
    silent: float
    trickle: float


@dataclass
class Registry:
    """Answers `pages` at once and `downloads` slowly, on a free port."""

    pages: dict = field(default_factory=dict)
    downloads: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)

    def __enter__(self):
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                registry.answer(self)

            def do_POST(self):
                # npm asks for advisories, which there are none of.
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                registry.answer(self)

            def log_message(self, *_):
                """Says nothing; the requests are on record."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                """A client that leaves is on record too."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def add(self, package, silent, trickle):
        """Offers what `package(url)` gives: its pages, and one file."""
        pages, (path, body) = package(self.url)
        self.pages.update(pages)
        self.downloads[path] = Download(body, silent, trickle)

    def answer(self, handler):
        asked = Asked(handler.path, time.monotonic())
        self.asked.append(asked)
        download = self.downloads.get(handler.path)
        kind, body = self.pages.get(handler.path, (None, None))
        try:
            if download:
                self.send(handler, 200, "application/octet-stream", download.body, asked, download)
            elif body is not None:
                self.send(handler, 200, kind, body, asked)
            else:
                self.send(handler, 404, "application/json", b"{}", asked)
        except OSError:
            handler.close_connection = True
        finally:
            asked.ended = time.monotonic()

    @staticmethod
    def send(handler, code, kind, body, asked, pace=Download(b"", 0, 0)):
        asked.length = len(body)
        handler.send_response(code)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        time.sleep(pace.silent)
        size = -(-len(body) // PIECES) if pace.trickle else len(body)
        for at in range(0, len(body), size or 1):
            time.sleep(pace.trickle / PIECES)
            piece = body[at:at + size]
            handler.wfile.write(piece)
            asked.sent += len(piece)

    def taken(self, path):
        """The downloads of a file."""
        return [asked for asked in list(self.asked) if asked.path == path]

    def cut(self):
        """The requests whose client left before it had everything."""
        return [asked for asked in list(self.asked) if asked.was_cut()]


def as_json(value):
    return "application/json", json.dumps(value).encode()
