//! What a server process can take from the daemon.
