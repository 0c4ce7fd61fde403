"""The Python SDK's client, in front of six servers behind one `/mcp`.

usage: client_python.py legacy|modern|sse URL   with the checks' facts in $FACTS

Prints `ok NAME` or `FAIL NAME: why` for each check.
"""

import asyncio
import json
import os
import sys

import mcp_types as types
from mcp import Client
from mcp.client.sse import sse_client
from mcp.shared.exceptions import MCPError

FACTS = json.loads(os.environ["FACTS"])
# Only a gateway that hangs makes anybody wait this long.
PATIENCE = 20
CHECKS = []
questions = []


def check(function):
    CHECKS.append(function)
    return function


async def elicit(_context, params):
    questions.append(params.message)
    return types.ElicitResult(action="accept", content={"name": "Ann", "check": True})


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


def same(found, wanted):
    assert found == wanted, f"{found!r} instead of {wanted!r}"


def holds(whole, part):
    assert part in whole, f"no {part!r} in {whole!r}"


async def refused(awaitable):
    try:
        found = await awaitable
    except MCPError as error:
        return error
    raise AssertionError(f"{found!r} instead of an error")


@check
async def speaks_its_era(client):
    same(client.protocol_version, FACTS["versions"][ERA])


@check
async def lists_the_tools_of_every_server(client):
    names = {tool.name for tool in (await client.list_tools()).tools}
    same(sorted(set(FACTS["tools"]) - names), [])


@check
async def lists_prompts_and_resources(client):
    holds([prompt.name for prompt in (await client.list_prompts()).prompts], "everything__args-prompt")
    holds([str(resource.uri) for resource in (await client.list_resources()).resources], FACTS["resource"])
    templates = (await client.list_resource_templates()).resource_templates
    holds([template.uri_template for template in templates], FACTS["template"])


@check
async def calls_a_tool_of_every_server(client):
    async def call(name, **arguments):
        return text(await client.call_tool(name, arguments))
    holds(await call("time__get_current_time", timezone="Asia/Tokyo"), "Asia/Tokyo")
    holds(await call("git__git_status", repo_path=FACTS["repo"]), "untracked.txt")
    holds(await call("fetch__fetch", url=FACTS["page"]), "oats and hay")
    same(await call("everything__echo", message="häns & gret\"l\n🐎"), "Echo: häns & gret\"l\n🐎")
    path = f"{FACTS['files']}/python-{ERA}.txt"
    await call("files__write_file", path=path, content="hay")
    same(await call("files__read_text_file", path=path), "hay")
    holds(await call("memory__read_graph"), "entities")


@check
async def gets_structured_content(client):
    result = await client.call_tool("everything__get-structured-content", {"location": "New York"})
    same(sorted(result.structured_content), ["conditions", "humidity", "temperature"])


@check
async def gets_pictures(client):
    result = await client.call_tool("everything__get-tiny-image", {})
    holds([block.type for block in result.content], "image")


@check
async def sees_that_a_tool_failed(client):
    result = await client.call_tool("files__read_text_file", {"path": "/etc/hostname"})
    assert result.is_error, result
    holds(text(result), "denied")


@check
async def hears_that_a_tool_does_not_exist(client):
    same((await refused(client.call_tool("everything__nothing", {}))).code, -32602)


@check
async def reads_a_resource(client):
    contents = (await client.read_resource(FACTS["resource"])).contents
    same(str(contents[0].uri), FACTS["resource"])
    assert len(contents[0].text) > 100, contents


@check
async def reads_a_resource_by_template(client):
    contents = (await client.read_resource("demo://resource/dynamic/text/7")).contents
    holds(contents[0].text, "Resource 7")


@check
async def gets_a_prompt(client):
    result = await client.get_prompt("everything__args-prompt", {"city": "Berne"})
    holds(result.messages[0].content.text, "Berne")


@check
async def gets_completions(client):
    ref = types.PromptReference(type="ref/prompt", name="everything__completable-prompt")
    result = await client.complete(ref, {"name": "department", "value": "S"})
    same(sorted(result.completion.values), ["Sales", "Support"])


@check
async def answers_a_question(client):
    questions.clear()
    result = await client.call_tool("everything__trigger-elicitation-request", {})
    same(len(questions), 1)
    holds(text(result), "Ann")


@check
async def hears_of_progress(client):
    heard = []

    async def on_progress(progress, total, _message):
        heard.append((progress, total))
    arguments = {"duration": 0.4, "steps": 4}
    result = await client.call_tool("everything__trigger-long-running-operation", arguments, progress_callback=on_progress)
    holds(text(result), "completed")
    same(heard, sorted(heard))
    # The last report and the answer race in the server itself.
    assert len(heard) >= 3, heard


@check
async def cancels_a_call_and_goes_on(client):
    begun = asyncio.Event()

    async def on_progress(*_):
        begun.set()
    arguments = {"duration": 60, "steps": 600}
    call = asyncio.create_task(client.call_tool(
        "everything__trigger-long-running-operation", arguments, progress_callback=on_progress))
    await begun.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert call.cancelled(), call
    same(text(await client.call_tool("everything__echo", {"message": "on"})), "Echo: on")


async def main(url):
    mode = {"legacy": "legacy", "modern": "auto", "sse": "legacy"}[ERA]
    failed = 0
    async with Client(sse_client(url) if ERA == "sse" else url, mode=mode, elicitation_callback=elicit) as client:
        for function in CHECKS:
            name = f"python, {ERA}: {function.__name__.replace('_', ' ')}"
            try:
                await asyncio.wait_for(function(client), PATIENCE)
                print(f"ok {name}", flush=True)
            except Exception as problem:  # every check is judged, whatever the one before did
                failed += 1
                print(f"FAIL {name}: {type(problem).__name__}: {problem}", flush=True)
    return failed


ERA = sys.argv[1]
sys.exit(1 if asyncio.run(main(sys.argv[2])) else 0)
