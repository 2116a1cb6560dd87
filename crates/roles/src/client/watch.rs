//! Observers of connections, for `h2lab trace`: they see every step and, in clear, every byte.

use std::fmt::Debug;

use h2lab_base::units::Time;
use h2lab_model::record::ConnectionRecord;
use h2lab_wire::trace::{Crossing, Direction};

use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::TlsFacts;

/// Observes all connections to a [`DialTarget`](super::DialTarget). It is called on the hot path and must be quick.
pub trait Watch: Debug + Send + Sync {
    /// This happened at `at`.
    fn see(&self, at: Time, event: WatchEvent<'_>);

    /// Whether it needs nothing more once all requests have ended: connections are not kept open for it then.
    fn has_seen_all(&self) -> bool {
        false
    }
}

/// An event to observe; `connection` is its index in the cell.
#[derive(Debug)]
pub enum WatchEvent<'a> {
    /// A connection is dialled.
    Dialling {
        /// Which.
        connection: u32,
        /// Where to.
        address: &'a Endpoint,
    },
    /// TCP is established.
    Connected {
        /// What is known of the connection.
        record: &'a ConnectionRecord,
    },
    /// It can carry requests.
    Ready {
        /// What is known of the connection.
        record: &'a ConnectionRecord,
        /// What was negotiated, if there is TLS.
        tls: Option<TlsFacts>,
    },
    /// Bytes crossed the socket, in clear, or a QUIC stream was reset.
    Crossing {
        /// On which connection.
        connection: u32,
        /// Which way.
        direction: Direction,
        /// What.
        crossing: Crossing<'a>,
    },
    /// It has ended, or was not established.
    Closed {
        /// All that is known of it.
        record: &'a ConnectionRecord,
    },
}
