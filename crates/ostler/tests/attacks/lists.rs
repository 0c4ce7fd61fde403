//! Servers with oversized lists and names.
