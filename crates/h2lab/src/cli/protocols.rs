//! The flags that say which protocol is spoken, by curl's names, the same in `load` and `bulk`.

use clap::Args;
use h2lab_model::workload::Protocol;

use super::exit::Usage;
use super::values::value;

/// Which protocol.
#[derive(Debug, Clone, Copy, Default, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own, as people know them")]
pub struct ProtocolArgs {
    /// Protocol: h1, h1s, h2, h2c, h3 [default: what the server takes over TCP]
    #[arg(long = "proto", value_name = "NAME", value_parser = protocol, group = "protocol")]
    pub proto: Option<Protocol>,
    /// HTTP/1.1, in clear or over TLS as the URL says
    #[arg(long = "http1.1", group = "protocol")]
    pub http1: bool,
    /// HTTP/2, over TLS or in clear as the URL says; in clear it begins with an upgrade, as in curl
    #[arg(long, group = "protocol")]
    pub http2: bool,
    /// HTTP/2 in clear at once
    #[arg(long, visible_alias = "h2c", group = "protocol")]
    pub http2_prior_knowledge: bool,
    /// HTTP/3, over UDP on the port of the URL; never by fallback
    #[arg(long, group = "protocol")]
    pub http3: bool,
}

impl ProtocolArgs {
    /// The one that was asked for by name, if any; it fits the URL's scheme.
    pub fn asked(self, is_tls: bool) -> Result<Option<Protocol>, Usage> {
        let by_scheme = |tls, clear| if is_tls { tls } else { clear };
        let asked = match (self.proto, self.http1, self.http2 || self.http2_prior_knowledge) {
            (Some(protocol), ..) => protocol,
            _ if self.http3 => Protocol::H3,
            (_, true, _) => by_scheme(Protocol::H1s, Protocol::H1),
            (.., true) => by_scheme(Protocol::H2, Protocol::H2c),
            _ => return Ok(None),
        };
        if asked.is_tls() != is_tls {
            let scheme = if is_tls { "https:// takes h1s, h2 and h3" } else { "http:// takes h1 and h2c" };
            return Err(Usage(format!("--proto {asked} does not fit the URL: {scheme}")));
        }
        Ok(Some(asked))
    }
}

/// Refuses streams where there are none.
pub fn check_streams(protocol: Protocol, streams: Option<u32>) -> Result<(), Usage> {
    if !protocol.is_multiplexed() && streams.is_some_and(|streams| streams > 1) {
        return Err(Usage(format!(
            "-m/--streams: {protocol} carries one request at a time; give -c instead"
        )));
    }
    Ok(())
}

fn protocol(text: &str) -> Result<Protocol, String> {
    if text.contains(',') {
        return Err(format!("`{text}` is several: this speaks one, `h2lab compare` compares them"));
    }
    value(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_protocol_is_spoken_at_a_time() {
        assert_eq!(protocol("h2c"), Ok(Protocol::H2c));
        assert!(protocol("h1,h2c").unwrap_err().contains("h2lab compare"));
    }

    #[test]
    fn what_is_asked_for_by_name_fits_the_url() {
        let by_version = ProtocolArgs { http2: true, ..ProtocolArgs::default() };
        assert_eq!(by_version.asked(true).unwrap(), Some(Protocol::H2));
        assert_eq!(by_version.asked(false).unwrap(), Some(Protocol::H2c));
        assert_eq!(ProtocolArgs::default().asked(true).unwrap(), None);
        let h3 = ProtocolArgs { http3: true, ..ProtocolArgs::default() };
        assert!(h3.asked(false).unwrap_err().to_string().contains("does not fit the URL"));
        assert!(check_streams(Protocol::H1, Some(2)).is_err());
        assert!(
            check_streams(Protocol::H1, Some(1)).is_ok() && check_streams(Protocol::H2c, Some(2)).is_ok()
        );
    }
}
