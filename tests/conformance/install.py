#!/usr/bin/env python3
"""Installs the judges: the suite, real clients and real servers, by name.

They go into `judges` in the target folder. The suite and the Inspector need a
newer Node than some machines have, so one comes along.
"""

import json
import os
import shutil
import subprocess
import sys

import daemon

HOME = daemon.TARGET / "judges"
NPM = {
    "node": "22",
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@modelcontextprotocol/inspector": "2.12.0",
    "@modelcontextprotocol/client": "2.4.0",
    "@modelcontextprotocol/sdk": "1.32.2",
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
}
PYPI = [
    "mcp==2.3.0", "uv==0.13.8", "mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19", "mcp-server-fetch==2026.10.19",
]
# Client libraries that validate lists, on both major versions of the SDK.
STRICT_PYPI = {
    "strict": ["mcp==2.3.0", "fastmcp==4.1.2", "pydantic-ai-slim[mcp]==2.66.0", "openai-agents==0.24.0"],
    "strict-1": ["mcp==1.30.0", "langchain-mcp-adapters==0.3.2"],
}
BIN = HOME / "node_modules" / ".bin"
VENV = HOME / "venv" / "bin"
STRICT = HOME / "strict" / "bin"
STRICT_1 = HOME / "strict-1" / "bin"
SUITE = HOME / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
# A registry that can't be reached makes both installers wait for a long time.
TIMEOUT = 600


def install():
    """Installs again only when the lists above have changed."""
    wanted = json.dumps([NPM, PYPI, STRICT_PYPI], sort_keys=True)
    stamp = HOME / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    sys.stderr.write(f"installing the judges into {HOME}\n")
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    (HOME / "package.json").write_text(json.dumps({"private": True, "type": "module"}))
    packages = [f"{name}@{version}" for name, version in NPM.items()]
    run("npm", "install", "--loglevel=error", "--no-audit", "--no-fund", "--prefix", HOME, *packages)
    for venv, packages in {"venv": PYPI, **STRICT_PYPI}.items():
        run("python3", "-m", "venv", HOME / venv)
        run(HOME / venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    stamp.write_text(wanted)


def run(*command):
    subprocess.run(list(map(str, command)), check=True, timeout=TIMEOUT, stdout=subprocess.DEVNULL)


def env():
    """An environment in which `node` is the one that came along."""
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}


if __name__ == "__main__":
    install()
