//! Requests without an id.
