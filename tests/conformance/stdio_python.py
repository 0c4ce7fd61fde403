"""A release of the Python SDK, in front of a program that it starts.

usage: stdio_python.py 1|2-legacy|2-modern TOOL CALLS COMMAND ARGUMENT…

The SDK passes HOME, PATH and four more variables to the program and no others.
Prints a JSON object: the names of the tools, and for each call the text of its
answer or of its error.
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def use(client, tool, calls):
    answers = []
    for _ in range(calls):
        try:
            answers.append((await client.call_tool(tool, {})).content[0].text)
        except Exception as error:  # the releases have different ones
            answers.append(str(error))
    return {"tools": [item.name for item in (await client.list_tools()).tools], "answers": answers}


async def main(release, tool, calls, command, *arguments):
    server = StdioServerParameters(command=command, args=list(arguments))
    if release == "1":
        async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as client:
            await client.initialize()
            return await use(client, tool, int(calls))
    from mcp import Client

    async with Client(server, mode="auto" if release == "2-modern" else "legacy") as client:
        return await use(client, tool, int(calls))


print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
