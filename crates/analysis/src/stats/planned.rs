//! How much of a run's plan was measured.

use h2lab_model::record::RunRecord;

/// Whether a command that makes the repetitions of a plan made it: a load has one repetition, which cannot be resumed.
pub fn is_planned(run: &RunRecord) -> bool {
    run.command.get(1).is_some_and(|command| command == "compare" || command == "run")
}

/// How many repetitions of its plan a run has, and how many the plan has; `None` of a run without a plan. Repetitions
/// that cannot be measured, since the target does not speak their protocol, count as those that it has.
pub fn measured_of_plan(run: &RunRecord) -> Option<[usize; 2]> {
    is_planned(run).then(|| {
        let plan = run.scenario.plan();
        [plan.iter().filter(|cell| run.has(cell)).count(), plan.len()]
    })
}

/// That a run ended early, and how much of it there is; `None` of one that is complete.
pub(super) fn warning(run: &RunRecord) -> Option<String> {
    if !run.interrupted {
        return None;
    }
    let what = match measured_of_plan(run) {
        Some([measured, planned]) if measured < planned => {
            format!("{measured} of {planned} planned repetitions were measured")
        }
        _ => "not all that was planned was measured".to_owned(),
    };
    let why = run.failure.as_ref();
    let why = why.map_or_else(String::new, |why| format!(", since it could not go on ({why})"));
    Some(format!("the run ended early{why}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::compare;

    #[test]
    fn a_run_that_ended_early_says_how_many_repetitions_of_its_plan_it_has() {
        let mut run = compare(false);
        run.scenario.repetitions = 5;
        assert_eq!(warning(&run), None, "it was not interrupted");
        run.interrupted = true;
        // The default plan has two cells, of which two repetitions each are there.
        assert_eq!(measured_of_plan(&run), Some([4, 10]));
        let said = "the run ended early: 4 of 10 planned repetitions were measured";
        assert_eq!(warning(&run).as_deref(), Some(said));
        let warnings = crate::stats::analyse(&run).warnings;
        assert!(warnings.iter().any(|warning| warning == said), "{warnings:?}");
        run.command[1] = "load".to_owned();
        assert_eq!(measured_of_plan(&run), None, "a load has no plan");
        let said = "the run ended early: not all that was planned was measured";
        assert_eq!(warning(&run).as_deref(), Some(said));
        run.failure = Some("the server is gone".to_owned());
        let said = "the run ended early, since it could not go on (the server is gone): not all that was \
                    planned was measured";
        assert_eq!(warning(&run).as_deref(), Some(said));
    }
}
