//! What a proxy decides, without I/O: its configuration ([`config`]), which service a request is for ([`route`],
//! [`target`]), the fields of a message between two hops ([`fields`]), the heads that it keeps to send them again
//! ([`head`]), which requests it may send again ([`retry`]), which instance and connection take the next one, and how
//! many connections there are ([`pool`]), what registries answer ([`registry`]), what protects services and itself
//! ([`guard`]), what it says of its own answers ([`refusal`], [`grpc`]), the handshake of WebSocket ([`websocket`]),
//! links that clients get early ([`hints`]), how proxies announce the client of a connection ([`proxy_protocol`]),
//! trace context ([`trace`]), a line of the access log ([`log`]), and clients that a successor takes over
//! ([`handover`]).
//!
//! Never contains: sockets, a clock, an engine of a protocol, the loop that moves bytes (`roles::sidecar`).
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod beginning;
pub mod config;
pub mod fields;
pub mod grpc;
pub mod guard;
pub mod handover;
pub mod head;
pub mod hints;
pub mod log;
pub mod nft;
pub mod pool;
pub mod proxy_protocol;
pub mod refusal;
pub mod registry;
pub mod retry;
pub mod route;
pub mod target;
pub mod trace;
pub mod websocket;
