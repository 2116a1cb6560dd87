//! `[[listen]]`: where it listens, and what for.

use std::net::SocketAddr;
use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::units::{duration_text, optional_duration_text};
use serde::{Deserialize, Serialize};

use super::{ConnectTarget, DestinationProtocol, Network, Other, Transparent};

/// The most listeners of a configuration.
pub const MOST_LISTENERS: usize = 64;

/// How long clients may store that there is HTTP/3, unless set.
pub(super) const ALT_SVC: Duration = Duration::from_secs(24 * 3600);

const fn alt_svc() -> Duration {
    ALT_SVC
}

const fn upgrade_h2c() -> bool {
    true
}

/// A socket that it listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[allow(clippy::struct_excessive_bools, reason = "keys of the file are independent")]
pub struct Listen {
    /// Address and port; port 0 takes a free one. In clear: HTTP/1.1, and HTTP/2 by prior knowledge or `Upgrade: h2c`.
    pub address: SocketAddr,
    /// In clear: a request with `Upgrade: h2c` (RFC 7540 §3.2) switches its connection to HTTP/2. RFC 9113 has
    /// obsoleted that; without it such a request is one of HTTP/1.1.
    #[serde(default = "upgrade_h2c")]
    pub upgrade_h2c: bool,
    /// With TLS: HTTP/1.1 and HTTP/2 by ALPN.
    #[serde(default)]
    pub tls: bool,
    /// With HTTP/3, too: on the UDP port of the same number. For TLS.
    #[serde(default)]
    pub h3: bool,
    /// How long clients of its TCP port may store that there is HTTP/3 (`Alt-Svc`, RFC 7838); with 0 none is sent.
    #[serde(default = "alt_svc", with = "duration_text")]
    #[schemars(with = "String")]
    pub alt_svc: Duration,
    /// Takes only clients with a certificate signed by one of these authorities, PEM file. For TLS.
    #[serde(default)]
    pub client_ca: Option<String>,
    /// The service of requests that no route takes; without it they are answered 404.
    #[serde(default)]
    pub service: Option<String>,
    /// Which requests go elsewhere; of those that match, the one with a host goes first, then the one with the longest path.
    #[serde(default)]
    pub route: Vec<Route>,
    /// How many requests a second it takes.
    #[serde(default)]
    pub rate: Option<super::Rate>,
    /// How many clients may be connected to it at a time; others wait.
    #[serde(default)]
    pub max_clients: Option<u32>,
    /// Where CONNECT may lead. Nowhere, unless it is given.
    #[serde(default)]
    pub connect: Vec<ConnectTarget>,
    /// The service whose instances take these CONNECTs; without it the sidecar connects to the target itself.
    #[serde(default)]
    pub connect_service: Option<String>,
    /// Each connection begins with a header of the PROXY protocol, version 1 or 2, that names its client. One without is closed.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Only these may connect then. Everybody, if it is empty.
    #[serde(default)]
    pub proxy_protocol_from: Vec<Network>,
    /// Takes connections that were made to other addresses and that the kernel redirects to it: by `redirect` or
    /// `tproxy`. It needs no service: requests that no route takes go to their original destination.
    #[serde(default)]
    pub transparent: Option<Transparent>,
    /// The protocol to destinations of redirected connections that are no instance of a service; unless set, the
    /// caller's.
    #[serde(default)]
    pub protocol: Option<DestinationProtocol>,
    /// What becomes of redirected connections that do not begin with HTTP; they are tunnelled unless set.
    #[serde(default)]
    pub other: Option<Other>,
    /// How long a redirected connection may be silent before it is taken for one whose server speaks first, 300ms unless set.
    #[serde(default, with = "optional_duration_text")]
    #[schemars(with = "Option<String>")]
    pub detect: Option<Duration>,
    /// Which ports of destinations `--print-nft` redirects; all, if it is empty.
    #[serde(default)]
    pub ports: Vec<u16>,
}

/// Which requests go to a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// The host of the request's authority, without port; `*.example.test` stands for every name below. Any, if there is none.
    #[serde(default)]
    pub host: Option<String>,
    /// The path, or a part of it before a `/`: `/a` takes `/a`, `/a/b` and `/a?q`, and not `/ab`. Any, if there is none.
    #[serde(default)]
    pub path: Option<String>,
    /// The service.
    pub service: String,
}

impl Route {
    /// What it takes, in words. Two routes with the same words take the same requests.
    pub(super) fn takes(&self) -> String {
        let host = self.host.as_deref().unwrap_or("any host").to_ascii_lowercase();
        format!("{host} and {}", self.path.as_deref().unwrap_or("any path"))
    }
}
