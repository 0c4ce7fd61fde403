"""A plain MCP client of both eras over Streamable HTTP.

It takes what it gets: no tool is dropped, no schema is read and no answer is
put right, so that whatever the gateway does shows.
"""

import base64
import http.client
import json
import re
from urllib.parse import urlsplit

MODERN_VERSION = "2026-07-28"
LEGACY_VERSION = "2025-11-25"
CLIENT = {"name": "plain-client", "version": "1"}
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {}}
META = "io.modelcontextprotocol/"
# Only a gateway that hangs makes anybody wait this long.
PATIENCE = 25
MOST_ROUNDS = 10


class Refused(Exception):
    """The other side answered with an error, or not at all: then there is no `error`."""

    def __init__(self, text, error=None):
        super().__init__(text)
        self.error = error


class Client:
    """What the two eras have in common. `answer` is asked `(method, params)`
    whenever the server wants something from its client."""

    # Seconds for anything to arrive.
    patience = PATIENCE
    capabilities = CAPABILITIES

    def __init__(self, url, answer):
        self.url = urlsplit(url)
        self.answer = answer
        self.last_id = 0

    def post(self, message, headers):
        """Yields every message of the answer; its headers are in `self.headers`."""
        connection = http.client.HTTPConnection(self.url.netloc, timeout=self.patience)
        try:
            accept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            connection.request("POST", self.url.path, json.dumps(message).encode(), {**accept, **headers})
            response = connection.getresponse()
            self.headers = response.headers
            if (response.headers["Content-Type"] or "").startswith("text/event-stream"):
                for line in response:
                    data = line.decode().rstrip("\r\n")
                    if data.startswith("data:") and data[5:].strip():
                        yield json.loads(data[5:])
                return
            body = response.read()
            if body:
                yield json.loads(body)
            elif response.status >= 300:
                raise Refused(f"HTTP {response.status}")
        finally:
            connection.close()

    def next_id(self):
        self.last_id += 1
        return self.last_id

    def tools(self):
        return self.request("tools/list", {})["tools"]

    def call(self, tool, arguments):
        return self.request("tools/call", {"name": tool["name"], "arguments": arguments}, tool)


class ModernClient(Client):
    """Every request stands alone; questions come as answers."""

    def request(self, method, params, tool=None):
        for _ in range(MOST_ROUNDS):
            result = self.once(method, params, tool)
            if result.get("resultType") != "input_required":
                return result
            asked = result.get("inputRequests", {})
            answers = {key: self.answer(ask["method"], ask.get("params", {})) for key, ask in asked.items()}
            params = {**params, "inputResponses": answers}
            params.pop("requestState", None)
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise Refused(f"{method}: still asking after {MOST_ROUNDS} rounds")

    def once(self, method, params, tool):
        meta = {
            META + "protocolVersion": MODERN_VERSION,
            META + "clientInfo": CLIENT,
            META + "clientCapabilities": self.capabilities,
        }
        headers = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": method, **mirrored(params, tool)}
        name = params.get("name", params.get("uri"))
        if name is not None:
            headers["Mcp-Name"] = as_header(name)
        message = {"jsonrpc": "2.0", "id": self.next_id(), "method": method, "params": {**params, "_meta": meta}}
        for answer in self.post(message, headers):
            if answer.get("id") == message["id"]:
                return result_of(method, answer)
        raise Refused(f"{method}: the stream ended without an answer")

    def close(self):
        """There is nothing to close."""


class LegacyClient(Client):
    """One session; questions come as requests of the server's."""

    def __init__(self, url, answer):
        super().__init__(url, answer)
        self.session = {}
        params = {"protocolVersion": LEGACY_VERSION, "capabilities": self.capabilities, "clientInfo": CLIENT}
        self.opened = self.request("initialize", params)
        self.session["MCP-Protocol-Version"] = self.opened["protocolVersion"]
        if self.headers["Mcp-Session-Id"]:
            self.session["Mcp-Session-Id"] = self.headers["Mcp-Session-Id"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method, params, tool=None):
        message = {"jsonrpc": "2.0", "id": self.next_id(), "method": method, "params": params}
        for answer in self.post(message, self.session):
            if "method" in answer and "id" in answer:
                result = self.answer(answer["method"], answer.get("params", {}))
                self.send({"jsonrpc": "2.0", "id": answer["id"], "result": result})
            elif answer.get("id") == message["id"]:
                return result_of(method, answer)
        raise Refused(f"{method}: the stream ended without an answer")

    def send(self, message):
        for _ in self.post(message, self.session):
            pass

    def close(self):
        connection = http.client.HTTPConnection(self.url.netloc, timeout=self.patience)
        connection.request("DELETE", self.url.path, headers=self.session)
        connection.getresponse().read()
        connection.close()


def result_of(method, answer):
    if "error" in answer:
        raise Refused(f"{method}: {answer['error']}", answer["error"])
    return answer["result"]


def mirrored(params, tool):
    """The headers that repeat a tool's arguments."""
    properties = (tool or {}).get("inputSchema", {}).get("properties", {})
    arguments = params.get("arguments", {})
    headers = {}
    for key, schema in properties.items():
        name, value = schema.get("x-mcp-header"), arguments.get(key)
        if name and re.fullmatch(r"[!-9;-~]+", name) and value is not None:
            headers["Mcp-Param-" + name] = as_header(value)
    return headers


def as_header(value):
    text = value if isinstance(value, str) else json.dumps(value)
    is_plain = re.fullmatch(r"[ -~]*", text) and text == text.strip()
    if is_plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
