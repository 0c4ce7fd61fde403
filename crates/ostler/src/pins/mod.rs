//! Pins on disk: the lock file beside the config, and what people see of it.

pub(crate) mod desk;
pub(crate) mod file;
pub(crate) mod findings;
pub(crate) mod reviewed;
pub(crate) mod show;

pub(crate) use self::file::{Broken, Locked};
