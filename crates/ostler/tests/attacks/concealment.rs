//! Probing for names that rules hide.
