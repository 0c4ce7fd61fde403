//! Relay of a daemon: workers on other machines call its servers.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::config::{self, RelayJournal};
use ostler_host::Host;
use ostler_relay::RelayName;
use ostler_relay::broker::nats::NatsBroker;
use ostler_relay::journal::{CallJournal, KvJournal, SqliteJournal};
use ostler_relay::service::{Service, ServiceOptions};

use crate::failure::CommandFailure;
use crate::instance::DaemonInstance;
use crate::output::print_timed;
use crate::relay::{self, CheckedBroker};

/// Timeout of workers' calls at the shutdown: as long as those of clients, and a moment for the last answers.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_millis(3_500);

/// Dependencies of the relay, without the host.
pub(super) struct RelayServiceSetup {
    broker: CheckedBroker<NatsBroker>,
    journal: Arc<dyn CallJournal>,
    options: ServiceOptions,
}

/// Does everything that can fail, if the config has a relay. Does not contact the broker yet.
pub(super) async fn prepare(
    relay: Option<&config::RelayConfig>,
    spot: &DaemonInstance,
) -> Result<Option<RelayServiceSetup>, CommandFailure> {
    let Some(relay) = relay else { return Ok(None) };
    let tenant = name(&relay.tenant)?;
    let host_name = match &relay.host {
        Some(host) => name(host)?,
        None => relay::default_host_name().ok_or_else(|| machine("the machine has no name"))?,
    };
    let nats = relay::host_options(relay, &host_name)?;
    let journal: Arc<dyn CallJournal> = match relay.journal {
        RelayJournal::Local => open_journal(spot).await?,
        RelayJournal::Shared => Arc::new(KvJournal::open(nats.clone(), &tenant)),
    };
    let broker = CheckedBroker::new(NatsBroker::new(nats), relay.allow_open_broker, print_timed);
    let options = ServiceOptions {
        max_in_flight: relay.max_in_flight,
        status_sink: broker.status_sink(),
        ..ServiceOptions::new(tenant, host_name)
    };
    Ok(Some(RelayServiceSetup { broker, journal, options }))
}

impl RelayServiceSetup {
    /// Starts the relay. It waits for an unreachable broker in the background.
    pub(super) fn start(self, host: &Host) -> Service {
        Service::start(host.clone(), Arc::new(self.broker), self.journal, self.options)
    }
}

/// Opens the journal. Without one a call could run twice, so a relay requires it.
async fn open_journal(spot: &DaemonInstance) -> Result<Arc<dyn CallJournal>, CommandFailure> {
    let file = spot.relay_file();
    let opened = tokio::task::spawn_blocking(move || SqliteJournal::open(&file)).await;
    let why = match opened {
        Ok(Ok(journal)) => return Ok(Arc::new(journal)),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Err(CommandFailure::Relay {
        what: "the relay can't be served".into(),
        why,
        hint: "see to the disk and to the rights of the state directory",
    })
}

fn name(text: &str) -> Result<RelayName, CommandFailure> {
    RelayName::new(text).map_err(|error| machine(&error.to_string()))
}

fn machine(why: &str) -> CommandFailure {
    CommandFailure::Machine(std::io::Error::other(why))
}
