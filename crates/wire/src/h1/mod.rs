//! A sans-IO HTTP/1.1 engine (RFC 9112), client and server, with the vocabulary of [`super::event`].
//!
//! - `head`: start lines and field lines. `httparse` finds the tokens; what is legal is decided here, strictly:
//!   leniency (a bare LF, an obs-fold, two lengths) is how requests are smuggled, and in a measurement a misread body
//!   is a wrong figure.
//! - `body`: content-length, chunked with trailers, and until-close; decoded and encoded.
//! - `buffer`: the one input and the one output buffer of a connection.
//! - `connection`: the state of a connection and of its one exchange, and what the role commands.
//! - `receive`: applies the peer's bytes to that state.
//! - `respond`: what a server answers.
//! - `limits`: reactions to a slow peer.
//! - `upgrade`: the switch to HTTP/2 in clear.
//! - `tunnel`: CONNECT.
//! - `unwanted`: the rest of a request that was answered before it was complete.
//!
//! One exchange is under way at a time: a client begins the next request when the last is over, a server reads the
//! next pipelined request when its answer to the last is queued.

pub(crate) mod body;
mod buffer;
mod connection;
mod counts;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod head;
mod lending;
mod limits;
mod receive;
mod repetition;
mod respond;
#[cfg(test)]
mod tests;
mod tunnel;
mod unwanted;
mod upgrade;

pub use buffer::Buffers;
pub use connection::Connection;
pub use head::reason_phrase;
