//! The client side of HTTP: from an address to requests on the wire, one path for all protocols.
//!
//! [`connect`] dials, [`session`] carries requests over one connection, [`slots`] drives many of them, [`pool`] decides which connection a request
//! takes and when another is dialled, [`request`] is what is sent each time. Who wants requests made (the load generator,
//! later bulk transfer and sidecar) implements [`session::Exchange`] and hears how each of them goes.

mod book;
pub mod connect;
pub mod defaults;
mod lookout;
pub mod pool;
pub mod request;
pub mod session;
pub mod slots;
mod streams;
pub mod url;
pub mod watch;

pub use book::End;
pub use connect::{ConnectError, Dial, Target};
pub use pool::Pool;
pub use request::{Kind, Outgoing, Prepared};
pub use session::{Exchange, Fate, Session};
pub use slots::{Change, Slots};
pub use watch::{Sight, Watch, read};
