//! The outcome of a run as a whole: whether it answers its question.

use super::{Analysis, CellState, CellSummary, CellVerdict, Conclusion, Failed};
use h2lab_base::counts::plural;
use std::collections::BTreeSet;

/// The outcome of a run. If several apply, the first counts. What a server did is known even if we were late, and comes
/// before cells that were not measured soundly. Only a missing response is not evidence about a server: it is not
/// reported for an invalid cell, since our own end may have failed to receive, nor for a server that had answered
/// before, which has ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// No response came from a server, or from one of each pair that was to be compared; why, in a sentence.
    NoResponse(String),
    /// A server ended by itself while it was measured, or could no longer be reached.
    ServerEnded,
    /// No request of a cell was a success, although a server answered others, or we cancelled all of them: that is not
    /// the work that was to be measured.
    NoSuccess(String),
    /// A cell was not measured soundly.
    Invalid,
    /// The run has an answer.
    Answered,
}

impl Ending {
    /// All outcomes of a run; at least one, and the first counts.
    pub fn of(analysis: &Analysis) -> BTreeSet<Self> {
        let has = |fits: fn(&CellState) -> bool| analysis.cells.iter().any(|cell| fits(&cell.state));
        let mut endings = BTreeSet::from([Self::Answered]);
        let unanswered = no_cell_answered(analysis);
        // Without any answer there is no success either: that is said once.
        if unanswered.is_none() {
            endings.extend(no_successes(analysis).map(Self::NoSuccess));
        }
        endings.extend(nothing_compared(analysis).or(unanswered).map(Self::NoResponse));
        if has(|state| matches!(state, CellState::Invalid { .. })) {
            endings.insert(Self::Invalid);
        }
        if has(has_ended) {
            endings.insert(Self::ServerEnded);
        }
        endings
    }
}

const fn has_ended(state: &CellState) -> bool {
    matches!(state, CellState::Failed { how: Failed::ServerEnded, .. })
}

/// The reason if nothing was compared.
fn nothing_compared(analysis: &Analysis) -> Option<String> {
    let is_uncompared = |verdict: &CellVerdict| verdict.conclusion == Conclusion::Unsupported;
    let has_ended = analysis.cells.iter().any(|cell| has_ended(&cell.state));
    if has_ended || analysis.verdicts.is_empty() || !analysis.verdicts.iter().all(is_uncompared) {
        return None;
    }
    let why = analysis.cells.iter().find_map(|cell| Some(format!("{}: {}", cell.label, unsupported(cell)?)));
    Some(format!("nothing to compare: {}", why.unwrap_or_default()))
}

/// The reason if no cell got any response. For a server that ended, the reason is known.
fn no_cell_answered(analysis: &Analysis) -> Option<String> {
    let silence = |summary: &CellSummary| {
        let why = unsupported(summary).map(str::to_owned).or_else(|| summary.no_response())?;
        let is_its = !has_ended(&summary.state) && !matches!(summary.state, CellState::Invalid { .. });
        is_its.then(|| format!("{}: {why}", summary.cell.target.name()))
    };
    let mut silences = analysis.cells.iter().filter(|cell| !cell.cell.work.bulk).map(silence);
    let first = silences.next()??;
    silences.all(|silence| silence.is_some()).then_some(first)
}

/// A sentence on the cells without a successful response, if there are any.
fn no_successes(analysis: &Analysis) -> Option<String> {
    let mut cells = analysis.cells.iter().filter_map(no_success);
    let first = cells.next()?;
    Some(match cells.count() as u64 {
        0 => first,
        others => format!("{first}; nor of {}", plural(others, "other cell")),
    })
}

/// The reason if no request of a cell was a success. If the measurement is invalid, a missing response is not
/// attributed to anyone.
fn no_success(summary: &CellSummary) -> Option<String> {
    let is_invalid = matches!(summary.state, CellState::Invalid { .. });
    let why = summary.no_success().or_else(|| summary.without_success().filter(|_| !is_invalid))?;
    let (label, name) = (&summary.label, summary.cell.target.name());
    Some(if label.contains(name) { format!("{label}: {why}") } else { format!("{label} at {name}: {why}") })
}

fn unsupported(summary: &CellSummary) -> Option<&str> {
    match &summary.state {
        CellState::Unsupported { why } => Some(why),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::analyse;
    use h2lab_base::units::Time;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::record::{CellRecord, Disturbance, DisturbanceKind, Outcome, ServerSummary};
    use h2lab_model::workload::{Arrival, Protocol};

    /// A cell of a closed loop whose requests all end in this way.
    fn ended(index: u32, protocol: Protocol, outcome: Outcome, status: u16) -> CellRecord {
        let mut record = one_repetition(&cell(index, 0, protocol, 4, 0.0), 0, &Model::CLEAN);
        record.cell.work.arrival = Arrival::Closed { concurrency: 4 };
        for sample in record.samples.edit().iter_mut() {
            (sample.outcome, sample.status) = (outcome, status);
            if !outcome.is_complete() {
                (sample.first_byte_at, sample.body_bytes) = (Time::NEVER, 0);
            }
        }
        record
    }

    fn ok(index: u32, protocol: Protocol) -> CellRecord {
        ended(index, protocol, Outcome::Succeeded, 200)
    }

    fn invalid(mut record: CellRecord) -> CellRecord {
        record.generator.wall_ns = 1_000_000_000;
        (record.generator.paused_ns, record.generator.longest_pause_ns) = (900_000_000, 900_000_000);
        record
    }

    /// The outcome that counts.
    fn ending(cells: Vec<CellRecord>) -> Ending {
        Ending::of(&analyse(&run(cells))).pop_first().expect("at least one")
    }

    #[test]
    fn one_invalid_cell_makes_a_run_invalid_whether_or_not_it_is_compared() {
        assert_eq!(ending(vec![ok(0, Protocol::H1)]), Ending::Answered);
        assert_eq!(ending(vec![invalid(ok(0, Protocol::H1))]), Ending::Invalid, "a closed loop by itself");
        assert_eq!(ending(vec![ok(0, Protocol::H1), invalid(ok(1, Protocol::H2c))]), Ending::Invalid);
        let mut bulk = invalid(ok(0, Protocol::H1));
        bulk.cell.work.bulk = true;
        assert_eq!(ending(vec![bulk]), Ending::Invalid);
    }

    #[test]
    fn responses_of_which_none_is_a_success_are_no_answer() {
        for status in [405, 503] {
            let refused = |index, protocol| ended(index, protocol, Outcome::Status, status);
            for cells in
                [vec![refused(0, Protocol::H1)], vec![ok(0, Protocol::H1), refused(1, Protocol::H2c)]]
            {
                let Ending::NoSuccess(why) = ending(cells) else { panic!() };
                assert!(
                    why.contains("no response was a success") && why.contains(&format!("× {status}")),
                    "{why}"
                );
            }
        }
    }

    #[test]
    fn that_nothing_was_heard_while_we_did_not_listen_is_invalid() {
        let silent = || ended(0, Protocol::H1, Outcome::Timeout, 0);
        assert!(matches!(ending(vec![silent()]), Ending::NoResponse(_)));
        assert_eq!(ending(vec![invalid(silent())]), Ending::Invalid);
    }

    #[test]
    fn a_server_that_ended_had_answered_even_if_another_cell_of_it_got_no_answer() {
        let mut killed = ok(0, Protocol::H1);
        let kind = DisturbanceKind::Exited { code: 1 };
        let disturbance = Some(Disturbance { process: "nginx".to_owned(), after_ns: 1, kind });
        killed.server = Some(ServerSummary { disturbance, ..ServerSummary::default() });
        let refused = CellRecord::unsupported(cell(1, 0, Protocol::H2c, 4, 0.0), "refused".to_owned());
        assert_eq!(ending(vec![killed, refused]), Ending::ServerEnded);
    }

    #[test]
    fn what_a_server_did_comes_before_an_invalid_measurement() {
        let cell = |outcome, status| invalid(ended(0, Protocol::H1, outcome, status));
        let refused = cell(Outcome::Status, 503);
        assert!(matches!(ending(vec![refused.clone()]), Ending::NoSuccess(_)));
        let mut other = invalid(ok(1, Protocol::H2c));
        other.cell.index = 1;
        let all = Ending::of(&analyse(&run(vec![refused, other])));
        assert!(matches!(all.first(), Some(Ending::NoSuccess(_))), "{all:?}");
        assert!(all.contains(&Ending::Invalid), "{all:?}");
    }

    #[test]
    fn no_response_at_all_is_no_answer_however_requests_ended() {
        for outcome in [Outcome::Unfinished, Outcome::Timeout, Outcome::Closed, Outcome::Connect] {
            let Ending::NoResponse(why) = ending(vec![ended(0, Protocol::H1, outcome, 0)]) else {
                panic!("{outcome}")
            };
            assert!(!why.is_empty());
        }
        let all = Ending::of(&analyse(&run(vec![ended(0, Protocol::H1, Outcome::Timeout, 0)])));
        assert!(!all.iter().any(|ending| matches!(ending, Ending::NoSuccess(_))), "once: {all:?}");
        let cancelled = ended(0, Protocol::H1, Outcome::Cancelled, 0);
        let Ending::NoSuccess(why) = ending(vec![cancelled]) else { panic!("we did not wait for any") };
        assert!(why.contains("none of") && why.ends_with("requests succeeded"), "{why}");
    }

    #[test]
    fn a_cell_without_any_response_is_no_success_where_another_has_some() {
        for silent in [Outcome::Timeout, Outcome::Unfinished] {
            let cells = vec![ok(0, Protocol::H1), ended(1, Protocol::H2c, silent, 0)];
            let Ending::NoSuccess(why) = ending(cells) else { panic!("{silent}") };
            assert!(why.starts_with("h2c") && why.contains("no response to "), "{why}");
        }
    }

    #[test]
    fn nothing_is_compared_where_one_of_each_two_is_not_spoken() {
        let unsupported = CellRecord::unsupported(cell(1, 0, Protocol::H2c, 4, 0.0), "it closes".to_owned());
        let Ending::NoResponse(why) = ending(vec![ok(0, Protocol::H1), unsupported.clone()]) else {
            panic!()
        };
        assert!(why.starts_with("nothing to compare: ") && why.ends_with("it closes"), "{why}");
        let third = ok(2, Protocol::H2);
        assert_eq!(ending(vec![ok(0, Protocol::H1), unsupported, third]), Ending::Answered);
    }

    #[test]
    fn a_server_that_ends_by_itself_is_what_became_of_the_run() {
        let mut record = invalid(ended(0, Protocol::H1, Outcome::Closed, 0));
        let kind = DisturbanceKind::Exited { code: 1 };
        let disturbance = Some(Disturbance { process: "nginx".to_owned(), after_ns: 1, kind });
        record.server = Some(ServerSummary { disturbance, ..ServerSummary::default() });
        assert_eq!(ending(vec![record]), Ending::ServerEnded);
    }
}
