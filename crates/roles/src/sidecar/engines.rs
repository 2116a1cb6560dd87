//! Engines of clients' connections. Those that are alike share their configuration: thousands of copies would take as much memory as
//! the connections themselves.

use std::sync::Arc;

use h2lab_base::units::Time;
use h2lab_proxy::fields::Version;
use h2lab_wire::{Config, Connection};

/// What carries a connection, and what that allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// TCP in clear: HTTP/1.1 may become HTTP/2 by `Upgrade: h2c`.
    Clear,
    /// The same of a listener that takes no `Upgrade`.
    ClearWithoutUpgrade,
    /// TLS over TCP, or QUIC.
    Tls,
}

/// Configurations that connections have.
#[derive(Debug)]
pub struct Engines {
    /// What they are made of.
    of: Config,
    /// By version and carrier.
    made: [[Option<Arc<Config>>; 3]; 3],
}

impl Engines {
    /// None yet, of this configuration.
    pub const fn new(of: &Config) -> Self {
        Self { of: *of, made: [const { [const { None }; 3] }; 3] }
    }

    /// The engine of a connection that was accepted. `config` is the current configuration; if it has changed, the
    /// shared ones are made anew.
    pub fn engine(&mut self, config: &Config, version: Version, by: Carrier, now: Time) -> Connection {
        self.follow(config);
        let config = self.config(version, by);
        match version {
            Version::H1 => Connection::h1(config),
            Version::H2 => Connection::h2(config, now),
            Version::H3 => Connection::h3(config, now),
        }
    }

    /// Continues in HTTP/2 if a client in clear has asked for that in HTTP/1.1, as if the connection had begun so.
    /// Returns whether it has changed to HTTP/2.
    pub fn upgrade(&mut self, engine: &mut Connection, config: &Config, now: Time) -> bool {
        engine.switch(now, |_| {
            self.follow(config);
            self.config(Version::H2, Carrier::Clear)
        })
    }

    fn follow(&mut self, config: &Config) {
        if self.of != *config {
            *self = Self::new(config);
        }
    }

    fn config(&mut self, version: Version, by: Carrier) -> Arc<Config> {
        let Self { of, made } = self;
        let place = &mut made[version as usize][by as usize];
        Arc::clone(place.get_or_insert_with(|| Arc::new(made_of(of, version, by))))
    }
}

fn made_of(config: &Config, version: Version, by: Carrier) -> Config {
    let h2c_upgrade = config.h2c_upgrade.filter(|_| by == Carrier::Clear);
    let mut config = Config { tls: by == Carrier::Tls, h2c_upgrade, ..*config };
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
        let mut engines = Engines::new(&config);
        let mut open: Vec<Connection> = Vec::new();
        for (version, by) in [
            (Version::H1, Carrier::Clear),
            (Version::H1, Carrier::Clear),
            (Version::H1, Carrier::Tls),
            (Version::H2, Carrier::Tls),
        ] {
            open.push(engines.engine(&config, version, by, Time::ZERO));
        }
        let holders = |engines: &Engines, version: Version, by: Carrier| {
            engines.made[version as usize][by as usize].as_ref().map_or(0, Arc::strong_count)
        };
        // An engine and its deadlines, and what is kept here.
        let held = [
            (Version::H1, Carrier::Clear),
            (Version::H1, Carrier::ClearWithoutUpgrade),
            (Version::H1, Carrier::Tls),
            (Version::H2, Carrier::Tls),
            (Version::H3, Carrier::Tls),
        ]
        .map(|(version, by)| holders(&engines, version, by));
        assert_eq!(held, [5, 0, 3, 3, 0]);
        config.limits.idle = None;
        open.push(engines.engine(&config, Version::H1, Carrier::Clear, Time::ZERO));
        assert_eq!(holders(&engines, Version::H1, Carrier::Clear), 3);
        assert_eq!(holders(&engines, Version::H2, Carrier::Tls), 0);
    }
}
