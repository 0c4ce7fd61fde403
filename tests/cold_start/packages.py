"""Packages made on the spot, each with a tiny MCP server without dependencies.

Each server notes its start in the file that `STARTS` names, and has one tool.
"""

import base64
import hashlib
import io
import json
import os
import tarfile
import zipfile

from registry import as_json

VERSION = "1.0.0"
# Bytes that do not compress, so that a download is not over after one packet.
PADDING = 4_000_000

JAVASCRIPT = """#!/usr/bin/env node
const fs = require("fs");
fs.appendFileSync(process.env.STARTS, "NAME\\n");
const tool = { name: "feed", description: "Feeds NAME", inputSchema: { type: "object" } };
const answers = {
  initialize: (params) => ({
    protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "NAME", version: "1.0.0" },
  }),
  "tools/list": () => ({ tools: [tool] }),
  "tools/call": () => ({ content: [{ type: "text", text: "NAME is fed" }] }),
  ping: () => ({}),
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method];
  const outcome = answer ? { result: answer(params) } : { error: { code: -32601, message: "no such method" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...outcome }) + "\\n");
});
"""

PYTHON = '''import json
import os
import sys

TOOL = {"name": "feed", "description": "Feeds NAME", "inputSchema": {"type": "object"}}
ANSWERS = {
    "initialize": lambda params: {
        "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
        "serverInfo": {"name": "NAME", "version": "1.0.0"},
    },
    "tools/list": lambda _: {"tools": [TOOL]},
    "tools/call": lambda _: {"content": [{"type": "text", "text": "NAME is fed"}]},
    "ping": lambda _: {},
}


def main():
    with open(os.environ["STARTS"], "a") as starts:
        starts.write("NAME\\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer = ANSWERS.get(message["method"])
        outcome = {"error": {"code": -32601, "message": "no such method"}}
        if answer:
            outcome = {"result": answer(message.get("params", {}))}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
'''


def npm_path(name):
    return f"/{name}/-/{name}-{VERSION}.tgz"


def wheel_path(name):
    return f"/files/{name}-{VERSION}-py3-none-any.whl"


def npm(name):
    """A package of npm's: what `Registry.add` takes."""
    manifest = {"name": name, "version": VERSION, "bin": {name: "server.js"}}
    files = {
        "package.json": json.dumps(manifest).encode(),
        "server.js": JAVASCRIPT.replace("NAME", name).encode(),
        "padding": os.urandom(PADDING),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, body in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size, entry.mode = len(body), 0o755
            archive.addfile(entry, io.BytesIO(body))
    body = packed.getvalue()

    def offer(url):
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(body).digest()).decode()
        version = {**manifest, "dist": {"tarball": url + npm_path(name), "integrity": integrity}}
        document = {"name": name, "dist-tags": {"latest": VERSION}, "versions": {VERSION: version}}
        return {f"/{name}": as_json(document)}, (npm_path(name), body)

    return offer


def wheel(name):
    """A package of PyPI's, with its metadata beside it as PyPI has it: what `Registry.add` takes."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n".encode()
    folder = f"{name}-{VERSION}.dist-info"
    files = {
        f"{name}.py": PYTHON.replace("NAME", name).encode(),
        f"{name}_padding": os.urandom(PADDING),
        f"{folder}/METADATA": metadata,
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n".encode(),
    }
    record = [f"{path},{digest_of(body)},{len(body)}" for path, body in files.items()]
    files[f"{folder}/RECORD"] = "\n".join([*record, f"{folder}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, body in files.items():
            archive.writestr(path, body)
    body = packed.getvalue()

    def offer(_url):
        path = wheel_path(name)
        page = (
            f'<!DOCTYPE html><html><body><a href="{path}#sha256={hashlib.sha256(body).hexdigest()}" '
            f'data-core-metadata="sha256={hashlib.sha256(metadata).hexdigest()}">{path.rsplit("/")[-1]}</a></body></html>'
        )
        pages = {f"/simple/{name}/": ("text/html", page.encode()), f"{path}.metadata": ("text/plain", metadata)}
        return pages, (path, body)

    return offer


def digest_of(body):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")
