//! Values: the grammars of texts in the file (durations, sizes, globs, references) and the signs of a secret.

pub mod duration;
pub mod glob;
pub(crate) mod reference;
pub(crate) mod secret_literals;
pub mod size;
