//! Configs as people write them, whole files at a time.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what the tests share fails as they do")]

mod clients;
mod includes;
mod meaning;
mod relay;
mod report;
mod robust;
mod schema;
mod secrets;
mod world;
