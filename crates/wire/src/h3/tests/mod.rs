//! The engine against RFC 9114, RFC 9204 and RFC 9218.

mod conformance;
mod conversation;
mod limits;
mod shutdown;
mod support;
mod transport;
