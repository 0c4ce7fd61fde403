"""Everything that one server says to one client: its lists, and its answers to
harmless calls. What is compared are these, as text, member by member.
"""

import json
import re

import mcp_http

# The list of a kind, its method, and what tells its items apart.
KINDS = {
    "tools": ("tools/list", "name"),
    "prompts": ("prompts/list", "name"),
    "resources": ("resources/list", "uri"),
    "resourceTemplates": ("resources/templates/list", "uriTemplate"),
}
# Members that a modern client gets beside the answers of an older server.
FROM_OLDER = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
# What modern servers say of themselves in `_meta`, which passes to older clients too.
SERVER_INFO = mcp_http.META + "serverInfo"
# As Ostler declares them, since some servers list tools by what their client can do.
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
# Resources that are read, and prompts that are got, of those that need no arguments.
SAMPLES = 2


def decline(method, _params):
    """What the user says to servers that ask something."""
    answers = {
        "roots/list": {"roots": []},
        "elicitation/create": {"action": "decline"},
    }
    if method not in answers:
        raise mcp_http.Refused(f"{method} can't be answered")
    return answers[method]


def ask(client, method, params, tool=None):
    """A result, or an error as an object."""
    try:
        return client.request(method, params, tool)
    except mcp_http.Refused as refused:
        if refused.error is None:
            raise
        return {"error": refused.error}


def lists_of(client):
    """`{kind: items}`, of all pages."""
    lists = {}
    for kind, (method, _) in KINDS.items():
        items, params = [], {}
        while True:
            page = ask(client, method, params)
            if "error" in page:
                break
            items += page[kind]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        lists[kind] = items
    return lists


def samples_of(lists):
    """What is read of the resources and got of the prompts: `(method, params)`."""
    for resource in lists["resources"][:SAMPLES]:
        yield "resources/read", {"uri": resource["uri"]}
    plain = [prompt for prompt in lists["prompts"] if not any(a.get("required") for a in prompt.get("arguments") or [])]
    for prompt in plain[:SAMPLES]:
        yield "prompts/get", {"name": prompt["name"]}


def answers_of(client, calls, lists, prefix=""):
    """`{what: answer}` to calls of a server whose tools and prompts have a prefix here."""
    tools = {tool["name"]: tool for tool in lists["tools"]}
    answers = {}
    for name, arguments in calls:
        params = {"name": prefix + name, "arguments": arguments}
        answers[f"call {name} {json.dumps(arguments)}"] = ask(client, "tools/call", params, tools.get(name))
    for method, params in samples_of(lists):
        asked = {**params, "name": prefix + params["name"]} if "name" in params else params
        answers[f"{method} {json.dumps(params)}"] = ask(client, method, asked)
    return answers


def of_server(lists, prefix, others):
    """What of the lists of all servers belongs to one, under its own names. `others` are all URIs of its."""
    mine = {}
    for kind, (_, key) in KINDS.items():
        if key == "name":
            named = [item for item in lists[kind] if item["name"].startswith(prefix)]
            mine[kind] = [{**item, "name": item["name"].removeprefix(prefix)} for item in named]
        else:
            mine[kind] = [item for item in lists[kind] if item[key] in others[kind]]
    return mine


def as_text(value, server):
    """One text for equal values; 1 and 1.0 are not equal."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    for pattern in server.volatile:
        text = re.sub(pattern, "…", text)
    return text


def without_era(got, wanted, is_newer):
    """An answer without the members that only its way through the eras has added."""
    got = dict(got)
    if is_newer:
        got = {key: value for key, value in got.items() if key in wanted or FROM_OLDER.get(key, ...) != value}
    if SERVER_INFO in got.get("_meta", {}) and "_meta" not in wanted:
        got["_meta"] = {key: value for key, value in got["_meta"].items() if key != SERVER_INFO}
        if not got["_meta"]:
            del got["_meta"]
    return got


def differences(wanted, got, server, is_newer):
    """What one client got and another did not, in lists and answers. `is_newer`: it is a modern client of an older
    server, so the members of its era come in addition."""
    for kind, (_, key) in KINDS.items():
        before = {item[key]: as_text(item, server) for item in wanted["lists"][kind]}
        after = {item[key]: as_text(item, server) for item in got["lists"][kind]}
        if list(before) != list(after):
            missing, added = [n for n in before if n not in after], [n for n in after if n not in before]
            yield f"{kind}: missing {missing}, added {added}" if missing or added else f"{kind}: in another order"
        for name in before:
            if name in after and before[name] != after[name]:
                yield f"{kind} {name}:\n  {before[name]}\n  {after[name]}"
    for what, answer in wanted["answers"].items():
        other = without_era(got["answers"].get(what) or {}, answer, is_newer)
        before, after = as_text(answer, server), as_text(other, server)
        if before != after:
            yield f"{what}:\n  {before}\n  {after}"
    if "instructions" in got and wanted["instructions"] != got["instructions"]:
        yield f"instructions:\n  {wanted['instructions']}\n  {got['instructions']}"
