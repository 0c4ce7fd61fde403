//! Catalog: exposed tool names, owners of URIs, and suggestions for misspelled names.
//!
//! All servers together expose their tools as `server__tool`. Those names are made here and looked up in a
//! [`ToolNameTable`]. No name is ever parsed, so the characters of a tool's own name do not matter.

mod suggest;
mod tool_names;
mod uri_owners;
pub mod uri_template;

pub use self::suggest::{nearest, slug};
pub use self::tool_names::{MAX_EXPOSED, ToolNameTable, exposed_name};
pub use self::uri_owners::{Claimants, ResourceTable, ServerClaims, ShadowedUri};
