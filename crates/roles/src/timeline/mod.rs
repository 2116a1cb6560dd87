//! One exchange, observed closely, and repeated: `h2lab timeline`.
//!
//! [`exchange`] makes one request over a connection of its own and returns its waterfall. [`chain`] starts real servers
//! one in front of the other with a [`tap`] before each, so that one exchange is seen everywhere at the same time.
//! [`study`] asks many servers for many pages.

pub mod chain;
mod exchange;
pub mod study;
mod tap;

pub use exchange::{Asking, exchange, or_failed};
