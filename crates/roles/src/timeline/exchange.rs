//! One request over a connection of its own, as a waterfall.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::{CloseReason, ConnectionRecord, Outcome, Sample};
use h2lab_model::timeline::{Recorder, Waterfall};
use h2lab_model::workload::Protocol;
use h2lab_wire::ErrorCode;
use h2lab_wire::trace::detail::Reader;
use h2lab_wire::trace::{Crossing, Dialect, Direction};

use crate::client::{Watch, WatchEvent};
use crate::load::{self, LoadError, LoadResult, LoadSpec, Watching};
use h2lab_net::lock::lock;

/// How an exchange is made.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// Whether the server may push.
    pub push: bool,
    /// How long a server may take to accept, and a pushed response to come when all else is done.
    pub timeout: Duration,
}

/// Makes the one request of `spec` over a new connection. `begun` is notified when the client began to connect.
pub fn exchange(
    spec: &LoadSpec<'_>,
    asking: Asking,
    begun: impl Fn(Time) + Send + Sync + 'static,
) -> Result<Waterfall, LoadError> {
    let observer = Arc::new(Observer::new(spec.cell.protocol, begun));
    let watching = Watching {
        watch: observer.clone(),
        accept_push: asking.push,
        linger: asking.timeout,
        timeout: asking.timeout,
    };
    let result = load::watch(spec, &watching)?;
    Ok(observer.waterfall(&result))
}

/// Makes a waterfall of what it sees.
struct Observer {
    seen: Mutex<Seen>,
    begun: Box<dyn Fn(Time) + Send + Sync>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

struct Seen {
    protocol: Protocol,
    recorder: Option<Recorder>,
    readers: BTreeMap<u32, Reader>,
}

impl Observer {
    fn new(protocol: Protocol, begun: impl Fn(Time) + Send + Sync + 'static) -> Self {
        let seen = Seen { protocol, recorder: None, readers: BTreeMap::new() };
        Self { seen: Mutex::new(seen), begun: Box::new(begun) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    fn waterfall(&self, result: &LoadResult) -> Waterfall {
        let sample = result.samples.first();
        let is_whole = sample.is_some_and(|sample| sample.outcome.is_complete());
        let mut seen = self.seen();
        let Seen { recorder, readers, .. } = &mut *seen;
        let mut waterfall = recorder.as_mut().map_or_else(Waterfall::default, |recorder| {
            for reader in readers.values_mut() {
                reader.end(&mut |frame| recorder.record(&frame));
            }
            if is_whole {
                recorder.complete();
            }
            recorder.waterfall()
        });
        waterfall.paused_ms = result.generator.paused_ns as f64 / 1e6;
        if !is_whole {
            waterfall.failed = Some(failure(sample, result.connections.first()));
            let outcome = sample.map(|sample| sample.outcome);
            waterfall.timed_out = matches!(
                outcome,
                Some(Outcome::Timeout | Outcome::Unanswered | Outcome::Cancelled | Outcome::Unfinished)
            );
        }
        waterfall
    }
}

/// If a server is unreachable in one of several exchanges, only that exchange has failed. Any other error ends them
/// all.
pub fn or_failed(run: Result<Waterfall, LoadError>) -> Result<Waterfall, LoadError> {
    match run {
        Err(error @ LoadError::Unreachable { .. }) => {
            Ok(Waterfall { failed: Some(error.to_string()), ..Waterfall::default() })
        }
        other => other,
    }
}

/// Why a request was not answered, in words.
fn failure(sample: Option<&Sample>, connection: Option<&ConnectionRecord>) -> String {
    let outcome = match sample {
        None => "no request was made".to_owned(),
        Some(Sample { outcome: Outcome::Reset | Outcome::Refused, code, .. }) => {
            format!("the stream was reset ({})", ErrorCode(*code))
        }
        Some(sample) => format!("it ended as `{}`", sample.outcome.kind()),
    };
    match connection.map(|connection| &connection.closed) {
        Some(CloseReason::Server) => format!("{outcome}; the server ended the connection"),
        Some(reason) => match reason.why() {
            Some(why) => format!("{outcome}; {why}"),
            None => outcome,
        },
        None => outcome,
    }
}

impl Watch for Observer {
    fn see(&self, at: Time, event: WatchEvent<'_>) {
        let mut seen = self.seen();
        let is_tcp = !seen.protocol.is_quic();
        match event {
            WatchEvent::Dialling { .. } if seen.recorder.is_none() => {
                let mut recorder = Recorder::new(at, !is_tcp);
                if !seen.protocol.is_multiplexed() {
                    recorder.refuse_push();
                }
                seen.recorder = Some(recorder);
                (self.begun)(at);
            }
            WatchEvent::Connected { record } => {
                if let Some(recorder) = &mut seen.recorder {
                    recorder.connected(record.connected_at);
                }
            }
            WatchEvent::Ready { record, tls } => {
                if let Some(recorder) = &mut seen.recorder {
                    match tls {
                        Some(_) if is_tcp => recorder.secured(record.ready_at),
                        Some(_) => recorder.connected(record.ready_at),
                        None => {}
                    }
                }
            }
            WatchEvent::Crossing { connection, direction, crossing } => {
                seen.crossing(at, connection, direction, crossing);
            }
            WatchEvent::Dialling { .. } | WatchEvent::Closed { .. } => {}
        }
    }

    fn has_seen_all(&self) -> bool {
        !self.seen().recorder.as_ref().is_some_and(Recorder::awaits_push)
    }
}

impl Seen {
    fn crossing(&mut self, at: Time, connection: u32, direction: Direction, crossing: Crossing<'_>) {
        let dialect = Dialect::of(self.protocol.is_multiplexed(), self.protocol.is_quic());
        let reader = self.readers.entry(connection).or_insert_with(|| Reader::new(dialect, connection));
        let Some(recorder) = &mut self.recorder else { return };
        reader.cross(at, direction, crossing, &mut |frame| recorder.record(&frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ConnectError;
    use h2lab_net::tcp::Endpoint;

    #[test]
    fn who_is_not_reached_has_failed_and_what_else_is_wrong_stays_an_error() {
        let address = Endpoint::Tcp("127.0.0.1:1".parse().unwrap());
        let why = ConnectError::Closed("refused".to_owned());
        let run = or_failed(Err(LoadError::Unreachable { address, why })).unwrap();
        assert!(run.failed.unwrap().contains("127.0.0.1:1") && run.streams.is_empty());
        assert!(or_failed(Err(LoadError::Io(std::io::Error::other("x")))).is_err());
    }
}
