//! Log lines of a shared server.
