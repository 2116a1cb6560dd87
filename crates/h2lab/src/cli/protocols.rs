//! The flags that say which protocol is spoken, by curl's names.

use clap::{Args, ValueEnum};
use h2lab_model::scenario::{Axis, MatrixAxes};
use h2lab_model::workload::{H2cMode, Protocol};

use super::exit::Usage;
use super::values::{axis, replace};

/// Which schemes take which protocols.
pub const SCHEMES: &str = "https:// takes h1s (or h1), h2 and h3, http:// takes h1 and h2c";

/// Which protocol.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Protocol")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own, as people know them")]
pub struct ProtocolArgs {
    /// Protocol: h1, h1s, h2, h2c, h3. `compare`, `run` and `probe` take several (h1,h2c); naming one twice makes an A/A run
    #[arg(long = "proto", value_name = "NAME", value_parser = axis::<Protocol>, group = "protocol")]
    protocols: Option<Axis<Protocol>>,
    /// HTTP/1.1, in clear or over TLS according to the URL
    #[arg(long = "http1.1", aliases = ["http1", "h1"], group = "protocol")]
    http1: bool,
    /// HTTP/2, over TLS or in clear according to the URL; in clear it starts with an upgrade, as in curl
    #[arg(long, group = "protocol")]
    http2: bool,
    /// HTTP/2 directly: in clear without an upgrade (prior knowledge), over TLS as --http2 has it
    #[arg(long, group = "protocol")]
    http2_prior_knowledge: bool,
    /// HTTP/2 in clear without an upgrade, never over TLS; short for --proto h2c
    #[arg(long, group = "protocol")]
    h2c: bool,
    /// HTTP/3, over UDP on the port of the URL; no fallback to another protocol
    #[arg(long, alias = "http3-only", group = "protocol")]
    http3: bool,
    /// How h2c starts: HTTP/2 directly, or HTTP/1.1 with `Upgrade: h2c`
    #[arg(long, value_name = "MODE", conflicts_with_all = ["http1", "http2_prior_knowledge", "h2c", "http3"])]
    h2c_mode: Option<H2cModeArg>,
}

/// `--h2c-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum H2cModeArg {
    /// Prior knowledge, as between services configured for it.
    PriorKnowledge,
    /// With the first request, like `curl --http2`; a request with a body is preceded by `OPTIONS *`.
    Upgrade,
}

impl ProtocolArgs {
    /// Clap's names of the flags that only name a protocol.
    pub const NAMES: &[&str] = &["protocols", "http1", "http2_prior_knowledge", "h2c", "http3"];

    /// `--proto protocol`.
    pub fn named(protocol: Protocol) -> Self {
        Self { protocols: Some(Axis::one(protocol)), ..Self::default() }
    }

    /// The protocols that were asked for by name, for a server with or without TLS; `None` if none was.
    pub fn asked(&self, is_tls: bool) -> Option<Axis<Protocol>> {
        let by_scheme = |tls, clear| Some(Axis::one(if is_tls { tls } else { clear }));
        match self {
            Self { protocols: Some(named), .. } => Some(named.clone()),
            Self { http3: true, .. } => Some(Axis::one(Protocol::H3)),
            Self { h2c: true, .. } => Some(Axis::one(Protocol::H2c)),
            Self { http1: true, .. } => by_scheme(Protocol::H1s, Protocol::H1),
            Self { http2: true, .. } | Self { http2_prior_knowledge: true, .. } => {
                by_scheme(Protocol::H2, Protocol::H2c)
            }
            _ => None,
        }
    }

    /// The same for a server whose URL says whether it has TLS: h1 means HTTP/1.1 over TLS there, unless h1s is named
    /// beside it.
    pub fn asked_at(&self, is_tls: bool) -> Option<Axis<Protocol>> {
        let asked = self.asked(is_tls)?;
        if !is_tls || asked.values().contains(&Protocol::H1s) {
            return Some(asked);
        }
        let as_spoken =
            |&protocol: &Protocol| if protocol == Protocol::H1 { Protocol::H1s } else { protocol };
        Axis::new(asked.values().iter().map(as_spoken).collect())
    }

    /// The protocols that were asked for by name at either scheme; none if none was.
    pub fn either_scheme(&self) -> Vec<Protocol> {
        let mut protocols: Vec<Protocol> = Vec::new();
        for axis in [true, false].into_iter().filter_map(|is_tls| self.asked_at(is_tls)) {
            protocols.extend(axis.values());
        }
        protocols.sort_unstable();
        protocols.dedup();
        protocols
    }

    /// The flag that names a protocol, as it was typed.
    pub fn flag(&self) -> String {
        match self {
            Self { protocols: Some(named), .. } => format!("--proto {named}"),
            Self { http3: true, .. } => "--http3".to_owned(),
            Self { http1: true, .. } => "--http1.1".to_owned(),
            Self { http2: true, .. } => "--http2".to_owned(),
            Self { h2c: true, .. } => "--h2c".to_owned(),
            _ => "--http2-prior-knowledge".to_owned(),
        }
    }

    /// The error of a protocol that a URL's scheme does not allow.
    pub fn misfit(&self) -> Usage {
        Usage(format!("{} does not fit the URL: {SCHEMES}", self.flag()))
    }

    /// Refuses `--h2c-mode` if `protocol` is not h2c.
    pub fn check_mode(&self, protocol: Protocol) -> Result<(), Usage> {
        if self.h2c_mode.is_some() && protocol != Protocol::H2c {
            let words = "--h2c-mode is about HTTP/2 in clear; give --proto h2c and http://";
            return Err(Usage(words.to_owned()));
        }
        Ok(())
    }

    /// The protocol that was asked for by name, for commands that speak one at a time.
    pub fn single(&self, is_tls: bool) -> Result<Option<Protocol>, Usage> {
        Self::only(self.asked(is_tls).as_ref())
    }

    fn only(asked: Option<&Axis<Protocol>>) -> Result<Option<Protocol>, Usage> {
        match asked.map(|asked| (asked, asked.values())) {
            None => Ok(None),
            Some((_, [protocol])) => Ok(Some(*protocol)),
            Some((several, _)) => Err(Usage(format!(
                "--proto {several}: this command uses one protocol; `h2lab compare` compares several"
            ))),
        }
    }

    /// The protocols to try at a server, the best first: `in_clear` or what TLS offers, unless one was asked for by name.
    /// That one fits the URL's scheme, and is never replaced by another.
    pub fn to_try(&self, is_tls: bool, in_clear: &[Protocol]) -> Result<Vec<Protocol>, Usage> {
        let asked = match Self::only(self.asked_at(is_tls).as_ref())? {
            Some(protocol) => protocol,
            None if self.h2c_mode.is_some() => Protocol::H2c,
            None if is_tls => return Ok(vec![Protocol::H2, Protocol::H1s]),
            None => return Ok(in_clear.to_vec()),
        };
        self.check_mode(if is_tls { Protocol::H2 } else { asked })?;
        if asked.is_tls() != is_tls {
            return Err(self.misfit());
        }
        Ok(vec![asked])
    }

    /// How h2c begins, if a flag says so.
    pub fn h2c_mode(&self) -> Option<H2cMode> {
        match self.h2c_mode {
            Some(H2cModeArg::PriorKnowledge) => Some(H2cMode::PriorKnowledge),
            Some(H2cModeArg::Upgrade) => Some(H2cMode::Upgrade),
            None if self.http2 => Some(H2cMode::Upgrade),
            None => (self.http2_prior_knowledge || self.h2c).then_some(H2cMode::PriorKnowledge),
        }
    }

    /// Whether a connection of `protocol` begins with an upgrade: only one in clear can.
    pub fn upgrades(&self, protocol: Protocol) -> bool {
        protocol == Protocol::H2c && self.h2c_mode() == Some(H2cMode::Upgrade)
    }

    /// Overrides the scenario's protocols with the flags, over TLS if the scenario uses TLS.
    pub fn apply(&self, matrix: &mut MatrixAxes) {
        let is_tls = |protocol: &Protocol| protocol.is_tls() && !protocol.is_quic();
        let asked = self.asked(matrix.protocols.values().iter().any(is_tls));
        if asked.is_some() {
            // The flag applies to every arm.
            matrix.arms.iter_mut().for_each(|arm| arm.protocols = None);
        }
        replace(&mut matrix.protocols, asked.as_ref());
        replace(&mut matrix.h2c_mode, self.h2c_mode().as_ref());
    }
}

/// Refuses streams for protocols that have none.
pub fn check_streams(protocol: Protocol, streams: Option<u32>) -> Result<(), Usage> {
    if !protocol.is_multiplexed() && streams.is_some_and(|streams| streams > 1) {
        return Err(Usage(format!(
            "-m/--streams: {protocol} carries one request at a time; give -c instead (curl's -m TIME is --timeout)"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use h2lab_model::scenario::Scenario;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        protocol: ProtocolArgs,
    }

    fn args(line: &str) -> ProtocolArgs {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).protocol
    }

    fn tried(line: &str, is_tls: bool) -> Result<Vec<Protocol>, String> {
        args(line).to_try(is_tls, &[Protocol::H1]).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_asked_for_by_name_fits_the_url_and_is_never_replaced() {
        use Protocol::{H1, H1s, H2, H2c, H3};
        for (line, in_tls, in_clear) in [
            ("", vec![H2, H1s], vec![H1]),
            ("--http1.1", vec![H1s], vec![H1]),
            ("--proto h1", vec![H1s], vec![H1]),
            ("--http2", vec![H2], vec![H2c]),
            ("--http2-prior-knowledge", vec![H2], vec![H2c]),
        ] {
            assert_eq!((tried(line, true), tried(line, false)), (Ok(in_tls), Ok(in_clear)), "{line}");
        }
        assert_eq!(
            (tried("--http3", true), tried("--h2c-mode=upgrade", false)),
            (Ok(vec![H3]), Ok(vec![H2c]))
        );
        for (line, is_tls, words) in [
            ("--http3", false, "--http3 does not fit the URL"),
            ("--proto h1s", false, "--proto h1s does not fit the URL"),
            ("--proto h2c", true, "--proto h2c does not fit the URL"),
            ("--h2c", true, "--h2c does not fit the URL"),
            ("--proto h1,h2c", false, "h2lab compare"),
            ("--h2c-mode upgrade", true, "in clear"),
            ("--h2c-mode upgrade --proto h1", false, "in clear"),
        ] {
            let error = tried(line, is_tls).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        for line in [["x", "--http2", "--http3"], ["x", "--h2c", "--h2c-mode=upgrade"]] {
            assert!(Line::try_parse_from(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn h1_is_over_tls_where_the_url_is_unless_h1s_is_named_too() {
        let asked = |line: &str, is_tls| args(line).asked_at(is_tls).unwrap().to_string();
        assert_eq!(
            (asked("--proto h1,h2", true), asked("--proto h1,h2", false)),
            ("h1s,h2".into(), "h1,h2".into())
        );
        assert_eq!(asked("--proto h1,h1", true), "h1s,h1s", "an A/A run stays one");
        assert_eq!(asked("--proto h1,h1s", true), "h1,h1s", "of which the URL allows one");
    }

    #[test]
    fn http2_in_clear_begins_as_in_curl() {
        let of = |line: &str| args(line).h2c_mode();
        assert_eq!((of(""), of("--http2")), (None, Some(H2cMode::Upgrade)));
        assert_eq!(of("--h2c"), Some(H2cMode::PriorKnowledge));
        assert_eq!(of("--http2 --h2c-mode prior-knowledge"), Some(H2cMode::PriorKnowledge));
    }

    #[test]
    fn a_protocol_is_for_every_arm_and_as_safe_as_the_scenarios() {
        let file = "[[matrix.arms]]\nprotocols = 'h2c'\nconnections = '1,4'\n\
                    [[matrix.arms]]\ntopology = 'sidecar'\nsidecar = 'envoy'\nprotocols = 'h1'";
        let mut matrix = Scenario::from_toml(file).unwrap().matrix;
        args("--proto h1,h2").apply(&mut matrix);
        let matrices = matrix.matrices();
        assert!(matrices.iter().all(|one| one.protocols.values() == [Protocol::H1, Protocol::H2]));
        assert_eq!(matrices[0].connections.values().len(), 2, "nothing was said of them");
        for (file, protocol) in [("h1s,h2", Protocol::H1s), ("h1,h2c", Protocol::H1)] {
            let mut matrix = MatrixAxes { protocols: file.parse().unwrap(), ..MatrixAxes::default() };
            args("--http1.1").apply(&mut matrix);
            assert_eq!(matrix.protocols.values(), [protocol]);
        }
    }

    #[test]
    fn a_protocol_of_one_stream_has_no_more() {
        assert!(check_streams(Protocol::H1, Some(2)).is_err());
        assert!(
            check_streams(Protocol::H1, Some(1)).is_ok() && check_streams(Protocol::H2c, Some(2)).is_ok()
        );
    }
}
