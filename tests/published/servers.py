"""Published servers that start without an account, by exact version, and calls
of them that do no harm and need no network. The first eight are the small set.

`{world}` stands for the folder of a run. Calls give the same answer each time,
up to what `volatile` names. Servers without calls need a network for any.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Server:
    """One server; `beside` are packages that are installed with it."""

    name: str
    registry: str
    package: str
    version: str
    program: str
    args: tuple = ()
    env: dict = field(default_factory=dict)
    calls: tuple = ()
    volatile: tuple = ()
    beside: tuple = ()

    @property
    def pin(self):
        return f"{self.package}{'@' if self.registry == 'npm' else '=='}{self.version}"


def npm(name, package, version, program, **more):
    return Server(name, "npm", package, version, program, **more)


def pypi(name, package, version, program=None, **more):
    return Server(name, "pypi", package, version, program or package, **more)


# A port on which nothing listens.
NOWHERE = "http://127.0.0.1:9/"

TIME = pypi(
    "time", "mcp-server-time", "2026.10.19", args=("--local-timezone", "UTC"),
    calls=(
        ("convert_time", {"source_timezone": "Asia/Tokyo", "time": "12:30", "target_timezone": "Europe/Zurich"}),
        ("get_current_time", {"timezone": "Nowhere/Else"}),
    ),
)

CRASHING = pypi(
    "sqlite", "mcp-server-sqlite", "2025.4.25", args=("--db-path", "{world}/test.db"), beside=("mcp==2.3.0",))

SERVERS = (
    npm(
        "everything", "@modelcontextprotocol/server-everything", "2026.8.31", "mcp-server-everything",
        calls=(
            ("echo", {"message": "häns & gret\"l\u2028"}), ("get-sum", {"a": 40, "b": 2.5}),
            ("get-structured-content", {"location": "New York"}), ("get-tiny-image", {}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ("get-resource-links", {"count": 3}),
        ),
        # A dynamic resource says when it was made.
        volatile=(r"\d{1,2}:\d\d:\d\d( [AP]M)?",),
    ),
    npm(
        "files", "@modelcontextprotocol/server-filesystem", "2026.8.31", "mcp-server-filesystem", args=("{world}/files",),
        calls=(
            ("read_text_file", {"path": "{world}/files/note.txt"}), ("list_directory", {"path": "{world}/files"}),
            ("read_text_file", {"path": "/etc/hostname"}),
            ("write_file", {"path": "{world}/files/written.txt", "content": "oats"}),
        ),
    ),
    npm(
        "memory", "@modelcontextprotocol/server-memory", "2026.8.31", "mcp-server-memory",
        env={"MEMORY_FILE_PATH": "{world}/memory.jsonl"},
        calls=(("read_graph", {}), ("search_nodes", {"query": "oats"}), ("open_nodes", {"names": ["Nobody"]})),
    ),
    TIME,
    pypi(
        "git", "mcp-server-git", "2026.10.19",
        calls=(("git_status", {"repo_path": "{world}/repo"}), ("git_log", {"repo_path": "{world}/repo"})),
    ),
    pypi(
        "calculator", "mcp-server-calculator", "0.2.1",
        calls=(("calculate", {"expression": "40 + 2"}), ("calculate", {"expression": "1 / 0"})),
    ),
    npm(
        "hello", "mcp-hello-world", "1.1.2", "mcp-hello-world",
        calls=(("echo", {"message": "hay"}), ("add", {"a": 40, "b": 2}), ("debug", {})),
    ),
    npm(
        "thinking", "@modelcontextprotocol/server-sequential-thinking", "2026.8.31", "mcp-server-sequential-thinking",
        calls=(("sequentialthinking", {
            "thought": "hay or oats", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}),),
        volatile=(r'thoughtHistoryLength\\?": \d+',),
    ),
    pypi("fetch", "mcp-server-fetch", "2026.10.24", args=("--ignore-robots-txt",), calls=(("fetch", {"url": NOWHERE}),)),
    npm(
        "clock", "time-mcp", "1.0.6", "time-mcp",
        calls=(
            ("days_in_month", {"date": "2026-02-01"}), ("get_week_year", {"date": "2026-03-23"}),
            ("convert_time", {
                "sourceTimezone": "Asia/Shanghai", "targetTimezone": "Europe/London", "time": "2026-03-23 12:30:00"}),
        ),
    ),
    npm("context7", "@upstash/context7-mcp", "4.1.1", "context7-mcp"),
    npm("playwright", "@playwright/mcp", "0.0.83", "playwright-mcp", args=("--headless",)),
    npm("chart", "@antv/mcp-server-chart", "0.9.10", "mcp-server-chart"),
    npm(
        "repository", "@cyanheads/git-mcp-server", "2.15.3", "git-mcp-server",
        calls=(("git_status", {"path": "{world}/repo"}), ("git_log", {"path": "{world}/repo"})),
        volatile=(r"\d{4}-\d\d-\d\dT[\d:.]+Z", r"[A-Z0-9]{5}-[A-Z0-9]{5}", r'"timestamp\\?": ?\d+'),
    ),
    npm(
        "runner", "mcp-server-code-runner", "0.1.8", "mcp-server-code-runner",
        calls=(("run-code", {"code": "print(40 + 2)", "languageId": "python"}),),
    ),
    npm(
        "commands", "mcp-server-commands", "0.5.0", "mcp-server-commands",
        calls=(("run_command", {"command": "echo hay"}), ("run_command", {"command": "false"})),
    ),
    npm("npx-fetch", "@tokenizin/mcp-npx-fetch", "1.0.0", "mcp-npx-fetch", calls=(("fetch_txt", {"url": NOWHERE}),)),
    npm("searxng", "mcp-searxng", "1.16.0", "mcp-searxng"),
    npm("airbnb", "@openbnb/mcp-server-airbnb", "0.3.0", "mcp-server-airbnb"),
    npm("next", "next-devtools-mcp", "0.4.0", "next-devtools-mcp"),
    npm("web", "mcp-fetch-server", "1.1.2", "mcp-fetch-server", calls=(("fetch_txt", {"url": NOWHERE}),)),
    npm(
        "sheets", "@negokaz/excel-mcp-server", "0.12.0", "excel-mcp-server",
        calls=(("excel_describe_sheets", {"fileAbsolutePath": "{world}/files/missing.xlsx"}),),
    ),
    npm(
        "echarts", "mcp-echarts", "0.7.1", "mcp-echarts",
        calls=(("generate_echarts", {"echartsOption": '{"series": [{"type": "bar", "data": [1]}]}', "outputType": "option"}),),
    ),
    pypi("duckduckgo", "duckduckgo-mcp-server", "0.7.0"),
    pypi("wikipedia", "wikipedia-mcp", "2.0.1"),
    pypi(
        "arxiv", "arxiv-mcp-server", "0.8.2", args=("--storage-path", "{world}/papers"),
        calls=(("list_papers", {}), ("list_watches", {})),
    ),
    pypi(
        "pandoc", "mcp-pandoc", "0.11.1",
        calls=(("convert-contents", {"contents": "# hay", "input_format": "markdown", "output_format": "html"}),),
    ),
    pypi("aws-docs", "awslabs.aws-documentation-mcp-server", "1.2.3"),
    pypi(
        "aws-pricing", "awslabs.aws-pricing-mcp-server", "1.1.1",
        calls=(("get_bedrock_patterns", {}), ("analyze_terraform_project", {"project_path": "{world}/repo"})),
    ),
    pypi(
        "shell", "mcp-shell-server", "1.1.14",
        # It lists what it allows in the order of a hash table.
        env={"ALLOW_COMMANDS": "ls,cat,echo", "PYTHONHASHSEED": "0"},
        calls=(("shell_execute", {"command": ["cat", "{world}/files/note.txt"], "directory": "{world}"}),),
        volatile=(r'execution_time\\?": ?[\d.e-]+',),
    ),
    pypi("nixos", "mcp-nixos", "3.1.0"),
    pypi("code-index", "code-index-mcp", "2.17.1", calls=(("set_project_path", {"path": "{world}/repo"}),)),
    pypi(
        "word", "office-word-mcp-server", "1.1.11", "word_mcp_server",
        calls=(
            ("list_available_documents", {"directory": "{world}/files"}),
            ("get_document_info", {"filename": "{world}/files/missing.docx"}),
        ),
    ),
    pypi("finance", "mcp-yahoo-finance", "0.2.0"),
    pypi("excel", "excel-mcp-server", "2.2.2", args=("stdio",)),
)
