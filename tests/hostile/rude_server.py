#!/usr/bin/env python3
"""An MCP server on stdin and stdout that says what it is told to say, however broken.

Tools: `echo` is honest, `done` says that everything before it is over, `throw` writes damaged frames, `suite`
writes odd JSON, `raw` writes the bytes of a file, and each answers afterwards.
"""

import json
import random
import sys

import hostile_bytes

out = sys.stdout.buffer


def answer(ident, text):
    result = {"content": [{"type": "text", "text": text}], "isError": False}
    out.write(json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}).encode() + b"\n")


def throw(ident, count, seed):
    for frame in hostile_bytes.frames(hostile_bytes.ANSWERS, ident, count, random.Random(seed)):
        out.write(frame + b"\n")


def suite(ident):
    for name, case in hostile_bytes.suite():
        out.write(case + b"\n")
        # The same as the result of nobody's question, and in a notification.
        out.write(b'{"jsonrpc":"2.0","id":"' + name.encode() + b'","result":' + case + b"}\n")
        out.write(b'{"jsonrpc":"2.0","method":"notifications/x","params":' + case + b"}\n")
    for text in hostile_bytes.naughty():
        out.write(text.encode("utf-8", "surrogatepass") + b"\n")
        params = {"level": "info", "logger": text, "data": {text: text}}
        out.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).encode() + b"\n")


def main():
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "done", "throw", "suite", "raw")]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "logging": {}}, "serverInfo": {"name": "rude", "version": "1"}}
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
            method, ident = message["method"], message["id"]
        except (ValueError, KeyError, TypeError):
            continue
        params = message.get("params") or {}
        if method == "initialize":
            out.write(json.dumps({"jsonrpc": "2.0", "id": ident, "result": hello}).encode() + b"\n")
        elif method == "tools/list":
            out.write(json.dumps({"jsonrpc": "2.0", "id": ident, "result": {"tools": tools}}).encode() + b"\n")
        elif method == "ping":
            out.write(json.dumps({"jsonrpc": "2.0", "id": ident, "result": {}}).encode() + b"\n")
        elif method == "tools/call":
            arguments, tool = params.get("arguments") or {}, params["name"]
            if tool == "throw":
                throw(ident, arguments["count"], arguments["seed"])
            elif tool == "suite":
                suite(ident)
            elif tool == "raw":
                with open(arguments["file"], "rb") as file:
                    out.write(file.read())
            answer(ident, f"done {arguments.get('seed')}" if tool == "done" else json.dumps(arguments))
        else:
            error = {"code": -32601, "message": "no such method"}
            out.write(json.dumps({"jsonrpc": "2.0", "id": ident, "error": error}).encode() + b"\n")
        out.flush()


main()
