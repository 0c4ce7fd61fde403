"""What lies on disk: configs of every syntax, the lock file, and the files of the state."""

import json
import shutil
import subprocess

import hostile_bytes
from world import OSTLER, PATIENCE, Broken

TOML = b"""version = 1
include = ["other.json"]
[servers.time]
command = "true"
args = ["--x", "${env:HOME}"]
env = { TOKEN = "${file:~/x}" }
keep_alive = "5m"
restart = { max = 5, window = "5m" }
[servers.time.tool.now]
cache = "5s"
[roles.local]
allow = ["*"]
budget = { calls = 1000, per = "1h" }
[pins]
mode = "enforce"
"""
JSON = b'{"mcpServers":{"My Server":{"command":"true","args":["x"],"env":{"A":"${env:B}"},"keepAlive":"5m"},"r":{"url":"https://x.example/mcp"}}}'


def run(world, words, text=None):
    """A command that must end in a way that is documented."""
    done = subprocess.run([OSTLER, *map(str, words)], env=world.env, capture_output=True, timeout=PATIENCE, cwd=world.folder)
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.returncode not in range(0, 10) or "panicked" in said:
        raise Broken(f"{words} ended with {done.returncode} on {text!r}:\n{said[-1_500:]}")
    return done


def configs(world, count, rng):
    """configs: damaged TOML and JSON, JSONTestSuite, naughty strings"""
    folder = world.folder / "configs"
    folder.mkdir()
    toml, plain = folder / "ostler.toml", folder / "mcp.json"
    (folder / "other.json").write_bytes(JSON)
    for at in range(max(20, count // 200)):
        file, base = (toml, TOML) if at % 2 else (plain, JSON)
        text = hostile_bytes.mutated(base, rng)
        file.write_bytes(text)
        run(world, ["check", "--config", file], text)
    for _, case in hostile_bytes.suite()[::4]:
        plain.write_bytes(case)
        run(world, ["check", "--config", plain], case[:300])
    for text in hostile_bytes.naughty()[::6]:
        toml.write_text(f"[servers.{json.dumps(text)}]\ncommand = {json.dumps(text)}\n", errors="replace")
        run(world, ["check", "--config", toml], text)
    # A broken edit changes nothing in the daemon.
    kept = world.config.read_bytes()
    for _ in range(10):
        world.config.write_bytes(hostile_bytes.mutated(kept, rng) + b"\n[broken")
        run(world, ["reload", "--config", world.config])
    world.config.write_bytes(kept)


def locks(world, count, rng):
    """lock files"""
    folder = world.folder / "locks"
    folder.mkdir()
    config = folder / "ostler.toml"
    config.write_text(f'[servers.quiet]\ncommand = {json.dumps(str(OSTLER))}\nargs = ["demo"]\n')
    run(world, ["lock", "--config", config])
    lock = folder / "ostler.lock"
    kept = lock.read_bytes()
    for _ in range(max(10, count // 500)):
        text = hostile_bytes.mutated(kept, rng)
        lock.write_bytes(text)
        run(world, ["explain", "local", "quiet__echo", "--config", config], text)
        run(world, ["diff", "--config", config], text)


def states(world, count, rng):
    """files of the state: tokens, kept lists, budgets, seals, keys"""
    world.ostler("token", "create", "--name", "x", "--role", "crew", "--json")
    world.stop()
    state = world.folder / "XDG_STATE_HOME" / "ostler"
    kept = world.folder / "kept"
    shutil.copytree(state, kept)
    for at in range(max(8, count // 1_000)):
        shutil.rmtree(state)
        shutil.copytree(kept, state)
        files = sorted(path for path in state.rglob("*") if path.is_file() and path.suffix not in (".lock",))
        file = files[at % len(files)]
        text = hostile_bytes.mutated(file.read_bytes(), rng)
        file.write_bytes(text)
        for words in (["token", "list"], ["tools", "--json"], ["audit", "--json"], ["status"]):
            run(world, [*words, "--config", world.config], f"{file.name} {text[:200]!r}")
    shutil.rmtree(state)
    shutil.copytree(kept, state)
    world.restart()


ALL = [configs, locks, states]
