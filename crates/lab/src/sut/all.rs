//! Every server under test, by its name.

use h2lab_base::JsonSchema;
use serde::Serialize;

use super::error::SutError;
use super::kind::{Sut, version};
use super::{
    apache, caddy, envoy, go, h2lab, h2o, haproxy, nghttpx, nginx, nginx_proxy, origin, retry, tomcat,
};

/// Every server that can be started, by its name.
pub const ALL: [&dyn Sut; 14] = [
    &origin::Origin,
    &nginx::Nginx,
    &nginx_proxy::NginxProxy,
    &envoy::Envoy,
    &haproxy::Haproxy,
    &h2lab::H2lab,
    &caddy::Caddy,
    &nghttpx::Nghttpx,
    &apache::Apache,
    &h2o::H2o,
    &go::Go,
    &tomcat::Tomcat,
    &retry::ENVOY,
    &retry::HAPROXY,
];

/// A server and whether this machine has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Availability {
    /// Its name.
    pub name: String,
    /// Its version; `None` if it is not there or does not print it.
    pub version: Option<String>,
    /// The line that installs it; empty if it is a part of h2lab.
    pub install: String,
}

/// Every server, and whether this machine has it.
pub fn available() -> Vec<Availability> {
    let availability = |sut: &dyn Sut| Availability {
        name: sut.name().to_owned(),
        version: sut.about().program.find().and_then(|program| version(sut, &program)).ok(),
        install: sut.about().program.install_line().unwrap_or_default(),
    };
    ALL.map(availability).into()
}

/// The server called `name`.
pub fn find(name: &str) -> Result<&'static dyn Sut, SutError> {
    ALL.into_iter()
        .find(|sut| sut.name() == name)
        .ok_or_else(|| SutError::Unknown { name: name.to_owned(), known: ALL.map(Sut::name).join(", ") })
}

#[cfg(test)]
mod tests {
    use h2lab_model::scenario::Sidecar;
    use h2lab_model::workload::Protocol;

    use super::super::kind::Program;
    use super::super::testing;
    use super::*;

    #[test]
    fn an_unknown_server_is_refused_with_the_names_of_the_known_ones() {
        let error = find("ngnix").unwrap_err();
        assert!(matches!(error, SutError::Unknown { .. }));
        let text = error.to_string();
        assert!(text.contains("`ngnix`") && text.contains("nginx") && text.contains("origin"), "{text}");
    }

    #[test]
    fn the_proxies_with_a_connection_limit_are_those_that_reports_take_for_it() {
        for sut in ALL.into_iter().filter(|sut| sut.is_proxy()) {
            let sidecar = Sidecar { name: sut.name().to_owned(), warm_pool: 1, max_connections: 1 };
            let launch = testing::launched_with(sut, Protocol::H2c, 2, None);
            assert_eq!(launch.is_ok(), sidecar.can_be_configured(), "{}: {:?}", sut.name(), launch.err());
        }
    }

    #[test]
    fn a_server_that_is_a_part_of_h2lab_needs_no_installing() {
        for sut in ALL {
            assert_eq!(
                sut.about().program.install_line().is_none(),
                sut.about().program == Program::Ourselves
            );
        }
    }

    #[test]
    fn names_are_unique() {
        for sut in ALL {
            assert_eq!(find(sut.name()).unwrap().name(), sut.name());
            assert_eq!(ALL.iter().filter(|other| other.name() == sut.name()).count(), 1);
        }
    }
}
