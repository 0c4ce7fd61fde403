"""An `ostler serve` of its own: config, state and runtime folders are the run's."""
import os
import shutil
import time

from . import procs

QUIET = "[audit]\nenabled = false\n"


def server(place, name="s0", args=(), more=""):
    words = ", ".join(f'"{word}"' for word in ("stdio", *args))
    return f'[servers.{name}]\ncommand = "{place.stub}"\nargs = [{words}]\n{more}'


class Daemon:
    def __init__(self, place, name, config):
        self.place, self.name = place, name
        self.built = place.beside if name.startswith("ostler-beside") else place.ostler
        self.home = place.scratch / f"ostler-{name}"
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.config, self.program = self.home / "ostler.toml", None
        self.config.write_text(f'version = 1\nlisten = "127.0.0.1:0"\n{config}')
        keep = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        self.env = {**keep, **{f"XDG_{kind}_HOME": str(self.home) for kind in ("STATE", "CONFIG")}, "XDG_RUNTIME_DIR": str(self.home)}

    def command(self, *args):
        out = procs.run([str(self.built), *args, "--config", str(self.config)], 60, self.env, str(self.home / "log"), must_succeed=True)
        if out is None:
            raise RuntimeError(f"ostler {args[0]} failed or took too long: see {self.home}/log")
        return out

    def argv(self, *more):
        return [str(self.built), "serve", "--config", str(self.config), *more]

    def start(self, timeout=60):
        port = self.home / "port"
        port.unlink(missing_ok=True)
        self.program = procs.Program(self.argv("--port-file", str(port)), str(self.home / "log"), self.env)
        until = time.monotonic() + timeout
        while not (port.exists() and port.read_text().strip()):
            if time.monotonic() > until or not self.program.alive():
                words = self.program.last_words()
                self.stop()
                raise RuntimeError(f"ostler `{self.name}` did not start: {words}")
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{port.read_text().strip()}/mcp"
        return self

    @property
    def pid(self):
        return self.program.pid

    def stop(self):
        if self.program:
            self.program.stop()
