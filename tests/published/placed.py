"""Installs published servers by name and version, each once.

They go into `published` in the target folder: those of npm into one tree,
those of PyPI into an environment each, because they do not agree on the
version of the SDK. What they depend on is as it was on one day.
"""

import os
import subprocess
import sys

import daemon
import install as judges

HOME = daemon.TARGET / "published"
NPM = HOME / "npm"
# The folder of the Node that came along with the judges.
NODE = judges.BIN
# Dependencies that are newer than the pinned servers do not change what is compared.
DAY = "2026-11-17"
# A registry that can't be reached makes both installers wait for a long time.
TIMEOUT = 600


def program_of(server):
    """The path of a server's program."""
    if server.registry == "npm":
        return NPM / "node_modules" / ".bin" / server.program
    return environment_of(server) / "bin" / server.program


def environment_of(server):
    return HOME / "pypi" / server.pin


def install(servers):
    """Installs what is missing; gives the servers that can't be installed, and why."""
    judges.install()
    missing = [server for server in servers if not stamp_of(server).exists()]
    if missing:
        sys.stderr.write(f"installing {len(missing)} servers into {HOME}\n")
    problems = {}
    packages = [server for server in missing if server.registry == "npm"]
    if packages:
        problems |= attempt(packages, install_npm)
    for server in missing:
        if server.registry == "pypi":
            problems |= attempt([server], install_pypi)
    return problems


def stamp_of(server):
    return HOME / "installed" / server.pin.replace("/", "_")


def attempt(servers, how):
    try:
        how(servers)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
        said = (problem.stderr or "").strip().splitlines()[-3:]
        return {server.name: f"{type(problem).__name__}: {' '.join(said)}" for server in servers}
    for server in servers:
        stamp_of(server).parent.mkdir(parents=True, exist_ok=True)
        stamp_of(server).touch()
    return {}


def install_npm(servers):
    NPM.mkdir(parents=True, exist_ok=True)
    options = ["--loglevel=error", "--no-audit", "--no-fund", "--ignore-scripts", "--before", DAY, "--prefix", NPM]
    run("npm", "install", *options, *(server.pin for server in servers))


def install_pypi(servers):
    for server in servers:
        folder = environment_of(server)
        run(judges.VENV / "uv", "venv", "--quiet", "--clear", "--python", sys.executable, folder)
        run(
            judges.VENV / "uv", "pip", "install", "--quiet", "--python", folder / "bin" / "python",
            "--exclude-newer", f"{DAY}T00:00:00Z", server.pin, *server.beside,
        )


def run(*command):
    # The cache is beside the environments, so that they share its files.
    env = {**os.environ, "UV_CACHE_DIR": str(HOME / "uv-cache")}
    subprocess.run(
        list(map(str, command)), check=True, timeout=TIMEOUT, env=env, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )
