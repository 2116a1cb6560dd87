//! The two ends of the link.

use std::net::Ipv4Addr;

use super::netlink::Mac;

/// An end of the link. Its number is the last octet of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Where load comes from.
    Client = 1,
    /// Where the server under test or the origin listens.
    Server = 2,
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
        Ipv4Addr::new(10, 9, 0, self as u8)
    }

    /// Link-layer address of its device (locally administered).
    pub(super) const fn mac(self) -> Mac {
        [2, 0, 0, 0, 0, self as u8]
    }

    /// Link-layer address of the link's device to it: no frame is sent to it.
    pub(super) const fn port_mac(self) -> Mac {
        [2, 0, 0, 0, 1, self as u8]
    }
}
