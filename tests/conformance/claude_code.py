"""Claude Code without an account: its commands, and its calls of tools that a
model asks for. The model is an HTTP server on loopback, which answers every
prompt with calls of one tool.

https://code.claude.com/docs describes the settings and variables used here.
"""

import contextlib
import http.server
import json
import subprocess
import sys
import threading

import install

VERSION = "2.1.326"
HOME = install.HOME.parent / "claude-code"
PROGRAM = HOME / "node_modules" / ".bin" / "claude"
# A program that is a quarter of a gigabyte takes its time on a cold disk.
TIMEOUT = 110
# Without these it looks for updates and reports how it is used; then, MCP
# servers are connected before the first request, with all their tools in it.
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
    "ENABLE_TOOL_SEARCH": "false", "MCP_CONNECTION_NONBLOCKING": "0",
}


def is_installed():
    """Installs the program; it exists for fewer machines than the judges do."""
    stamp = HOME / f"installed-{VERSION}"
    if stamp.exists():
        return True
    sys.stderr.write(f"installing Claude Code into {HOME}\n")
    try:
        package = f"@anthropic-ai/claude-code@{VERSION}"
        install.run("npm", "install", "--loglevel=error", "--no-audit", "--no-fund", "--prefix", HOME, package)
        subprocess.run([PROGRAM, "--version"], check=True, timeout=TIMEOUT, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as problem:
        sys.stderr.write(f"Claude Code can't be used here: {problem}\n")
        return False
    stamp.touch()
    return True


def env_of(env):
    """An environment in which it is quiet, and leaves its temporary files in the home."""
    return {**env, **QUIET, "CLAUDE_CODE_TMPDIR": env["HOME"], "TMPDIR": env["HOME"]}


def run(*arguments, env, cwd):
    """What a command prints."""
    done = subprocess.run(
        [PROGRAM, *arguments], env=env_of(env), cwd=cwd, stdin=subprocess.DEVNULL, timeout=TIMEOUT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    return done.stdout


def approve_project_servers(home):
    """What a person does who says yes when Claude Code asks about the servers of a project."""
    (home / ".claude").mkdir(exist_ok=True)
    (home / ".claude" / "settings.json").write_text(json.dumps({"enableAllProjectMcpServers": True}))


def use(server, tool, calls, env, cwd):
    """Lets the model call a server's tool this often, all at once: what the tools are, what the calls are answered,
    and all that the model was told."""
    tool = f"mcp__{server}__{tool}"
    with model_api(tool, calls) as api:
        options = ["--model", "sonnet", "--tools", "", "--allowedTools", tool]
        env = {**env, "ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "none"}
        said = run("-p", "go on", *options, env=env, cwd=cwd)
    if not api.requests:
        raise RuntimeError(f"Claude Code has not asked the model: {said}")
    tools = [tool["name"].removeprefix(f"mcp__{server}__") for tool in api.requests[0].get("tools", [])]
    results = [block for block in api.requests[-1]["messages"][-1]["content"] if block["type"] == "tool_result"]
    return {"tools": tools, "answers": [text_of(block) for block in results], "told": json.dumps(api.requests)}


def text_of(result):
    """The first text, which is the tool's; Claude Code adds reminders of its own."""
    content = result["content"]
    return (content if isinstance(content, str) else content[0]["text"]).strip()


class ModelApi(http.server.BaseHTTPRequestHandler):
    """Asks for calls until it is given their results."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        names = [tool["name"] for tool in body.get("tools", [])]
        last = body["messages"][-1]["content"]
        is_answered = any(block["type"] == "tool_result" for block in last if isinstance(block, dict))
        is_calling = self.server.tool in names and not is_answered
        blocks = self.server.calls if is_calling else [({"type": "text", "text": ""}, {"type": "text_delta", "text": "done"})]
        events = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in stream(body["model"], blocks))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(events)))
        self.end_headers()
        self.wfile.write(events.encode())

    def log_message(self, *_):
        """Says nothing."""


def stream(model, blocks):
    usage = {"input_tokens": 1, "output_tokens": 1}
    reason = "tool_use" if blocks[0][0]["type"] == "tool_use" else "end_turn"
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield {"type": "message_start", "message": message}
    for index, (block, delta) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    yield {"type": "message_stop"}


@contextlib.contextmanager
def model_api(tool, calls):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ModelApi) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        server.requests = []
        server.tool = tool
        no_arguments = {"type": "input_json_delta", "partial_json": "{}"}
        server.calls = [
            ({"type": "tool_use", "id": f"toolu_{call}", "name": tool, "input": {}}, no_arguments) for call in range(calls)
        ]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
