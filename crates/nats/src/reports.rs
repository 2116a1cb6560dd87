//! The reports of units, which wait for whoever drives the run.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::client::DEADLINE;
use crate::jetstream::StoredMessage;
use crate::streams::REPORTS;
use crate::{Nats, NatsError, tokens};

/// How often it is looked for a new report.
const INTERVAL: Duration = Duration::from_millis(500);
/// Reports of one reading.
const MOST: usize = 64;
/// How long others are gathered after the first report of a reading. Each is a question of its own: over a slow path
/// all of them would take longer than whoever reads can wait.
const GATHERING: Duration = Duration::from_secs(5);

/// The stream of reports. Made by [`Nats::reports`].
pub struct Reports {
    nats: Nats,
}

/// A report, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredReport {
    /// Its number in the stream: a later one has a higher number.
    pub sequence: u64,
    /// Whose it is, by its subject: where the server has permissions, an agent can report in its own name only. Not made
    /// printable.
    pub agent: String,
    /// What was reported.
    pub payload: Vec<u8>,
}

impl Reports {
    pub(crate) fn new(nats: Nats) -> Self {
        Self { nats }
    }

    /// Adds an agent's report of a unit. Each call adds one: which of them counts, the driver decides.
    ///
    /// Publishes to `h2lab.reports.<run>.<unit>.<agent>`.
    pub fn add(&self, run: &str, unit: u32, agent: &str, payload: Vec<u8>) -> Result<(), NatsError> {
        let (run, agent) = (tokens::token(run)?, tokens::token(agent)?);
        let subject = format!("h2lab.reports.{run}.{unit}.{agent}");
        // JetStream drops a message with the id of an earlier one, whoever sent that: no other agent can guess ours.
        let id = self.nats.unpredictable();
        self.nats.wait("to a report", DEADLINE, |link| async move {
            link.store(&subject, Some(id), payload.into()).await
        })
    }

    /// The reports of a run with a sequence number above `after`, in their order, at most 64, or those that are read
    /// within 5 s of the first; waits for one for `timeout`, and 10 s more if the server does not answer. 0 reads from
    /// the first.
    ///
    /// Publishes to `$JS.API.STREAM.MSG.GET.H2LAB_REPORTS`.
    pub fn read(&self, run: &str, after: u64, timeout: Duration) -> Result<Vec<StoredReport>, NatsError> {
        let filter = format!("h2lab.reports.{}.*.*", tokens::token(run)?);
        let began = Instant::now();
        let first = loop {
            let left = timeout.saturating_sub(began.elapsed());
            match self.next(&filter, after, left + DEADLINE)? {
                Some(first) => break first,
                None if began.elapsed() >= timeout => return Ok(Vec::new()),
                None => sleep(INTERVAL.min(timeout.saturating_sub(began.elapsed()))),
            }
        };
        Ok(gathered(first, GATHERING, |after, left| self.next(&filter, after, left)))
    }

    /// The first report behind `after`, if there is one.
    fn next(&self, filter: &str, after: u64, timeout: Duration) -> Result<Option<StoredReport>, NatsError> {
        let filter = filter.to_owned();
        let message = self.nats.wait("to a request for reports", timeout, |link| async move {
            link.next(REPORTS, &filter, after.saturating_add(1)).await
        })?;
        Ok(message.map(|StoredMessage { subject, sequence, payload, .. }| {
            let agent = subject.rsplit('.').next().unwrap_or_default().to_owned();
            StoredReport { sequence, agent, payload }
        }))
    }

    /// Deletes a run's reports.
    ///
    /// Publishes to `$JS.API.STREAM.PURGE.H2LAB_REPORTS`; before nats-server 2.10 to `$JS.API.STREAM.MSG.GET.H2LAB_REPORTS` and
    /// `$JS.API.STREAM.MSG.DELETE.H2LAB_REPORTS`.
    pub fn purge(&self, run: &str) -> Result<(), NatsError> {
        let filter = format!("h2lab.reports.{}.>", tokens::token(run)?);
        self.nats.purge(REPORTS, &filter)
    }
}

/// A report with those behind it. `next` gives the one behind a number, in the time that is left. It ends when there are
/// enough or no more, or when `time` is over. What was read is worth more than an error, which comes again if it lasts.
fn gathered(
    first: StoredReport,
    time: Duration,
    mut next: impl FnMut(u64, Duration) -> Result<Option<StoredReport>, NatsError>,
) -> Vec<StoredReport> {
    let began = Instant::now();
    let (mut after, mut reports) = (first.sequence, vec![first]);
    while reports.len() < MOST {
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() {
            break;
        }
        match next(after, left) {
            Ok(Some(report)) => {
                after = report.sequence;
                reports.push(report);
            }
            Ok(None) | Err(_) => break,
        }
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(3600);

    fn report(sequence: u64) -> StoredReport {
        StoredReport { sequence, agent: "kek-1".to_owned(), payload: Vec::new() }
    }

    /// The numbers of what is gathered in so much time, if there are so many reports behind report 1, and then `end`.
    fn numbers(
        time: Duration,
        behind: u64,
        end: impl Fn() -> Result<Option<StoredReport>, NatsError>,
    ) -> Vec<u64> {
        let next = |after: u64, left: Duration| {
            assert!(left <= time);
            if after <= behind { Ok(Some(report(after + 1))) } else { end() }
        };
        gathered(report(1), time, next).iter().map(|report| report.sequence).collect()
    }

    #[test]
    fn reports_are_gathered_until_there_are_64_or_no_more() {
        assert_eq!(numbers(LONG, 0, || Ok(None)), [1]);
        assert_eq!(numbers(LONG, 2, || Ok(None)), [1, 2, 3]);
        assert_eq!(numbers(LONG, 62, || Ok(None)).len(), 63);
        assert_eq!(numbers(LONG, 1000, || Ok(None)), (1..=64).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_read_is_given_when_the_time_is_over_or_nothing_more_can_be_read() {
        assert_eq!(numbers(Duration::ZERO, 1000, || Ok(None)), [1]);
        let silent = || Err(NatsError::Timeout { what: "to a request for reports".to_owned(), after: LONG });
        assert_eq!(numbers(LONG, 2, silent), [1, 2, 3]);
    }
}
