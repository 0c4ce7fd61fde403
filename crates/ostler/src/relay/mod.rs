//! What the command line and the daemon have of the relay: how a broker is
//! logged in to, what machines are called, and what is asked of a broker.

mod broker_check;
mod default_names;
mod login;

pub(crate) use broker_check::CheckedBroker;
pub(crate) use default_names::{default_host_name, default_worker_name};
pub(crate) use login::{host_options, worker_options};
