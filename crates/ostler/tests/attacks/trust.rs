//! Configs of a working directory.
