//! h2c smuggling: whether a proxy lets a client speak HTTP/2 with what is behind it, past all of its rules.
//!
//! A client offers `Upgrade: h2c`, the proxy passes the offer on and the backend's 101 back, and from then on copies bytes: what
//! is asked in that tunnel, no rule of the proxy's ever sees. The cure is never to forward the offer (RFC 9110 §7.8: Upgrade is
//! for the next hop alone).
//!
//! [`offer`] has the variants, [`attempt`] the client, [`backend`] the server behind the proxy, and [`judge`] what follows from
//! what both saw.

pub mod attempt;
pub mod backend;
pub mod backend_request;
pub mod checks;
pub mod judge;
pub mod offer;
