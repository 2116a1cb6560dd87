//! Conversations of whole connections, in virtual time and without sockets.

mod conformance;
mod conversation;
mod flow_control;
mod limits;
mod padding;
mod priorities;
mod push;
mod repetition;
mod robustness;
mod shutdown;
mod support;
mod tuning;
