"""What rules, tokens, pins and the audit cost: CPU per call of two daemons, one without the thing and one with it.

Both run at the same time and are driven in turn; the order changes with every pair. The case `same` shows the noise.
"""
import json
import statistics

from ..ostler import QUIET, Daemon, server
from ..place import MODERN

NAME, TITLE = "policy", "What policy costs"
SERVERS, TOOLS, ROLES, RULES, CALLERS, WARMUP = 5, 100, 50, 200, 32, 0.3
WORDS = {"same": "none (two equal daemons: the noise)", "rules": "50 roles with 200 rules each", "token": "a token instead of `local`",
         "audit": "the audit", "pins": "pins"}


def _rules(role):
    """Half of them deny, none of those matches; the allow that decides is the last."""
    deny = [f"s{n % SERVERS}/x{n}_*" for n in range(RULES // 2)]
    allow = [f"s{n % SERVERS}/?{n}_other*" for n in range(RULES // 2 - 1)] + ["*/*echo"]
    return f"[roles.{role}]\nallow = {json.dumps(allow)}\ndeny = {json.dumps(deny)}\n"


MANY_ROLES = _rules("local") + "".join(_rules(f"r{n}") for n in range(ROLES - 1))
CASES = {
    "same": [{}, {}],
    "rules": [{}, {"config": QUIET + MANY_ROLES}],
    "token": [{"config": QUIET + MANY_ROLES}, {"config": QUIET + MANY_ROLES, "token": "r7"}],
    "audit": [{}, {"config": ""}],
    "pins": [{}, {"is_pinned": True}],
}


class Side:
    """A daemon with or without the thing, and how the driver must ask it."""

    def __init__(self, ctx, name, config=QUIET, token=None, is_pinned=False):
        stubs = "".join(server(ctx.place, f"s{n}", ("--tools", str(TOOLS)), "lazy = false\n") for n in range(SERVERS))
        self.ctx, self.daemon, self.more = ctx, Daemon(ctx.place, f"policy-{name}", config + stubs), []
        if token:
            made = self.daemon.command("token", "create", "--name", "bench", "--role", token).strip()
            self.more = ["--header", f"Authorization: Bearer {made}"]
        if is_pinned:
            self.daemon.command("lock")
        self.daemon.start()

    def cpu(self):
        cell = {"callers": CALLERS, "payload": 60, "proto": MODERN, "seconds": _seconds(self.ctx), "warmup": WARMUP}
        found = self.ctx.place.load(self.daemon.url, self.daemon.pid, cell, "--tool", "echo", "--spread", *self.more)
        if "error" in found or found["errors"]:
            raise RuntimeError(found.get("error") or f"{found['errors']} calls failed")
        return found["cpu_us_per_call"]


def _pairs(ctx):
    return 2 if ctx.quick else 2 * ctx.rounds - 1


def _seconds(ctx):
    return 0.3 if ctx.quick else ctx.seconds


def _each(ctx):
    return _pairs(ctx) * 2 * (_seconds(ctx) + WARMUP + 0.15) + 3


def estimate(ctx):
    return len(CASES) * _each(ctx)


def measure(ctx):
    for case, sides in CASES.items():
        ctx.step(_each(ctx), f"case {case}, {_pairs(ctx)} pairs")
        opened = []
        try:
            for number, side in enumerate(sides):
                opened.append(Side(ctx, f"{case}-{number}", **side))
            ctx.emit("case", case=case, **_compare(*opened, _pairs(ctx)))
        except RuntimeError as error:
            ctx.emit("failed", error=f"{case}: {error}")
        finally:
            for side in opened:
                side.daemon.stop()


def _compare(without, with_, count):
    pairs = []
    for n in range(count):
        order = (without, with_) if n % 2 == 0 else (with_, without)
        got = {side: side.cpu() for side in order}
        pairs.append((got[without], got[with_]))
    # A daemon that got no processor time in its turn has no cost per call either.
    pairs = [pair for pair in pairs if all(pair)]
    if len(pairs) < 2:
        raise RuntimeError("the machine is too busy")
    low, middle, high = statistics.quantiles(sorted(w / o for o, w in pairs), n=4)
    return {"pairs": count, "median_ratio": round(middle, 4), "quartiles": [round(low, 4), round(high, 4)],
            "without_us": round(statistics.median(o for o, _ in pairs), 2), "with_us": round(statistics.median(w for _, w in pairs), 2)}


def render(records, page):
    page.text("Five stubs of 100 tools each, 32 callers, 60 B, revision 2026-07-28. Two daemons are driven in turn, one without the feature and one with it; "
              "the ratio of their CPU per call is taken within a pair.")
    rows = [[WORDS[one["case"]], one["pairs"], f"{one['median_ratio']:.2f}", "-".join(f"{q:.2f}" for q in one["quartiles"]),
             f"{one['without_us']:.1f}", f"{one['with_us']:.1f}"] for one in records if one["kind"] == "case"]
    page.table(["what", "pairs", "median of ratios", "quartiles", "µs without", "µs with"], rows)
    for one in records:
        if one["kind"] == "failed":
            page.text(f"Not measured: {one['error']}")


def plots(records, folder):
    pass
