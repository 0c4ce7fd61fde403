//! The read loop and the table of methods.

use std::io::{self, BufRead as _, BufReader, Read};
use std::process::ExitCode;

use serde_json::value::RawValue;

use crate::asks::Asks;
use crate::delivery::Delivery;
use crate::era::{Era, Gate, MODERN, Verdict};
use crate::executions::Executions;
use crate::ledger::Journal;
use crate::library;
use crate::lists::{self, Changes};
use crate::message::{Message, Params};
use crate::news::News;
use crate::overrides;
use crate::perform::{self, Call};
use crate::reply::{self, Refusal, quote};
use crate::script::Script;
use crate::tasks::Tasks;

/// Read in big pieces, so that a burst of requests costs one system call.
const PIECE: usize = 256 << 10;
/// What the server is called unless the script says otherwise.
const NAME: &str = "fake-mcp";
const CAPABILITIES: &str =
    r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"prompts":{},"logging":{}}"#;

/// The server: owned by the read loop, so nothing in it is locked.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) script: Script,
    pub(crate) delivery: Delivery,
    pub(crate) asks: Asks,
    pub(crate) news: News,
    pub(crate) tasks: Tasks,
    pub(crate) ledger: Option<Journal>,
    pub(crate) executions: Executions,
    /// How many times `counter` has run.
    pub(crate) counter: u64,
    /// How many times `hint` has run.
    pub(crate) hints: u64,
    gate: Gate,
    requests: Option<Journal>,
    frames: Option<Journal>,
    changes: Changes,
    /// Requests read so far.
    received: u64,
}

/// Serves until stdin closes.
pub(crate) fn run(script: Script) -> ExitCode {
    match Server::new(script).and_then(|mut server| server.read(io::stdin().lock())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

impl Server {
    fn new(script: Script) -> io::Result<Self> {
        let executions = script.executions.as_deref().map(Journal::open).transpose()?;
        let name = script.name.as_deref().unwrap_or(NAME);
        Ok(Self {
            executions: Executions::new(executions, name),
            delivery: Delivery::new(&script),
            asks: Asks::default(),
            news: News::default(),
            tasks: Tasks::default(),
            ledger: script.ledger.as_deref().map(Journal::open).transpose()?,
            counter: 0,
            hints: 0,
            gate: Gate::new(&script),
            requests: script.requests.as_deref().map(Journal::open).transpose()?,
            frames: script.frames.as_deref().map(Journal::open).transpose()?,
            changes: Changes::new(script.listing.change_file.clone()),
            received: 0,
            script,
        })
    }

    fn read(&mut self, input: impl Read) -> io::Result<()> {
        let mut input = BufReader::with_capacity(PIECE, input);
        let mut line = Vec::new();
        while self.script.no_read_after.is_none_or(|limit| self.received < limit) {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                self.delivery.flush();
                if !self.script.ignores_stdin_close {
                    return Ok(());
                }
                break;
            }
            self.take(&line);
            // Answers are batched only while another whole request is already here.
            if !input.buffer().contains(&b'\n') {
                self.delivery.flush();
            }
        }
        self.delivery.flush();
        loop {
            std::thread::park();
        }
    }

    fn take(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let text = std::str::from_utf8(line).ok();
        if let (Some(frames), Some(text)) = (&self.frames, text) {
            frames.append(text);
        }
        let Some(message) = text.and_then(|text| serde_json::from_str::<Message<'_>>(text).ok()) else {
            return self
                .delivery
                .send(&reply::error("null", &Refusal::new(-32700, "not a JSON-RPC message")));
        };
        match (message.id, &message.method) {
            (Some(id), Some(method)) => self.request(id, &method.0, message.params),
            (None, Some(method)) => self.notification(&method.0, message.params),
            (Some(id), None) => perform::received(self, id.get(), text.unwrap_or_default()),
            (None, None) => {}
        }
    }

    fn request(&mut self, id: &RawValue, method: &str, raw: Option<&RawValue>) {
        self.received += 1;
        if self.script.is_raw_echo && method == "tools/call" {
            return self.echo_raw(id, raw);
        }
        let Ok(params) = Params::read(raw) else {
            let refusal = Refusal::bad_params("the parameters have the wrong shape");
            return self.delivery.send(&reply::error(id.get(), &refusal));
        };
        if let Some(requests) = &self.requests {
            requests.append(&format!("{method}\t{}", params.subject()));
        }
        match self.gate.admit(method, &params) {
            Verdict::Serve(era) if method == "tools/call" => {
                perform::call(self, &Call { id: id.get(), era, params: &params });
            }
            Verdict::Serve(Era::Modern) if method == "subscriptions/listen" => self.listen(id, &params),
            Verdict::Serve(era) => self.answer(id.get(), method, &params, era),
            Verdict::Refuse(refusal) => self.delivery.send(&reply::error(id.get(), &refusal)),
            Verdict::Ignore => {}
        }
    }

    /// Every method but `tools/call`.
    fn answer(&mut self, id: &str, method: &str, params: &Params<'_>, era: Era) {
        let overridden = overrides::answer(&self.script, method, params, era);
        let members = match method {
            _ if overridden.is_some() => Ok(overridden.unwrap_or_default()),
            "initialize" => Ok(self.initialize(params)),
            "server/discover" => Ok(self.discover()),
            "ping" => Ok(String::new()),
            "tools/list" => self.list_tools(params, era),
            "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => {
                self.news.take(method, params)
            }
            _ => {
                let tasks =
                    self.script.listing.has_tasks.then(|| self.tasks.answer(method, params)).flatten();
                tasks
                    .or_else(|| library::answer(&self.script, method, params, era))
                    .unwrap_or_else(|| Err(Refusal::unknown_method(method)))
            }
        };
        let line = match members {
            Ok(members) => reply::members(id, era, &members),
            Err(refusal) => reply::error(id, &refusal),
        };
        match self.script.listing.slow {
            Some(delay) if method == "tools/list" => self.delivery.after(delay, id, line),
            _ => self.delivery.send(&line),
        }
    }

    /// A request that is not answered but acknowledged, and stays open.
    fn listen(&mut self, id: &RawValue, params: &Params<'_>) {
        if !self.script.listens {
            let refusal = Refusal::unknown_method("subscriptions/listen");
            return self.delivery.send(&reply::error(id.get(), &refusal));
        }
        self.delivery.send(&self.news.listen(id.get(), params));
    }

    fn initialize(&mut self, params: &Params<'_>) -> String {
        let version = self.gate.negotiate(params);
        let (identity, instructions) = (self.identity(), overrides::instructions(&self.script));
        format!(
            r#""protocolVersion":"{version}","capabilities":{CAPABILITIES},"serverInfo":{identity}{instructions}"#
        )
    }

    fn discover(&self) -> String {
        let (version, identity) = (self.gate.offers(), self.identity());
        let instructions = overrides::instructions(&self.script);
        format!(
            r#""supportedVersions":["{version}"],"capabilities":{CAPABILITIES},"_meta":{{"io.modelcontextprotocol/serverInfo":{identity}}},"ttlMs":0,"cacheScope":"private"{instructions}"#
        )
    }

    fn identity(&self) -> String {
        let name = quote(self.script.name.as_deref().unwrap_or(NAME));
        format!(r#"{{"name":{name},"version":"{}"}}"#, env!("CARGO_PKG_VERSION"))
    }

    fn list_tools(&mut self, params: &Params<'_>, era: Era) -> Result<String, Refusal> {
        if self.script.listing.fails {
            return Err(Refusal::internal("the list fails on purpose"));
        }
        self.notice_change();
        let cursor = params.cursor.as_ref().map(|cursor| &*cursor.0);
        lists::page(&self.script.listing, &self.changes.suffix(), cursor, era)
    }

    /// Tells the client when the file of `--change-tools` differs from what was last seen.
    pub(crate) fn notice_change(&mut self) {
        if self.changes.look() {
            self.send_list_changed();
        }
    }

    pub(crate) fn send_list_changed(&self) {
        self.delivery.send(&reply::notification("notifications/tools/list_changed", &self.news.tag("")));
    }

    fn notification(&mut self, method: &str, raw: Option<&RawValue>) {
        match method {
            "notifications/initialized" => self.gate.on_initialized(),
            "notifications/cancelled" => {
                let Ok(Params { request_id: Some(id), .. }) = Params::read(raw) else { return };
                self.delivery.cancel(id.get());
                self.asks.cancel(id.get());
                self.news.end(id.get());
            }
            _ => {}
        }
    }

    fn echo_raw(&self, id: &RawValue, raw: Option<&RawValue>) {
        let params = Params::read(raw).unwrap_or_default();
        let is_modern =
            params.meta.as_ref().is_some_and(|meta| meta.version.as_ref().is_some_and(|v| v.0 == MODERN));
        let era = if is_modern { Era::Modern } else { Era::Legacy };
        self.delivery.outlet.fill(|out| reply::raw_echo(out, id, era, params.arguments()));
    }
}
