//! Acts on clients, on the broker, and on their connections to the daemon.

use nix::sys::signal::Signal;
use ostler_chaos::history::CallRoute;
use ostler_testkit::Proc;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{Act, Nemesis};

/// The deaf client's requests: this many answers of this many bytes. They are more than sockets
/// hold, and no more than the slow server makes in a moment.
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

    /// Makes answers pile up at the daemon, which no other caller may notice.
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
            // The act does nothing while the daemon is down.
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

    pub(super) async fn hurt_broker(&mut self, act: Act) -> anyhow::Result<()> {
        let lasts = self.millis(50..2_500);
        let (Some(broker), Some(proxy)) = (&mut self.broker, &self.broker_proxy) else { return Ok(()) };
        self.recorder.record_act(act.name(), "broker", true);
        match act {
            Act::KillBroker => {
                broker.kill();
                sleep(lasts).await;
                broker.restart().await;
            }
            Act::FreezeBroker => {
                broker.freeze().await;
                sleep(lasts).await;
                broker.thaw();
            }
            _ => proxy.cut(),
        }
        self.recorder.record_act(act.name(), "broker", false);
        Ok(())
    }
}
