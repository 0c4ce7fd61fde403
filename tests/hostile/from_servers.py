"""What servers say: over stdio, and over HTTP as bodies, streams and compressed bytes."""

import gzip
import itertools
import json
import zlib

import hostile_bytes

# Frames that a rude server throws in one call, and those in one stream over HTTP.
BURST = 1_000
STREAM = 50


def over(world, seed):
    """Waits until the rude server has said all it was going to say."""
    for _ in range(50):
        answer = world.call("rude__done", {"seed": seed})
        if f"done {seed}" in json.dumps(answer):
            return
    raise AssertionError(f"the rude server is never done: {answer}")


def mutated_lines(world, count, rng):
    """stdio: damaged frames"""
    for _ in range(0, count, BURST):
        seed = rng.getrandbits(60)
        world.call("rude__throw", {"seed": seed, "count": BURST})
        over(world, seed)
        world.good("rude__echo")


def suite_lines(world, _count, rng):
    """stdio: JSONTestSuite and naughty strings"""
    seed = rng.getrandbits(60)
    world.call("rude__suite")
    over(world, seed)
    world.good("rude__echo")


def floods(world, _count, rng):
    """stdio: 1 GB without a newline, a million notifications, a million blank lines"""
    folder = world.folder
    note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
    ways = {
        "line": lambda file: [file.write(b'{"jsonrpc":"2.0","id":"nobody","result":"'), [file.write(b"x" * (1 << 20)) for _ in range(1024)], file.write(b"\n")],
        "notes": lambda file: [file.write(note * 1000) for _ in range(1000)],
        "blanks": lambda file: file.write(b"\n" * 1_000_000),
    }
    for name, write in ways.items():
        path = folder / name
        with open(path, "wb") as file:
            write(file)
        seed = rng.getrandbits(60)
        world.call("rude__raw", {"file": str(path)}, timeout=240)
        over(world, seed)
        world.good("rude__echo")
        path.unlink()


def head(kind=b"application/json", more=b"", length=None):
    # The server hangs up after it: without a word of that, a later call may be on its way on the same connection.
    text = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " + kind + b"\r\n" + more
    return text + (b"\r\n" if length is None else b"Content-Length: %d\r\n\r\n" % length)


def ask(world, remote, pieces, count=1):
    """Has the remote answer like this; whatever comes of it, the next good call works."""
    remote.next_answer = pieces
    for _ in range(count):
        world.call("remote__throw")
    world.good("remote__echo")


def mutated_bodies(world, count, rng):
    """HTTP: damaged bodies and streams"""
    def body(ident):
        frame = next(hostile_bytes.frames(hostile_bytes.ANSWERS, ident, 1, rng))
        return [head(length=len(frame)) + frame]

    def stream(ident):
        events = b"".join(b"data: " + frame + b"\n\n" for frame in hostile_bytes.frames(hostile_bytes.ANSWERS, ident, STREAM, rng))
        return [head(b"text/event-stream") + hostile_bytes.mutated(events, rng)]

    def whole(ident):
        frame = next(hostile_bytes.frames(hostile_bytes.ANSWERS, ident, 1, rng))
        return [hostile_bytes.mutated(head(length=len(frame)) + frame, rng)]

    for _ in range(max(1, count // 2_000)):
        ask(world, world.remote, stream, 30)
        ask(world, world.remote, body, 10)
        ask(world, world.remote, whole, 10)


def suite_bodies(world, _count, _rng):
    """HTTP: JSONTestSuite as results, plain and in streams"""
    cases = itertools.cycle(hostile_bytes.suite())

    def body(ident):
        _, case = next(cases)
        text = b'{"jsonrpc":"2.0","id":%s,"result":' % json.dumps(ident).encode() + case + b"}"
        return [head(length=len(text)) + text]

    def stream(ident):
        return [head(b"text/event-stream")] + [
            b'data: {"jsonrpc":"2.0","id":%s,"result":' % json.dumps(ident).encode() + case + b"}\n\n"
            for _, case in itertools.islice(cases, STREAM)
        ]

    ask(world, world.remote, stream, 8)
    for _ in range(8):
        ask(world, world.remote, body, len(hostile_bytes.suite()) // 8)


def stream_tricks(world, _count, _rng):
    """HTTP: tricks of streams"""
    def events(*pieces):
        return lambda ident: [head(b"text/event-stream"), *[piece.replace(b"%ID%", json.dumps(ident).encode()) for piece in pieces]]

    good = b'data: {"jsonrpc":"2.0","id":%ID%,"result":{"content":[]}}'
    for pieces in (
        (b"",), (b":\n\n" * 10_000,), (b"data\n\n",), (b"data:\n\n", good + b"\n\n"), (good + b"\r\r",), (good.replace(b"data: ", b"data:") + b"\r\n\r\n",),
        (b"\xef\xbb\xbf" + good + b"\n\n",), (b"id: " + b"x" * 100_000 + b"\n" + good + b"\n\n",), (b"id: a\0b\n" + good + b"\n\n",),
        (b"retry: 99999999999999999999999999\n\n", good + b"\n\n"), (b"retry: 0\n\n",), (b"retry: -1\nid: 1\n\n",), (b"event: endpoint\ndata: http://evil.example/\n\n", good + b"\n\n"),
        (b"event: \xff\xfe\n" + good + b"\n\n",), (b"data: {\n" * 100_000 + b"\n",), (b"data: " + b"x" * (20 << 20) + b"\n\n", good + b"\n\n"),
        (b"x" * (20 << 20),), (good,), (good + b"\n",), (b"id: 5\ndata: \n\n", b"id: 6\n\n"),
    ):  # fmt: skip
        ask(world, world.remote, events(*pieces))


def packed(world, _count, _rng):
    """HTTP: gzip and deflate bombs, nested and cut"""
    zeros = b" " * (1 << 20)
    one = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(one.compress(zeros) for _ in range(1024)) + one.flush()
    small = gzip.compress(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    for encoding, text in (
        (b"gzip", bomb), (b"gzip, gzip", gzip.compress(bomb)), (b"gzip", gzip.compress(bomb)), (b"deflate", zlib.compress(zeros * 256)),
        (b"gzip", bomb[: len(bomb) // 2]), (b"gzip", small[:-6]), (b"gzip", small[:-1] + b"\xff"), (b"gzip", b"\x1f\x8b"), (b"gzip", b""), (b"gzip", b"plain"),
        (b"deflate", b"\xff" * 100), (b"br", small), (b"identity, gzip, gzip, gzip", small), (b"gzip" + b", gzip" * 1_000, small), (b"zstd\xff", small),
    ):  # fmt: skip
        for kind in (b"application/json", b"text/event-stream"):
            more = b"Content-Encoding: " + encoding + b"\r\n"
            ask(world, world.remote, lambda _, kind=kind, more=more, text=text: [head(kind, more, len(text)) + text])


def head_tricks(world, _count, _rng):
    """HTTP: tricks of heads"""
    good = b'{"jsonrpc":"2.0","id":%ID%,"result":{"content":[]}}'
    for text in (
        b"", b"\r\n\r\n", b"HTTP/1.1 200\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n", b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n" + good,
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + good, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * (2 << 20) + b"\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 307 Again\r\nLocation: /mcp\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: \xff\xfe\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-16\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 200 OK\r\nMcp-Session-Id: a\r\nMcp-Session-Id: b\xff\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + good,
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{",
        b"HTTP/1.1 500 X\r\nConnection: close\r\n\r\n" + b"<html>" * 1_000_000,
    ):  # fmt: skip
        ask(world, world.remote, lambda ident, text=text: [text.replace(b"%ID%", json.dumps(ident).encode())])


def refusals(world, _count, _rng):
    """HTTP: statuses that ask for patience, beyond all measure"""
    for text in (
        b"HTTP/1.1 429 X\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 503 X\r\nRetry-After: -5\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 X\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 401 X\r\nWWW-Authenticate: " + b"Bearer " * 10_000 + b"\r\nContent-Length: 0\r\n\r\n",
    ):  # fmt: skip
        world.remote.next_answer = lambda _, text=text: [text]
        world.call("remote__throw")
        # A pause, or a person who must act, is what was asked for; an operator ends both.
        world.reload("remote")
        world.good("remote__echo")


# The host has tests of its own for these; here they go through the whole program.
LONG = [floods]
ALL = [mutated_lines, suite_lines, mutated_bodies, suite_bodies, stream_tricks, packed, head_tricks, refusals]
