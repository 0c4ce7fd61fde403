"""What clients say: over HTTP to the gateway and to the admin API, and over `ostler stdio`."""

import json
import queue
import socket
import subprocess
import threading

import hostile_bytes
from world import OSTLER, PATIENCE, Broken

HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\n"
)

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
# Served at once, without a session.
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}'


def send(world, *pieces, is_over=True, is_half_closed=True):
    """Sends bytes over a connection of its own and reads what comes, for a while. A client that has closed its half may
    be taken for one that has left, so where an answer is a must the other half stays open."""
    with socket.create_connection(world.address, timeout=PATIENCE) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            if is_over and is_half_closed:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            # It hung up in the middle; what it said before can still be read.
            pass
        connection.settimeout(PATIENCE if is_over else 0.2)
        heard = b""
        try:
            while len(heard) < 1 << 20:
                more = connection.recv(65536)
                if not more:
                    break
                heard += more
        except TimeoutError:
            if is_over:
                raise Broken(f"no answer to {b''.join(pieces)[:200]!r}, only {heard[:200]!r}") from None
        except ConnectionError:
            pass
        return heard


class Line:
    """A connection that is kept, and made anew when the daemon has enough of it."""

    def __init__(self, world):
        self.world = world
        self.file = None

    def post(self, path, head, body):
        """The status of an answer."""
        if self.file is None:
            self.connection = socket.create_connection(self.world.address, timeout=PATIENCE)
            self.file = self.connection.makefile("rb")
        text = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        self.connection.sendall(text.replace(b"/mcp ", path + b" ", 1))
        status = int(self.file.readline().split()[1])
        length = kind = None
        is_last = False
        while (line := self.file.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            kind = line if line.startswith(b"content-type:") else kind
            is_last = is_last or line == b"connection: close"
        if is_last or length is None or (kind and b"event-stream" in kind):
            # A stream may go on for as long as its client wants.
            self.connection.close()
            self.file = None
        else:
            self.file.read(length)
        return status


def each(world, bodies, path=b"/mcp", head=HEAD):
    """Posts all bodies over a few connections at once; no answer may be an internal error."""
    waiting, wrong = queue.SimpleQueue(), []
    total = 0
    for body in bodies:
        waiting.put(body)
        total += 1

    def work():
        line = Line(world)
        while not wrong:
            try:
                body = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                status = line.post(path, head, body)
            except (OSError, IndexError, ValueError) as error:
                wrong.append(f"{error!r} after {body[:300]!r}")
                return
            if status >= 500:
                wrong.append(f"status {status} after {body[:300]!r}")

    workers = [threading.Thread(target=work) for _ in range(hostile_bytes.threads())]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    if wrong:
        raise Broken(wrong[0])
    return total


def damaged(count, rng):
    return hostile_bytes.frames(hostile_bytes.REQUESTS, 7, count, rng)


def mutated_bodies(world, count, rng):
    """HTTP: damaged requests of both eras"""
    step = 5_000
    for _ in range(0, count, step):
        each(world, damaged(min(step, count) // 2, rng))
        modern = HEAD + b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: quiet__echo\r\n"
        each(world, damaged(min(step, count) // 2, rng), head=modern)
        world.good("quiet__echo")


def mutated_heads(world, count, rng):
    """HTTP: damaged requests, head and all"""
    body = hostile_bytes.REQUESTS[0].replace("%ID%", "1").encode()
    whole = HEAD + b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: quiet__echo\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(max(1, count // 20)):
        send(world, hostile_bytes.mutated(whole, rng))
    world.good("quiet__echo")


def suite(world, _count, _rng):
    """HTTP: JSONTestSuite and naughty strings, as messages, arguments, names, headers and paths"""
    cases = [case for _, case in hostile_bytes.suite()]
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"quiet__echo","arguments":%s,' + hostile_bytes.META.encode() + b"}}"
    modern = HEAD + b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: quiet__echo\r\n"
    each(world, cases)
    each(world, [call.replace(b"%s", case) for case in cases], head=modern)
    each(world, [call.replace(b'"id":1', b'"id":' + case).replace(b"%s", b"{}") for case in cases], head=modern)
    strings = hostile_bytes.naughty()
    quoted = [json.dumps(text, ensure_ascii=False).encode("utf-8", "replace") for text in strings]
    each(world, [call.replace(b"%s", b'{"text":' + text + b"}") for text in quoted], head=modern)
    each(world, [call.replace(b'"quiet__echo"', text).replace(b"%s", b"{}") for text in quoted], head=HEAD)
    each(world, [call.replace(b'"quiet__echo"', text).replace(b"%s", b"{}") for text in quoted], path=b"/servers/quiet/mcp")
    for text in strings:
        raw = text.encode("utf-8", "replace")
        send(world, HEAD + b"Mcp-Session-Id: " + raw + b"\r\nContent-Length: 2\r\n\r\n{}")
    for text in strings[::4]:
        send(world, b"GET /servers/" + text.encode("utf-8", "replace") + b"/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n")


def head_tricks(world, _count, _rng):
    """HTTP: tricks of heads"""
    length = b"Content-Length: %d\r\n" % len(HELLO)
    modern = HEAD + b"MCP-Protocol-Version: 2026-07-28\r\n"
    refused = [
        # What is said twice, in two ways, or not at all.
        HEAD + length + b"Content-Length: 5\r\n\r\n" + HELLO,
        HEAD + b"Content-Length: 1, 2\r\n\r\n" + HELLO, HEAD + b"Content-Length: +5\r\n\r\n" + HELLO, HEAD + b"Content-Length: 99999999999999999999\r\n\r\n" + HELLO,
        HEAD + b"Content-Length: -1\r\n\r\n" + HELLO, HEAD + b"Content-Length: 0x10\r\n\r\n" + HELLO,
        HEAD + length + b"Transfer-Encoding: gzip\r\n\r\n" + HELLO, HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", HEAD + b"Transfer-Encoding: x\r\n\r\n" + HELLO,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        # Foreign hosts and origins.
        HEAD.replace(b"Host: localhost", b"Host: evil.example") + length + b"\r\n" + HELLO, HEAD.replace(b"Host: localhost\r\n", b"") + length + b"\r\n" + HELLO,
        HEAD.replace(b"Host: localhost", b"Host: localhost\r\nHost: evil.example") + length + b"\r\n" + HELLO,
        HEAD.replace(b"Host: localhost", b"Host: localhost@evil.example") + length + b"\r\n" + HELLO, HEAD.replace(b"Host: localhost", b"Host: localhost.evil.example") + length + b"\r\n" + HELLO,
        HEAD.replace(b"Host: localhost", b"Host: 127.0.0.1:80:80") + length + b"\r\n" + HELLO, HEAD.replace(b"Host: localhost", b"Host: \xff") + length + b"\r\n" + HELLO,
        HEAD.replace(b"POST /mcp", b"POST http://evil.example/mcp") + length + b"\r\n" + HELLO, HEAD + b"Origin: null\r\n" + length + b"\r\n" + HELLO,
        HEAD + b"Origin: http://evil.example\r\n" + length + b"\r\n" + HELLO, HEAD + b"Origin: http://localhost\r\nOrigin: http://evil.example\r\n" + length + b"\r\n" + HELLO,
        HEAD + b"Origin: http://localhost.evil.example\r\n" + length + b"\r\n" + HELLO, HEAD + b"Origin: \xff\r\n" + length + b"\r\n" + HELLO,
        # Contradictions between head and body.
        modern + b"Mcp-Method: tools/list\r\n" + length + b"\r\n" + HELLO, modern + b"Mcp-Method: ping\r\nMcp-Method: tools/call\r\n" + length + b"\r\n" + HELLO,
        HEAD + b"MCP-Protocol-Version: 2026-07-28\r\nMCP-Protocol-Version: 2025-06-18\r\n" + length + b"\r\n" + HELLO, HEAD + b"MCP-Protocol-Version: \xff\r\nContent-Length: 40\r\n\r\n" + PING,
        HEAD + b"Mcp-Session-Id: %2e%2e%2f\r\nContent-Length: 40\r\n\r\n" + PING, HEAD + b"Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\nContent-Length: 40\r\n\r\n" + PING,
        # Too much.
        HEAD + b"X: " + b"y" * (1 << 20) + b"\r\n" + length + b"\r\n" + HELLO, HEAD + b"X: y\r\n" * 10_000 + length + b"\r\n" + HELLO,
        b"POST /" + b"x" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", HEAD + b"Content-Length: 1000000000\r\n\r\n",
        # Another protocol.
        b"GET /mcp\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 1_000, b"\0" * 1_000, b"GET / HTTP/1.1\nHost: localhost\n\n\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", b"BREW /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
        HEAD + b"X: a\r\n b\r\n" + length + b"\r\n" + HELLO, HEAD + b"X : a\r\n" + length + b"\r\n" + HELLO, HEAD + b": a\r\n" + length + b"\r\n" + HELLO, HEAD + b"X: a\0b\r\n" + length + b"\r\n" + HELLO,
        HEAD.replace(b"application/json\r\n", b"text/plain\r\n", 1) + length + b"\r\n" + HELLO, HEAD.replace(b"Content-Type: application/json\r\n", b"") + length + b"\r\n" + HELLO,
    ]  # fmt: skip
    for text in refused:
        heard = send(world, text)
        if b'"result":' in heard:
            raise Broken(f"answered: {text[:300]!r} with {heard[:300]!r}")
    # These are odd and allowed.
    served = [
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x;x=y\r\n" % len(HELLO) + HELLO + b"\r\n0\r\nX-Trailer: z\r\nContent-Length: 5\r\n\r\n",
        b"POST http://localhost/mcp HTTP/1.1" + HEAD[HEAD.index(b"\r\n") :] + length + b"\r\n" + HELLO,
        HEAD + length + b"\r\n" + HELLO + HEAD + length + b"\r\n" + HELLO,
        HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n" + length + b"\r\n" + HELLO,
        HEAD + b"Expect: 100-continue\r\n" + length + b"\r\n" + HELLO,
    ]
    for text in served:
        heard = send(world, text)
        if heard.count(b'"id":1') != text.count(b'"id":1'):
            raise Broken(f"{text[:400]!r} brought {heard[:400]!r}")
    # Somebody who begins and does not go on gets no answer, and keeps nobody else from theirs.
    for text in (b"P", HEAD, HEAD + length + b"\r\n{", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"):
        send(world, text, is_over=False)
        world.good("quiet__echo")


def admin(world, count, rng):
    """the admin API: damaged requests with its token"""
    token = world.admin_token().encode()
    head = HEAD + b"Authorization: Bearer " + token + b"\r\n"
    each(world, [case for _, case in hostile_bytes.suite()], path=b"/api/v1/config/reload", head=head)
    paths = [b"/api/v1/servers/quiet", b"/api/v1/servers/quiet/logs?since=0&follow=false", b"/api/v1/audit?since=1h&role=x&limit=5", b"/api/v1/definitions?server=quiet", b"/api/v1/definitions?q=x"]
    for _ in range(count // 40):
        path = hostile_bytes.mutated(rng.choice(paths), rng).replace(b"\n", b"").replace(b"\r", b"")
        heard = send(world, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " + token + b"\r\n\r\n")
        if heard.split(b" ")[1:2] == [b"500"]:
            raise Broken(f"{path!r} brought {heard[:500]!r}")
    for _ in range(count // 40):
        wrong = hostile_bytes.mutated(token, rng).replace(b"\n", b"").replace(b"\r", b"").strip()
        heard = send(world, b"GET /api/v1/servers HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " + wrong + b"\r\n\r\n")
        if wrong != token and b" 200 " in heard.split(b"\r\n")[0]:
            raise Broken(f"the token {wrong!r} was taken for {token!r}")


def tokens(world, count, rng):
    """credentials of callers: damaged tokens and JWTs"""
    token = json.loads(world.ostler("token", "create", "--name", "x", "--role", "crew", "--json").stdout)["token"].encode()
    jwt = b"eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJodHRwczovL2lzc3VlciIsImF1ZCI6Im9zdGxlciIsImV4cCI6OTk5OTk5OTk5OSwic3ViIjoieCIsInJvbGVzIjpbImNyZXciXX0.c2ln"
    for at in range(count // 20):
        good = token if at % 2 else jwt
        wrong = hostile_bytes.mutated(good, rng).replace(b"\n", b"").replace(b"\r", b"").strip()
        request = HEAD + b"Connection: close\r\nAuthorization: Bearer " + wrong + b"\r\nContent-Length: %d\r\n\r\n" % len(HELLO) + HELLO
        heard = send(world, request, is_half_closed=False)
        if (wrong == token) != (b" 200 " in heard.split(b"\r\n")[0]):
            raise Broken(f"{wrong!r} beside {token!r} brought {heard[:300]!r}")


def pipes(world, count, rng):
    """`ostler stdio`: damaged lines, JSONTestSuite and naughty strings"""
    program = subprocess.Popen(
        [OSTLER, "stdio", "--config", world.config], env=world.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(world.folder / "stdio.log", "wb"))
    heard, ids = queue.SimpleQueue(), 0

    def read():
        for line in program.stdout:
            json.loads(line, parse_float=str)
            if b'"good ' in line:
                heard.put(line)
        heard.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()

    def say(lines):
        nonlocal ids
        ids += 1
        good = '{"jsonrpc":"2.0","id":"good %d","method":"ping"}' % ids
        program.stdin.write(b"\n".join(lines) + b"\n" + good.encode() + b"\n")
        program.stdin.flush()
        line = heard.get(timeout=PATIENCE)
        if line is None or f'"good {ids}"'.encode() not in line or b"result" not in line:
            raise Broken(f"a good ping brought {line!r}")

    try:
        step = 500
        for _ in range(0, count, step):
            say(list(damaged(step, rng)))
        cases = [case for _, case in hostile_bytes.suite()]
        say(cases)
        say([b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":' + case + b"}" for case in cases])
        say([text.encode("utf-8", "surrogatepass") for text in hostile_bytes.naughty()])
        say([json.dumps({"jsonrpc": "2.0", "id": text, "method": text, "params": {text: text}}).encode() for text in hostile_bytes.naughty()])
        say([b"x" * (64 << 20)])
        program.stdin.close()
        if program.wait(PATIENCE) != 0 or "panicked" in (world.folder / "stdio.log").read_text(errors="replace"):
            raise Broken(f"it ended with {program.returncode}: {(world.folder / 'stdio.log').read_text(errors='replace')[-2_000:]}")
    finally:
        program.kill()
        program.wait()


ALL = [mutated_bodies, mutated_heads, suite, head_tricks, admin, tokens, pipes]
