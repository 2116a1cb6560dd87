//! NATS for code that blocks: messages, and what JetStream keeps: a queue of units, their reports, open runs, parts.
//!
//! The only crate with tokio and async-nats. [`Nats`] is a connection with a thread of its own, on which a runtime of
//! one thread runs; every other thread calls it and waits, at most until a deadline. async-nats gives the connection,
//! its TLS and its credentials; what JetStream is asked is written here, in JSON, so that each operation needs
//! exactly the subjects that its documentation names, repeats over a reconnect, and says at once that a permission is
//! missing.
//!
//! Never contains what an order or a report means.

mod base64url;
mod cells;
mod client;
mod error;
mod events;
mod jetstream;
mod link;
mod options;
mod outgoing;
mod parts;
mod reports;
mod runs;
mod runtime;
mod streams;
mod tokens;

pub use cells::{Cells, Taken};
pub use client::{Nats, ServerFacts, Subscription};
pub use error::NatsError;
pub use events::Event;
pub use options::ServerOptions;
pub use parts::{Parts, StoredPart};
pub use reports::{Reports, StoredReport};
pub use runs::Runs;
pub use streams::{CELLS, PARTS, REPORTS, RUNS};
