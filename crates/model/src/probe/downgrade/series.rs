//! Whether the cases can be judged at all: a proxy that blocks the client refuses everything.

use super::case::DowngradeCase;
use super::checks;
use super::judge::Handling;
use crate::probe::{Check, Verdict};

/// After this many cases without bytes at the backend, the control is sent again.
const RUN: usize = 6;

/// The checks so far. A refusal counts only once a later request came through.
#[derive(Debug, Default)]
pub struct Series {
    found: Vec<(Check, Handling)>,
    /// How many of them were decided while well-formed requests came through.
    proved: usize,
}

impl Series {
    /// A case ended with this check.
    pub fn push(&mut self, check: Check, handling: Handling) {
        self.found.push((check, handling));
        if matches!(handling, Handling::Normalised | Handling::Raw) {
            self.proved = self.found.len();
        }
    }

    /// Whether the control should be sent again now.
    pub const fn wants_control(&self, is_last: bool) -> bool {
        let unproved = self.found.len() - self.proved;
        unproved >= RUN || is_last && unproved > 0
    }

    /// The control came through.
    pub const fn prove(&mut self) {
        self.proved = self.found.len();
    }

    /// The control no longer came through, or nothing more could be sent, for the reason `why`: refusals since the last success
    /// are undecided, and so is the `rest`.
    pub fn give_up(&mut self, why: &str, rest: &[DowngradeCase]) {
        for (check, handling) in &mut self.found[self.proved..] {
            if *handling == Handling::Rejected {
                check.verdict = Verdict::Undecided;
                check.summary = format!("{}; but {why}", check.summary);
            }
        }
        for case in rest {
            let summary = format!("{}: not sent: {why}", case.about);
            let check = Check::new(checks::meta(case.topic), Verdict::Undecided, summary).of(case.id);
            self.found.push((check, Handling::Unknown));
        }
        self.prove();
    }

    /// All checks.
    pub fn into_checks(self) -> Vec<Check> {
        self.found.into_iter().map(|(check, _)| check).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::CASES;
    use super::super::judge::Judged;
    use super::*;

    fn series(handlings: &[Handling]) -> Series {
        let mut series = Series::default();
        for (case, handling) in CASES.iter().zip(handlings) {
            let judged = Judged { handling: *handling, backend_saw: Vec::new() };
            series.push(checks::check(case, &judged, "closed", Vec::new()), *handling);
        }
        series
    }

    fn verdicts(series: Series) -> Vec<Verdict> {
        series.into_checks().iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn a_run_of_refusals_wants_a_control_and_so_does_the_end_behind_one() {
        use Handling::{Normalised, Rejected};
        assert!(!series(&[Rejected; RUN - 1]).wants_control(false));
        assert!(series(&[Rejected; RUN]).wants_control(false));
        assert!(series(&[Rejected]).wants_control(true));
        assert!(!series(&[Rejected, Normalised]).wants_control(true));
    }

    #[test]
    fn what_was_refused_behind_the_last_that_came_through_is_undecided_if_the_control_fails() {
        use Handling::{Normalised, Raw, Rejected, Unknown};
        use Verdict::{Fail, Pass, Undecided};
        let cases = [Rejected, Normalised, Rejected, Raw, Rejected, Unknown];
        let mut failed = series(&cases);
        failed.give_up("a proper request no longer came through", &CASES[6..8]);
        assert_eq!(verdicts(failed), [Pass, Pass, Pass, Fail, Undecided, Undecided, Undecided, Undecided]);
        let mut proved = series(&cases);
        proved.prove();
        proved.give_up("x", &[]);
        assert_eq!(verdicts(proved), [Pass, Pass, Pass, Fail, Pass, Undecided]);
    }
}
