//! How a proxy reaches its upstream, and what not every proxy can be configured to do.

use std::net::SocketAddr;

use h2lab_model::workload::Protocol;

use super::error::SutError;

/// The upstream of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upstream {
    /// Its address.
    pub address: SocketAddr,
    /// Its protocol. Over TLS any certificate is accepted.
    pub protocol: Protocol,
    /// HTTP/2 connections that the proxy should hold. With 1 the proxy decides; it holds one or a few.
    pub connections: u32,
}

impl Upstream {
    /// An upstream over `protocol`, with as many connections as the proxy chooses.
    pub const fn new(address: SocketAddr, protocol: Protocol) -> Self {
        Self { address, protocol, connections: 1 }
    }

    /// Refuses a number of connections, since `server` cannot be given one.
    pub(super) fn unforced(self, server: &'static str) -> Result<Self, SutError> {
        if self.connections == 1 {
            return Ok(self);
        }
        let why = format!(
            "it cannot be configured to hold {} connections to its upstream; envoy, h2lab and nghttpx can",
            self.connections
        );
        Err(SutError::Unsupported { server, why })
    }

    /// `http` or `https`, as a URL begins.
    pub(super) const fn scheme(self) -> &'static str {
        if self.protocol.is_tls() { "https" } else { "http" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_of_connections_above_one_is_a_wish() {
        let one = Upstream::new("127.0.0.1:40001".parse().unwrap(), Protocol::H2c);
        assert!(one.unforced("squid").is_ok());
        assert!(Upstream { connections: 2, ..one }.unforced("squid").is_err());
    }
}
