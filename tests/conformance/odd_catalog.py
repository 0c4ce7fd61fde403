"""A catalog of 1,300 tools, with odd ones among them, and of a few prompts, resources and templates.

Each odd definition is one that some published client library refuses, with all others of its list.
"""

COUNT = 1_300
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}

# What clients of `/mcp` get completed.
COMPLETED = {
    "no_schema": {},
    "null_schema": {"inputSchema": None},
    "php_schema": {"inputSchema": []},
    "empty_schema": {"inputSchema": {}},
    "no_type": {"inputSchema": {"properties": {"n": {"type": "integer"}}}},
    "two_types": {"inputSchema": {"type": ["object", "null"]}},
    "null_properties": {"inputSchema": {"type": "object", "properties": None, "required": None}},
    "php_properties": {"inputSchema": {"type": "object", "properties": []}},
    "odd_property": {"inputSchema": {"type": "object", "properties": {"a": None, "b": "string", "c": [1]}}},
    "flag_property": {"inputSchema": {"type": "object", "properties": {"a": True, "b": False}}},
    "odd_required": {"inputSchema": {"type": "object", "required": "n"}},
    "mixed_required": {"inputSchema": {"type": "object", "required": ["n", 5]}},
    "odd_dialect": {"inputSchema": {"type": "object", "$schema": 7}},
    "odd_description": {"inputSchema": SCHEMA, "description": 5},
    "null_title": {"inputSchema": SCHEMA, "title": None},
    "list_annotations": {"inputSchema": SCHEMA, "annotations": []},
    "odd_hint": {"inputSchema": SCHEMA, "annotations": {"readOnlyHint": "maybe", "title": 5}},
    "odd_icons": {"inputSchema": SCHEMA, "icons": "x"},
    "odd_icon": {"inputSchema": SCHEMA, "icons": [{"src": 5}, {"src": "a", "sizes": "1x1"}, {"src": "a", "theme": "red"}]},
    "odd_meta": {"inputSchema": SCHEMA, "_meta": []},
    "odd_execution": {"inputSchema": SCHEMA, "execution": {"taskSupport": "maybe"}},
    "null_output": {"inputSchema": SCHEMA, "outputSchema": None},
    "flag_output": {"inputSchema": SCHEMA, "outputSchema": True},
    "list_output": {"inputSchema": SCHEMA, "outputSchema": {"type": "array", "items": {}}},
    "typeless_output": {"inputSchema": SCHEMA, "outputSchema": {"anyOf": [{"type": "object"}]}},
    "odd_output": {"inputSchema": SCHEMA, "outputSchema": {"type": "object", "properties": "x"}},
}

# What can't be completed.
LEFT_OUT = {
    "text_schema": {"inputSchema": "object"},
    "list_schema": {"inputSchema": [1]},
    "string_type": {"inputSchema": {"type": "string"}},
    "odd_properties": {"inputSchema": {"type": "object", "properties": "n"}},
    "half_a_pair": {"inputSchema": SCHEMA, "description": "\ud800"},
    "deep": {"inputSchema": {"type": "object", "x": None}},
}

PROMPTS = [
    {"name": "plain", "arguments": [{"name": "a", "required": True}]},
    {"name": "null_arguments", "arguments": None},
    {"name": "odd_argument", "arguments": [{"name": "a", "required": "yes"}, {"title": "nameless"}]},
    {"name": "odd_text", "description": {}, "title": 5},
]
RESOURCES = [
    {"uri": "odd://plain", "name": "plain"},
    {"uri": "odd://nameless"},
    {"uri": "odd://size", "name": "size", "size": "5", "mimeType": None},
    {"uri": "odd://half", "name": "half", "size": 1.5},
    {"uri": "odd://annotated", "name": "x", "annotations": {"audience": ["cat"], "priority": 7, "lastModified": "today"}},
]
TEMPLATES = [
    {"uriTemplate": "odd://{plain}", "name": "plain"},
    {"uriTemplate": "odd://{nameless}/x", "annotations": 5},
]


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"not": value}
    return value


def catalog():
    """The lists as the server gives them, and the names of the tools that are listed at `/mcp`."""
    left_out = {**LEFT_OUT, "deep": {"inputSchema": {"type": "object", "x": nested(400)}}}
    odd = [{"name": name, **members} for name, members in {**COMPLETED, **left_out}.items()]
    about = "Looks up a record by its number and tells what is known of it. " * 10
    good = [
        {"name": f"tool_{n:04}", "description": about, "inputSchema": SCHEMA}
        for n in range(COUNT - len(odd))
    ]
    tools = list(good)
    # All over the list, the last place included.
    for at, tool in enumerate(odd):
        tools.insert((at + 1) * len(good) // len(odd) + at, tool)
    assert len(tools) == COUNT
    lists = {"tools": tools, "prompts": PROMPTS, "resources": RESOURCES, "resourceTemplates": TEMPLATES}
    return lists, [tool["name"] for tool in tools if tool["name"] not in left_out]
