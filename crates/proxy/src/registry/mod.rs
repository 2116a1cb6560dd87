//! What registries answer: [`file`] of instances, [`srv`] records of DNS, [`consul`]'s health endpoint. They are asked elsewhere.

pub mod consul;
pub mod file;
pub mod srv;
