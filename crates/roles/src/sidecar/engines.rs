//! Engines of clients' connections. Those that are alike share their configuration: thousands of copies would take as much memory as
//! the connections themselves.

use std::sync::Arc;

use h2lab_base::units::Time;
use h2lab_proxy::fields::Version;
use h2lab_wire::{Config, Connection};

/// Configurations that connections have.
#[derive(Debug)]
pub struct Engines {
    /// What they are made of.
    of: Config,
    /// By version, in clear and over TLS.
    made: [[Option<Arc<Config>>; 2]; 3],
}

impl Engines {
    /// None yet, of this configuration.
    pub const fn new(of: Config) -> Self {
        Self { of, made: [const { [const { None }; 2] }; 3] }
    }

    /// The engine of a connection that was accepted. `config`: as it is now; another one than before begins anew.
    pub fn engine(&mut self, config: &Config, version: Version, tls: bool, now: Time) -> Connection {
        if self.of != *config {
            *self = Self::new(*config);
        }
        let place = &mut self.made[version as usize][usize::from(tls)];
        let config = Arc::clone(place.get_or_insert_with(|| Arc::new(of(config, version, tls))));
        match version {
            Version::H1 => Connection::h1(config),
            Version::H2 => Connection::h2(config, now),
            Version::H3 => Connection::h3(config, now),
        }
    }
}

fn of(config: &Config, version: Version, tls: bool) -> Config {
    let mut config = Config { tls, ..*config };
    if version != Version::H1 {
        // It is asked to end before (`Sidecar::end_idle`); this is for one that does not answer.
        config.limits.idle = config.limits.idle.map(|idle| idle + config.peer_timeout);
    }
    config
}

#[cfg(test)]
mod tests {
    use h2lab_wire::Role;

    use super::*;

    #[test]
    fn connections_that_are_alike_share_a_configuration_and_follow_a_new_one() {
        let mut config = Config::new(Role::Server);
        let mut engines = Engines::new(config);
        let mut open: Vec<Connection> = Vec::new();
        for (version, tls) in
            [(Version::H1, false), (Version::H1, false), (Version::H1, true), (Version::H2, true)]
        {
            open.push(engines.engine(&config, version, tls, Time::ZERO));
        }
        let holders = |engines: &Engines, version: Version, tls: usize| {
            engines.made[version as usize][tls].as_ref().map_or(0, Arc::strong_count)
        };
        // An engine and its deadlines, and what is kept here.
        let held = [(Version::H1, 0), (Version::H1, 1), (Version::H2, 1), (Version::H3, 1)]
            .map(|(version, tls)| holders(&engines, version, tls));
        assert_eq!(held, [5, 3, 3, 0]);
        config.limits.idle = None;
        open.push(engines.engine(&config, Version::H1, false, Time::ZERO));
        assert_eq!(holders(&engines, Version::H1, 0), 3);
        assert_eq!(holders(&engines, Version::H2, 1), 0);
    }
}
