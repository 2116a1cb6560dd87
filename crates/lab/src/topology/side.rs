//! The two ends of the link.

use std::net::Ipv4Addr;

use super::netlink::Mac;

/// An end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Where load comes from.
    Client,
    /// Where the server under test or the origin listens.
    Server,
}

impl Side {
    /// Both ends.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// `client` or `server`; also the name of the link's device to it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// The other end.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Its IPv4 address on a link between namespaces; [`super::Addressing`] has the others.
    pub const fn address(self) -> Ipv4Addr {
        match self {
            Self::Client => Ipv4Addr::new(10, 9, 0, 1),
            Self::Server => Ipv4Addr::new(10, 9, 0, 2),
        }
    }

    /// Link-layer address of its device (locally administered).
    pub(super) const fn mac(self) -> Mac {
        match self {
            Self::Client => [2, 0, 0, 0, 0, 1],
            Self::Server => [2, 0, 0, 0, 0, 2],
        }
    }

    /// Link-layer address of the link's device to it: no frame is sent to it.
    pub(super) const fn port_mac(self) -> Mac {
        match self {
            Self::Client => [2, 0, 0, 0, 1, 1],
            Self::Server => [2, 0, 0, 0, 1, 2],
        }
    }
}
