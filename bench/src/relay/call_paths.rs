//! Paths of the same call.

use std::sync::Arc;

use bench::process::cpu_us;
use ostler_host::{Caller, Host};
use serde_json::value::RawValue;

use super::relay_setup::RelaySetup;
use crate::closed_loop::{Figures, LoadCell, arguments, run_closed_loop};

/// A path from a caller to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallPath {
    /// NATS alone, without a host behind it.
    Bare,
    /// The server in this process, without NATS.
    Direct,
    /// A worker in this process.
    Relayed,
    /// `ostler worker` on its pipes.
    Piped,
    /// A worker in this process, and a host whose journal is in a bucket.
    Shared,
}

/// One measurement, with the processor time of each process per call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelayMeasurement {
    pub(crate) figures: Figures,
    /// This process, the broker, the other end, in microseconds; none where it has no meaning.
    pub(crate) cpu: Option<[f64; 3]>,
}

impl CallPath {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Bare => "bare NATS",
            Self::Direct => "direct, no relay",
            Self::Relayed => "**relayed**",
            Self::Piped => "relayed, `ostler worker`",
            Self::Shared => "relayed, shared journal",
        }
    }

    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "bare" => Self::Bare,
            "direct" => Self::Direct,
            "relayed" => Self::Relayed,
            "piped" => Self::Piped,
            "shared" => Self::Shared,
            other => panic!("bare, direct, relayed, piped or shared, not {other}"),
        }
    }

    /// Measures the path; `None` if the setup has no such path.
    pub(crate) async fn measure(self, setup: &RelaySetup, load: LoadCell) -> Option<RelayMeasurement> {
        let pids = match self {
            Self::Bare => Some(setup.bare.pids()),
            Self::Relayed => Some(setup.local.pids()),
            Self::Shared => Some(setup.shared.as_ref()?.pids()),
            Self::Direct | Self::Piped => None,
        };
        let before = pids.map(|pids| pids.map(cpu_us));
        let figures = match self {
            Self::Bare => setup.bare.measure(load).await,
            Self::Direct => call(&setup.direct, "echo", "echo", load).await,
            Self::Relayed => call(&setup.local.host, "echo", "echo", load).await,
            Self::Piped => call(&setup.piped, "worker", "echo__echo", load).await,
            Self::Shared => call(&setup.shared.as_ref()?.host, "echo", "echo", load).await,
        };
        let cpu = pids.zip(before).map(|(pids, before)| {
            let spent = |at: usize| (cpu_us(pids[at]) - before[at]).max(0) as f64;
            std::array::from_fn(|at| spent(at) / figures.calls as f64)
        });
        Some(RelayMeasurement { figures, cpu })
    }
}

async fn call(host: &Host, server: &'static str, tool: &'static str, load: LoadCell) -> Figures {
    let (host, caller) = (host.clone(), Caller::local());
    let arguments: Arc<RawValue> = RawValue::from_string(arguments(load.payload)).unwrap().into();
    run_closed_loop(load, move || {
        let (host, caller, arguments) = (host.clone(), caller.clone(), Arc::clone(&arguments));
        async move {
            let length = arguments.get().len();
            let answer = host.call(&caller, server, tool, arguments).await.expect("an answer");
            assert!(answer.body.len() > length);
        }
    })
    .await
}
