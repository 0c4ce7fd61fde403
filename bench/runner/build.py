"""Builds what is measured, and finds out what it is."""
import os
import json
import platform
import subprocess
import sys
from pathlib import Path

from .place import PEERS, ROOT, said

PROGRAMS = ("ostler", "fake-mcp", "bench", "mcp-drive", "mcp-stub", "mcp-raw")


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def build():
    """The typed yardstick last and alone: the features of its library would change what it shares with Ostler."""
    cargo = ["cargo", "build", "--release", "--locked"]
    names = [word for name in PROGRAMS for word in ("--bin", name)]
    _run([*cargo, "-p", "ostler", "-p", "ostler-testkit", "-p", "bench", *names], ROOT)
    _run([*cargo, "-p", "bench", "--features", "typed", "--bin", "mcp-typed"], ROOT)


def install_peers(folder):
    """Peers that can't be installed are left out later; a machine without a network still measures the rest."""
    try:
        _run([str(PEERS / "install.sh")], PEERS, {**os.environ, "PEERS_DIR": str(folder)})
    except SystemExit as failed:
        print(f"{failed}; going on without the peers that are missing", file=sys.stderr)


def _run(argv, folder, env=None):
    print(f"+ {' '.join(argv)}", file=sys.stderr, flush=True)
    code = subprocess.run(argv, cwd=folder, env=env, stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode
    if code:
        sys.exit(f"{argv[0]} failed with code {code}")


def describe(options, peers_folder):
    """What every section says about when and where it was measured."""
    return {
        "commit": said("git", "describe", "--always", "--dirty", "--abbrev=9") + (" (but programs given by --bin)" if options.bin else ""),
        "machine": f"{os.cpu_count()} virtual cores, {_os()}, Linux {platform.release().split('-')[0]}", "rustc": " ".join(said("rustc", "--version").split()[:2]),
        "command": options.line, "rounds": options.rounds, "seconds": options.seconds, "quick": options.quick, "peers": peer_versions(Path(peers_folder)),
    }


def _os():
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"].split(" (")[0]
    except OSError:
        return platform.system()


def peer_versions(folder):
    """Of the peers that are driven, what is installed."""
    found = {}
    for path in (folder / "npm-supergateway", folder / "npm-mcp-proxy"):
        name = path.name.removeprefix("npm-")
        try:
            found[f"{name} (npm)"] = json.loads((path / "node_modules" / name / "package.json").read_text())["version"]
        except (OSError, ValueError, KeyError):
            continue
    for path in (folder / "py-mcp-proxy", folder / "py-fastmcp"):
        name = path.name.removeprefix("py-")
        for info in path.glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info"):
            found[f"{name} (PyPI)"] = info.name.removesuffix(".dist-info").rsplit("-", 1)[1]
    try:
        for package in json.loads((folder / "cargo" / ".crates2.json").read_text())["installs"]:
            found[f"{package.split()[0]} (Rust)"] = package.split()[1]
    except (OSError, ValueError, KeyError):
        pass
    return found
