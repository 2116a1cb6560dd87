//! Conversations of whole connections, in virtual time and without sockets.

mod conformance;
mod conversation;
mod extended_connect;
mod flow_control;
mod in_flight;
mod keep_alive;
mod limits;
mod padding;
mod pieces;
mod priorities;
mod push;
mod repetition;
mod robustness;
mod shutdown;
mod support;
mod tuning;
