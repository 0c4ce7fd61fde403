"""Processes that a run starts, and what they use. Whatever is started here is ended here.

Every program gets a session of its own (`setsid`), so all that it starts can be found and ended by
the session's number, and nothing else ever is.
"""
import os
import signal
import socket
import subprocess
import time

GRACE = 12  # seconds from SIGTERM to SIGKILL; a daemon may take 10 s with stubborn servers
STUB = "mcp-stub"
_running = []


def free_port():
    """A port that was free a moment ago. Programs that can say which one they took are asked instead."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _stat(pid):
    """Name, parent and session of a process, or None when it has gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            text = f.read()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
    return name, int(rest[1]), int(rest[3])


def _all():
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            found = _stat(int(entry))
            if found:
                yield (int(entry), *found)


def of_session(session):
    return [pid for pid, _, _, its in _all() if its == session]


class Program:
    """A program in a session of its own, with its output in a file."""

    def __init__(self, argv, log, env=None):
        self.log = log
        with open(log, "ab") as out:
            self.p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True)
        self.pid = self.p.pid
        _running.append(self)

    def alive(self):
        return self.p.poll() is None

    def last_words(self, size=300):
        with open(self.log, "rb") as f:
            text = f.read().decode(errors="replace").strip()
        return " ".join(text[-size:].split())

    def stop(self, grace=GRACE):
        """Ends the program: asked first, then told, with everything that is left of its session."""
        if self not in _running:
            return
        if self.alive():
            _signal(self.pid, signal.SIGTERM)
            try:
                self.p.wait(grace)
            except subprocess.TimeoutExpired:
                pass
        left = of_session(self.pid)
        for pid in left:
            _signal(pid, signal.SIGTERM if not self.alive() else signal.SIGKILL)
        until = time.monotonic() + 2
        while left and time.monotonic() < until:
            time.sleep(0.02)
            left = of_session(self.pid)
        for pid in left:
            _signal(pid, signal.SIGKILL)
        self.p.wait()
        _running.remove(self)


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stop_all(grace=GRACE):
    for program in list(reversed(_running)):
        program.stop(grace)


def run(argv, timeout, env=None, log=os.devnull, must_succeed=False):
    """Runs a program to its end and returns its stdout; None when it took too long, or failed where it must not."""
    with open(log, "ab") as err:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, env=env, start_new_session=True)
    try:
        out, _ = p.communicate(timeout=timeout)
        return None if must_succeed and p.returncode else out.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return None
    finally:
        if p.poll() is None:
            for pid in of_session(p.pid):
                _signal(pid, signal.SIGKILL)
            p.wait()


def memory(root):
    """Resident, proportional and own MiB of a gateway: its largest process, and all but the stubs it hosts."""
    children, names = {}, {}
    for pid, name, parent, _ in _all():
        names[pid] = name
        children.setdefault(parent, []).append(pid)
    total, todo, stubs, procs, largest = {"Rss": 0, "Pss": 0, "Private_Dirty": 0}, [root], 0, 0, 0
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        if names.get(pid) == STUB:
            stubs += 1
            continue
        procs += 1
        own = _rollup(pid)
        largest = max(largest, own["Rss"])
        for key, kib in own.items():
            total[key] += kib
    mib = lambda kib: round(kib / 1024, 2)
    return {"largest_mib": mib(largest), "rss_mib": mib(total["Rss"]), "pss_mib": mib(total["Pss"]), "own_mib": mib(total["Private_Dirty"]), "procs": procs, "stubs": stubs}


def _rollup(pid):
    found = {"Rss": 0, "Pss": 0, "Private_Dirty": 0}
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            for line in f:
                key = line.split(":")[0]
                if key in found:
                    found[key] = int(line.split()[1])
    except OSError:
        pass
    return found
