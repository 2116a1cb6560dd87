//! What a proxy makes of requests of HTTP/2 that cannot be said in HTTP/1.1, or say two things at once there.
//!
//! RFC 9113 §8.2 and §8.3 have them refused as malformed, because whoever translates them carelessly writes one request for
//! himself and another one for the server behind. Each [`Case`](case::Case) is sent as frames of its own, and judged by the bytes that reach the
//! backend: rejected, normalised, or forwarded raw.

pub mod ask;
pub mod case;
mod cases;
pub mod checks;
mod judge;
mod series;

pub use cases::{CASES, CONTROL};
pub use judge::{Handling, Judged, judge};
pub use series::Series;
