"""What a section is given: programs, options, where to put records, and the word to whoever waits."""
import sys
import time

from .place import machine_load


class Progress:
    """Says what happens and how long it may still take. Estimates are corrected by how right they were so far."""

    def __init__(self, total, out=sys.stderr):
        self.total, self.done, self.running, self.out = total, 0.0, 0.0, out
        self.began = time.monotonic()
        self.is_terminal = out.isatty()

    def step(self, seconds, text):
        """The step before has ended; this one begins."""
        self.done += self.running
        self.running = seconds
        gone = time.monotonic() - self.began
        pace = gone / self.done if self.done > 20 else 1.0
        left = max(self.total - self.done, 0) * pace
        line = f"{_clock(gone)} gone, {_clock(left)} left  {text}"
        end = "" if self.is_terminal else "\n"
        print(f"\r\033[K{line[:150]}" if self.is_terminal else line, end=end, file=self.out, flush=True)

    def settle(self, planned, before):
        """A section has ended: whatever it planned and did not do is not to be waited for."""
        self.done, self.running = before + planned, 0.0

    def say(self, text):
        print(f"\r\033[K{text}" if self.is_terminal else text, file=self.out, flush=True)


def _clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Context:
    def __init__(self, place, options, progress):
        self.place, self.progress, self.section = place, progress, ""
        self.rounds, self.seconds, self.quick, self.peers = options.rounds, options.seconds, options.quick, options.peers
        self.records = []
        # Peers are so far from the rest that fewer rounds show it.
        self.peer_rounds = min(self.rounds, 1 if self.quick else 3)
        self.warmup = 0.15 if self.quick else 0.25
        # One cell: its time, its warmup, and the driver's own start and end.
        self.each = self.seconds + self.warmup + 0.15

    def begin(self, section, head):
        self.section, self.records, self.began = section, [], time.monotonic()
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        self.emit("head", when=when, load=machine_load(), **head)

    def end(self):
        self.emit("foot", load=machine_load(), seconds=round(time.monotonic() - self.began, 1))
        return self.records

    def emit(self, kind, **found):
        self.records.append({"kind": kind, **found})
        if "error" in found and kind != "left-out":
            self.progress.say(f"{self.section}: {found['error'][:300]}")

    def step(self, seconds, text):
        self.progress.step(seconds, f"{self.section}: {text}")

    def left_out(self, way, error):
        if not any(one["kind"] == "left-out" and one["way"] == way.name for one in self.records):
            self.progress.say(f"{self.section}: left out {way.label}: {error[:300]}")
        self.emit("left-out", way=way.name, label=way.label, error=error[:300])
