//! Who may be probed without further words: this machine, and namespaces that lead nowhere else.

use std::fs;
use std::net::IpAddr;

use crate::io::tcp::Endpoint;

/// How far away an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// This machine.
    Loopback,
    /// In a network namespace that has no way out, as test labs are.
    PrivateNamespace,
    /// Anywhere.
    Elsewhere,
}

impl Distance {
    /// Of `endpoint`, as this process reaches it.
    pub fn of(endpoint: &Endpoint) -> Self {
        let address = match endpoint {
            Endpoint::Unix(_) => return Self::Loopback,
            Endpoint::Tcp(address) => address.ip(),
        };
        let is_loopback = match address {
            IpAddr::V6(address) => {
                address.is_loopback() || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
            }
            IpAddr::V4(address) => address.is_loopback(),
        };
        if is_loopback {
            return Self::Loopback;
        }
        let table = |path| fs::read_to_string(path).unwrap_or_default();
        let (v4, v6) = (table("/proc/self/net/route"), table("/proc/self/net/ipv6_route"));
        // Without the tables nothing is known, and whoever can be reached may be anybody.
        if v4.is_empty() || leads_out(&v4, &v6) { Self::Elsewhere } else { Self::PrivateNamespace }
    }
}

/// Whether there is a default route, by the kernel's tables (proc(5), `/proc/net/route` and `/proc/net/ipv6_route`).
fn leads_out(v4: &str, v6: &str) -> bool {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let is_default_v4 = |line: &str| {
        let words = words(line);
        words.get(1).is_some_and(|destination| destination == "00000000")
            && words.get(7).is_some_and(|mask| mask == "00000000")
    };
    // Every namespace has one through `lo` that says: unreachable.
    let is_default_v6 = |line: &str| {
        let words = words(line);
        words.get(1).is_some_and(|prefix| prefix == "00") && words.last().is_some_and(|device| device != "lo")
    };
    v4.lines().any(is_default_v4) || v6.lines().any(is_default_v6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
    const NOWHERE: &str = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                           00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n";

    #[test]
    fn a_namespace_with_a_default_route_leads_out() {
        let lan = "eth0 000A0A0A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
        let default = "eth0 00000000 010A0A0A 0003 0 0 0 00000000 0 0 0\n";
        assert!(!leads_out(&format!("{HEAD}{lan}"), NOWHERE));
        assert!(leads_out(&format!("{HEAD}{lan}{default}"), NOWHERE));
        assert!(leads_out(HEAD, &NOWHERE.replace(" lo", " eth0")));
    }

    #[test]
    fn this_machine_is_near_in_every_spelling() {
        for address in ["127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(Distance::of(&Endpoint::Tcp(address.parse().unwrap())), Distance::Loopback);
        }
    }
}
