"""Sections that other programs measure and write; they are run and their pages taken over."""
import json
import os

from .. import procs
from ..place import GATEWAY


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
    """A section that is another program's."""

    def __init__(self, name, title, program, args, seconds):
        self.NAME, self.TITLE, self.program, self.args, self.seconds = name, title, program, args, seconds

    def estimate(self, ctx):
        return self.seconds(ctx)

    def measure(self, ctx):
        path = ctx.place.product / self.program
        if not path.exists():
            ctx.step(self.seconds(ctx), f"{self.program} is not there")
            return ctx.emit("failed", error=f"no `{self.program}`")
        argv = [str(path), *self.args(ctx)]
        ctx.step(self.seconds(ctx), " ".join([self.program, *self.args(ctx)]))
        _text(ctx, self.program, argv, self.seconds(ctx) * 4 + 60)

    def render(self, records, page):
        _render_text(records, page)

    def plots(self, records, folder):
        pass


def _number(value):
    return f"{value:g}"


def _host_rounds(ctx):
    return 2 if ctx.quick else ctx.rounds


HOST = Other("host", "The host without HTTP, beside a raw pipe", "bench-host",
             lambda ctx: ["--seconds", _number(0.3 if ctx.quick else ctx.seconds), "--rounds", str(_host_rounds(ctx))],
             lambda ctx: 4 * 3 * _host_rounds(ctx) * ((0.3 if ctx.quick else ctx.seconds) + 0.1))
RELAY = Other("relay", "The relay beside bare NATS", "bench-relay",
              lambda ctx: ["--nats", "current", "--rounds", "1" if ctx.quick else "3", "--seconds", "0.3" if ctx.quick else "0.5"],
              lambda ctx: 25 if ctx.quick else 100)


class Load:
    """`bench-load`, part by part, so that one that hangs costs itself alone."""
    NAME, TITLE, PROGRAM = "load", "Under load", "bench-load"
    PARTS = ("overload", "sessions", "connections", "idle", "readers", "slowhttp", "restarts", "floods", "streams")
    QUICK = PARTS[:2]
    EACH, LIMIT = 18, 300  # seconds that a part takes, and may take

    def _parts(self, ctx):
        return self.QUICK if ctx.quick else self.PARTS

    def estimate(self, ctx):
        return len(self._parts(ctx)) * self.EACH

    def measure(self, ctx):
        path = ctx.place.product / self.PROGRAM
        if not path.exists():
            ctx.step(self.estimate(ctx), f"{self.PROGRAM} is not there")
            return ctx.emit("failed", error=f"no `{self.PROGRAM}`")
        for part in self._parts(ctx):
            ctx.step(self.EACH, part)
            argv = [str(path), part, "--json", "--scale", "10" if ctx.quick else "100"]
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


class Policy:
    NAME, TITLE = "policy", "What policy costs"
    CASES = ("same", "rules", "token", "audit", "pins")
    WORDS = {"same": "nothing: two equal daemons, so this is the noise", "rules": "50 roles with 200 rules each", "token": "a token instead of `local`",
             "audit": "the audit", "pins": "pins"}

    def _pairs(self, ctx):
        return 2 if ctx.quick else 2 * ctx.rounds - 1

    def _seconds(self, ctx):
        return 0.3 if ctx.quick else ctx.seconds

    def _each(self, ctx):
        return self._pairs(ctx) * 2 * (self._seconds(ctx) + 0.45) + 3

    def estimate(self, ctx):
        return len(self.CASES) * self._each(ctx)

    def measure(self, ctx):
        env = {**os.environ, "BENCH_BIN": str(ctx.place.yard), "OSTLER": str(ctx.place.ostler), "BENCH_OUT": str(ctx.place.scratch / "policy")}
        for case in self.CASES:
            ctx.step(self._each(ctx), f"case {case}, {self._pairs(ctx)} pairs")
            argv = [str(GATEWAY / "policy.py"), "--cases", case, "--pairs", str(self._pairs(ctx)), "--seconds", _number(self._seconds(ctx))]
            out = procs.run(argv, self._each(ctx) * 4 + 60, env, ctx.place.log("policy"))
            try:
                ctx.emit("case", **json.loads(out))
            except (TypeError, ValueError):
                ctx.emit("failed", error=f"{case}: {_last(ctx.place.log('policy'))}")

    def render(self, records, page):
        page.text("Five stubs of 100 tools each, 32 callers, 60 B, revision 2026-07-28; two daemons driven in turn, one without the thing and one with it. "
                  "CPU per call with it to that without it, within a pair.")
        rows = [[self.WORDS[one["case"]], one["pairs"], f"{one['median_ratio']:.2f}", "-".join(f"{q:.2f}" for q in one["quartiles"]),
                 f"{one['without_us']:.1f}", f"{one['with_us']:.1f}"] for one in records if one["kind"] == "case"]
        page.table(["what", "pairs", "median of ratios", "quartiles", "µs without", "µs with"], rows)
        _render_text([one for one in records if one["kind"] == "failed"], page)

    def plots(self, records, folder):
        pass
