"""Sections that `bench` measures and writes; it is run and its pages are taken over."""
import json

from .. import procs


def _text(ctx, name, argv, timeout):
    out = procs.run(argv, timeout, log=ctx.place.log(name), must_succeed=True)
    if out:
        return ctx.emit("text", text=out)
    ctx.emit("failed", error=f"`{name}` failed or took more than {timeout:.0f} s; its last word: {_last(ctx.place.log(name))}")


def _last(path):
    """The last line that a program wrote about its failure."""
    try:
        with open(path, errors="replace") as f:
            lines = [line.strip() for line in f.read().splitlines() if line.strip()]
    except OSError:
        return "nothing"
    panics = [place for place, line in enumerate(lines) if "panicked at" in line]
    if panics:
        return " ".join(lines[panics[-1]:panics[-1] + 2])[:200]
    return (lines or ["nothing"])[-1][:200]


def _render_text(records, page):
    for one in records:
        if one["kind"] == "failed":
            page.text(f"Not measured: {one['error']}")
        elif one["kind"] == "text":
            page.text(_below(one["text"]))


def _below(text):
    """Without the page's own heading, and with its other headings one level down."""
    lines = [line for line in text.strip().splitlines() if not line.startswith("## ")]
    return "\n".join(lines).strip()


class Other:
    """A section that a subcommand of `bench` measures and writes."""

    def __init__(self, name, title, args, seconds):
        self.NAME, self.TITLE, self.args, self.seconds = name, title, args, seconds

    def estimate(self, ctx):
        return self.seconds(ctx)

    def measure(self, ctx):
        argv = [str(ctx.place.bench), self.NAME, *self.args(ctx)]
        ctx.step(self.seconds(ctx), " ".join(argv[1:]))
        _text(ctx, self.NAME, argv, self.seconds(ctx) * 4 + 60)

    def render(self, records, page):
        _render_text(records, page)

    def plots(self, records, folder):
        pass


def _number(value):
    return f"{value:g}"


def _host_rounds(ctx):
    return 2 if ctx.quick else ctx.rounds


HOST = Other("host", "The host without HTTP, beside a raw pipe",
             lambda ctx: ["--seconds", _number(0.3 if ctx.quick else ctx.seconds), "--rounds", str(_host_rounds(ctx))],
             lambda ctx: 4 * 3 * _host_rounds(ctx) * ((0.3 if ctx.quick else ctx.seconds) + 0.1))
RELAY = Other("relay", "The relay beside bare NATS",
              lambda ctx: ["--nats", "current", "--rounds", "1" if ctx.quick else "3", "--seconds", "0.3" if ctx.quick else "0.5"],
              lambda ctx: 25 if ctx.quick else 100)


class Load:
    """`bench load`, part by part, so that one that hangs costs itself alone."""
    NAME, TITLE = "load", "Under load"
    PARTS = ("overload", "sessions", "connections", "idle", "readers", "slowhttp", "restarts", "floods", "streams")
    QUICK = PARTS[:2]
    EACH, LIMIT = 18, 300  # seconds that a part takes, and may take

    def _parts(self, ctx):
        return self.QUICK if ctx.quick else self.PARTS

    def estimate(self, ctx):
        return len(self._parts(ctx)) * self.EACH

    def measure(self, ctx):
        for part in self._parts(ctx):
            ctx.step(self.EACH, part)
            argv = [str(ctx.place.bench), "load", part, "--json", "--scale", "10" if ctx.quick else "100"]
            out = procs.run(argv, self.LIMIT, log=ctx.place.log(part), must_succeed=True)
            try:
                for row in json.loads(out)["rows"]:
                    ctx.emit("row", **row)
            except (TypeError, ValueError, KeyError):
                ctx.emit("failed", error=f"{part} failed or took more than {self.LIMIT} s; its last word: {_last(ctx.place.log(part))}")

    def render(self, records, page):
        rows = [[one["part"], one["figure"], one["aim"], one["found"], {True: "reached", False: "missed", None: ""}[one["met"]]]
                for one in records if one["kind"] == "row"]
        page.table(["part", "figure", "aim", "found", ""], rows)
        _render_text([one for one in records if one["kind"] == "failed"], page)

    def plots(self, records, folder):
        pass

