//! Configs as people write them, whole files at a time.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what the tests share fails as they do")]

mod clients;
mod fake_files;
mod includes;
mod relay;
mod report;
mod robustness;
mod schema;
mod secrets;
mod values;
