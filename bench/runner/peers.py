"""The ways a call can go: no gateway, the yardsticks, Ostler, and other gateways."""
import json
import time

from . import procs
from .ostler import QUIET, Daemon, server
from .place import MODERN, PEERS, TOOLS_PER_STUB


class Way:
    """One way. `stdio` and `http` build its command line for that kind of upstream."""

    def __init__(self, name, label, stdio=None, http=None, **more):
        self.name, self.label, self.commands = name, label, {"stdio": stdio, "http": http}
        self.path = more.get("path", "/mcp")
        self.is_peer = more.get("is_peer", True)
        self.is_modern = more.get("is_modern", False)
        self.many = more.get("many", False)  # takes more than one server
        self.files = more.get("files", ())  # what must be installed for it
        self.listed = more.get("listed")  # tools at its endpoint when not those of all servers

    def missing(self, place):
        return next((str(path) for path in self.files if not (place.peers / path).exists()), None)

    def tools(self, count):
        return self.listed or TOOLS_PER_STUB * count

    def open(self, place, upstream="stdio", count=1, to=None):
        return Running(self, place, upstream, count, to)


class Running:
    """A way that has been started and lists its tools. Raises RuntimeError when it does not."""

    def __init__(self, way, place, upstream, count, to):
        self.way, self.place, self.daemon, self.program = way, place, None, None
        started = time.monotonic()
        try:
            if way.name.startswith("ostler"):
                self._ostler(upstream, count, to)
            else:
                self._peer(upstream, count, to)
            self._wait(count, started)
        except BaseException:
            self.stop()
            raise

    def _ostler(self, upstream, count, to):
        name = f"{self.way.name}-{upstream}-{count}"
        one = lambda n: f'[servers.s{n}]\nurl = "{to}"\n' if upstream == "http" else server(self.place, f"s{n}", more="lazy = false\n")
        quiet = QUIET if self.way.name == "ostler-quiet" else ""
        config = f"{quiet}[pool]\nmax_processes = {max(16, count + 8)}\n" + "".join(one(n) for n in range(count))
        self.daemon = Daemon(self.place, name, config).start()
        self.url, self.program = self.daemon.url, self.daemon.program

    def _peer(self, upstream, count, to):
        port = procs.free_port()
        argv = self.way.commands[upstream](self.place, port, count, to)
        self.url = f"http://127.0.0.1:{port}{self.way.path}"
        self.program = procs.Program(argv, self.place.log(self.way.name))

    def _wait(self, count, started):
        found = self.place.drive("ready", "--url", self.url, "--min-tools", self.way.tools(count), "--timeout", 40, timeout=50)
        if "error" in found:
            raise RuntimeError(f"{self.way.label} lists no tools: {found['error'][:150]} ({self.program.last_words(200)})")
        self.started_ms = round((time.monotonic() - started) * 1000)

    @property
    def pid(self):
        return self.program.pid

    def stop(self):
        if self.program:
            self.program.stop()


def mcp_servers(place, name, count, to=None):
    """An `mcpServers` file, which most peers read."""
    one = {"type": "streamable-http", "url": to} if to else {"command": str(place.stub), "args": ["stdio"]}
    path = place.scratch / f"{name}-{count}{'-http' if to else ''}.json"
    path.write_text(json.dumps({"mcpServers": {f"s{n}": one for n in range(count)}}))
    return str(path)


def _npm(name, *args):
    return lambda place, port, count, to: ["node", str(place.peers / f"npm-{name}" / "node_modules" / ".bin" / name), *(
        word.format(port=port, stub=place.stub) for word in args)]


def _fastmcp(place, port, count, to):
    python = place.peers / "py-fastmcp" / "bin" / "python"
    return [str(python), str(PEERS / "fastmcp_proxy.py"), mcp_servers(place, "fastmcp", count, to), str(port)]


def _py_proxy(place, port, count, to):
    program = place.peers / "py-mcp-proxy" / "bin" / "mcp-proxy"
    return [str(program), "--host", "127.0.0.1", "--log-level", "ERROR", "--port", str(port),
            "--named-server-config", mcp_servers(place, "py-mcp-proxy", count)]


def _rust_proxy(place, port, count, to):
    """The crate `mcp-proxy`, whose config is TOML."""
    backend = lambda n: (f'[[backends]]\nname = "s{n}"\ntransport = "http"\nurl = "{to}"\n' if to else
                         f'[[backends]]\nname = "s{n}"\ntransport = "stdio"\ncommand = "{place.stub}"\nargs = ["stdio"]\n')
    path = place.scratch / f"rust-mcp-proxy-{count}{'-http' if to else ''}.toml"
    head = f'[proxy]\nname = "bench"\nversion = "1"\nseparator = "__"\n[proxy.listen]\nhost = "127.0.0.1"\nport = {port}\n'
    path.write_text(head + "".join(backend(n) for n in range(count)))
    return [str(place.peers / "cargo" / "bin" / "mcp-proxy"), "--config", str(path)]


def _raw(place, port, count, to):
    tail = ["--upstream", to] if to else ["--count", str(count), "--", str(place.stub), "stdio"]
    return [str(place.raw), "--port", str(port), *tail]


def _direct(place, port, count, to):
    return [str(place.stub), "http", "--port", str(port)]


WAYS = [
    Way("direct", "direct, no gateway", _direct, _direct, is_peer=False, is_modern=True),
    Way("raw", "raw yardstick", _raw, _raw, is_peer=False, is_modern=True, many=True),
    Way("ostler", "Ostler", is_peer=False, is_modern=True, many=True),
    Way("ostler-quiet", "Ostler, audit off", is_peer=False, is_modern=True, many=True),
    Way("ostler-beside", "Ostler, other build", is_peer=False, is_modern=True, many=True),
    Way("typed", "typed yardstick (rmcp)", lambda place, port, count, to: [
        str(place.typed), "--port", str(port), "--count", str(count), "--", str(place.stub), "stdio"], many=True),
    Way("rust-mcp-proxy", "mcp-proxy (Rust)", _rust_proxy, _rust_proxy, many=True, files=["cargo/bin/mcp-proxy"]),
    Way("supergateway", "supergateway", _npm("supergateway", "--stdio", "{stub} stdio", "--outputTransport", "streamableHttp",
                                             "--stateful", "--port", "{port}", "--logLevel", "none"), files=["npm-supergateway"]),
    Way("npm-mcp-proxy", "mcp-proxy (npm)", _npm("mcp-proxy", "--host", "127.0.0.1", "--server", "stream", "--port", "{port}",
                                                 "--", "{stub}", "stdio"), files=["npm-mcp-proxy"]),
    Way("py-mcp-proxy", "mcp-proxy (PyPI)", _py_proxy, path="/servers/s0/mcp", many=True, listed=TOOLS_PER_STUB, files=["py-mcp-proxy"]),
    Way("fastmcp", "fastmcp", _fastmcp, _fastmcp, many=True, files=["py-fastmcp"]),
]
BY_NAME = {way.name: way for way in WAYS}


def ways(wanted, upstream="stdio", era=None, many=False):
    """Those of the wanted ways that can do it."""
    for way in WAYS:
        is_able = way.commands[upstream] or way.name.startswith("ostler")
        if way.name in wanted and is_able and (era != MODERN or way.is_modern) and (way.many or not many):
            yield way


def open_all(ctx, chosen, **how):
    """Starts ways; one that can't be started is said and left out."""
    runs = []
    try:
        for way in chosen:
            missing = way.missing(ctx.place)
            try:
                if missing:
                    raise RuntimeError(f"{way.label} is not installed: no {missing}")
                runs.append(way.open(ctx.place, **how))
            except (RuntimeError, OSError) as error:
                ctx.left_out(way, str(error))
    except BaseException:
        for run in runs:
            run.stop()
        raise
    return runs
