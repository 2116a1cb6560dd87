//! The client side of HTTP: from an address to requests on the wire, one path for all protocols.
//!
//! [`connect`] dials, [`session`] carries requests over one connection, [`slots`] drives many of them, [`pool`] decides which
//! connection a request takes and when another is dialled, [`request`] is what is sent each time. A role that makes requests (the
//! load generator, bulk transfer) implements [`RequestObserver`] and is notified of each one's progress.

pub mod connect;
mod connection_statistics;
pub mod defaults;
mod observer;
pub mod pool;
pub mod reach;
pub mod request;
mod request_observer;
pub mod session;
pub mod slots;
mod streams;
pub mod url;
pub mod watch;

pub use connect::{ConnectError, Dial, DialTarget, UpgradeOffer};
pub use connection_statistics::SessionEnd;
pub use pool::Pool;
pub use request::{Outgoing, Prepared, RequestKind};
pub use request_observer::{RequestEnd, RequestObserver};
pub use session::ClientSession;
pub use slots::{Change, Slots};
pub use watch::{Watch, WatchEvent};
