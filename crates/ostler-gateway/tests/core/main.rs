//! The core of the gateway, over scripted servers, one line per message.

mod client;
mod lists;
mod names;
mod wording;
