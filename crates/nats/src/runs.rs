//! The open runs: what an agent must know of a run while it takes units of it.

use crate::client::DEADLINE;
use crate::streams::{RUNS, RUNS_STREAM};
use crate::{Nats, NatsError, tokens};

/// The key-value bucket of runs. Made by [`Nats::runs`].
pub struct Runs {
    nats: Nats,
}

impl Runs {
    pub(crate) fn new(nats: Nats) -> Self {
        Self { nats }
    }

    /// Writes what is known of a run, in place of what was.
    ///
    /// Publishes to `$KV.H2LAB_RUNS.<run>`.
    pub fn put(&self, run: &str, bytes: Vec<u8>) -> Result<(), NatsError> {
        let subject = key(tokens::token(run)?);
        self.nats.wait("to a run's document", DEADLINE, |link| async move {
            link.store(&subject, None, bytes.into()).await
        })
    }

    /// What is known of a run; `None` if it is not open.
    ///
    /// Publishes to `$JS.API.STREAM.MSG.GET.KV_H2LAB_RUNS`.
    pub fn get(&self, run: &str) -> Result<Option<Vec<u8>>, NatsError> {
        let subject = key(tokens::token(run)?);
        let message = self.nats.wait("to a request for a run", DEADLINE, |link| async move {
            link.last(RUNS_STREAM, &subject).await
        })?;
        Ok(message.filter(|message| !message.is_mark).map(|message| message.payload))
    }

    /// Ends a run: nothing is known of it any more.
    ///
    /// Publishes to `$JS.API.STREAM.PURGE.KV_H2LAB_RUNS`; before nats-server 2.10 to `$JS.API.STREAM.MSG.GET.KV_H2LAB_RUNS` and
    /// `$JS.API.STREAM.MSG.DELETE.KV_H2LAB_RUNS`.
    pub fn delete(&self, run: &str) -> Result<(), NatsError> {
        let subject = key(tokens::token(run)?);
        self.nats.purge(RUNS_STREAM, &subject)
    }

    /// All open runs with what is known of them, in the order in which they were written last. None if no driver has
    /// set up the server yet. Each is waited for at most 10 s: together they may take longer on a slow path.
    ///
    /// Publishes to `$JS.API.STREAM.MSG.GET.KV_H2LAB_RUNS`.
    pub fn all(&self) -> Result<Vec<(String, Vec<u8>)>, NatsError> {
        let (begin, mut from, mut runs) = (key(""), 1, Vec::new());
        loop {
            let message = self.nats.wait("to a request for the open runs", DEADLINE, |link| async move {
                link.next(RUNS_STREAM, &key(">"), from).await
            })?;
            let Some(message) = message else { return Ok(runs) };
            from = message.sequence.saturating_add(1);
            let run = message.subject.strip_prefix(&begin).filter(|run| tokens::token(run).is_ok());
            if let Some(run) = run.filter(|_| !message.is_mark) {
                runs.push((run.to_owned(), message.payload));
            }
        }
    }
}

/// The subject of a key.
fn key(run: &str) -> String {
    format!("$KV.{RUNS}.{run}")
}
