//! What servers offer: lists of four kinds, fetched, remembered and filtered.
//!
//! ```text
//! list ─────────▶ known and fresh? ─no─▶ fetch: all pages, shared by whoever asks
//!       ▲                 │yes                  │
//!       └──── filter ◀────┴───────── learn ◀────┘──▶ kept on disk, changes told
//! ```

pub(crate) mod conformance;
mod fetch;
mod kind;
pub(crate) mod list_turns;
mod listing;
mod pages;
mod persist;

pub use kind::Kind;
pub use list_turns::ListTurn;
pub use listing::{ListWait, ListedItem, ServerListing, ShadowedItem};
pub use persist::{persisted_items, persisted_names};
