//! Relay parts that the command line and the daemon share: credentials for a broker, default names, and the check of a
//! broker's authentication.

mod broker_check;
mod default_names;
mod login;

pub(crate) use broker_check::CheckedBroker;
pub(crate) use default_names::{default_host_name, default_worker_name};
pub(crate) use login::{host_options, worker_options};
