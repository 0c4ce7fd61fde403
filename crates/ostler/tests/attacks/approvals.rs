//! Definitions that change under an approval.
