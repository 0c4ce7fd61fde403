#!/usr/bin/env python3
"""MCP servers that say what they are told to say, however broken: on stdin and stdout, and over HTTP.

On pipes, `echo` is honest, `done` says that everything before it is over, `throw` writes damaged frames, `suite`
writes odd JSON, `raw` writes the bytes of a file, and each answers afterwards. Over HTTP, `throw` is answered with
whatever bytes the test says, head included.
"""

import json
import random
import socket
import sys
import threading

import hostile_bytes

PIPED, REMOTE = ("echo", "done", "throw", "suite", "raw"), ("echo", "throw")


def honest(method, params, tools):
    """The result of a request; None for a method that is not known."""
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "logging": {}}, "serverInfo": {"name": "rude", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments") or {})}], "isError": False}
    return {} if method == "ping" else None


def reply(ident, result):
    outcome = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
    return json.dumps({"jsonrpc": "2.0", "id": ident, **outcome}).encode()


class Piped:
    """The server on stdin and stdout."""

    def __init__(self):
        self.out = sys.stdout.buffer

    def say(self, frame):
        self.out.write(frame + b"\n")

    def throw(self, ident, count, seed):
        for frame in hostile_bytes.frames(hostile_bytes.ANSWERS, ident, count, random.Random(seed)):
            self.say(frame)

    def suite(self):
        for name, case in hostile_bytes.suite():
            self.say(case)
            # The same as the result of nobody's question, and in a notification.
            self.say(b'{"jsonrpc":"2.0","id":"' + name.encode() + b'","result":' + case + b"}")
            self.say(b'{"jsonrpc":"2.0","method":"notifications/x","params":' + case + b"}")
        for text in hostile_bytes.naughty():
            self.say(text.encode("utf-8", "surrogatepass"))
            params = {"level": "info", "logger": text, "data": {text: text}}
            self.say(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).encode())

    def call(self, ident, tool, arguments):
        if tool == "throw":
            self.throw(ident, arguments["count"], arguments["seed"])
        elif tool == "suite":
            self.suite()
        elif tool == "raw":
            with open(arguments["file"], "rb") as file:
                self.out.write(file.read())

    def run(self):
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
                method, ident = message["method"], message["id"]
            except (ValueError, KeyError, TypeError):
                continue
            params = message.get("params") or {}
            result = honest(method, params, PIPED)
            if method == "tools/call":
                arguments = params.get("arguments") or {}
                self.call(ident, params["name"], arguments)
                if params["name"] == "done":
                    result["content"][0]["text"] = f"done {arguments.get('seed')}"
            self.say(reply(ident, result))
            self.out.flush()


class RudeRemote:
    """Speaks honestly, but a call of `throw` gets the bytes that `next_answer(id)` says."""

    def __init__(self, next_answer):
        self.next_answer = next_answer
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/mcp"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def close(self):
        self.listener.close()

    def serve(self, connection):
        # Whoever is answered with nonsense hangs up when it likes.
        with connection:
            try:
                while self.answer(connection):
                    pass
            except (OSError, ValueError):
                pass

    def answer(self, connection):
        held = b""
        while b"\r\n\r\n" not in held:
            more = connection.recv(65536)
            if not more:
                return False
            held += more
        head, _, body = held.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
        while len(body) < length:
            more = connection.recv(65536)
            if not more:
                return False
            body += more
        if not lines[0].startswith("post"):
            connection.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            return True
        message = json.loads(body)
        method, ident, params = message.get("method"), message.get("id"), message.get("params") or {}
        if ident is None:
            connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            return True
        if method == "tools/call" and params.get("name") == "throw":
            for piece in self.next_answer(ident):
                connection.sendall(piece)
            return False
        text = reply(ident, honest(method, params, REMOTE))
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text
        )
        return True


if __name__ == "__main__":
    Piped().run()
