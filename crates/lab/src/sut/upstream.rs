//! How a proxy is to reach its upstream, and what not every proxy can be configured to do.

use std::net::SocketAddr;

use h2lab_model::workload::Protocol;

use super::{Site, SutError};

/// The upstream of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upstream {
    /// Its address.
    pub address: SocketAddr,
    /// Its protocol. Over TLS any certificate is accepted.
    pub protocol: Protocol,
    /// HTTP/2 connections that the proxy is to hold. With 1 the proxy decides, for one or a few.
    pub connections: u32,
}

impl Upstream {
    /// One over `protocol`, with as many connections as the proxy chooses.
    pub const fn new(address: SocketAddr, protocol: Protocol) -> Self {
        Self { address, protocol, connections: 1 }
    }

    /// Refuses a number of connections, because only `server` decides it.
    pub(super) fn unforced(self, server: &'static str) -> Result<Self, SutError> {
        if self.connections == 1 {
            return Ok(self);
        }
        let why = format!(
            "it cannot be told to hold {} connections to its upstream; envoy and nghttpx can",
            self.connections
        );
        Err(SutError::Unsupported { server, why })
    }

    /// `http` or `https`, as a URL begins.
    pub(super) const fn scheme(self) -> &'static str {
        if self.protocol.is_tls() { "https" } else { "http" }
    }
}

impl Site<'_> {
    /// The upstream that a proxy needs. One whose protocol `server` does not speak, because it sends only `sends`, is refused.
    pub(super) fn upstream(&self, server: &'static str, sends: &[Protocol]) -> Result<Upstream, SutError> {
        let upstream = self.upstream.ok_or(SutError::NoUpstream { server })?;
        if sends.contains(&upstream.protocol) {
            return Ok(upstream);
        }
        let spoken: Vec<&str> = sends.iter().map(|protocol| protocol.name()).collect();
        let why = format!("to its upstream it speaks {} and not {}", spoken.join(", "), upstream.protocol);
        Err(SutError::Unsupported { server, why })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Ports;
    use super::*;

    fn site(upstream: Option<Upstream>) -> Site<'static> {
        Site { folder: Path::new("x"), ports: Ports::LAB, upstream }
    }

    #[test]
    fn an_upstream_that_is_missing_or_speaks_something_else_is_refused_by_name() {
        let upstream = Upstream::new("127.0.0.1:40001".parse().unwrap(), Protocol::H2c);
        let asked = |upstream, sends: &[Protocol]| site(upstream).upstream("squid", sends);
        assert!(matches!(asked(None, &Protocol::OVER_TCP), Err(SutError::NoUpstream { server: "squid" })));
        assert_eq!(asked(Some(upstream), &[Protocol::H1, Protocol::H2c]).unwrap(), upstream);
        let error = asked(Some(upstream), &[Protocol::H1, Protocol::H1s]).unwrap_err().to_string();
        assert!(error.contains("squid") && error.contains("h1, h1s and not h2c"), "{error}");
    }

    #[test]
    fn only_a_number_of_connections_above_one_is_a_wish() {
        let one = Upstream::new("127.0.0.1:40001".parse().unwrap(), Protocol::H2c);
        assert!(one.unforced("squid").is_ok());
        assert!(Upstream { connections: 2, ..one }.unforced("squid").is_err());
    }
}
