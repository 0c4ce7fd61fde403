//! The core of the gateway, over scripted servers, one line per message.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
mod ending;
mod lists;
mod names;
mod wording;
