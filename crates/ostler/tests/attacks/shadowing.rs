//! Servers that claim the resources of another server.
