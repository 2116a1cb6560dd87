//! How long a plan takes: before it begins by its phases, then by what its visits have really needed.

use std::time::Duration;

use super::cell::Cell;

/// Time that one try of a visit takes besides its phases, where none was seen yet: namespaces, processes, handshakes.
pub const SETUP: Duration = Duration::from_millis(250);

/// What finished visits have needed, and how long the others will take by that.
///
/// A visit takes its phases and a setup as often as it is tried. Setups are told by the parties, because a server may
/// take seconds to start; tries over all visits, because what makes a measurement invalid is the machine.
#[derive(Debug, Clone)]
pub struct Estimate {
    visits: Vec<Visit>,
    /// Visits and tries that were seen.
    seen: (u32, u32),
}

/// One visit of the plan.
#[derive(Debug, Clone)]
struct Visit {
    cell: u32,
    parties: String,
    phases: Duration,
    /// `None` while it is still to be made.
    done: Option<Done>,
}

/// What a visit has needed.
#[derive(Debug, Clone, Copy)]
struct Done {
    /// Seconds of each try besides the phases; `None` if the visit was not made in this session. May be negative: what is
    /// answered early ends the drain.
    setup: Option<f64>,
}

impl Estimate {
    /// Of a plan of which nothing is made.
    pub fn new(plan: &[Cell]) -> Self {
        let visit = |cell: &Cell| {
            let phases = cell.work.phases;
            Visit {
                cell: cell.index,
                parties: cell.parties(),
                phases: phases.warmup + phases.measure + phases.drain,
                done: None,
            }
        };
        Self { visits: plan.iter().map(visit).collect(), seen: (0, 0) }
    }

    /// Visit `k` needs nothing any more: it was made before, or cannot be made.
    pub fn skip(&mut self, k: usize) {
        if let Some(visit) = self.visits.get_mut(k).filter(|visit| visit.done.is_none()) {
            visit.done = Some(Done { setup: None });
        }
    }

    /// No visit to this cell will be made: its target does not speak the protocol.
    pub fn skip_cell(&mut self, index: u32) {
        for k in 0..self.visits.len() {
            if self.visits[k].cell == index {
                self.skip(k);
            }
        }
    }

    /// Visit `k` is made: in so many tries, and in so much time altogether.
    pub fn finished(&mut self, k: usize, tries: u32, took: Duration) {
        let Some(visit) = self.visits.get_mut(k) else { return };
        let each = took.as_secs_f64() / f64::from(tries.max(1));
        visit.done = Some(Done { setup: Some(each - visit.phases.as_secs_f64()) });
        self.seen = (self.seen.0 + 1, self.seen.1 + tries.max(1));
    }

    /// How long visit `k` takes, or took.
    pub fn visit(&self, k: usize) -> Duration {
        let Some(visit) = self.visits.get(k) else { return Duration::ZERO };
        let (visits, tries) = self.seen;
        let tries = if visits == 0 { 1.0 } else { f64::from(tries) / f64::from(visits) };
        let each = visit.phases.as_secs_f64() + self.setup(&visit.parties);
        Duration::from_secs_f64((each * tries).max(0.0))
    }

    /// How long the visits that are still to be made take, if the first of them has run for `elapsed`.
    pub fn left(&self, elapsed: Duration) -> Duration {
        let open: Vec<usize> = (0..self.visits.len()).filter(|&k| self.visits[k].done.is_none()).collect();
        let first = open.first().map_or(Duration::ZERO, |&k| self.visit(k).saturating_sub(elapsed));
        first + open.iter().skip(1).map(|&k| self.visit(k)).sum::<Duration>()
    }

    /// How many visits are still to be made.
    pub fn open(&self) -> usize {
        self.visits.iter().filter(|visit| visit.done.is_none()).count()
    }

    /// Seconds besides the phases: the mean of these parties' visits, else of all, else [`SETUP`].
    fn setup(&self, parties: &str) -> f64 {
        let seen = |is_wanted: &dyn Fn(&Visit) -> bool| {
            let setups = self.visits.iter().filter(|visit| is_wanted(visit));
            mean(setups.filter_map(|visit| visit.done?.setup))
        };
        seen(&|visit| visit.parties == parties)
            .or_else(|| seen(&|_| true))
            .unwrap_or_else(|| SETUP.as_secs_f64())
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0_u32, 0.0), |(n, sum), value| (n + 1, sum + value));
    (n > 0).then(|| sum / f64::from(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    /// Two servers, one protocol, two visits: o n n o, each with phases of 2 s.
    fn plan() -> Vec<Cell> {
        let text = "visits = 2\n[work]\nwarmup = '500ms'\nmeasure = '1s'\ndrain = '500ms'\n\
                    [matrix]\norigin = 'origin,nginx'\nprotocols = 'h1'";
        Scenario::from_toml(text).unwrap().plan()
    }

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[track_caller]
    fn assert_near(found: Duration, expected: f64) {
        assert!((found.as_secs_f64() - expected).abs() < 1e-6, "{found:?}, not {expected} s");
    }

    #[test]
    fn before_anything_is_seen_a_visit_is_its_phases_and_a_setup() {
        let estimate = Estimate::new(&plan());
        assert_near(estimate.left(Duration::ZERO), 4.0 * 2.25);
        assert_near(estimate.left(secs(1.0)), 4.0 * 2.25 - 1.0);
        assert_near(estimate.left(secs(10.0)), 3.0 * 2.25);
        assert_eq!(estimate.open(), 4);
    }

    #[test]
    fn what_a_target_has_needed_tells_its_next_visits_and_until_then_those_of_others() {
        let mut estimate = Estimate::new(&plan());
        estimate.finished(0, 1, secs(3.0));
        assert_near(estimate.left(Duration::ZERO), 3.0 * 3.0);
        estimate.finished(1, 1, secs(7.0));
        assert_near(estimate.left(Duration::ZERO), 7.0 + 3.0);
        assert_near(estimate.left(secs(2.0)), 5.0 + 3.0);
    }

    #[test]
    fn tries_that_were_needed_are_expected_again() {
        let mut estimate = Estimate::new(&plan());
        estimate.finished(0, 3, secs(9.0));
        assert_near(estimate.visit(3), 9.0);
        estimate.finished(1, 1, secs(3.0));
        assert_near(estimate.visit(3), 3.0 * 2.0);
    }

    #[test]
    fn visits_of_before_and_those_that_cannot_be_made_need_no_time_and_teach_nothing() {
        let mut estimate = Estimate::new(&plan());
        estimate.skip(0);
        assert_near(estimate.left(Duration::ZERO), 3.0 * 2.25);
        estimate.skip_cell(plan()[1].index);
        assert_eq!(estimate.open(), 1);
        assert_near(estimate.left(Duration::ZERO), 2.25);
        estimate.finished(3, 1, secs(1.5));
        assert_eq!((estimate.open(), estimate.left(Duration::ZERO)), (0, Duration::ZERO));
    }
}
