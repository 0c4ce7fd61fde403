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
mod listing;
mod pages;
mod persist;

pub use kind::Kind;
pub use listing::{ListWait, ListedItem, ServerListing, ShadowedItem};
pub use persist::{persisted_items, persisted_names};
