//! Keys of `[[listen]]` for connections to other addresses, which the kernel redirects to it, and of `[service.original]`.

use std::time::Duration;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError, Listen, Outlier, Retry, RetryOn, Speaks};

/// The name of the service whose instances are the destinations of redirected connections.
pub const ORIGINAL: &str = "original";

/// How long a redirected connection may be silent before it is taken for one whose server speaks first.
const DETECT: Duration = Duration::from_millis(300);

/// How long a tunnel may be silent: as long as in Envoy. Callers are unaware of the sidecar.
const TUNNEL: Duration = Duration::from_secs(3_600);

/// How the kernel brings connections to a listener that were made to another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transparent {
    /// By REDIRECT or DNAT of netfilter: the kernel reports the original destination of each (`SO_ORIGINAL_DST`).
    Redirect,
    /// By TPROXY of netfilter: the local address of each is its original destination (`IP_TRANSPARENT`).
    Tproxy,
}

/// The protocol to destinations that are no instance of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DestinationProtocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/2 in clear; HTTP/1.1 where the destination turns out not to speak it.
    H2c,
}

/// What becomes of redirected connections that do not begin with HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Other {
    /// Their bytes pass to the original destination: whoever redirects all connections of a machine has some that are
    /// not HTTP.
    #[default]
    Tunnel,
    /// They are closed.
    Refuse,
}

/// What a listener does with redirected connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interception {
    /// How they come.
    pub by: Transparent,
    /// The protocol to destinations; the caller's, if there is none.
    pub protocol: Option<DestinationProtocol>,
    /// What becomes of those that are not HTTP.
    pub other: Other,
    /// How long one may be silent at first.
    pub detect: Duration,
}

impl Interception {
    /// The protocol to a destination whose caller speaks HTTP/2, or does not.
    pub const fn speaks(&self, is_h2: bool) -> Speaks {
        match self.protocol {
            Some(DestinationProtocol::H2c) => Speaks::H2c,
            None if is_h2 => Speaks::H2c,
            Some(DestinationProtocol::Http) | None => Speaks::H1,
        }
    }
}

impl Listen {
    /// What it does with connections that were made to other addresses, if it takes them.
    pub fn interception(&self) -> Option<Interception> {
        let Self { protocol, other, .. } = *self;
        let detect = self.detect.unwrap_or(DETECT);
        self.transparent.map(|by| Interception { by, protocol, other: other.unwrap_or_default(), detect })
    }

    pub(super) fn check_transparent(&self) -> Result<(), ConfigError> {
        let given = [
            ("protocol", self.protocol.is_some()),
            ("other", self.other.is_some()),
            ("detect", self.detect.is_some()),
            ("ports", !self.ports.is_empty()),
        ];
        if self.transparent.is_none() {
            let wrong = given.iter().find(|(_, is_given)| *is_given);
            return wrong
                .map_or(Ok(()), |(key, _)| Err(ConfigError::NotTransparent { key, address: self.address }));
        }
        let value = |key: &str, why| {
            Err(ConfigError::Value { place: format!("{key} of the listener on {}", self.address), why })
        };
        if self.detect.is_some_and(|detect| detect.is_zero()) {
            return value("detect", "detect must be greater than 0");
        }
        if self.ports.contains(&0) {
            return value("ports", "ports must be from 1 to 65535");
        }
        if self.tls && self.other == Some(Other::Tunnel) {
            return value(
                "other",
                "other has no effect with tls = true: what is not TLS is closed; remove it",
            );
        }
        Ok(())
    }
}

impl Config {
    /// Whether a listener takes connections that were made to other addresses.
    pub fn is_transparent(&self) -> bool {
        self.listen.iter().any(|listen| listen.transparent.is_some())
    }

    /// Whether this service is that of redirected connections, which has no instances in the file.
    pub(super) fn is_original(&self, name: &str) -> bool {
        name == ORIGINAL && self.is_transparent()
    }

    /// Checks `[service.original]`, and `mark`.
    pub(super) fn check_original(&self) -> Result<(), ConfigError> {
        if self.mark == Some(0) {
            return Err(ConfigError::Value { place: "mark".to_owned(), why: "must be from 1 to 4294967295" });
        }
        let Some(service) = self.service.get(ORIGINAL).filter(|_| self.is_transparent()) else {
            return Ok(());
        };
        let place = format!("[service.{ORIGINAL}]");
        if service.sources() > 0 {
            let why = "this name is reserved for the destinations of redirected connections, so it takes no instances: rename your service";
            return Err(ConfigError::Value { place, why });
        }
        if service.health.is_some() || service.proxy_protocol.is_some() {
            let why = "health and proxy-protocol are not possible for destinations of redirected connections";
            return Err(ConfigError::Value { place, why });
        }
        Ok(())
    }

    /// Adds the service of redirected connections, whose settings may be in the file.
    pub fn add_original(&mut self) {
        if !self.is_transparent() {
            return;
        }
        let service = self.service.entry(ORIGINAL.to_owned()).or_default();
        // There is no other instance for a request to go to.
        service.outlier = Outlier { consecutive: 0, failures: 0, ..service.outlier };
        // A caller learns at once that nobody listens there, as it would without a sidecar.
        service.retry.get_or_insert_with(|| Retry { on: vec![RetryOn::Reset], ..self.retry.clone() });
        service.timeouts.stream.get_or_insert(TUNNEL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTEN: &str = "[[listen]]\naddress = '127.0.0.1:15001'\ntransparent = 'redirect'\n";

    #[test]
    fn a_transparent_listener_needs_no_service_and_has_one_of_its_own() {
        let mut config = Config::parse(LISTEN).expect("it is right");
        let how = config.listen[0].interception().expect("it is transparent");
        assert_eq!((how.by, how.other, how.detect), (Transparent::Redirect, Other::Tunnel, DETECT));
        assert_eq!([true, false].map(|is_h2| how.speaks(is_h2)), [Speaks::H2c, Speaks::H1]);
        config.add_original();
        let service = &config.service[ORIGINAL];
        assert_eq!((service.outlier.consecutive, service.timeouts.stream), (0, Some(TUNNEL)));
        assert!(config.check().is_ok(), "and again, as at a reload");
        let text =
            format!("{LISTEN}protocol = 'h2c'\nother = 'refuse'\n[service.original.timeouts]\nstream = '1s'");
        let mut config = Config::parse(&text).expect("it is right");
        config.add_original();
        assert_eq!(config.service[ORIGINAL].timeouts.stream, Some(Duration::from_secs(1)));
        let how = config.listen[0].interception().expect("it is transparent");
        assert_eq!((how.other, how.speaks(false)), (Other::Refuse, Speaks::H2c));
    }

    #[test]
    fn the_file_of_the_documentation_is_right() {
        let page = include_str!("../../../../docs/sidecar-transparent.md");
        let text =
            page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let config = Config::parse(text).expect("it is right");
        let [out, come] = [0, 1].map(|n: usize| config.listen[n].interception().expect("it is transparent"));
        assert_eq!((out.detect, out.other), (come.detect, come.other), "the page says what the defaults are");
        assert_eq!(config.service[ORIGINAL].policy, super::super::Policy::default());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let plain = "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n";
        let service = "[service.a]\ninstances = ['http://a']\n";
        for (text, words) in [
            (format!("{plain}other = 'refuse'\n{service}"), "line 4: other of the listener on 127.0.0.1:1"),
            (format!("{plain}ports = [80]\n{service}"), "requires transparent"),
            (format!("{LISTEN}detect = '0s'\n"), "line 4: detect"),
            (format!("{LISTEN}ports = [0]\n"), "line 4: ports"),
            (format!("{LISTEN}tls = true\nother = 'tunnel'\n"), "line 5: other"),
            (format!("mark = 0\n{LISTEN}"), "line 1: mark"),
            (format!("{LISTEN}[service.original]\ninstances = ['http://a']"), "line 4: [service.original]"),
            (format!("{LISTEN}[service.original.health]\npath = '/'"), "health and proxy-protocol are not"),
        ] {
            let told = Config::parse(&text).expect_err("it is wrong").to_string();
            assert!(told.contains(words), "{told}");
        }
        let text = format!("{plain}[service.a]\ninstances = ['http://a']\n[service.original]\n");
        assert!(Config::parse(&text).is_err(), "without a transparent listener it is a service as any other");
    }
}
