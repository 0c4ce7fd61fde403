//! A server in memory that answers at once, for what only the way to it costs.

use std::sync::Arc;

use bytes::Bytes;
use ostler_core::fault::Fault;
use ostler_core::status::Containment;
use ostler_core::supervisor::Failure;
use ostler_host::upstream::{Ask, BoxFuture, Connector, Force, Plan, Session, Vitals};
use ostler_wire::{Era, Hello, Outcome};
use tokio::time::Instant;

/// Connects to a server with so many tools, `t0` and on. Unlike that of a
/// [`Script`](crate::Script) it counts and remembers nothing.
#[derive(Debug, Clone, Copy)]
pub struct Parrot {
    pub tools: usize,
}

struct Answering {
    hello: Hello,
    tools: usize,
}

impl Connector for Parrot {
    fn connect(&self, _: Plan) -> BoxFuture<'_, Result<Arc<dyn Session>, Failure>> {
        let hello = Hello {
            era: Era::Legacy,
            version: "2025-11-25".into(),
            capabilities: Bytes::from_static(br#"{"tools":{}}"#),
            server: None,
            instructions: None,
            session_meta: None,
        };
        let tools = self.tools;
        Box::pin(async move { Ok(Arc::new(Answering { hello, tools }) as Arc<dyn Session>) })
    }

    fn containment(&self) -> Containment {
        Containment::None
    }
}

impl Session for Answering {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn request<'a>(&'a self, ask: Ask<'a>) -> BoxFuture<'a, Result<Outcome, Fault>> {
        let answer = match ask.method {
            "tools/list" => {
                let tool = |n| format!(r#"{{"name":"t{n}","inputSchema":{{"type":"object"}}}}"#);
                let tools: Vec<String> = (0..self.tools).map(tool).collect();
                format!(r#"{{"tools":[{}]}}"#, tools.join(",")).into()
            }
            _ => Bytes::from_static(br#"{"content":[{"type":"text","text":"hello"}]}"#),
        };
        Box::pin(async move { Ok(Outcome::Result(answer)) })
    }

    fn ended(&self) -> BoxFuture<'_, Failure> {
        Box::pin(std::future::pending())
    }

    fn close(&self, _: Force) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn vitals(&self) -> Vitals {
        Vitals::default()
    }

    fn signs(&self) -> (Option<Instant>, Option<Instant>) {
        (None, None)
    }
}
