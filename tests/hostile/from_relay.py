"""What comes over the relay: to a host from workers, and to a worker from hosts."""

import json
import os
import queue
import shutil
import socket
import subprocess
import threading
import time
import uuid
from pathlib import Path

import hostile_bytes
from world import OSTLER, PATIENCE, Broken, World

ROOT = Path(__file__).resolve().parents[2]
# Messages between two looks at whether everybody is well.
STEP = 2_000


def nats_server():
    prepared = [ROOT / ".tools/nats-core/usr/sbin/nats-server", ROOT / ".tools/nats/bin/nats-server", Path("/usr/sbin/nats-server")]
    found = [str(path) for path in prepared if path.exists()] + [shutil.which("nats-server") or ""]
    if not found[0]:
        raise SystemExit("there is no nats-server; scripts/prepare installs one")
    return found[0]


class RelayWorld(World):
    """A world whose daemon is reachable over a broker that lets anybody say anything."""

    def __init__(self, folder, remote_url):
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        log = open(folder / "nats.log", "wb")
        self.broker = subprocess.Popen([nats_server(), "-a", "127.0.0.1", "-p", str(self.port)], stdout=log, stderr=log)
        self.url = f"nats://127.0.0.1:{self.port}"
        try:
            wait_for(self.port)
            relay = f'[relay]\nnats = "{self.url}"\nhost = "mill"\n'
            super().__init__(folder, remote_url, relay, {"OSTLER_LOG": "ostler_relay=warn"})
        except BaseException:
            self.broker.kill()
            raise

    def stop(self):
        is_good = super().stop()
        self.broker.kill()
        self.broker.wait()
        return is_good


world = RelayWorld


def wait_for(port):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
        except OSError:
            time.sleep(0.02)
    raise Broken("the broker does not listen")


class Nats:
    """As much of NATS as somebody with bad intentions needs."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.heard = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.say(b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"lang":"x","version":"1"}\r\nPING\r\n')
        threading.Thread(target=self.read, daemon=True).start()

    def say(self, text):
        with self.lock:
            self.socket.sendall(text)

    def read(self):
        lines = self.socket.makefile("rb")
        try:
            for line in lines:
                words = line.split()
                if words[:1] == [b"PING"]:
                    self.say(b"PONG\r\n")
                if words[:1] in ([b"MSG"], [b"HMSG"]):
                    body = lines.read(int(words[-1]) + 2)[:-2]
                    head = int(words[-2]) if words[0] == b"HMSG" else 0
                    is_answerable = len(words) - (words[0] == b"HMSG") == 5
                    self.heard.put((words[1].decode(), words[3].decode() if is_answerable else None, body[:head], body[head:]))
        except (OSError, ValueError):
            pass

    def subscribe(self, subject):
        self.say(b"SUB %s 1\r\n" % subject.encode())

    def publish(self, subject, reply, head, body):
        """The head is sent as it is, however broken."""
        where = b"%s %s" % (subject, reply) if reply else subject
        self.say(b"HPUB %s %d %d\r\n" % (where, len(head), len(head) + len(body)) + head + body + b"\r\n")

    def next(self):
        return self.heard.get(timeout=PATIENCE)


def head(**values):
    lines = [f"Ostler-{name.replace('_', '-')}: {value}" for name, value in {"Relay": 1, **values}.items()]
    return ("NATS/1.0\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode()


def call_head(call):
    now = int(time.time() * 1000)
    return head(Call=call, Instance="00000000000000ff", Server="quiet", Begin_By=now + 5_000, Deadline=now + 20_000)


def call_id():
    return str(uuid.UUID(int=(int(time.time() * 1000) << 80) | (7 << 76) | (2 << 62) | int.from_bytes(os.urandom(7), "big")))


ECHO = "ostler.default.call.crew.w1"
BODY = ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"TEXT"},' + hostile_bytes.META + "}}").encode()


def good_call(nats):
    """A call that is as it should be is carried out."""
    text = f"good {time.monotonic_ns()}".encode()
    until = time.monotonic() + PATIENCE
    inbox = None
    while time.monotonic() < until:
        if inbox is None:
            call = call_id()
            inbox = f"_INBOX_w1.00000000000000ff.{call}"
            nats.publish(ECHO.encode(), inbox.encode(), call_head(call), BODY.replace(b"TEXT", text))
        subject, _, top, body = nats.next()
        if subject == inbox and text in body:
            return
        if subject == inbox and top.startswith(b"NATS/1.0 503"):
            # Nobody listens: a worker says it again, since nothing has happened.
            time.sleep(0.1)
            inbox = None
    raise Broken("a good call over the relay is not answered")


def to_host(world, count, rng):
    """messages of workers, as the host reads them"""
    nats = Nats(world.port)
    nats.subscribe("_INBOX_w1.>")
    good_call(nats)
    for _ in range(0, count, STEP):
        for _ in range(min(count, STEP)):
            call = call_id()
            kind = rng.randrange(3)
            if kind == 0:
                subject, top, body = ECHO, call_head(call), BODY
            elif kind == 1:
                subject, top, body = "ostler.default.manifest.crew.w1", call_head(call), b'{"jsonrpc":"2.0","id":1,"method":"manifest"}'
            else:
                name = rng.choice(["cancel", "answer", "ack", "resume", "alive"])
                subject = f"ostler.default.control.w1.{call if name != 'alive' else 'alive'}"
                top, body = head(Kind=name, Instance="00000000000000ff", Number=rng.choice([0, 1, 4_294_967_295, 99_999_999_999])), b'{"jsonrpc":"2.0","id":1,"result":{}}'
            which = rng.randrange(3)
            if which == 0:
                body = hostile_bytes.mutated(body, rng)
            elif which == 1:
                top = damaged_values(top, rng)
            else:
                tokens = [hostile_bytes.mutated(part.encode(), rng) if rng.random() < 0.3 else part.encode() for part in subject.split(".")]
                clean = [bytes(byte for byte in part if byte > 32 and byte not in b"*>.") or b"x" for part in tokens]
                subject = b".".join([b"ostler", b"default", *clean[2:]]).decode("latin-1")
            nats.publish(subject.encode("latin-1"), f"_INBOX_w1.00000000000000ff.{call}".encode(), top, body)
        settled(nats)
        good_call(nats)


def damaged_values(top, rng):
    """A head whose lines are lines and whose values are anything."""
    lines = top[:-4].split(b"\r\n")
    values = [line.partition(b": ") for line in lines[1:]]
    texts = [hostile_bytes.mutated(value, rng).decode("utf-8", "replace").splitlines() for _, _, value in values]
    damaged = [name + b": " + (text[0] if text else "").encode() for (name, _, _), text in zip(values, texts)]
    return b"\r\n".join([lines[0], *rng.sample(damaged, rng.randint(1, len(damaged)))]) + b"\r\n\r\n"


def broken_heads(world, count, rng):
    """messages whose head is no head: they are refused with their worker's name, and no connection is lost"""
    nats = Nats(world.port)
    nats.subscribe("_INBOX_w1.>")
    for _ in range(0, count, STEP):
        for top in [b"NATS/1.0\r\nOstler-Relay: 1\rx\r\n\r\n", *(broken(call_head(call_id()), rng) for _ in range(min(count, STEP)))]:
            nats.publish(ECHO.encode(), f"_INBOX_w1.00000000000000ff.{call_id()}".encode(), top, BODY)
        settled(nats)
        good_call(nats)
    if "was lost" in world.said:
        raise Broken(f"a connection was lost:\n{world.said[-2_000:]}")
    if 'worker="w1"' not in world.said:
        raise Broken(f"nobody is named:\n{world.said[-2_000:]}")


def broken(top, rng):
    """A head that may be none."""
    return hostile_bytes.mutated(top, rng) or b"x"


def settled(nats):
    """Waits until nothing has been heard for a moment."""
    try:
        while True:
            nats.heard.get(timeout=0.3)
    except queue.Empty:
        pass


def to_worker(world, count, rng):
    """messages of hosts, as a worker reads them"""
    log = open(world.folder / "worker.log", "wb")
    command = [OSTLER, "worker", "--nats", world.url, "--role", "crew", "--name", "w2"]
    worker = subprocess.Popen(command, env=world.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    heard = queue.SimpleQueue()
    threading.Thread(target=lambda: [heard.put(line) for line in worker.stdout], daemon=True).start()
    ids = 0

    def ask(tool="quiet__echo"):
        nonlocal ids
        ids += 1
        text = f"good {ids}"
        message = {"jsonrpc": "2.0", "id": ids, "method": "tools/call", "params": {"name": tool, "arguments": {"text": text}, **json.loads("{" + hostile_bytes.META + "}")}}
        worker.stdin.write(json.dumps(message).encode() + b"\n")
        worker.stdin.flush()
        return text

    def good_answer(text):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            line = json.loads(heard.get(timeout=PATIENCE))
            if line.get("id") == ids:
                if text not in json.dumps(line.get("result", "")):
                    raise Broken(f"a good call of a worker brought {json.dumps(line)[:500]}")
                return

    try:
        good_answer(ask())
        spy = Nats(world.port)
        spy.subscribe("ostler.default.call.crew.w2")
        liar = Nats(world.port)
        for _ in range(0, count, STEP):
            ask()
            _, inbox, top, body = spy.next()
            call = inbox.rpartition(".")[2]
            number = json.loads(body)["id"]
            for _ in range(min(count, STEP)):
                lie(liar, inbox, call, number, rng)
            liar.say(b"PING\r\n")
            # What the liar said is ahead of this on the worker's connection, or soon there.
            time.sleep(0.2)
            good_answer(ask())
            while not spy.heard.empty():
                spy.heard.get()
        worker.stdin.close()
        if worker.wait(PATIENCE) != 0:
            raise Broken(f"the worker ended with {worker.returncode}")
        said = (world.folder / "worker.log").read_text(errors="replace")
        if "panicked" in said or "was lost" in said:
            raise Broken(said[-2_000:])
    finally:
        worker.kill()
        worker.wait()


def lie(nats, inbox, call, number, rng):
    """One message of a host, damaged."""
    progress = f"ostler.default.progress.w2.{call}"
    answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % number
    choices = [
        (inbox, head(Kind="answer"), answer),
        (inbox, head(Kind="chunked", Length=rng.choice([1, 100, 64 << 20, 1 << 63]), Sha256="a" * 64), b""),
        (progress, head(Kind="chunk", Number=rng.choice([0, 1, 2, 1_000, 4_294_967_295])), answer),
        (progress, head(Kind="accepted", Host="mill", Generation="00000000000000aa"), b""),
        (progress, head(Kind="note"), b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'),
        (progress, head(Kind="ask", Number=1), b'{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}'),
        ("ostler.default.progress.w2.manifest", head(Kind="changed"), b""),
    ]
    subject, top, body = rng.choice(choices)
    which = rng.randrange(3)
    if which == 0:
        top = damaged_values(top, rng)
    elif which == 1:
        top = broken(top, rng)
    else:
        body = hostile_bytes.mutated(body, rng)
    nats.publish(subject.encode(), None, top, body)


ALL = [to_host, to_worker, broken_heads]
