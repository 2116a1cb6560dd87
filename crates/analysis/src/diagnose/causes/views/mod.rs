//! What several rules need of a repetition, computed once.

pub(in crate::diagnose) mod slots;
pub(in crate::diagnose) mod stopped;
#[cfg(test)]
pub(in crate::diagnose) mod transfer;
pub(in crate::diagnose) mod windows;
