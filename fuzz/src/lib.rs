//! Code that several fuzz targets share.

pub mod config;
#[cfg(feature = "whole")]
pub mod whole;
