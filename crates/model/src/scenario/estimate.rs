//! How long a plan takes: initially by its phases, then by the time that repetitions have taken.

use std::time::Duration;

use super::cell::Cell;

/// Time that one try of a repetition takes besides its phases, before the first measurement: namespaces, processes, handshakes.
pub const SETUP: Duration = Duration::from_millis(400);

/// The times of finished repetitions, and the estimate for the others.
///
/// A repetition takes its phases and a setup as often as it is tried. Setups are kept per parties, because a server may take
/// seconds to start; tries over all repetitions, because invalid measurements are due to the machine.
#[derive(Debug, Clone)]
pub struct Estimate {
    repetitions: Vec<Repetition>,
    /// Repetitions and tries that were seen.
    seen: (u32, u32),
}

/// One repetition of the plan.
#[derive(Debug, Clone)]
struct Repetition {
    cell: u32,
    parties: String,
    phases: Duration,
    /// `None` while it is still to be made.
    done: Option<Done>,
}

/// The time that a repetition took.
#[derive(Debug, Clone, Copy)]
struct Done {
    /// Seconds of each try besides the phases; `None` if the repetition was not made in this session. May be negative: early
    /// answers end the drain.
    setup: Option<f64>,
}

impl Estimate {
    /// The estimate of a plan that has not begun.
    pub fn new(plan: &[Cell]) -> Self {
        let repetition = |cell: &Cell| {
            let phases = cell.work.phases;
            Repetition {
                cell: cell.index,
                parties: cell.parties(),
                phases: phases.warmup + phases.measure + phases.drain,
                done: None,
            }
        };
        Self { repetitions: plan.iter().map(repetition).collect(), seen: (0, 0) }
    }

    /// Repetition `k` needs no time any more: it was made before, or cannot be made.
    pub fn skip(&mut self, k: usize) {
        if let Some(repetition) = self.repetitions.get_mut(k).filter(|repetition| repetition.done.is_none()) {
            repetition.done = Some(Done { setup: None });
        }
    }

    /// No repetition of this cell will be made: its target does not speak the protocol.
    pub fn skip_cell(&mut self, index: u32) {
        for k in 0..self.repetitions.len() {
            if self.repetitions[k].cell == index {
                self.skip(k);
            }
        }
    }

    /// Repetition `k` was made, in this many tries and this much time altogether.
    pub fn finished(&mut self, k: usize, tries: u32, took: Duration) {
        let Some(repetition) = self.repetitions.get_mut(k) else { return };
        let each = took.as_secs_f64() / f64::from(tries.max(1));
        repetition.done = Some(Done { setup: Some(each - repetition.phases.as_secs_f64()) });
        self.seen = (self.seen.0 + 1, self.seen.1 + tries.max(1));
    }

    /// How long repetition `k` takes, or took.
    pub fn repetition(&self, k: usize) -> Duration {
        let Some(repetition) = self.repetitions.get(k) else { return Duration::ZERO };
        let (repetitions, tries) = self.seen;
        let tries = if repetitions == 0 { 1.0 } else { f64::from(tries) / f64::from(repetitions) };
        let each = repetition.phases.as_secs_f64() + self.setup(&repetition.parties);
        Duration::from_secs_f64((each * tries).max(0.0))
    }

    /// How long the repetitions that are still to be made take, if the first of them has run for `elapsed`.
    pub fn left(&self, elapsed: Duration) -> Duration {
        let open: Vec<usize> =
            (0..self.repetitions.len()).filter(|&k| self.repetitions[k].done.is_none()).collect();
        let first = open.first().map_or(Duration::ZERO, |&k| self.repetition(k).saturating_sub(elapsed));
        first + open.iter().skip(1).map(|&k| self.repetition(k)).sum::<Duration>()
    }

    /// How many repetitions are still to be made.
    pub fn open(&self) -> usize {
        self.repetitions.iter().filter(|repetition| repetition.done.is_none()).count()
    }

    /// Seconds besides the phases: the mean of these parties' repetitions, else of all, else [`SETUP`].
    fn setup(&self, parties: &str) -> f64 {
        let seen = |is_wanted: &dyn Fn(&Repetition) -> bool| {
            let setups = self.repetitions.iter().filter(|repetition| is_wanted(repetition));
            mean(setups.filter_map(|repetition| repetition.done?.setup))
        };
        seen(&|repetition| repetition.parties == parties)
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

    /// Two servers, one protocol, two repetitions: o n n o, each with phases of 2 s.
    fn plan() -> Vec<Cell> {
        let text = "repetitions = 2\n[work]\nwarmup = '500ms'\nmeasure = '1s'\ndrain = '500ms'\n\
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
    fn before_anything_is_seen_a_repetition_is_its_phases_and_a_setup() {
        let estimate = Estimate::new(&plan());
        assert_near(estimate.left(Duration::ZERO), 4.0 * 2.4);
        assert_near(estimate.left(secs(1.0)), 4.0 * 2.4 - 1.0);
        assert_near(estimate.left(secs(10.0)), 3.0 * 2.4);
        assert_eq!(estimate.open(), 4);
    }

    #[test]
    fn what_a_target_has_needed_estimates_its_next_repetitions_and_until_then_those_of_others() {
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
        assert_near(estimate.repetition(3), 9.0);
        estimate.finished(1, 1, secs(3.0));
        assert_near(estimate.repetition(3), 3.0 * 2.0);
    }

    #[test]
    fn repetitions_of_before_and_those_that_cannot_be_made_need_no_time_and_teach_nothing() {
        let mut estimate = Estimate::new(&plan());
        estimate.skip(0);
        assert_near(estimate.left(Duration::ZERO), 3.0 * 2.4);
        estimate.skip_cell(plan()[1].index);
        assert_eq!(estimate.open(), 1);
        assert_near(estimate.left(Duration::ZERO), 2.4);
        estimate.finished(3, 1, secs(1.5));
        assert_eq!((estimate.open(), estimate.left(Duration::ZERO)), (0, Duration::ZERO));
    }
}
