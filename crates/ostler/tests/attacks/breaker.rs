//! Callers who try to take a server from the others.
