//! Idle sessions and large notifications.
