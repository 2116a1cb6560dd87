//! h2c smuggling: whether a proxy lets a client speak HTTP/2 with the server behind it, past all of its rules.
//!
//! A client offers `Upgrade: h2c`, the proxy forwards the offer and the backend's 101, and from then on copies bytes: the proxy's
//! rules never see the requests in that tunnel. The fix is never to forward the offer (RFC 9110 §7.8: Upgrade is for the next hop
//! only).
//!
//! [`offer`] has the variants, [`attempt`] the client, [`backend`] the server behind the proxy, and [`judge`] the conclusions
//! from what both saw.

pub mod attempt;
pub mod backend;
pub mod backend_request;
pub mod checks;
pub mod judge;
pub mod offer;
