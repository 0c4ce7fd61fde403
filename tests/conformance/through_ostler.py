#!/usr/bin/env python3
"""Plays the client half of the suite through Ostler.

usage: through_ostler.py modern|legacy URL

The suite starts a server for a scenario and runs this program with its url.
It puts `ostler serve` in front of that server and does what the scenario
wants as a client of the given era, so that the client the suite judges is
Ostler.
"""

import json
import os
import sys
import tempfile

import daemon
from mcp_http import LegacyClient, ModernClient, Refused

CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


def answer(method, params):
    """What the user says: every form is accepted, with its defaults."""
    if method == "elicitation/create":
        properties = params.get("requestedSchema", {}).get("properties", {})
        return {"action": "accept", "content": {key: value_for(schema) for key, schema in properties.items()}}
    if method == "sampling/createMessage":
        content = {"type": "text", "text": "Hay."}
        return {"role": "assistant", "content": content, "model": "none", "stopReason": "endTurn"}
    if method == "roots/list":
        return {"roots": [{"uri": "file:///stable", "name": "stable"}]}
    raise Refused(f"{method} can't be answered")


def value_for(schema):
    if "default" in schema:
        return schema["default"]
    kinds = {"string": "hay", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    return kinds.get(schema.get("type"))


def call_all(client):
    """Calls every tool that is listed."""
    for tool in client.tools():
        properties = tool["inputSchema"].get("properties", {})
        required = tool["inputSchema"].get("required", [])
        client.call(tool, {key: value_for(properties.get(key, {})) for key in required})


def call_as_told(client):
    tools = {tool["name"]: tool for tool in client.tools()}
    for call in CONTEXT["toolCalls"]:
        client.call(tools[call["name"]], call["arguments"])


def echo_schema(client):
    tools = {tool["name"]: tool for tool in client.tools()}
    client.call(tools["json_schema_echo"], {"schema": tools["json_schema_2020_12_tool"]["inputSchema"]})


def use_everything(client):
    call_all(client)
    for resource in client.request("resources/list", {})["resources"]:
        client.request("resources/read", {"uri": resource["uri"]})
    for prompt in client.request("prompts/list", {})["prompts"]:
        client.request("prompts/get", {"name": prompt["name"]})


SCENARIOS = {
    "initialize": lambda client: client.tools(),
    "tools_call": call_all,
    "elicitation-sep1034-client-defaults": call_all,
    "sse-retry": call_all,
    "request-metadata": lambda client: client.tools(),
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_all,
    "json-schema-ref-no-deref": lambda client: client.tools(),
    "json-schema-2020-12-preservation": echo_schema,
    "sep-2322-client-request-state": call_all,
}


def main():
    era, url = sys.argv[1:]
    play = SCENARIOS[os.environ["MCP_CONFORMANCE_SCENARIO"]]
    make = {"modern": ModernClient, "legacy": LegacyClient}[era]
    with tempfile.TemporaryDirectory() as folder, daemon.ostler(folder, {"judged": {"url": url}}) as ostler:
        try:
            client = make(f"http://{ostler.address}/servers/judged/mcp", answer)
            play(client)
            client.close()
        except (Refused, OSError, KeyError) as problem:
            sys.stderr.write(f"{type(problem).__name__}: {problem}\n{ostler.log.read_text(errors='replace')}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
