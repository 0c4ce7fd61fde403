"""Reads file URIs as Python programs do: a JSON array of URIs per line in, a JSON array of path lists out."""
import json
import posixpath
import sys
from urllib.parse import unquote, urlsplit


def readings(uri):
    found = set()
    for text in {uri, uri.strip(), unquote(uri)}:
        try:
            parts = urlsplit(text)
        except ValueError:
            continue
        if parts.scheme == "file":
            found.update((parts.path, parts.netloc + parts.path, posixpath.normpath(parts.path)))
    for prefix in ("file://", "file:"):
        if uri.startswith(prefix):
            found.add(uri[len(prefix):])
    once = {unquote(path) for path in found}
    return found | once | {unquote(path) for path in once}


def resolved(path):
    """The file that opening the path from the root folder would open."""
    return None if "\0" in path else "/" + posixpath.normpath("/" + path).lstrip("/")


for line in sys.stdin:
    answers = [[path for path in set(map(resolved, readings(uri))) if path] for uri in json.loads(line)]
    print(json.dumps(answers), flush=True)
