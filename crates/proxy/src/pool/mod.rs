//! How many connections an instance gets, and which of them carries the next request.
//!
//! Other pools adapt to streams: a connection is added when all have as many as the peer allows. That ignores what
//! makes one connection slow, which is the path. A lost packet stops every stream behind it for a round trip and more,
//! and the congestion window that losses leave bounds what one connection carries. This pool watches both
//! ([`estimate`]), and [`place`] puts a request where it is expected to end first.

pub mod choice;
pub mod dials;
pub mod estimate;
pub mod idle;
pub mod liveness;
pub mod path;
pub mod place;
pub mod portion;
pub mod predict;
pub mod probe;
pub mod quota;
pub mod ramp;
pub mod silence;
