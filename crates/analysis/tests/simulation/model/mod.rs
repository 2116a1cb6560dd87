//! A repetition of a cell in virtual time: our client engine and our server engine, TCP and the link between them.
//!
//! [`repetition`] is the entry point: it takes a [`Cell`](h2lab_model::scenario::Cell) and a [`Setup`] and returns a
//! [`CellRecord`](h2lab_model::record::CellRecord), as the lab makes it from real packets. Nothing waits, and the only
//! source of randomness is the cell's seed.
//!
//! | file | part |
//! |---|---|
//! | `setup` | what can be replaced: TCP, engines, application, the client's reading, disturbances |
//! | `world`, `timers` | the events in their order |
//! | `network` | both directions of the link, and the packet log |
//! | `end` | one socket with one engine |
//! | `client`, `requests`, `pool` | the client side: bookkeeping of a connection, of all requests, choice of a connection |
//! | `server` | the server side |
//! | `record` | the outcome as a record |

mod client;
mod end;
mod network;
mod pool;
mod record;
mod requests;
mod server;
mod setup;
mod timers;
mod world;

pub use setup::{Answer, Disturbance, DisturbanceKind, Setup, Side, at_once, stalling};
pub use world::{Repetition, repetition};
