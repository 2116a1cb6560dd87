//! Which targets may be probed without explicit consent: this machine, and namespaces without a route elsewhere.

use std::fs;
use std::net::IpAddr;

use h2lab_net::tcp::Endpoint;

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
        // Without the tables nothing is known, and any reachable host may be somebody else's.
        if v4.is_empty() || leads_out(&v4, &v6) { Self::Elsewhere } else { Self::PrivateNamespace }
    }
}

/// A route through a gateway (`RTF_GATEWAY` of `linux/route.h`).
const GATEWAY: u32 = 0x2;
/// A route with a shorter prefix is taken to be a part of a default route, such as 0.0.0.0/1 and 128.0.0.0/1.
const SHORT: u32 = 8;

/// Whether a route leads beyond the networks that the namespace is in, by the kernel's tables (proc(5), `/proc/net/route` and
/// `/proc/net/ipv6_route`): through a gateway, or to more than any one network has.
fn leads_out(v4: &str, v6: &str) -> bool {
    let hexadecimal = |word: Option<&&str>| word.and_then(|word| u32::from_str_radix(word, 16).ok());
    let by_v4 = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_short = hexadecimal(words.get(7)).is_some_and(|mask| mask.count_ones() < SHORT);
        is_short || hexadecimal(words.get(3)).is_some_and(|flags| flags & GATEWAY != 0)
    };
    // Every namespace has a default route through `lo` that says: unreachable.
    let by_v6 = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_short = hexadecimal(words.get(1)).is_some_and(|prefix| prefix < SHORT);
        let has_gateway = hexadecimal(words.get(8)).is_some_and(|flags| flags & GATEWAY != 0);
        words.last().is_some_and(|device| *device != "lo") && (is_short || has_gateway)
    };
    v4.lines().skip(1).any(by_v4) || v6.lines().any(by_v6)
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
        // A host of its own behind a gateway, and a default route in two halves.
        let host = "eth0 01020304 010A0A0A 0007 0 0 0 FFFFFFFF 0 0 0\n";
        assert!(leads_out(&format!("{HEAD}{lan}{host}"), NOWHERE));
        let half = "eth0 00000080 00000000 0001 0 0 0 00000080 0 0 0\n";
        assert!(leads_out(&format!("{HEAD}{half}"), NOWHERE));
        let ten = "eth0 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\n";
        assert!(!leads_out(&format!("{HEAD}{ten}"), NOWHERE));
        let v6 = |prefix, flags| {
            format!("{:032x} {prefix} {:032x} 00 {:032x} 00000400 00000001 00000000 {flags} eth0\n", 0, 0, 0)
        };
        assert!(!leads_out(HEAD, &v6("40", "00000001")));
        assert!(leads_out(HEAD, &v6("40", "00000003")) && leads_out(HEAD, &v6("01", "00000001")));
    }

    #[test]
    fn this_machine_is_near_in_every_spelling() {
        for address in ["127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(Distance::of(&Endpoint::Tcp(address.parse().unwrap())), Distance::Loopback);
        }
    }
}
