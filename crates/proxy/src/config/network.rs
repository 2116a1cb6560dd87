//! Addresses that are trusted, as they are written: `10.0.0.7`, `10.0.0.0/8`, `2001:db8::/32`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// An address, or all with the same first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// The bits before the IPv4 address in an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2).
const MAPPED: u8 = 96;

/// The bits of an address from the left, and how many it has.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl Network {
    /// Whether an address is in it. An IPv4-mapped address, which a socket of IPv6 reports, counts as one of IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((own, length), (other, other_length)) = (bits(self.address), bits(address.to_canonical()));
        let differ = (own ^ other).leading_zeros();
        length == other_length && differ >= u32::from(self.bits)
    }
}

impl FromStr for Network {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::Network(text.to_owned());
        let (address, length) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = bits(address).1;
        let bits = length.map_or(Ok(most), |length| length.parse().map_err(|_| wrong()))?;
        match address {
            _ if bits > most => Err(wrong()),
            // IPv4-mapped addresses are compared as IPv4, however they are written.
            IpAddr::V6(mapped) if mapped.to_ipv4_mapped().is_some() && bits >= MAPPED => {
                Ok(Self { address: address.to_canonical(), bits: bits - MAPPED })
            }
            _ => Ok(Self { address, bits }),
        }
    }
}

impl TryFrom<String> for Network {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bits } = self;
        write!(f, "{address}/{bits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_what_begins_alike() {
        let has = |network: &str, address: &str| {
            network.parse::<Network>().expect("it is right").contains(address.parse().expect("an address"))
        };
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.0.0.7", "10.0.0.7") && !has("10.0.0.7", "10.0.0.6"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
        assert!(has("10.0.0.7", "::ffff:10.0.0.7"));
        assert!(has("::ffff:10.0.0.7", "10.0.0.7") && has("::ffff:10.0.0.7", "::ffff:10.0.0.7"));
        assert!(!has("::ffff:10.0.0.7", "10.0.0.6"));
        assert!(has("::ffff:10.0.0.0/104", "10.255.0.1") && !has("::ffff:10.0.0.0/104", "11.0.0.1"));
        assert!(has("2001:db8::/33", "2001:db8:7fff::1") && !has("2001:db8::/33", "2001:db8:8000::1"));
        assert!(has("::/0", "::1") && !has("::/0", "1.2.3.4"));
        for wrong in ["", "a", "1.2.3.4/33", "1.2.3.4/", "1.2.3.4/-1", "::1/129", "1.2.3/8"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
