//! Probes: what a server, a proxy or a client does with unusual input.
//!
//! [`Prober`] holds how to reach a host, and the budget that bounds everything sent to it. A [`RawConnection`] carries
//! bytes of our choosing over TCP or TLS and keeps what crossed it as evidence. Each group of checks is a module;
//! [`url`] has all that `h2lab probe URL` does. Verdicts, budgets and pages are [`h2lab_model::probe`]'s.

pub mod ask;
pub mod client;
mod dial;
mod h1;
mod prober;
mod raw_connection;
pub mod raw_h2_client;
pub mod smuggling;
pub mod target_authorization;
#[cfg(test)]
mod testing;
mod transcript;
pub mod url;

pub use prober::{Host, MOST_READ, ProbeError, Prober, Result, distrusts};
pub use raw_connection::{Put, RawConnection, ReadOutcome};
pub use transcript::Transcript;
