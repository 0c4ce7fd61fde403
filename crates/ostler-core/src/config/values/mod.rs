//! Grammars of texts in the file (durations, sizes, globs, references) and the detection of secrets.

pub mod duration;
pub mod glob;
pub(crate) mod reference;
pub(crate) mod secret_literals;
pub mod size;
