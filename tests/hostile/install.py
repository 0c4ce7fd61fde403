#!/usr/bin/env python3
"""Installs the published collections of hostile input, by name and version, once."""

import subprocess
import sys

sys.dont_write_bytecode = True

import hostile_bytes  # noqa: E402


def install():
    if hostile_bytes.is_installed():
        return
    tools = hostile_bytes.TOOLS
    sys.stderr.write(f"installing collections of hostile input into {tools}\n")
    tools.mkdir(parents=True, exist_ok=True)
    options = ["--loglevel=error", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", tools]
    subprocess.run(["npm", "install", *options, *hostile_bytes.PACKAGES], check=True, timeout=300, stdout=subprocess.DEVNULL)
    hostile_bytes.STAMP.write_text(hostile_bytes.WANTED)


if __name__ == "__main__":
    install()
