//! From a URL and what the user said of its server to addresses and TLS settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

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
        None => match (host.as_str(), port).to_socket_addrs() {
            Ok(found) => found.collect(),
            Err(_) if is_localhost(&host) => LOOPBACK.map(|ip| SocketAddr::new(ip, port)).to_vec(),
            Err(error) => {
                return Err(format!(
                    "unknown host `{host}` ({error}); check the name, or give --resolve {host}:{port}:ADDR"
                ));
            }
        },
    };
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for endpoint in found.into_iter().filter(|address| reach.takes(address.ip())).map(Endpoint::from) {
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    if endpoints.is_empty() {
        return Err(match (reach.ipv4, reach.ipv6) {
            (true, _) => format!("`{host}` has no IPv4 address; omit -4"),
            (_, true) => format!("`{host}` has no IPv6 address; omit -6"),
            _ => format!("`{host}` has no address"),
        });
    }
    Ok(endpoints)
}

/// What names of this machine mean where the resolver does not know them, as in a container without `/etc/hosts`.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Whether a name is always one of this machine (RFC 6761 §6.3).
fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
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

    #[test]
    fn a_name_of_this_machine_needs_no_resolver() {
        let url: Url = "http://api.localhost:81/".parse().unwrap();
        let address: SocketAddr = "127.0.0.1:81".parse().unwrap();
        assert!(endpoints(&Reach::default(), &url).unwrap().contains(&address.into()));
        for (name, is_ours) in
            [("LOCALHOST.", true), ("a.localhost", true), ("localhost.example", false), ("alocalhost", false)]
        {
            assert_eq!(is_localhost(name), is_ours, "{name}");
        }
    }
}
