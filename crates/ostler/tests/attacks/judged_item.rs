//! Requests that say one thing to the rules and another to cache, record or server.
