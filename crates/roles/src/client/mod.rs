//! The client side of HTTP: from an address to requests on the wire, one path for all protocols.
//!
//! [`connect`] dials, [`session`] carries requests over one connection, [`slots`] drives many of them, [`pool`] decides which
//! connection a request takes and when another is dialled, [`request`] is what is sent each time. A role that makes requests (the
//! load generator, bulk transfer) implements [`Exchange`] and is notified of each one's progress.

pub mod connect;
mod connection_statistics;
pub mod defaults;
mod exchange;
mod observer;
pub mod pool;
pub mod reach;
pub mod request;
pub mod session;
pub mod slots;
mod streams;
pub mod url;
pub mod watch;

pub use connect::{ConnectError, Dial, Target, UpgradeOffer};
pub use connection_statistics::End;
pub use exchange::{Exchange, Fate};
pub use pool::Pool;
pub use request::{Kind, Outgoing, Prepared};
pub use session::Session;
pub use slots::{Change, Slots};
pub use watch::{Watch, WatchEvent};
