"""An MCP server over HTTP that answers with whatever bytes it is told to, head included."""

import json
import socket
import threading


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
        result = honest(method, params)
        reply = {"jsonrpc": "2.0", "id": ident}
        reply |= {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        text = json.dumps(reply).encode()
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text
        )
        return True


def honest(method, params):
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "remote", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "throw")]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}], "isError": False}
    if method == "ping":
        return {}
    return None
