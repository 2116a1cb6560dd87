//! How a proxy treats HTTP/2 requests that HTTP/1.1 cannot express, or that become ambiguous there.
//!
//! RFC 9113 §8.2 and §8.3 require that they are refused as malformed, because a careless translation makes one request
//! for the proxy and another one for the server behind it. Each [`DowngradeCase`](case::DowngradeCase) is sent as
//! frames of its own, and judged by the bytes that reach the backend: rejected, normalised, or forwarded raw.

pub mod case;
mod cases;
pub mod checks;
pub mod exchange;
mod judge;
mod series;

pub use cases::{CASES, CONTROL};
pub use judge::{Handling, Judged, judge};
pub use series::Series;
