//! URIs that are written to escape resource rules.
