//! What servers offer: lists of four kinds, fetched, remembered and filtered.
//!
//! ```text
//! list ─────────▶ known and fresh? ─no─▶ fetch: all pages, shared by whoever asks
//!       ▲                 │yes                  │
//!       └──── filter ◀────┴───────── learn ◀────┘──▶ kept on disk, changes told
//! ```

mod fetch;
pub(crate) mod flaw;
mod keep;
mod kind;
mod listing;
mod pages;

pub use keep::{kept_items, kept_names};
pub use kind::Kind;
pub use listing::{ListedItem, Patience, ServerListing, ShadowedItem};
