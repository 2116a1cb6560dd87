//! Addresses that two sockets cannot listen on at the same time.

use std::net::SocketAddr;

use super::{Config, ConfigError};

impl Config {
    /// Whether each listener, and the admin listener, can have its address beside the others.
    pub fn check_addresses(&self) -> Result<(), ConfigError> {
        let listeners: Vec<SocketAddr> = self.listen.iter().map(|listen| listen.address).collect();
        let conflict = |address: SocketAddr, others: &[SocketAddr]| {
            others.iter().copied().find(|other| overlap(*other, address))
        };
        for (n, address) in listeners.iter().copied().enumerate() {
            match conflict(address, &listeners[..n]) {
                Some(other) if other == address => return Err(ConfigError::SameAddress(address)),
                Some(other) => return Err(ConfigError::Overlap { admin: "", address, other }),
                None => {}
            }
        }
        let admin = self.admin.address;
        match admin.and_then(|address| Some((address, conflict(address, &listeners)?))) {
            Some((address, other)) => Err(ConfigError::Overlap { admin: "admin ", address, other }),
            None => Ok(()),
        }
    }
}

/// Whether the kernel refuses the second of two sockets that listen on these addresses. `0.0.0.0` stands for all
/// addresses of IPv4, and `[::]` for all of IPv6; `net.ipv6.bindv6only` decides whether also for all of IPv4. Port 0
/// gets a port that is free.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let is_same_port = a.port() == b.port() && a.port() != 0;
    let is_any = a.ip().is_unspecified() || b.ip().is_unspecified();
    a == b && a.port() != 0 || is_same_port && is_any && a.is_ipv4() == b.is_ipv4()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_addresses_that_overlap_both_are_named() {
        let told = |listeners: &[&str], admin: &str| {
            let listen = |address: &&str| format!("[[listen]]\naddress = '{address}'\nservice = 'a'\n");
            let listen: String = listeners.iter().map(listen).collect();
            let admin = if admin.is_empty() {
                String::new()
            } else {
                format!("address = '{admin}'\npublic = true\n")
            };
            let text = format!("{listen}[service.a]\ninstances = ['http://a']\n[admin]\n{admin}");
            Config::parse(&text).map_or_else(|error| error.to_string(), |_| String::new())
        };
        let advice = "give one of them another port";
        for (listeners, admin, expected) in [
            (&["127.0.0.1:1", "127.0.0.1:2"][..], "127.0.0.1:3", String::new()),
            (&["127.0.0.1:0", "127.0.0.1:0"], "127.0.0.1:0", String::new()),
            (&["127.0.0.1:1", "127.0.0.2:1", "[::1]:1"], "[::]:2", String::new()),
            (&["0.0.0.0:1", "[::1]:1"], "", String::new()),
            (
                &["127.0.0.1:1"],
                "127.0.0.1:1",
                format!(
                    "line 7: the admin listener on 127.0.0.1:1 conflicts with the listener on 127.0.0.1:1: {advice}"
                ),
            ),
            (
                &["127.0.0.2:1", "127.0.0.1:2"],
                "0.0.0.0:2",
                format!(
                    "line 10: the admin listener on 0.0.0.0:2 conflicts with the listener on 127.0.0.1:2: {advice}"
                ),
            ),
            (
                &["0.0.0.0:1", "127.0.0.1:1"],
                "",
                format!(
                    "line 5: the listener on 127.0.0.1:1 conflicts with the listener on 0.0.0.0:1: {advice}"
                ),
            ),
            (
                &["[::1]:1", "[::]:1"],
                "",
                format!("line 5: the listener on [::]:1 conflicts with the listener on [::1]:1: {advice}"),
            ),
        ] {
            assert_eq!(told(listeners, admin), expected, "{listeners:?} {admin}");
        }
    }
}
