"""A tiny MCP server that takes its time to start.

usage: slow_server.py NAME sleep|burn SECONDS
It sleeps, or uses so much time of a CPU, before it reads its first message.
`STARTS` names a file in which it notes its start.
"""

import json
import os
import sys
import time

NAME, HOW, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
TOOL = {"name": "feed", "inputSchema": {"type": "object"}}
ANSWERS = {
    "initialize": lambda params: {
        "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
        "serverInfo": {"name": NAME, "version": "1"},
    },
    "tools/list": lambda _: {"tools": [TOOL]},
    "ping": lambda _: {},
}

with open(os.environ["STARTS"], "a") as starts:
    starts.write(f"{NAME}\n")
if HOW == "sleep":
    time.sleep(SECONDS)
else:
    while time.process_time() < SECONDS:
        pass
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    outcome = {"error": {"code": -32601, "message": "no such method"}}
    if message["method"] in ANSWERS:
        outcome = {"result": ANSWERS[message["method"]](message.get("params", {}))}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
