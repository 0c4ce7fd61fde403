"""One daemon for every client: published clients start `ostler stdio` beside a
running `ostler serve`, with the environments that they give to programs.

What counts is on the machine: the processes of the daemon and of each server,
and how many calls a budget lets through that all clients use at once.
"""

import contextlib
import json
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import claude_code
import daemon
import install
import mcp_http
import mcp_pipe

HERE = Path(__file__).resolve().parent
# Each client calls this often; one that is started per call, once.
CALLS = 4
# So many calls of all clients are over the budget.
TOO_MANY = 7
# A client needs a second or two; these share a machine with four more.
TIMEOUT = 110
# Of the server that every client calls. It answers its process id.
TOOL = "fake__pid"
# A tool of each server, and how its process is known.
SERVERS = {
    TOOL: "fake-mcp", "time__get_current_time": "mcp-server-time", "everything__echo": "mcp-server-everything",
    "memory__read_graph": "mcp-server-memory",
}


class Machine(daemon.Home):
    """A home with a config for its user."""

    def __init__(self, folder, budget):
        super().__init__(folder)
        self.project = self.path / "project"
        self.project.mkdir()
        self.runtime = self.path / "run"
        self.runtime.mkdir(mode=0o700)
        self.starts = self.path / "starts"
        config = self.path / ".config" / "ostler" / "ostler.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f"""
[servers.fake]
command = "{daemon.TARGET}/debug/fake-mcp"
args = ["--starts", "{self.starts}"]
[servers.time]
command = "{install.VENV}/mcp-server-time"
args = ["--local-timezone", "UTC"]
[servers.everything]
command = "{install.BIN}/mcp-server-everything"
[servers.memory]
command = "{install.BIN}/mcp-server-memory"
env = {{ MEMORY_FILE_PATH = "{self.path}/memory.jsonl" }}
[roles.local]
allow = ["*"]
budget = {{ calls = {budget}, per = "1h" }}
""")

    def env(self, **more):
        """The two variables that nothing works without, and these."""
        path = f"{daemon.OSTLER.parent}:{install.BIN}:/usr/local/bin:/usr/bin:/bin"
        return {"HOME": str(self.path), "PATH": path, **more}

    def whole_env(self):
        """What a person's terminal has."""
        runtime = {"XDG_RUNTIME_DIR": str(self.runtime), "XDG_CONFIG_HOME": str(self.path / ".config")}
        return self.env(**runtime, USER="ann", LOGNAME="ann", SHELL="/bin/sh", TERM="dumb", LANG="C.UTF-8")

    def copies(self, program):
        return sum(any(Path(word).name == program for word in line[:2]) for line in self.processes().values())

    def run(self, *arguments):
        """What a command prints with HOME and PATH alone, and its exit code."""
        done = subprocess.run(
            [daemon.OSTLER, *arguments], env=self.env(), cwd=self.project, timeout=TIMEOUT, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        return f"{done.stdout}\nexit {done.returncode}"

    def serve(self, env):
        return daemon.Program([daemon.OSTLER, "serve", "--listen", "127.0.0.1:0"], self.path / "serve", env, self.project)


def clients():
    """Functions of an environment and a directory: the tools they list and what their calls are answered."""
    # Node looks for packages beside the program that wants them.
    script = Path(shutil.copy(HERE / "stdio_typescript.mjs", install.HOME))
    found = {
        "Python SDK 1": sdk([install.STRICT_1 / "python", HERE / "stdio_python.py", "1"]),
        "TypeScript SDK 1": sdk([install.BIN / "node", script, "1"]),
    }
    for era in ("legacy", "modern"):
        found[f"Python SDK 2, {era}"] = sdk([install.VENV / "python", HERE / "stdio_python.py", f"2-{era}"])
        found[f"TypeScript SDK 2, {era}"] = sdk([install.BIN / "node", script, f"2-{era}"])
        found[f"Inspector, {era}"] = inspector(era)
    found["a client with HOME and PATH alone"] = bare
    if claude_code.is_installed():
        found["Claude Code"] = claude
    return found


def attempts(name):
    return 1 if name.startswith("Inspector") else CALLS


def sdk(command):
    def use(env, cwd):
        arguments = [*command, TOOL, CALLS, "ostler", "stdio"]
        done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, env=env, cwd=cwd, timeout=TIMEOUT)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-800:])
        return json.loads(done.stdout.splitlines()[-1])
    return use


def inspector(era):
    def ask(env, cwd, *arguments):
        command = [install.BIN / "mcp-inspector", "--cli", "ostler", "stdio", "--protocol-era", era, "--format", "json", *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env, cwd=cwd, timeout=TIMEOUT)
        return json.loads((done.stdout.strip() or done.stderr.strip()).splitlines()[-1])

    def use(env, cwd):
        answer = ask(env, cwd, "--method", "tools/call", "--tool-name", TOOL)
        tools = ask(env, cwd, "--method", "tools/list")["result"]["tools"]
        said = answer["result"]["content"][0]["text"] if "result" in answer else json.dumps(answer)
        return {"tools": [tool["name"] for tool in tools], "answers": [said]}
    return use


def bare(env, cwd):
    with started_pipe(env, cwd) as client:
        return use_pipe(client)


@contextlib.contextmanager
def started_pipe(env, cwd):
    env = {name: env[name] for name in ("HOME", "PATH")}
    client = mcp_pipe.LegacyPipe([daemon.OSTLER, "stdio"], None, env=env, cwd=cwd, stderr=subprocess.DEVNULL)
    try:
        yield client
    finally:
        client.close()


def use_pipe(client):
    answers = []
    for _ in range(CALLS):
        try:
            answers.append(client.request("tools/call", {"name": TOOL, "arguments": {}})["content"][0]["text"])
        except mcp_http.Refused as refused:
            answers.append(str(refused))
    return {"tools": [tool["name"] for tool in client.tools()], "answers": answers}


def claude(env, cwd):
    claude_code.run("mcp", "add", "--scope", "user", "ostler", "ostler", "stdio", env=env, cwd=cwd)
    return claude_code.use("ostler", TOOL, CALLS, env, cwd)


def line(name, problem):
    return f"FAIL {name}: {problem}" if problem else f"ok {name}"


def judge_client(name, use, env, machine):
    """The check of one client, and its answers."""
    try:
        found = use(env, machine.project)
    except Exception as problem:  # whatever a client does, the others are judged
        return f"FAIL {name}: {type(problem).__name__}: {problem}", []
    missing = sorted(set(SERVERS) - set(found["tools"]))
    odd = [answer for answer in found["answers"] if not answer.isdigit() and "budget" not in answer]
    problem = f"lists no {missing}" if missing else f"is answered {odd}" if odd else ""
    if len(found["answers"]) != attempts(name):
        problem = f"has {len(found['answers'])} answers: {found['answers']}"
    return line(f"{name}: lists every server, and each call has its answer", problem), found["answers"]


def judge_machine(machine, answers, budget, starts):
    """The checks of what all clients have left on the machine."""
    passed = [answer for answer in answers if answer.isdigit()]
    if len(passed) != budget:
        yield f"FAIL {len(answers)} calls with a budget of {budget}: {len(passed)} pass"
    else:
        yield f"ok {len(answers)} calls with a budget of {budget}: exactly {budget} pass"
    daemons = machine.daemons()
    yield line("there is one daemon", "" if len(daemons) == 1 else f"{len(daemons)}: {machine.processes()}")
    for program in SERVERS.values():
        copies = machine.copies(program)
        yield line(f"{program} runs once", "" if copies == 1 else f"{copies} times: {machine.processes()}")
    found = machine.starts.read_text().split() if machine.starts.exists() else []
    is_right = len(found) == starts and set(passed) == set(found)
    yield line(f"the server that all have called: starts {starts}", "" if is_right else f"{found}, answers {set(passed)}")


def wait_for_servers(url):
    """A list does not wait for a server that starts slowly."""
    deadline = time.monotonic() + daemon.START_TIMEOUT
    while set(SERVERS) - {tool["name"] for tool in mcp_http.ModernClient(url, None).tools()}:
        if time.monotonic() > deadline:
            return
        time.sleep(0.2)


def round_of(title, folder, serve_env, client_env):
    """All clients at once beside one `ostler serve`."""
    budget = sum(map(attempts, clients())) - TOO_MANY
    machine = Machine(folder, budget)
    with machine.serve(serve_env(machine)) as served:
        wait_for_servers(f"http://{served.address}/mcp")
        lines, answers = use_all(client_env(machine), machine)
        lines += judge_machine(machine, answers, budget, starts=1)
        return titled(title, [*lines, *judge_end(machine, served)], served)


def after_stdio(title, folder):
    """`ostler serve` beside a client that has had a daemon started before, and goes on with it."""
    budget = sum(map(attempts, clients())) + CALLS - TOO_MANY
    machine = Machine(folder, budget)
    with started_pipe(machine.env(), machine.project) as client:
        before = use_pipe(client)["answers"]
        with asking(client) as asked, machine.serve(machine.whole_env()) as served:
            wait_for_servers(f"http://{served.address}/mcp")
            for tool in SERVERS:
                machine.run("start", tool.partition("__")[0])
            asked.stop()
            lines = [line("the client that came first is answered all the time", asked.problem)]
            is_served = machine.daemons() == [served.process.pid]
            lines.append(line("the daemon is the one that was served", "" if is_served else f"{machine.processes()}"))
            more, answers = use_all(machine.env(), machine)
            lines += [*more, *judge_machine(machine, before + answers, budget, starts=2)]
            client.close()
            return titled(title, [*lines, *judge_end(machine, served)], served)


class asking:
    """Requests of a client one after the other, until it is told to stop. Lists cost no budget."""

    def __init__(self, client):
        self.client = client
        self.stopped = threading.Event()
        self.problem = "nothing was asked"
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        while not self.stopped.is_set():
            try:
                self.client.tools()
                self.problem = ""
            except Exception as problem:  # the check tells it
                self.problem = f"{type(problem).__name__}: {problem}"
                return

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop()


def use_all(env, machine):
    """The checks of all clients, and all answers that they got."""
    with ThreadPoolExecutor(4) as pool:
        judged = list(pool.map(lambda item: judge_client(*item, env, machine), clients().items()))
    return [said for said, _ in judged], [answer for _, answers in judged for answer in answers]


def judge_end(machine, served):
    stopped = served.stop()
    left = machine.processes()
    machine.end_daemons()
    yield line("the daemon ends when it is told to, and nothing is left", "" if stopped and not left else f"{left}")


def titled(title, lines, served):
    lines = [said.replace(" ", f" {title}: ", 1) for said in lines]
    if any(said.startswith("FAIL") for said in lines):
        lines += [f"    {said}" for said in served.log.read_text(errors="replace").splitlines()[-40:]]
    return lines


def own_project(folder):
    """Ostler is all that the `.mcp.json` of an empty project names."""
    machine = Machine(folder, 1)
    shutil.rmtree(machine.path / ".config")
    found = claude_in_own_project(machine) if claude_code.is_installed() else {}
    found |= commands_in_own_project(machine)
    lines = []
    for name, (said, wanted) in found.items():
        missing = [word for word in wanted if word not in said]
        lines.append(line(name, missing and f"no {missing} in {' '.join(said.split())[:600]}"))
    running = [words[1:] for words in machine.processes().values()]
    is_one = sorted(words[0] for words in running) == ["demo", "serve"]
    lines.append(line("one daemon runs and its built-in server, and nothing else", "" if is_one else f"{running}"))
    machine.end_daemons()
    return [said.replace(" ", " Ostler alone in .mcp.json: ", 1) for said in lines]


def claude_in_own_project(machine):
    """What is said to the user and to the model, with the words that it must hold."""
    env, project = machine.env(), machine.project
    claude_code.approve_project_servers(machine.path)
    claude_code.run("mcp", "add", "--scope", "project", "x", "ostler", "stdio", env=env, cwd=project)
    listed = claude_code.run("mcp", "list", env=env, cwd=project)
    used = claude_code.use("x", "demo__time", 1, env, project)
    others = machine.path / "others"
    others.mkdir()
    (others / ".mcp.json").write_text(json.dumps({"mcpServers": {"time": {"command": "mcp-server-time"}}}))
    claude_code.run("mcp", "add", "y", "ostler", "stdio", env=env, cwd=others)
    return {
        "claude mcp add writes the project's file": (
            (project / ".mcp.json").read_text(), ['"x": {', '"command": "ostler"', '"stdio"']),
        "claude mcp list is connected": (listed, ["x: ostler stdio", "Connected"]),
        "claude mcp list says why a config that is not trusted is not used": (
            claude_code.run("mcp", "list", env=env, cwd=others), [".mcp.json is not trusted", "`ostler trust`", str(others)]),
        "the built-in server answers the model": (" ".join(used["answers"]), ["Z"]),
        "the model is told that there is no config, and what to do": (
            used["told"], ["Tell the user to write an ostler.toml", "ostler stdio --config FILE"]),
    }


def commands_in_own_project(machine):
    """The same by hand."""
    itself = {"mcpServers": {"x": {"type": "stdio", "command": "ostler", "args": ["stdio"], "env": {}}}}
    (machine.project / ".mcp.json").write_text(json.dumps(itself))

    wanted = ["./.mcp.json names nothing but Ostler itself", "hint: write an ostler.toml"]
    return {
        "ostler stdio says so": (machine.run("stdio"), [*wanted, "exit 0"]),
        "ostler check says so": (machine.run("check"), [*wanted, "exit 3"]),
    }


def rounds(folder):
    """Lines of every check."""
    folder = Path(folder)
    if not claude_code.is_installed():
        yield ["note: Claude Code could not be installed, so it is not among the clients"]
    yield own_project(folder / "own")
    yield round_of("served in a terminal", folder / "terminal", Machine.whole_env, Machine.env)
    yield round_of("served with HOME and PATH", folder / "bare", Machine.env, Machine.whole_env)
    yield after_stdio("served after a client has started a daemon", folder / "after")
