//! QUIC (RFC 9000): the sockets and the clock of `quinn-proto`, and its streams for the engine of HTTP/3.
//!
//! `quinn-proto` does no I/O and takes the time as an argument, as our engines do, so that HTTP/3 runs on the same reactor
//! and under the same generator as all else. [`QuicEndpoint`] is a UDP socket and what arrives on it; [`QuicSession`] is one
//! connection, which moves bytes between its streams and an [`h2lab_wire::h3`] engine; [`settings`] says what we
//! announce and which congestion control is used.

mod begin;
mod endpoint;
mod error;
mod in_flight;
mod session;
pub mod settings;
mod streams;
#[cfg(test)]
mod tests;
mod traffic;
mod unacknowledged;

pub use endpoint::{QuicEndpoint, RoutedDatagram};
pub use quinn_proto::{ConnectionEvent, Incoming};
pub use session::QuicSession;
pub use settings::Congestion;
