"""What clients cost that open a session and never come back."""
from .. import peers, procs
from ..peers import WAYS
from ..spread import number

NAME, TITLE = "sessions", "Abandoned sessions"
OURS, PEERS = 10_000, 200  # some peers start a process for each
LIMIT = 45


def _chosen(ctx):
    return list(peers.ways({"ostler-quiet", *ctx.peers}))


def _count(way):
    return OURS if way.name == "ostler-quiet" else PEERS


def estimate(ctx):
    return sum(_seconds(way) for way in _chosen(ctx))


def _seconds(way):
    return 14 if way.name == "ostler-quiet" else 8


def measure(ctx):
    for way in _chosen(ctx):
        ctx.step(_seconds(way), f"{_count(way):,} sessions at {way.label}")
        for run in peers.open_all(ctx, [way]):
            try:
                # What the first calls bring into memory is not charged to sessions.
                first = _abandon(ctx, run, _count(way) // 10)
                last = _abandon(ctx, run, _count(way) - first["sessions"])
            finally:
                run.stop()
            error = {"error": last["error"]} if "error" in last else {}
            ctx.emit("sessions", way=way.name, first=first, last=last, **error)


def _abandon(ctx, run, count):
    found = ctx.place.drive("sessions", "--url", run.url, "--count", count, "--timeout", LIMIT, "--pid", run.pid, "--no-delete", timeout=LIMIT + 40)
    if not found.get("marks") or found.get("errors", 0) > count / 10:
        return {"sessions": 0, "error": found.get("error") or f"{found['errors']} errors: {found['error_samples'][:1]}"}
    return {"sessions": found["sessions"], "fds": found["marks"][-1]["fds"], **procs.memory(run.pid)}


def each(records, way):
    """KiB, descriptors and server processes per session, between the first tenth of them and all."""
    found = next((one for one in records if one["kind"] == "sessions" and one["way"] == way), None)
    if not found or not found["last"]["sessions"] or not found["first"]["sessions"]:
        return None
    first, last = found["first"], found["last"]
    per = lambda key, by=1: (last[key] - first[key]) * by / last["sessions"]
    return {"sessions": first["sessions"] + last["sessions"], "kib": per("rss_mib", 1024), "fds": per("fds"), "procs": per("stubs"), "last": last}


def render(records, page):
    page.text(f"Legacy clients that initialize, call once and leave without a DELETE: {OURS:,} at Ostler, {PEERS} at the others. Resident memory per "
              "session, from the first tenth of them to all; memory that the allocator keeps counts.")
    rows = []
    for way in WAYS:
        found = each(records, way.name)
        if found:
            name = f"**{way.label}**" if way.name == "ostler-quiet" else way.label
            rows.append([name, f"{found['sessions']:,}", f"{found['kib']:,.2f}", number(found["fds"], 2), number(found["procs"], 2), number(found["last"]["rss_mib"])])
    page.table(["way", "sessions", "KiB each", "descriptors each", "server processes each", "MiB in all after"], rows)


def plots(records, folder):
    pass
