//! `[service.NAME]`: instances that answer the same requests.

use serde::{Deserialize, Serialize};

use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::units::optional_duration_text;

use super::{
    ConfigError, Consul, Health, Identity, Instance, Member, Outlier, Policy, Rate, Retry, ServiceLimits,
    ServiceTimeouts, Speaks, SrvName,
};
use crate::proxy_protocol::Version;

/// A service: instances that answer the same requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Service {
    /// Its instances, where no registry names them.
    #[serde(default)]
    pub instances: Vec<Member>,
    /// A file of instances, TOML or JSON, which is watched.
    #[serde(default)]
    pub file: Option<String>,
    /// A name whose addresses are all instances: `h2c://users.internal:8080`.
    #[serde(default)]
    pub dns: Option<Instance>,
    /// The name of service records (RFC 2782): `_h2c._tcp.users.internal`.
    #[serde(default)]
    pub dns_srv: Option<SrvName>,
    /// A service of Consul.
    #[serde(default)]
    pub consul: Option<Consul>,
    /// How often DNS is asked again, 10s unless set; service records earlier, if their TTL is shorter.
    #[serde(default, with = "optional_duration_text")]
    #[schemars(with = "Option<String>")]
    pub refresh: Option<Duration>,
    /// How long an instance that appears while the sidecar runs gets less than its share, which grows from a tenth.
    #[serde(default, with = "optional_duration_text")]
    #[schemars(with = "Option<String>")]
    pub slow_start: Option<Duration>,
    /// How many connections to each of them.
    #[serde(default)]
    pub policy: Policy,
    /// The name that certificates of its instances must be for, and that is sent as SNI; the instance's host, if there is none.
    #[serde(default)]
    pub server_name: Option<String>,
    /// Whether certificates of its instances are not checked: for tests.
    #[serde(default)]
    pub insecure: bool,
    /// Authorities that are trusted instead of the system's, PEM file.
    #[serde(default)]
    pub ca: Option<String>,
    /// The certificate that is presented to instances that ask.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// Its `https://` instances are used over HTTP/3. One that does not answer over QUIC is used over HTTP/2 or
    /// HTTP/1.1, by ALPN.
    #[serde(default)]
    pub h3: bool,
    /// Congestion control of its connections, such as `bbr`; the system's, if there is none.
    #[serde(default)]
    pub congestion: Option<String>,
    /// How long requests to it may take, where that differs from `[timeouts]`.
    #[serde(default)]
    pub timeouts: ServiceTimeouts,
    /// Which of its requests are sent again, where that differs from `[retry]`.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// How much of its work may be under way.
    #[serde(default)]
    pub limits: ServiceLimits,
    /// How many requests a second it gets.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// When an instance that fails is left out.
    #[serde(default)]
    pub outlier: Outlier,
    /// How the health of its instances is checked; not at all, if there is none.
    #[serde(default)]
    pub health: Option<Health>,
    /// Its instances get the client's address by the PROXY protocol: `v1` or `v2`. Each request then has a connection
    /// of its own.
    #[serde(default)]
    pub proxy_protocol: Option<Version>,
}

impl Service {
    /// Checks that its instances can take the PROXY protocol: a connection is then of one client, and begins with its first request.
    pub(super) fn check_proxy_protocol(&self, name: &str) -> Result<(), ConfigError> {
        let all = self.instances.iter().map(|member| &member.url).chain(&self.dns);
        let others = all.into_iter().find(|instance| instance.speaks != Speaks::H1);
        match others.filter(|_| self.proxy_protocol.is_some()) {
            Some(other) => {
                Err(ConfigError::ProxyProtocol { service: name.to_owned(), instance: other.to_string() })
            }
            None => Ok(()),
        }
    }
}
