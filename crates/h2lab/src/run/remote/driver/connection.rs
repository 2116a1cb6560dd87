//! Whether there is a connection to NATS: while there is none, no agent can answer, and none is judged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use h2lab_base::units::format_duration;
use h2lab_nats::{Event, Nats};

use super::super::RemoteObserver;
use super::{Driver, SILENCE_TIMEOUT};
use crate::run::messages::{Failure, FailureKind};

/// Without a connection a driver checks it about once per second. One that has not for this long was stopped or suspended.
const STOPPED: Duration = Duration::from_secs(30);

/// What is known of the connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// Set whenever it ends: it may be back before it is checked.
    has_ended: Arc<AtomicBool>,
    /// Since when it is known to be away, without the time in which this driver did not run.
    since: Option<Instant>,
    checked_at: Instant,
}

/// How the connection is, compared with the last check.
#[derive(Debug, PartialEq, Eq)]
enum ConnectionState {
    Up,
    /// It was away since the last check.
    Restored {
        was_reported: bool,
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
        Self { has_ended, since: None, checked_at: Instant::now() }
    }

    /// For how long this driver did not run before this check, if it was stopped while the connection was away.
    fn stopped(&mut self, now: Instant) -> Option<Duration> {
        let time = now.saturating_duration_since(std::mem::replace(&mut self.checked_at, now));
        let since = self.since.as_mut().filter(|_| time >= STOPPED)?;
        *since += time;
        Some(time)
    }

    fn check(&mut self, is_connected: bool, now: Instant) -> ConnectionState {
        let has_ended = self.has_ended.swap(false, Ordering::Relaxed);
        if !is_connected {
            let is_new = self.since.is_none();
            let since = *self.since.get_or_insert(now);
            let is_too_long = now.saturating_duration_since(since) >= SILENCE_TIMEOUT;
            return ConnectionState::Down { is_new, is_too_long };
        }
        let was_reported = self.since.take().is_some();
        if was_reported || has_ended {
            ConnectionState::Restored { was_reported }
        } else {
            ConnectionState::Up
        }
    }
}

impl Driver<'_> {
    /// Whether there is a connection. When it is back, the silence of agents counts from then. Fails if it is away for long.
    pub(super) fn check_connection(&mut self, observer: &mut dyn RemoteObserver) -> Result<bool> {
        let now = Instant::now();
        if let Some(time) = self.connection.stopped(now) {
            let whole = format_duration(Duration::from_secs(time.as_secs()));
            observer.notes(&format!("this driver did not run for {whole} (stopped or suspended)"));
        }
        match self.connection.check(self.nats.is_connected(), now) {
            ConnectionState::Up => Ok(true),
            ConnectionState::Restored { was_reported } => {
                for heard in self.agents.values_mut() {
                    heard.at = now;
                }
                if was_reported {
                    observer.notes("connected to NATS again");
                }
                Ok(true)
            }
            ConnectionState::Down { is_too_long: true, .. } => {
                let message = format!(
                    "no connection to NATS at {} for {}; check that the server runs and that no firewall blocks the port",
                    self.servers,
                    format_duration(SILENCE_TIMEOUT)
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
    use super::*;

    fn connected(now: Instant) -> Connection {
        Connection { has_ended: Arc::default(), since: None, checked_at: now }
    }

    #[test]
    fn an_outage_is_new_once_and_lasts_too_long_after_a_minute() {
        let begin = Instant::now();
        let mut connection = connected(begin);
        let down = |is_new, is_too_long| ConnectionState::Down { is_new, is_too_long };
        assert_eq!(connection.check(true, begin), ConnectionState::Up);
        assert_eq!(connection.check(false, begin), down(true, false));
        let almost = begin + SILENCE_TIMEOUT.saturating_sub(Duration::from_nanos(1));
        assert_eq!(connection.check(false, almost), down(false, false));
        assert_eq!(connection.check(false, begin + SILENCE_TIMEOUT), down(false, true));
        assert_eq!(
            connection.check(true, begin + SILENCE_TIMEOUT),
            ConnectionState::Restored { was_reported: true }
        );
        assert_eq!(connection.check(true, begin + SILENCE_TIMEOUT), ConnectionState::Up);
        assert_eq!(
            connection.check(false, begin + SILENCE_TIMEOUT),
            down(true, false),
            "the minute begins anew"
        );
    }

    #[test]
    fn an_outage_between_two_checks_is_known_too() {
        let now = Instant::now();
        let mut connection = connected(now);
        connection.has_ended.store(true, Ordering::Relaxed);
        assert_eq!(connection.check(true, now), ConnectionState::Restored { was_reported: false });
        assert_eq!(connection.check(true, now), ConnectionState::Up);
    }

    #[test]
    fn an_outage_does_not_count_while_the_driver_is_stopped() {
        let begin = Instant::now();
        let mut connection = connected(begin);
        let busy = connection.stopped(begin + STOPPED);
        assert_eq!(busy, None, "a driver that is connected may be busy for longer");
        let down_at = begin + STOPPED;
        connection.check(false, down_at);
        let later = down_at + STOPPED.saturating_sub(Duration::from_nanos(1));
        assert_eq!(connection.stopped(later), None);
        let continued = later + SILENCE_TIMEOUT * 2;
        assert_eq!(connection.stopped(continued), Some(SILENCE_TIMEOUT * 2));
        let down = |is_too_long| ConnectionState::Down { is_new: false, is_too_long };
        assert_eq!(connection.check(false, continued), down(false));
        assert_eq!(connection.check(false, continued + SILENCE_TIMEOUT), down(true));
    }
}
