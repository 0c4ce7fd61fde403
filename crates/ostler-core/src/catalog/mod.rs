//! Names under which things can be called.
//!
//! All servers together expose their tools as `server__tool`. Those names are
//! made here and looked up in a [`Table`]; none is ever taken apart again, so
//! it does not matter what characters a tool's own name holds.

mod suggest;
mod tool_names;
mod uri_owners;
pub mod uri_template;

pub use self::suggest::{nearest, slug};
pub use self::tool_names::{MAX_EXPOSED, ToolNameTable, exposed_name};
pub use self::uri_owners::{Claimants, ResourceTable, ServerClaims, ShadowedUri};
