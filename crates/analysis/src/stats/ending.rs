//! What became of a run as a whole: whether it has an answer to what it asked.

use super::{Analysis, CellState, CellSummary, CellVerdict, Conclusion};
use h2lab_base::counts::plural;
use h2lab_model::record::Outcome;

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It has an answer.
    Answered,
    /// A server ended by itself while it was measured, or could no longer be reached.
    ServerEnded,
    /// Nothing was heard of a server, or of one of each two that were to be compared; why, in a sentence.
    NoResponse(String),
    /// A server answered, but never with a success: that is not the work that was to be measured.
    NoSuccess(String),
    /// A cell was not measured soundly.
    Invalid,
}

impl Ending {
    /// What became of a run. That a server ended or gave no answer is known whoever was late, and so comes before that.
    pub fn of(analysis: &Analysis) -> Self {
        let has = |fits: fn(&CellState) -> bool| analysis.cells.iter().any(|cell| fits(&cell.state));
        match fruitless(analysis) {
            _ if has(|state| matches!(state, CellState::Failed { .. })) => Self::ServerEnded,
            Some(ending) => ending,
            None if has(|state| matches!(state, CellState::Invalid { .. })) => Self::Invalid,
            None => Self::Answered,
        }
    }
}

/// Why a run has no answer, if so. Bulk work says by itself what came of it.
fn fruitless(analysis: &Analysis) -> Option<Ending> {
    let is_uncompared = |verdict: &CellVerdict| verdict.conclusion == Conclusion::Unsupported;
    if !analysis.verdicts.is_empty() && analysis.verdicts.iter().all(is_uncompared) {
        let why =
            analysis.cells.iter().find_map(|cell| Some(format!("{}: {}", cell.label, unsupported(cell)?)));
        return Some(Ending::NoResponse(format!("nothing to compare: {}", why.unwrap_or_default())));
    }
    let cells = || analysis.cells.iter().filter(|cell| !cell.cell.work.bulk);
    if let Some(cell) = cells().find(|cell| cell.requests.succeeded == 0 && !cell.statuses.is_empty()) {
        let statuses: Vec<String> =
            cell.statuses.iter().map(|(status, n)| format!("{n} × {status}")).collect();
        let (label, name) = (&cell.label, cell.cell.target.name());
        let what = if label.contains(name) { label.clone() } else { format!("{label} at {name}") };
        return Some(Ending::NoSuccess(format!(
            "{what}: no response was a success: {}",
            statuses.join(", ")
        )));
    }
    let mut unanswered = cells().map(unanswered);
    let first = unanswered.next()??;
    unanswered.all(|cell| cell.is_some()).then_some(Ending::NoResponse(first))
}

fn unsupported(summary: &CellSummary) -> Option<&str> {
    match &summary.state {
        CellState::Unsupported { why } => Some(why),
        _ => None,
    }
}

/// That not one of a cell's requests got a complete response, whatever its status, if so. What we cancelled ourselves does not count
/// against the server.
fn unanswered(summary: &CellSummary) -> Option<String> {
    let name = summary.cell.target.name();
    if let Some(why) = unsupported(summary) {
        return Some(format!("{name}: {why}"));
    }
    let first = summary.errors.iter().find(|error| error.kind != Outcome::Cancelled);
    if !summary.statuses.is_empty() || (first.is_none() && summary.requests.unfinished == 0) {
        return None;
    }
    let sent = summary.requests.sent;
    let most = first.map_or_else(String::new, |error| format!("; most ended as `{}`", error.kind));
    Some(format!("{name}: no response to {}{most}", plural(sent, "request")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::analyse;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::record::{CellRecord, Disturbance, DisturbanceKind, ServerSummary};
    use h2lab_model::workload::{Arrival, Protocol};

    /// A cell of a closed loop whose requests all end so.
    fn ended(index: u32, protocol: Protocol, outcome: Outcome, status: u16) -> CellRecord {
        let mut record = one_repetition(&cell(index, 0, protocol, 4, 0.0), 0, &Model::CLEAN);
        record.cell.work.arrival = Arrival::Closed { concurrency: 4 };
        for sample in record.samples.edit().iter_mut() {
            (sample.outcome, sample.status) = (outcome, status);
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

    fn ending(cells: Vec<CellRecord>) -> Ending {
        Ending::of(&analyse(&run(cells)))
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
            let late = ending(vec![invalid(refused(0, Protocol::H1))]);
            assert!(matches!(late, Ending::NoSuccess(_)), "whoever was late");
        }
    }

    #[test]
    fn no_response_at_all_is_no_answer_however_requests_ended() {
        for outcome in [Outcome::Unfinished, Outcome::Timeout, Outcome::Closed, Outcome::Connect] {
            let Ending::NoResponse(why) = ending(vec![ended(0, Protocol::H1, outcome, 0)]) else {
                panic!("{outcome}")
            };
            assert!(!why.is_empty());
        }
        let cancelled = ended(0, Protocol::H1, Outcome::Cancelled, 0);
        assert_eq!(ending(vec![cancelled]), Ending::Answered, "as we wanted it");
        let one_of_two = vec![ok(0, Protocol::H1), ended(1, Protocol::H2c, Outcome::Timeout, 0)];
        assert_eq!(ending(one_of_two), Ending::Answered, "that is the result");
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
