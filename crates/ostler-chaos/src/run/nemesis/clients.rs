//! Harm to clients and to the ways between them and the daemon.

use nix::sys::signal::Signal;
use ostler_chaos::history::CallRoute;
use ostler_testkit::Proc;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{Act, Nemesis};

/// What the deaf client asks for: as many answers, of that many bytes. More than sockets hold, and
/// no more than the server makes in a moment, which is slow at it.
const ASKED: usize = 12;
const SIZE: usize = 256 << 10;

impl Nemesis {
    pub(super) async fn disturb_clients(&mut self, act: Act) -> anyhow::Result<()> {
        let lasts = self.millis(100..2_500);
        match act {
            Act::Stall => {
                self.client_proxy.set_stalled(true);
                self.act_lasting(act, "clients", lasts).await;
                self.client_proxy.set_stalled(false);
            }
            Act::Cut | Act::HalfClose => {
                self.recorder.record_act(act.name(), "clients", true);
                if act == Act::Cut {
                    self.client_proxy.cut()
                } else {
                    self.client_proxy.half_close()
                }
                self.recorder.record_act(act.name(), "clients", false);
            }
            _ => {}
        }
        Ok(())
    }

    /// Answers pile up at the daemon; nobody else may notice.
    pub(super) async fn deaf_client(&mut self) -> anyhow::Result<()> {
        let lasts = self.millis(300..1_500);
        let token = self.testbed.tokens.get("ada").cloned().unwrap_or_default();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": "a__blob", "arguments": {"size": SIZE}, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
             Mcp-Method: tools/call\r\nMcp-Name: a__blob\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut streams = Vec::new();
        for _ in 0..ASKED {
            // A daemon that is away is not what this is about.
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.testbed.ports.daemon)).await else {
                break;
            };
            let _ = stream.write_all(request.as_bytes()).await;
            streams.push(stream);
        }
        self.act_lasting(Act::DeafClient, "clients", lasts).await;
        drop(streams);
        Ok(())
    }

    /// Kills an `ostler stdio` or a worker with everything that it has under way.
    pub(super) async fn kill_program(&mut self, act: Act) -> anyhow::Result<()> {
        let (way, target) =
            if act == Act::KillWorker { (CallRoute::Relay, "relay") } else { (CallRoute::Stdio, "stdio") };
        let pids = self.programs.pids(way).await;
        if pids.is_empty() {
            return Ok(());
        }
        let pid = pids[self.rng.usize(..pids.len())];
        self.recorder.record_act(act.name(), target, true);
        if let Some(proc) = Proc::find(pid) {
            proc.signal(Signal::SIGKILL);
        }
        self.recorder.record_act(act.name(), target, false);
        Ok(())
    }
}
