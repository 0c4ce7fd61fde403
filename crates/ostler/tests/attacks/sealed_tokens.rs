//! Task ids and request states of other callers.
