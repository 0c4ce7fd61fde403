//! What the command line and the daemon have of the relay: how a broker is
//! logged in to, what machines are called, and what is asked of a broker.

mod checked;
mod login;
mod names;

pub(crate) use checked::Checked;
pub(crate) use login::{of_config, of_worker};
pub(crate) use names::{of_host, of_this_worker};
