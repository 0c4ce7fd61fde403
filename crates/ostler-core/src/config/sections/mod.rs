//! Sections of the config file, one module each.

pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod defaults;
pub(crate) mod gateway;
pub(crate) mod limits;
pub mod listen;
pub(crate) mod pins;
pub(crate) mod relay;
pub(crate) mod restart;
pub(crate) mod role;
pub(crate) mod server;
mod server_json;
pub(crate) mod tools;
mod transport;
