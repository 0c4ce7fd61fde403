//! Lists of the four kinds that servers offer: fetched, cached and filtered.
//!
//! ```text
//! list ─────────▶ known and fresh? ─no─▶ fetch: all pages, coalesced
//!       ▲                 │yes                  │
//!       └──── filter ◀────┴───────── store ◀────┘──▶ persisted, changes announced
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
