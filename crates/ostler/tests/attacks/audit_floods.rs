//! Floods of refusals against the audit.
