"""Reads what the suite has written, and compares it.

A check is known by its scenario, its id and its name, and by its number where
all three repeat.
"""

import json
import re
from collections import Counter
from pathlib import Path

# A folder is named after the scenario and the time it ran.
FOLDER = re.compile(r"(?:server-)?(.+)-\d{4}-\d\d-\d\dT.*")


def read(folder):
    """All checks below a folder: `{(scenario, id, name, number): check}`."""
    checks, seen = {}, Counter()
    for path in sorted(Path(folder).glob("**/checks.json")):
        # A scenario's name may hold a slash.
        scenario = FOLDER.fullmatch(str(path.parent.relative_to(folder)))
        for check in json.loads(path.read_text()):
            key = (scenario.group(1), check["id"], check["name"])
            seen[key] += 1
            checks[(*key, seen[key])] = check
    return checks


def passes(check):
    return check is not None and check["status"] == "SUCCESS"


def fails(check):
    return check["status"] in ("WARNING", "FAILURE")


def is_remark(check):
    """Whether the suite finds nothing wrong, only worth telling."""
    return check is not None and check["status"] == "INFO"


def reason(check):
    if check is None:
        return "was never reached"
    return f"{check['status']}: {check.get('errorMessage') or check['description']}"


def lost(direct, through):
    """What passes directly and not through the gateway."""
    return {key: through.get(key) for key, check in direct.items() if passes(check) and not passes(through.get(key))}


class Expected:
    """A file of failures that are expected, in the suite's own format: an
    entry is a scenario, or `scenario:check-id`. Each must say why, and each
    must still be needed."""

    LINE = re.compile(r"  - (\S+) +# (.+)")

    def __init__(self, path):
        self.path = Path(path)
        self.entries, self.used = set(), set()
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            entry = self.LINE.fullmatch(line)
            if entry:
                self.entries.add(entry.group(1))
            elif not re.fullmatch(r"|#.*|server:( \[\])?", line):
                raise SystemExit(f"{path}:{number}: an entry is `  - scenario:check-id  # why`")

    def excuses(self, key):
        scenario, check_id, *_ = key
        found = {scenario, f"{scenario}:{check_id}"} & self.entries
        self.used |= found
        return bool(found)

    def stale(self):
        return sorted(self.entries - self.used)
