//! From a URL and what the user said of its server to addresses and TLS settings.

use std::net::{SocketAddr, ToSocketAddrs};

use h2lab_model::fleet::{Reach, Trust};

use super::url::Url;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::{Identity, TlsOptions};

/// Where the server of `url` is, in the order in which to try; at least one. The error says why there is none. Names are looked
/// up by the system's resolver.
pub fn endpoints(reach: &Reach, url: &Url) -> Result<Vec<Endpoint>, String> {
    if let Some(path) = &reach.unix_socket {
        return Ok(vec![Endpoint::Unix(path.as_path().into())]);
    }
    let (host, port) = reach.place(url.host(), url.port());
    let found: Vec<SocketAddr> = match reach.fixed(&host, port) {
        Some(fixed) => fixed.iter().map(|address| SocketAddr::new(*address, port)).collect(),
        None => (host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| {
                format!(
                    "unknown host `{host}` ({error}); check the name, or give --resolve {host}:{port}:ADDR"
                )
            })?
            .collect(),
    };
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for endpoint in found.into_iter().filter(|address| reach.takes(address.ip())).map(Endpoint::from) {
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    if endpoints.is_empty() {
        return Err(match (reach.ipv4, reach.ipv6) {
            (true, _) => format!("`{host}` has no IPv4 address; leave out -4"),
            (_, true) => format!("`{host}` has no IPv6 address; leave out -6"),
            _ => format!("`{host}` has no address"),
        });
    }
    Ok(endpoints)
}

/// What to trust and to present, as TLS itself takes it.
pub fn tls_options(trust: &Trust) -> TlsOptions {
    let identity = |own: &h2lab_model::fleet::ClientIdentity| Identity {
        certificates_pem: own.certificates_pem.clone(),
        key_pem: own.key_pem.clone(),
    };
    TlsOptions {
        insecure: trust.insecure,
        ca_pem: trust.ca_pem.clone().map(String::into_bytes),
        identity: trust.identity.as_ref().map(identity),
        full_handshakes: trust.full_handshakes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_the_addresses_of_the_wanted_family() {
        let url: Url = "http://example.test:81/".parse().unwrap();
        let connect_to = vec!["::127.0.0.1:82".parse().unwrap()];
        let mut reach = Reach { connect_to, ..Reach::default() };
        let address: SocketAddr = "127.0.0.1:82".parse().unwrap();
        assert_eq!(endpoints(&reach, &url), Ok(vec![address.into()]));
        reach.ipv6 = true;
        assert!(endpoints(&reach, &url).unwrap_err().contains("`127.0.0.1` has no IPv6 address"));
    }
}
