"""One client library of Python, in front of a list with odd definitions.

usage: strict_python.py LIBRARY URL [TOOL]

Prints a JSON object: the names that the library lists, by kind as far as it
lists that kind, and the text that TOOL answers, where one is named.
"""

import asyncio
import json
import sys


async def mcp_legacy(url, tool):
    return await mcp_client(url, tool, "legacy")


async def mcp_modern(url, tool):
    return await mcp_client(url, tool, "auto")


async def mcp_client(url, tool, mode):
    from mcp.client import Client

    async with Client(url, mode=mode) as client:
        found = {
            "tools": [item.name for item in (await client.list_tools()).tools],
            "prompts": [item.name for item in (await client.list_prompts()).prompts],
            "resources": [str(item.uri) for item in (await client.list_resources()).resources],
            "templates": [item.uri_template for item in (await client.list_resource_templates()).resource_templates],
        }
        if tool:
            found["said"] = (await client.call_tool(tool, {"n": 1})).content[0].text
        return found


async def mcp_1(url, tool):
    """The releases before 2, which most programs still use."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async with streamablehttp_client(url) as (reader, writer, _), ClientSession(reader, writer) as client:
        await client.initialize()
        found = {
            "tools": [item.name for item in (await client.list_tools()).tools],
            "prompts": [item.name for item in (await client.list_prompts()).prompts],
            "resources": [str(item.uri) for item in (await client.list_resources()).resources],
            "templates": [item.uriTemplate for item in (await client.list_resource_templates()).resourceTemplates],
        }
        if tool:
            found["said"] = (await client.call_tool(tool, {"n": 1})).content[0].text
        return found


async def fastmcp(url, tool):
    from fastmcp import Client

    async with Client(url) as client:
        found = {
            "tools": [item.name for item in await client.list_tools()],
            "prompts": [item.name for item in await client.list_prompts()],
            "resources": [str(item.uri) for item in await client.list_resources()],
        }
        if tool:
            found["said"] = (await client.call_tool(tool, {"n": 1})).content[0].text
        return found


async def pydantic_ai(url, tool):
    from pydantic_ai.mcp import MCPToolset

    async with MCPToolset(url) as server:
        found = {"tools": [item.name for item in await server.list_tools()]}
        if tool:
            found["said"] = json.dumps(await server.direct_call_tool(tool, {"n": 1}))
        return found


async def langchain(url, tool):
    from langchain_mcp_adapters.client import MultiServerMCPClient

    client = MultiServerMCPClient({"ostler": {"transport": "streamable_http", "url": url}})
    tools = {item.name: item for item in await client.get_tools()}
    found = {"tools": list(tools)}
    if tool:
        found["said"] = str(await tools[tool].ainvoke({"n": 1}))
    return found


async def openai_agents(url, tool):
    from agents.mcp import MCPServerStreamableHttp

    async with MCPServerStreamableHttp(params={"url": url}, client_session_timeout_seconds=30) as server:
        found = {"tools": [item.name for item in await server.list_tools()]}
        if tool:
            found["said"] = (await server.call_tool(tool, {"n": 1})).content[0].text
        return found


if __name__ == "__main__":
    LIBRARY, URL, *TOOL = sys.argv[1:]
    print(json.dumps(asyncio.run(globals()[LIBRARY](URL, TOOL[0] if TOOL else None))))
