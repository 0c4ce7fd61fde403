"""Reads URIs as Python programs do: a JSON array of URIs per line in, a JSON array of lists out.

The lists are of paths of `file` URIs, or, with the argument `hosts`, of `SCHEME://HOST/PATH` without parameters.
"""
import json
import posixpath
import sys
from urllib.parse import unquote, urlparse, urlsplit


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


def places(uri):
    found = set()
    for text in {uri, uri.strip(), unquote(uri), unquote(unquote(uri))}:
        try:
            parts = urlparse(text)
            host = parts.hostname or ""
        except ValueError:
            continue
        hosts = {name.rstrip(".") for name in (host, unquote(host), unquote(unquote(host)))}
        each = "/".join(name.split(";")[0] for name in parts.path.split("/"))
        once = {unquote(path) for path in (parts.path, parts.path.split(";")[0], each)}
        paths = {parts.path, each} | once | {unquote(path) for path in once}
        found.update(f"{parts.scheme}://{host}{resolved(path)}" for host in hosts for path in paths)
    return found


read = places if "hosts" in sys.argv else lambda uri: set(map(resolved, readings(uri)))
for line in sys.stdin:
    answers = [[text for text in read(uri) if text] for uri in json.loads(line)]
    print(json.dumps(answers), flush=True)
