//! Whether there is a connection to NATS: while there is none, no agent can answer, and none is judged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use h2lab_base::units::format_duration;
use h2lab_nats::{Event, Nats};

use super::super::RemoteObserver;
use super::{Driver, GONE};
use crate::run::messages::{Failure, FailureKind};

/// What is known of the connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// Set whenever it ends: it may be back before it is looked at.
    has_ended: Arc<AtomicBool>,
    /// Since when it is known to be away.
    since: Option<Instant>,
}

/// How the connection is, compared with the last look.
#[derive(Debug, PartialEq, Eq)]
enum ConnectionState {
    Up,
    /// It was away since the last look.
    Back {
        is_told: bool,
    },
    Down {
        is_new: bool,
        is_too_long: bool,
    },
}

impl Connection {
    /// That of `nats`, which is up.
    pub fn new(nats: &Nats) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&has_ended);
        nats.on_event(move |event| {
            if event == Event::Disconnected {
                noted.store(true, Ordering::Relaxed);
            }
        });
        Self { has_ended, since: None }
    }

    fn look(&mut self, is_connected: bool, now: Instant) -> ConnectionState {
        let has_ended = self.has_ended.swap(false, Ordering::Relaxed);
        if !is_connected {
            let is_new = self.since.is_none();
            let since = *self.since.get_or_insert(now);
            let is_too_long = now.saturating_duration_since(since) >= GONE;
            return ConnectionState::Down { is_new, is_too_long };
        }
        let is_told = self.since.take().is_some();
        if is_told || has_ended { ConnectionState::Back { is_told } } else { ConnectionState::Up }
    }
}

impl Driver<'_> {
    /// Whether there is a connection. When it is back, the silence of agents counts from then. Fails if it is away for long.
    pub(super) fn look_at_connection(&mut self, observer: &mut dyn RemoteObserver) -> Result<bool> {
        let now = Instant::now();
        match self.connection.look(self.nats.is_connected(), now) {
            ConnectionState::Up => Ok(true),
            ConnectionState::Back { is_told } => {
                for heard in self.agents.values_mut() {
                    heard.at = now;
                }
                if is_told {
                    observer.notes("connected to NATS again");
                }
                Ok(true)
            }
            ConnectionState::Down { is_too_long: true, .. } => {
                let message = format!(
                    "no connection to NATS at {} for {}; look whether the server runs, and for a firewall between",
                    self.servers,
                    format_duration(GONE)
                );
                Err(Failure { kind: FailureKind::Unreachable, message }.into())
            }
            ConnectionState::Down { is_new, .. } => {
                if is_new {
                    observer.notes(&format!(
                        "disconnected from NATS at {}; the run goes on when it is back",
                        self.servers
                    ));
                }
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_outage_is_new_once_and_lasts_too_long_after_a_minute() {
        let mut connection = Connection { has_ended: Arc::default(), since: None };
        let begin = Instant::now();
        let down = |is_new, is_too_long| ConnectionState::Down { is_new, is_too_long };
        assert_eq!(connection.look(true, begin), ConnectionState::Up);
        assert_eq!(connection.look(false, begin), down(true, false));
        let almost = begin + GONE.saturating_sub(Duration::from_nanos(1));
        assert_eq!(connection.look(false, almost), down(false, false));
        assert_eq!(connection.look(false, begin + GONE), down(false, true));
        assert_eq!(connection.look(true, begin + GONE), ConnectionState::Back { is_told: true });
        assert_eq!(connection.look(true, begin + GONE), ConnectionState::Up);
        assert_eq!(connection.look(false, begin + GONE), down(true, false), "the minute begins anew");
    }

    #[test]
    fn an_outage_between_two_looks_is_known_too() {
        let mut connection = Connection { has_ended: Arc::default(), since: None };
        connection.has_ended.store(true, Ordering::Relaxed);
        let now = Instant::now();
        assert_eq!(connection.look(true, now), ConnectionState::Back { is_told: false });
        assert_eq!(connection.look(true, now), ConnectionState::Up);
    }
}
