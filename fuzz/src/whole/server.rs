//! A server in memory, which writes down what it carries out.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use ostler_core::config::Role;
use ostler_core::fault::Fault;
use ostler_core::status::Containment;
use ostler_core::supervisor::Failure;
use ostler_host::upstream::{Ask, BoxFuture, Connector, Force, Plan, Session, Vitals};
use ostler_host::{Caller, Host, HostOptions, Rules, ServerName, ServerSpec};
use ostler_wire::{Era, Hello, Outcome, RpcError};
use tokio::time::Instant;

/// The tool that everybody may call.
pub(super) const ECHO: &str = "echo";

/// The tools of every server here. The role `few` may not call the second one.
const TOOLS: &str = r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"größe"}]}"#;

const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"prompts":{},"completions":{},"logging":{}}"#;

type Answer = Arc<dyn Fn(&Ask<'_>) -> Outcome + Send + Sync>;

/// The tools that were carried out, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Deeds(Arc<Mutex<Vec<String>>>);

impl Deeds {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().expect("nobody panics with it")
    }

    /// What was done since the last time.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock())
    }
}

/// What a server of an era says of itself.
pub(super) fn hello(era: Era) -> Hello {
    Hello {
        era,
        version: if era == Era::Legacy { "2025-11-25" } else { "2026-07-28" }.into(),
        capabilities: CAPABILITIES.into(),
        server: None,
        instructions: None,
        session_meta: None,
    }
}

/// A host with the server `s`, which answers like this. There are the roles `all`, which may do everything,
/// and `few`, which may call one tool.
pub(super) async fn host(era: Era, answer: Answer) -> (Host, Deeds) {
    let role = |allow: &str| Role {
        allow: vec![allow.to_owned()],
        deny: Vec::new(),
        budget: None,
        max_in_flight: None,
    };
    let roles =
        [("all".to_owned(), role("*")), ("few".to_owned(), role("s/echo")), ("local".to_owned(), role("*"))];
    let host = Host::new(HostOptions { rules: Rules::of(&roles.into()), ..HostOptions::default() });
    let deeds = Deeds::default();
    let server = Arc::new(Server { hello: hello(era), answer, deeds: deeds.clone() });
    let spec = ServerSpec::stdio(ServerName::new("s").expect("it is a name"), "in-memory");
    host.spawn_with(&Caller::operator(), spec, server).await.expect("it can be registered");
    (host, deeds)
}

/// Answers as an honest server would.
pub(super) fn honest(ask: &Ask<'_>) -> Outcome {
    let text = |text: &str| Outcome::Result(Bytes::copy_from_slice(text.as_bytes()));
    match ask.method {
        "tools/list" => text(TOOLS),
        "tools/call" => {
            let arguments = String::from_utf8_lossy(ask.params.arguments().unwrap_or(b"{}")).into_owned();
            text(&format!(r#"{{"content":[],"structuredContent":{arguments}}}"#))
        }
        "resources/list" => text(r#"{"resources":[{"name":"r","uri":"file:///r"}]}"#),
        "resources/templates/list" => {
            text(r#"{"resourceTemplates":[{"name":"t","uriTemplate":"file:///{x}"}]}"#)
        }
        "resources/read" => text(r#"{"contents":[]}"#),
        "prompts/list" => text(r#"{"prompts":[{"name":"p"}]}"#),
        "prompts/get" => text(r#"{"messages":[]}"#),
        "ping" => text("{}"),
        _ => Outcome::Error(RpcError::own(-32601, "no such method")),
    }
}

/// Connects to a server in memory; the session is the same as the connector.
#[derive(Clone)]
struct Server {
    hello: Hello,
    answer: Answer,
    deeds: Deeds,
}

impl Connector for Server {
    fn connect(&self, _: Plan) -> BoxFuture<'_, Result<Arc<dyn Session>, Failure>> {
        Box::pin(async move { Ok(Arc::new(self.clone()) as Arc<dyn Session>) })
    }

    fn containment(&self) -> Containment {
        Containment::None
    }
}

impl Session for Server {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn request<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<Outcome, Fault>> {
        if ask.method == "tools/call" {
            self.deeds.lock().push(ask.params.name().unwrap_or_default().into_owned());
        }
        Box::pin(async move { Ok((self.answer)(&ask)) })
    }

    fn ended(&self) -> BoxFuture<'_, Failure> {
        Box::pin(std::future::pending())
    }

    fn close(&self, _: Force) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn vitals(&self) -> Vitals {
        Vitals::default()
    }

    fn signs(&self) -> (Option<Instant>, Option<Instant>) {
        (Some(Instant::now()), None)
    }
}
