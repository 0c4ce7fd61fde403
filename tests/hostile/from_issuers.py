"""What comes with JSON web tokens: tokens that anybody makes up, what a careless issuer signs, and its keys."""

import base64
import hashlib
import hmac
import json
import socket
import subprocess
import time

import hostile_bytes
from from_clients import HEAD, HELLO, Line
from world import PATIENCE, Broken, World

ISSUER = "https://issuer.example"
# Longer than any token takes that names a key which is not there.
QUICK = 10

CONFIG = f"""
[auth.jwt]
issuer = "{ISSUER}"
audience = "ostler"
jwks = "keys.json"
subject_claim = "who.name"
"""


class IssuerWorld(World):
    """A world whose daemon takes tokens of an issuer, whose key it has beside the config."""

    def __init__(self, folder, remote_url):
        folder.mkdir(parents=True, exist_ok=True)
        self.key, self.jwk = new_key(folder / "key.pem", "one")
        # Of nobody that the daemon knows.
        self.strange_key, self.strange_jwk = new_key(folder / "strange.pem", "one")
        self.keys = folder / "keys.json"
        self.keys.write_text(json.dumps({"keys": [self.jwk]}))
        super().__init__(folder, remote_url, CONFIG)

    def sign(self, claims, header=None, key=None):
        """A token with a good signature, whatever it says; of the daemon's issuer, unless another key is given."""
        said = [json.dumps(part) if isinstance(part, dict) else part for part in (header or good_header(), claims)]
        signed = ".".join(encoded(part if isinstance(part, bytes) else part.encode()) for part in said)
        (self.folder / "signed").write_text(signed)
        signature = openssl("pkeyutl", "-sign", "-rawin", "-inkey", key or self.key, "-in", self.folder / "signed")
        return f"{signed}.{encoded(signature)}"


world = IssuerWorld


def openssl(*words):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=PATIENCE).stdout


def new_key(file, kid):
    openssl("genpkey", "-algorithm", "ed25519", "-out", file)
    public = openssl("pkey", "-in", file, "-pubout", "-outform", "DER")
    return file, {"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": encoded(public[-32:])}


def encoded(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def good_header():
    return {"alg": "EdDSA", "kid": "one", "typ": "JWT"}


def good_claims():
    return {"iss": ISSUER, "aud": "ostler", "exp": int(time.time()) + 3_600, "nbf": 0, "who": {"name": "ann"}, "role": "crew"}


def show(world, line, token):
    """The status that a token brings."""
    raw = token if isinstance(token, bytes) else token.encode("utf-8", "replace")
    raw = raw.replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"")
    began = time.monotonic()
    try:
        status = line.post(b"/mcp", HEAD + b"Authorization: Bearer " + raw + b"\r\n", HELLO)
    except (OSError, IndexError, ValueError) as error:
        raise Broken(f"{error!r} after {raw[:200]!r}") from None
    took = time.monotonic() - began
    if status >= 500 or took > QUICK:
        raise Broken(f"status {status} after {took:.1f}s for {raw[:300]!r}")
    return status


def expect(world, line, token, wanted):
    status = show(world, line, token)
    if status not in wanted:
        raise Broken(f"status {status} for {token[:300]!r}")


def refused(world, line, tokens):
    """None of them is anybody's; whose is good stays good."""
    good = world.sign(good_claims())
    expect(world, line, good, [200])
    for token in tokens:
        expect(world, line, token, [400, 401, 403, 431])
    expect(world, line, good, [200])


def damaged_tokens(world, count, rng):
    """JSON web tokens: damaged ones beside a good one"""
    line, good = Line(world), world.sign(good_claims()).encode()
    expect(world, line, good, [200])
    for _ in range(count // 4):
        wrong = hostile_bytes.mutated(good, rng).replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"").strip()
        expect(world, line, wrong, [200] if wrong == good else [400, 401, 403, 431])
    expect(world, line, good, [200])


def made_up(world, _count, _rng):
    """JSON web tokens: cut, huge, nested, unsigned, of foreign algorithms, of keys that are not there"""
    line, good = Line(world), world.sign(good_claims())
    head, body, signature = good.split(".")
    signed = lambda **more: world.sign(good_claims(), good_header() | more)  # noqa: E731
    unsigned = lambda **more: encoded(json.dumps(good_header() | more).encode()) + f".{body}."  # noqa: E731
    algorithms = ["none", "None", "NONE", "", "HS256", "RS256", "ES256", "EdDSA ", "eddsa", "RS256\0", None, 7, [], {}, ["EdDSA"]]
    tokens = [token for name in algorithms for token in (unsigned(alg=name), signed(alg=name))]
    tokens += [shared_secret(world, body, header) for header in ({"alg": "HS256"}, {"alg": "HS256", "kid": "one"})]
    tokens = [token for each in tokens for token in (each if isinstance(each, list) else [each])]
    tokens += [signed(kid=kid) for kid in ("two", "", "../../keys.json", "one\0", "x" * 4_000, 1, ["one"], {"a": 1})]
    tokens += [signed(crit=crit) for crit in (["exp"], ["x"], [], "x", 0)]
    strange = lambda **more: world.sign(good_claims(), good_header() | more, world.strange_key)  # noqa: E731
    tokens += [strange(), strange(jwk=world.strange_jwk), strange(jku="http://127.0.0.1:1/x", x5u="file:///etc/passwd")]
    tokens += [good[: len(good) * part // 20] for part in range(1, 20)]
    tokens += ["", ".", "..", "...", "a.b.c", f"{head}.{body}", f"{head}.{body}.", f".{body}.{signature}", f"{head}..{signature}", f"{good}.x", f".{good}"]
    tokens += [f"{good}=", good.replace(".", ".="), good + "A", "ö" + good, good.swapcase(), f"{head}.{body}.{signature}{'A' * 15_000}"]
    for depth in (100, 1_000, 5_000):
        nested = [b"[" * depth, b'{"a":' * depth, b'{"alg":"EdDSA","crit":' + b"[" * depth + b"]" * depth + b"}"]
        tokens += [f"{encoded(part)}.{body}.{signature}" for part in nested]
    tokens += ["." * 10_000, "A" * 16_000 + "." + body + "." + signature]
    refused(world, line, tokens)
    # Beyond what a head may be.
    for size in (17_000, 100_000, 1 << 20, 8 << 20):
        if not 400 <= (alone(world, good.encode() + b"A" * size) or 431) < 500:
            raise Broken(f"a token of {size} bytes was not refused")
    expect(world, Line(world), good, [200])
    for text in filter(str.strip, hostile_bytes.naughty()):
        if not 400 <= (alone(world, text.encode("utf-8", "replace")) or 0) < 500:
            raise Broken(f"{text[:200]!r} was not refused")


def shared_secret(world, body, header):
    """The oldest trick: what everybody knows of the key, in all its spellings, as a shared secret."""
    text = encoded(json.dumps(header).encode()) + "." + body
    raw = base64.urlsafe_b64decode(world.jwk["x"] + "=")
    pem = openssl("pkey", "-in", world.key, "-pubout")
    secrets = [raw, world.jwk["x"].encode(), json.dumps(world.jwk).encode(), pem, pem.strip(), b""]
    return [f"{text}.{encoded(hmac.new(secret, text.encode(), hashlib.sha256).digest())}" for secret in secrets]


def alone(world, raw):
    """The status that a token brings on a connection of its own; none if it was cut off."""
    raw = raw.replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"").strip()
    head = HEAD + b"Connection: close\r\nAuthorization: Bearer " + raw + b"\r\nContent-Length: %d\r\n\r\n" % len(HELLO)
    with socket.create_connection(world.address, timeout=QUICK) as connection:
        try:
            connection.sendall(head + HELLO)
        except ConnectionError:
            pass
        try:
            words = connection.makefile("rb").readline().split()
        except ConnectionError:
            return None
        return int(words[1]) if words else None


def wrong_claims(world, _count, _rng):
    """JSON web tokens: claims of wrong types and odd values, with a good signature"""
    line, good = Line(world), good_claims()
    odd = [None, 0, -1, 1.5, 1e300, True, "", " ", "x" * 300, [], [[]], {}, {"a": 1}, ["x", None, 7], "\0", "\ud800", "ostler\n"]
    claims = [good | {name: value} for name in ("iss", "aud", "who", "role") for value in odd]
    claims += [good | {"who": {"name": value}} for value in odd if not (isinstance(value, str) and value.isprintable() and value)]
    claims += [good | {"exp": value} for value in (None, "", "9999999999", -1, 0, 1, 1e-300, [], {}, True, "never", -1e300)]
    claims += [good | {"nbf": value} for value in ("", 9e9, 99_999_999_999, [], {}, True, -5, 1e300, "x")]
    claims += [{key: value for key, value in good.items() if key != name} for name in ("iss", "aud", "exp", "who", "role")]
    tokens = [world.sign(json.dumps(each)) for each in claims if each.get("who") != {"name": " "}]
    raw = [b"", b"null", b"[]", b'"x"', b"1", b"{", b"\xff", b"\xef\xbb\xbf{}", b"[" * 9_000, b'{"a":' * 1_700, b'{"iss":' + b"9" * 5_000 + b"}"]
    tokens += [world.sign(part) for part in raw]
    tokens += [world.sign(case) for _, case in hostile_bytes.suite()[::8] if len(case) < 9_000]
    # A role that the config does not have may nothing, and is somebody all the same.
    for token in tokens:
        if show(world, line, token) == 200:
            said = token.split(".")[1]
            said = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
            if not is_somebody(said):
                raise Broken(f"taken: {said}")
    refused(world, line, [])
    doubled = json.dumps(good)[:-1] + ',"role":"nobody","exp":1}'
    refused(world, line, [world.sign(doubled)])


def is_somebody(claims):
    """Whether claims are of this issuer, for us, in their time, and name somebody and a role."""
    audience = claims.get("aud")
    names = audience if isinstance(audience, list) else [audience]
    roles = claims.get("role")
    roles = roles if isinstance(roles, list) else [roles]
    exp, who = claims.get("exp"), claims.get("who")
    is_time = isinstance(exp, (int, float)) and not isinstance(exp, bool) and exp > time.time() - 60
    is_role = any(isinstance(role, str) and role for role in roles)
    name = who.get("name") if isinstance(who, dict) else None
    return claims.get("iss") == ISSUER and "ostler" in names and is_time and is_role and isinstance(name, str) and name != ""


def damaged_keys(world, count, rng):
    """the keys of an issuer: damaged sets in place of the good one, which stays if they are none, and a good one at last"""
    line, good = Line(world), world.sign(good_claims())
    unknown = world.sign(good_claims(), good_header() | {"kid": "two"})
    expect(world, line, good, [200])
    whole = json.dumps({"keys": [world.jwk]}).encode()
    # No sets at all: too long, cut off, of another kind. The daemon says of each that the keys from before stay.
    for nothing in (whole * 20_000, whole[:-9], b"[]", b"\xff"):
        change_keys(world, nothing)
        expect(world, line, good, [200])
    if "the keys from before stay" not in world.said:
        raise Broken("the daemon did not say that it has seen keys that are none")
    for _ in range(max(3, min(count // 2_000, 60))):
        change_keys(world, hostile_bytes.mutated(whole, rng))
        show(world, line, good)
        expect(world, line, unknown, [401])
    world.keys.write_bytes(whole)
    until = time.monotonic() + QUICK
    while show(world, line, good) != 200:
        if time.monotonic() > until:
            raise Broken("the good keys were not taken again")
        time.sleep(0.1)


def change_keys(world, raw):
    """Puts other keys in place, and waits until the daemon, which looks at the file once a second, has seen them."""
    world.keys.write_bytes(raw)
    time.sleep(1.1)


ALL = [damaged_tokens, made_up, wrong_claims, damaged_keys]
