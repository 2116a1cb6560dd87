//! Units that nobody will report: they are neither in the queue nor reported, as after the server has lost what it stored, or
//! after another driver has finished the run.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use h2lab_base::counts::plural;

use super::super::RemoteObserver;
use super::Driver;
use crate::run::messages::{Failure, FailureKind};

/// How often the queue is compared with what is open here.
const EVERY: Duration = Duration::from_secs(10);

/// What was missing when it was last looked for.
#[derive(Debug)]
pub(super) struct Missing {
    /// When it is looked for next.
    next: Instant,
    /// Numbers in the queue.
    units: BTreeSet<u32>,
}

impl Missing {
    /// Nothing is missing yet.
    pub fn new(now: Instant) -> Self {
        Self { next: now + EVERY, units: BTreeSet::new() }
    }

    /// Notes what is missing now; how many units were missing the last time, too.
    fn note(&mut self, units: BTreeSet<u32>) -> usize {
        let lost = units.intersection(&self.units).count();
        self.units = units;
        lost
    }
}

impl Driver<'_> {
    /// Compares the queue with what is open here, when it is time. Fails if units are missing twice in a row.
    pub(super) fn look_for_missing(
        &mut self,
        stop: &AtomicBool,
        observer: &mut dyn RemoteObserver,
    ) -> Result<()> {
        let now = Instant::now();
        if now < self.missing.next {
            return Ok(());
        }
        self.missing.next = now + EVERY;
        let id = self.id();
        let answers = (self.nats.runs().get(&id), self.nats.cells().waiting(&id));
        // Without an answer nothing is known.
        let (Ok(entry), Ok(waiting)) = answers else { return Ok(()) };
        // An agent reports a unit before that leaves the queue: what has left it was reported by now.
        while self.read_reports(Duration::ZERO, stop, observer)? {}
        // A report whose part does not come now is of a unit that has left the queue, as one is that was not read.
        if !self.postponed.is_empty() || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let waiting: BTreeSet<u32> = waiting.into_iter().map(|(_, number)| number).collect();
        let is_missing = |number: &u32| entry.is_none() || !waiting.contains(number);
        let open = self.queue.open();
        let numbers = open.iter().map(|job| self.queue.number(*job, self.attempts[*job]));
        let missing: BTreeSet<u32> = numbers.filter(is_missing).collect();
        let lost = self.missing.note(missing);
        if lost == 0 {
            return Ok(());
        }
        let all = plural(self.queue.jobs.len() as u64, "unit");
        let reason = match entry {
            Some(_) => format!("{lost} of {all} are neither in the queue nor reported"),
            None => format!(
                "another driver has ended the run, as that of a copy of its folder, or NATS came back without it (its \
                 document is gone from H2LAB_RUNS, and {lost} of {all} are open)"
            ),
        };
        let message = format!("its units are no longer at NATS: {reason}");
        Err(Failure { kind: FailureKind::Unreachable, message }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_lost_when_it_is_missing_twice_in_a_row() {
        let mut missing = Missing::new(Instant::now());
        let units = |numbers: &[u32]| numbers.iter().copied().collect::<BTreeSet<u32>>();
        assert_eq!(missing.note(units(&[1, 2])), 0);
        assert_eq!(missing.note(units(&[2, 3])), 1);
        assert_eq!(missing.note(units(&[])), 0);
        assert_eq!(missing.note(units(&[2])), 0, "it was there in between");
    }
}
