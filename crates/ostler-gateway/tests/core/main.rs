//! Core of the gateway, over scripted servers, one line per message.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod argument_validation;
mod call_notifications;
mod client;
mod completion;
mod concealment;
mod consistency;
mod era_translation;
mod exposed_names;
mod hidden_vs_missing;
mod input_end;
mod input_required;
mod invalid_definitions;
mod legacy_methods;
mod listen;
mod lists;
mod pins;
mod readiness;
mod request_state;
mod resources;
mod roles;
mod shadowing;
mod suspended_calls;
mod tasks;
mod unavailable_servers;
