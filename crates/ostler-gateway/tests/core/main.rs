//! The core of the gateway, over scripted servers, one line per message.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
mod completion;
mod concealment;
mod consistency;
mod ending;
mod hidden;
mod invalid;
mod legacy;
mod listen;
mod lists;
mod missing;
mod names;
mod parked;
mod pins;
mod readiness;
mod resources;
mod roles;
mod rounds;
mod shadowing;
mod states;
mod tasks;
mod validation;
mod voices;
mod wording;
