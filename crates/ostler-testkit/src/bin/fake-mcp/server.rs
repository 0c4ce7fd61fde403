//! Read loop and table of methods.

use std::io::{self, BufRead as _, BufReader, Read};
use std::process::ExitCode;

use serde_json::value::RawValue;

use crate::call_tool::{self, AdmittedCall, OpenServerRequests};
use crate::catalog_file;
use crate::client_subscriptions::ClientSubscriptions;
use crate::era::{EraNegotiator, MODERN, RequestDecision, RequestEra};
use crate::executions::{AppendFile, ExecutionLog};
use crate::message::{FakeMessage, FakeParams};
use crate::options::FakeOptions;
use crate::output::FakeOutput;
use crate::resources_and_prompts;
use crate::response::{self, ErrorReply, quote};
use crate::tasks::FakeTasks;
use crate::tool_list::{self, ChangeFile};

/// The read buffer's size: a burst of requests costs one system call.
const PIECE: usize = 256 << 10;
/// The server's default name.
const NAME: &str = "fake-mcp";
const CAPABILITIES: &str =
    r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"prompts":{},"logging":{}}"#;

/// The server: owned by the read loop, so nothing in it is locked.
#[derive(Debug)]
pub(crate) struct FakeServer {
    pub(crate) options: FakeOptions,
    pub(crate) output: FakeOutput,
    pub(crate) server_requests: OpenServerRequests,
    pub(crate) subscriptions: ClientSubscriptions,
    pub(crate) tasks: FakeTasks,
    pub(crate) ledger: Option<AppendFile>,
    pub(crate) executions: ExecutionLog,
    /// The number of runs of `counter`.
    pub(crate) counter: u64,
    /// The number of runs of `hint`.
    pub(crate) hints: u64,
    negotiator: EraNegotiator,
    requests: Option<AppendFile>,
    frames: Option<AppendFile>,
    change_file: ChangeFile,
    /// The number of requests read so far.
    received: u64,
}

/// Serves until stdin closes.
pub(crate) fn run(options: FakeOptions) -> ExitCode {
    match FakeServer::new(options).and_then(|mut server| server.read_loop(io::stdin().lock())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

impl FakeServer {
    fn new(options: FakeOptions) -> io::Result<Self> {
        let executions = options.executions.as_deref().map(AppendFile::open).transpose()?;
        let name = options.name.as_deref().unwrap_or(NAME);
        Ok(Self {
            executions: ExecutionLog::new(executions, name),
            output: FakeOutput::new(&options),
            server_requests: OpenServerRequests::default(),
            subscriptions: ClientSubscriptions::default(),
            tasks: FakeTasks::default(),
            ledger: options.ledger.as_deref().map(AppendFile::open).transpose()?,
            counter: 0,
            hints: 0,
            negotiator: EraNegotiator::new(&options),
            requests: options.requests.as_deref().map(AppendFile::open).transpose()?,
            frames: options.frames.as_deref().map(AppendFile::open).transpose()?,
            change_file: ChangeFile::new(options.listing.change_file.clone()),
            received: 0,
            options,
        })
    }

    fn read_loop(&mut self, input: impl Read) -> io::Result<()> {
        let mut input = BufReader::with_capacity(PIECE, input);
        let mut line = Vec::new();
        while self.options.no_read_after.is_none_or(|limit| self.received < limit) {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                self.output.flush();
                if !self.options.ignores_stdin_close {
                    return Ok(());
                }
                break;
            }
            self.handle_line(&line);
            // Answers are batched only while another whole request is already in the buffer.
            if !input.buffer().contains(&b'\n') {
                self.output.flush();
            }
        }
        self.output.flush();
        loop {
            std::thread::park();
        }
    }

    fn handle_line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let text = std::str::from_utf8(line).ok();
        if let (Some(frames), Some(text)) = (&self.frames, text) {
            frames.append(text);
        }
        let Some(message) = text.and_then(|text| serde_json::from_str::<FakeMessage<'_>>(text).ok()) else {
            return self
                .output
                .send(&response::error("null", &ErrorReply::new(-32700, "not a JSON-RPC message")));
        };
        match (message.id, &message.method) {
            (Some(id), Some(method)) => self.handle_request(id, &method.0, message.params),
            (None, Some(method)) => self.handle_notification(&method.0, message.params),
            (Some(id), None) => call_tool::on_client_response(self, id.get(), text.unwrap_or_default()),
            (None, None) => {}
        }
    }

    fn handle_request(&mut self, id: &RawValue, method: &str, raw: Option<&RawValue>) {
        self.received += 1;
        if self.options.is_raw_echo && method == "tools/call" {
            return self.echo_raw(id, raw);
        }
        let Ok(params) = FakeParams::read(raw) else {
            let refusal = ErrorReply::bad_params("the parameters have the wrong shape");
            return self.output.send(&response::error(id.get(), &refusal));
        };
        if let Some(requests) = &self.requests {
            requests.append(&format!("{method}\t{}", params.subject()));
        }
        match self.negotiator.admit(method, &params) {
            RequestDecision::Serve(era) if method == "tools/call" => {
                call_tool::execute(self, &AdmittedCall { id: id.get(), era, params: &params });
            }
            RequestDecision::Serve(RequestEra::Modern) if method == "subscriptions/listen" => {
                self.listen(id, &params)
            }
            RequestDecision::Serve(era) => self.handle_method(id.get(), method, &params, era),
            RequestDecision::Refuse(refusal) => self.output.send(&response::error(id.get(), &refusal)),
            RequestDecision::Ignore => {}
        }
    }

    /// Handles every method but `tools/call`.
    fn handle_method(&mut self, id: &str, method: &str, params: &FakeParams<'_>, era: RequestEra) {
        let overridden = catalog_file::answer(&self.options, method, params, era);
        let members = match method {
            _ if overridden.is_some() => Ok(overridden.unwrap_or_default()),
            "initialize" => Ok(self.initialize(params)),
            "server/discover" => Ok(self.discover()),
            "ping" => Ok(String::new()),
            "tools/list" => self.list_tools(params, era),
            "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => {
                self.subscriptions.update(method, params)
            }
            _ => {
                let tasks =
                    self.options.listing.has_tasks.then(|| self.tasks.answer(method, params)).flatten();
                tasks
                    .or_else(|| resources_and_prompts::answer(&self.options, method, params, era))
                    .unwrap_or_else(|| Err(ErrorReply::unknown_method(method)))
            }
        };
        let line = match members {
            Ok(members) => response::result_with_members(id, era, &members),
            Err(refusal) => response::error(id, &refusal),
        };
        match self.options.listing.slow {
            Some(delay) if method == "tools/list" => self.output.send_after(delay, id, line),
            _ => self.output.send(&line),
        }
    }

    /// Acknowledges a request to listen, which stays open.
    fn listen(&mut self, id: &RawValue, params: &FakeParams<'_>) {
        if !self.options.listens {
            let refusal = ErrorReply::unknown_method("subscriptions/listen");
            return self.output.send(&response::error(id.get(), &refusal));
        }
        self.output.send(&self.subscriptions.listen(id.get(), params));
    }

    fn initialize(&mut self, params: &FakeParams<'_>) -> String {
        let version = self.negotiator.negotiate(params);
        let (identity, instructions) = (self.server_info(), catalog_file::instructions(&self.options));
        format!(
            r#""protocolVersion":"{version}","capabilities":{CAPABILITIES},"serverInfo":{identity}{instructions}"#
        )
    }

    fn discover(&self) -> String {
        let (version, identity) = (self.negotiator.offered_version(), self.server_info());
        let instructions = catalog_file::instructions(&self.options);
        format!(
            r#""supportedVersions":["{version}"],"capabilities":{CAPABILITIES},"_meta":{{"io.modelcontextprotocol/serverInfo":{identity}}},"ttlMs":0,"cacheScope":"private"{instructions}"#
        )
    }

    fn server_info(&self) -> String {
        let name = quote(self.options.name.as_deref().unwrap_or(NAME));
        format!(r#"{{"name":{name},"version":"{}"}}"#, env!("CARGO_PKG_VERSION"))
    }

    fn list_tools(&mut self, params: &FakeParams<'_>, era: RequestEra) -> Result<String, ErrorReply> {
        if self.options.listing.fails {
            return Err(ErrorReply::internal("the list fails on purpose"));
        }
        self.notify_if_changed();
        let cursor = params.cursor.as_ref().map(|cursor| &*cursor.0);
        tool_list::page(&self.options.listing, &self.change_file.description_suffix(), cursor, era)
    }

    /// Notifies the client when the file of `--change-tools` has changed.
    pub(crate) fn notify_if_changed(&mut self) {
        if self.change_file.reload() {
            self.send_list_changed();
        }
    }

    pub(crate) fn send_list_changed(&self) {
        self.output.send(&response::notification(
            "notifications/tools/list_changed",
            &self.subscriptions.with_subscription_id(""),
        ));
    }

    fn handle_notification(&mut self, method: &str, raw: Option<&RawValue>) {
        match method {
            "notifications/initialized" => self.negotiator.on_initialized(),
            "notifications/cancelled" => {
                let Ok(FakeParams { request_id: Some(id), .. }) = FakeParams::read(raw) else { return };
                self.output.cancel(id.get());
                self.server_requests.cancel(id.get());
                self.subscriptions.stop_listening(id.get());
            }
            _ => {}
        }
    }

    fn echo_raw(&self, id: &RawValue, raw: Option<&RawValue>) {
        let params = FakeParams::read(raw).unwrap_or_default();
        let is_modern =
            params.meta.as_ref().is_some_and(|meta| meta.version.as_ref().is_some_and(|v| v.0 == MODERN));
        let era = if is_modern { RequestEra::Modern } else { RequestEra::Legacy };
        self.output.stdout.write_with(|out| response::raw_echo(out, id, era, params.arguments()));
    }
}
