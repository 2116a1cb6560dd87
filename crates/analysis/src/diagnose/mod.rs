//! From records to findings: rules with evidence and cost.
//!
//! [`run`] builds the [`Facts`](h2lab_wire::trace::Facts) of every repetition, passes all repetitions of a cell at once
//! to each rule, and sorts the findings by their cost. A cause is a folder under `causes/` with its page `page.md`; if
//! a rule recognises it, the folder also has `mod.rs`, and `tests.rs` with cases on both sides of each of its
//! thresholds.

mod case;
mod causes;
pub mod client;
pub mod facts;
pub mod finding;
mod hop;
pub mod passive;
pub mod rule;
pub mod sidecar;
#[cfg(test)]
mod testing;
mod tried;
pub mod waits;

pub use case::{Against, Case, Repetition};
pub use causes::{CAUSES, CauseMeta, FAMILIES, Status, cause, of_check, of_limit, of_wait};
pub use finding::{Evidence, Finding};
pub use h2lab_model::Confidence;
pub use rule::{Rule, RuleStatus};

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::stats::{CellVerdict, Conclusion, bulk_verdicts, repetitions_by_cell};
use h2lab_model::Fix;
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::labels;
use h2lab_model::settings::UNKNOWN_PRODUCT;
use tried::windows::Wider;
use waits::{Split, Waits};

/// Like [`findings`], for cells that are compared with nothing.
pub fn run(records: &[CellRecord]) -> Vec<Finding> {
    findings(records, &[])
}

/// The findings of all rules in these repetitions, the costliest of all cells first. A finding that another finding of
/// the same cell explains (`CauseMeta::supersedes`) is left out. A cell with a verdict is compared with the baseline of
/// that verdict; one of bulk work, which has none, with the same work over HTTP/1.1. A fix is not offered if another
/// cell of the run has it in force and is worse; a larger window of another cell that is better is the first fix.
///
/// Of several attempts at one repetition only the last counts: the earlier ones were invalid.
pub fn findings(records: &[CellRecord], verdicts: &[CellVerdict]) -> Vec<Finding> {
    findings_with(records, verdicts, &|_, _| None)
}

/// The same where it was asked what slow requests waited for (`--causes`): `waits` has it by the index of a cell and the
/// number of a repetition.
pub fn findings_with<'a>(
    records: &'a [CellRecord],
    verdicts: &'a [CellVerdict],
    waits: &dyn Fn(u32, u32) -> Option<&'a Waits>,
) -> Vec<Finding> {
    let cells = repetitions_by_cell(records);
    let labels = labels(cells.values().map(|repetitions| &repetitions[0].cell));
    let of_bulk = bulk_verdicts(&cells);
    let wider = tried::windows::wider(&cells);
    let check = |(index, records): (&u32, &Vec<&CellRecord>)| {
        let verdict = verdicts.iter().chain(&of_bulk).find(|verdict| verdict.cell == *index);
        let against = verdict.and_then(|verdict| {
            let repetitions = cells.get(&verdict.baseline)?.clone();
            Some(Against { label: &labels[&verdict.baseline], repetitions, verdict })
        });
        let others = cells.values().flatten().copied();
        let case = Case::new(&labels[index], records.clone(), against).beside(others);
        of_case(&case.explained(|repetition| waits(*index, repetition)), &wider)
    };
    let mut findings: Vec<Finding> = cells.iter().flat_map(check).collect();
    tried::drop_worse(&mut findings, &cells, &labels);
    findings.sort_by(costliest_first);
    findings
}

/// Observations, for which nothing needs to change, come last.
fn costliest_first(a: &Finding, b: &Finding) -> std::cmp::Ordering {
    let place = |finding: &Finding| (finding.is_observation(), -finding.cost_share);
    let ((of_a, a), (of_b, b)) = (place(a), place(b));
    of_a.cmp(&of_b).then(a.total_cmp(&b))
}

/// The findings of one cell, the costliest first. What `wider` windows of other cells lift is a cause, also if this cell
/// is not slower than what it is compared with.
fn of_case(case: &Case<'_>, wider: &[Wider]) -> Vec<Finding> {
    let rules = CAUSES.iter().filter_map(|cause| cause.rule());
    let mut findings: Vec<Finding> = rules.flat_map(|rule| rule.check(case)).collect();
    let explained: BTreeSet<&str> = findings
        .iter()
        .filter_map(|finding| cause(&finding.rule))
        .flat_map(|cause| cause.supersedes.iter().copied())
        .collect();
    findings.retain(|finding| !explained.contains(finding.rule.as_str()));
    if case.is_field_passed_on {
        findings.iter_mut().flat_map(|finding| &mut finding.fixes).for_each(say_unknown);
    }
    if let Some(waits) = case.waits() {
        for finding in &mut findings {
            add_waits(finding, &waits);
        }
    }
    let mut lifted = Vec::new();
    findings.retain_mut(|finding| {
        let is_lifted = wider.iter().any(|wider| wider.lifts(finding));
        if is_lifted {
            lifted.push(std::mem::take(finding));
        }
        !is_lifted
    });
    // The gap needs all response times sorted.
    if let Some(against) = case.against.as_ref().filter(|_| !findings.is_empty()) {
        divide(&mut findings, case, against);
    }
    findings.append(&mut lifted);
    findings.sort_by(costliest_first);
    findings
}

/// Adds what the packets of slow requests say of the same cause, beside what the rule says that it costs.
fn add_waits(finding: &mut Finding, waits: &Split) {
    let kinds = cause(&finding.rule).map_or(&[][..], |cause| cause.waits);
    if kinds.is_empty() || waits.total_ns == 0 {
        return;
    }
    let share: f64 = kinds.iter().map(|kind| waits.share(*kind)).sum();
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let what = format!("of the time of slow requests, as their packets show: {}", names.join(" or "));
    finding.evidence.push(Evidence::new(&what, share * 100.0, "%"));
}

/// Adds the reason to a fix for a front hop whose product is not known.
fn say_unknown(fix: &mut Fix) {
    if fix.product == UNKNOWN_PRODUCT {
        fix.why.push_str(
            "; both URLs have the same server field, which a proxy passes on: what answers here is not known",
        );
    }
}

/// If the difference of all response times is below this share of them, no cause could explain it.
const SHARED: f64 = 0.05;

/// Divides the difference from the other cell among the findings, in proportion to the time that each cost. If the cell
/// is known not to be slower, they are observations, and nothing needs to change.
fn divide(findings: &mut [Finding], case: &Case<'_>, against: &Against<'_>) {
    let verdict = against.verdict;
    let (gap, all) = (against.gap(case).as_secs_f64(), case.response_time().as_secs_f64());
    let lost = against.lost_rate(case).filter(|_| all > 0.0);
    let is_slower = verdict.is_slower() || lost.is_some();
    // If states decided the verdict, or nothing did, the times still show whether there is a difference that could have
    // a cause. Those of bulk work are as long as the measurement.
    let has_times = !case.cell().work.bulk && against.has_times(case);
    let is_shared = !is_slower && has_times && gap <= all * SHARED;
    // A finding that is an observation already explains no difference, and requests that failed took no time.
    let is_of_time = |finding: &&mut Finding| !finding.is_observation() && !finding.of_failures;
    let mut causes: Vec<&mut Finding> = findings.iter_mut().filter(is_of_time).collect();
    let cost = causes.iter().map(|finding| finding.cost_share * all).sum::<f64>();
    // What all of them explain together, 0 to 1, and of what.
    let explained = match lost {
        Some(lost) => {
            let in_flight = case.time_in_flight().as_secs_f64().max(f64::MIN_POSITIVE);
            Some((lost.explained(cost / in_flight), "rate lost against"))
        }
        None => (is_slower && gap > 0.0).then(|| (cost / cost.max(gap), "difference from")),
    };
    for finding in &mut causes {
        if verdict.is_no_slower() {
            let much = if verdict.conclusion == Conclusion::NoDifference { "measurably " } else { "" };
            observe(finding, &format!("{} is not {much}slower than {}", case.label, against.label));
        } else if is_shared {
            observe(finding, &without_difference(case, against));
        } else if let Some((part, of)) = explained {
            let explains = part * finding.cost_share * all / cost.max(f64::MIN_POSITIVE);
            finding.explains = Some(explains);
            let percent = explains * 100.0;
            let _ = write!(finding.cost, "; that is {percent:.0} % of the {of} {}", against.label);
        }
    }
}

/// Makes an observation of a finding: nothing needs to change.
fn observe(finding: &mut Finding, why: &str) {
    finding.explains = Some(0.0);
    finding.fixes.clear();
    let _ = write!(finding.cost, "; an observation: {why}");
}

/// What is known of two cells whose mean times do not differ. The means say nothing of the tails: where the interval of
/// these decides nothing, the cells are not called equal.
fn without_difference(case: &Case<'_>, against: &Against<'_>) -> String {
    let verdict = against.verdict;
    let is_open = verdict.unclaimed().is_some_and(|why| !why.is_alike());
    if is_open && !verdict.is_slower_in_median_only() {
        return format!("no difference from {} was resolved", against.label);
    }
    format!("on average requests of {} took as long over {}", case.label, against.label)
}

#[cfg(test)]
mod tests {
    use super::causes::views::transfer::Transfer;
    use super::testing::Scene;
    use super::*;
    use crate::stats::{CellSummary, verdict_on};
    use h2lab_model::bulk::testing::bulk_repetition;
    use h2lab_model::scenario::Target;
    use h2lab_model::settings::Knob;
    use h2lab_model::workload::Protocol;
    use h2lab_wire::trace::Direction;

    #[test]
    fn only_the_last_attempt_at_a_repetition_counts() {
        let lossy = Scene::with_shared_stall().record();
        let mut clean = Scene::new(Protocol::H2c).record();
        assert_eq!(run(std::slice::from_ref(&lossy)).len(), 1);
        clean.attempt = 1;
        assert_eq!(run(&[lossy.clone(), clean.clone()]), []);
        assert_eq!(run(&[clean, lossy]), [], "whatever their order");
    }

    #[test]
    fn a_server_field_that_a_proxy_passes_on_names_no_product_of_the_front() {
        let at = |index: u32, url: &str, server: &str| {
            let mut record = Scene::with_shared_stall().record();
            record.cell.index = index;
            record.cell.target = Target::Url { url: url.to_owned() };
            record.connections[0].server_software = Some(server.into());
            record
        };
        let [direct, via] = [at(0, "http://a/", "nginx/1.27.0"), at(1, "http://b/", "nginx/1.27.0")];
        let is_known = |record: &CellRecord, other: &CellRecord| {
            let case = Case::new("", vec![record], None).beside([record, other].into_iter());
            assert_eq!(case.is_field_passed_on, case.peer().product.is_none());
            case.peer().product.is_some()
        };
        assert!(is_known(&direct, &via), "the server itself");
        assert!(!is_known(&via, &direct));
        assert!(is_known(&at(1, "http://b/", "nginx/1.22.1"), &direct), "its own field");
        assert!(is_known(&at(1, "http://a/", "nginx/1.27.0"), &direct), "another cell of the same URL");
        let mut fix = Fix::new(UNKNOWN_PRODUCT, "unknown", "more streams");
        say_unknown(&mut fix);
        assert!(fix.why.starts_with("more streams; both URLs have the same server field"), "{}", fix.why);
        let mut named = Fix::new("client", "-c 4", "more connections");
        say_unknown(&mut named);
        assert_eq!(named.why, "more connections");
    }

    #[test]
    fn what_slow_requests_waited_for_is_evidence_where_it_was_asked() {
        use waits::{CauseKind, CauseShare};

        let lossy = Scene::with_shared_stall().record();
        let part = |time_ns| CauseShare { time_ns, requests: 1 };
        let parts = [(CauseKind::HeadOfLine, part(30)), (CauseKind::CongestionWindow, part(70))];
        let split = Split { parts: parts.into_iter().collect(), total_ns: 100, ..Split::default() };
        let waits = Waits { split, ..Waits::default() };
        let of = |cell: u32| {
            let known = |index: u32, repetition: u32| ((index, repetition) == (cell, 0)).then_some(&waits);
            let found = findings_with(std::slice::from_ref(&lossy), &[], &known).remove(0);
            let evidence = found.evidence.into_iter().find(|one| one.what.contains("slow requests"));
            evidence.map(|one| (one.value.round(), one.unit))
        };
        assert_eq!(of(0), Some((30.0, "%".to_owned())));
        assert_eq!(of(1), None, "another cell");
    }

    #[test]
    fn a_finding_calls_its_cell_as_the_tables_do() {
        let first = Scene::with_shared_stall().record();
        let mut second = first.clone();
        (second.cell.index, second.cell.streams) = (1, first.cell.streams + 1);
        let labels: Vec<String> = run(&[first, second]).into_iter().map(|finding| finding.label).collect();
        assert_eq!(labels, ["h2c × 1 × 100 streams", "h2c × 1 × 101 streams"]);
    }

    #[test]
    fn a_finding_says_what_part_of_the_difference_it_explains_or_that_there_is_none() {
        let mut quick = Scene::new(Protocol::H1).request(0, 0, 100, 125, 125).record();
        quick.cell.index = 1;
        let slow = Scene::with_shared_stall().record();
        let verdict = |baseline: &CellRecord, cell: &CellRecord| {
            let [baseline, cell] = [baseline, cell].map(|record| CellSummary::of(&[record]));
            verdict_on(&baseline, &cell, 1)
        };
        let explained = |conclusion: Conclusion| {
            let verdict = CellVerdict { conclusion, ..verdict(&quick, &slow) };
            findings(&[slow.clone(), quick.clone()], &[verdict]).remove(0)
        };
        // Three requests of 25, 55 and 55 ms compared with 25 ms: the stalls of 30 ms are the difference, except for
        // the 0.5 ms before the segment would have arrived.
        // Response times that only grow leave the rate as it was.
        let growing = Conclusion::Unstable { offered_rps: 1.0, served_rps: 0.99 };
        for conclusion in [Conclusion::Slower, growing] {
            let finding = explained(conclusion);
            assert!(finding.explains.is_some_and(|part| (0.98..=1.0).contains(&part)), "{}", finding.cost);
            assert!(finding.cost.ends_with("; that is 98 % of the difference from h1"), "{}", finding.cost);
            assert!(!finding.fixes.is_empty());
        }
        // Without 59 of 135 ms in flight half of the rate would be 0.89 of it: 78 % of the other half.
        let overloaded = explained(Conclusion::Unstable { offered_rps: 1.0, served_rps: 0.5 });
        assert!(overloaded.explains.is_some_and(|part| (0.76..0.79).contains(&part)), "{}", overloaded.cost);
        assert!(overloaded.cost.ends_with(" % of the rate lost against h1"), "{}", overloaded.cost);
        let observation = explained(Conclusion::Faster);
        assert_eq!((observation.explains, observation.fixes.len()), (Some(0.0), 0));
        assert_eq!(explained(Conclusion::Invalid).explains, None);
        let alike = |median| CellVerdict {
            conclusion: Conclusion::Faster,
            median_conclusion: median,
            ..verdict(&quick, &slow)
        };
        assert!(alike(None).is_no_slower() && alike(Some(Conclusion::Faster)).is_no_slower());
        assert!(!alike(Some(Conclusion::Slower)).is_no_slower(), "its usual request is");
    }

    #[test]
    fn causes_that_cost_more_than_the_difference_share_it_and_none_is_an_observation() {
        let quick = Scene::new(Protocol::H1).request(0, 0, 100, 125, 125).record();
        let slow = Scene::with_shared_stall().record();
        let [of_quick, of_slow] = [&quick, &slow].map(|record| CellSummary::of(&[record]));
        for conclusion in [Conclusion::Slower, Conclusion::Unstable { offered_rps: 1.0, served_rps: 0.5 }] {
            let verdict = CellVerdict { conclusion, ..verdict_on(&of_quick, &of_slow, 1) };
            let against = Against { label: "h1", repetitions: vec![&quick], verdict: &verdict };
            let case = Case::new("h2c × 1", vec![&slow], None);
            let mut found = [0.9, 0.3].map(|cost_share| Finding { cost_share, ..Finding::default() });
            divide(&mut found, &case, &against);
            let explains = found.each_ref().map(|finding| finding.explains.unwrap());
            assert!((explains[0] - 0.75).abs() < 1e-9 && (explains[1] - 0.25).abs() < 1e-9, "{explains:?}");
        }
    }

    #[test]
    fn of_bulk_work_the_lost_rate_is_divided_and_an_equal_rate_makes_an_observation() {
        let divided = |rate: f64| {
            let mut records = [bulk_repetition(Protocol::H1, 100e6), bulk_repetition(Protocol::H2c, rate)];
            records[1].cell.index = 1;
            let cells = repetitions_by_cell(&records);
            let verdicts = bulk_verdicts(&cells);
            let against = Against { label: "h1 × 1", repetitions: cells[&0].clone(), verdict: &verdicts[0] };
            let case = Case::new("h2c × 1", cells[&1].clone(), None);
            let fixes = vec![Fix::new("server", "x", "y")];
            let mut found = [Finding { cost_share: 0.5, fixes, ..Finding::default() }];
            divide(&mut found, &case, &against);
            let [found] = found;
            (found.cost, found.fixes.len())
        };
        // In half of the time a fifth of the rate is carried: twice as much without the cause.
        let words = |part: u32| format!("; that is {part} % of the rate lost against h1 × 1");
        assert_eq!(divided(20e6), (words(25), 1));
        assert_eq!(divided(50e6), (words(100), 1));
        let observation = "; an observation: h2c × 1 is not measurably slower than h1 × 1";
        assert_eq!(divided(100e6), (observation.to_owned(), 0));
    }

    #[test]
    fn requests_that_failed_are_no_part_of_a_difference_of_times_and_no_observation_without_one() {
        let quick = Scene::new(Protocol::H1).request(0, 0, 100, 125, 125).record();
        let same = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125).record();
        let [of_quick, of_same] = [&quick, &same].map(|record| CellSummary::of(&[record]));
        let verdict =
            CellVerdict { conclusion: Conclusion::BothUnstable, ..verdict_on(&of_quick, &of_same, 1) };
        let against = Against { label: "h1", repetitions: vec![&quick], verdict: &verdict };
        let case = Case::new("h2c × 1", vec![&same], None);
        let mut found = [false, true].map(|of_failures| Finding {
            cost_share: 0.5,
            of_failures,
            fixes: vec![Fix::new("server", "x", "y")],
            ..Finding::default()
        });
        divide(&mut found, &case, &against);
        assert_eq!(found.each_ref().map(|finding| finding.explains), [Some(0.0), None]);
        assert_eq!(found.each_ref().map(|finding| finding.fixes.len()), [0, 1]);
    }

    #[test]
    fn cells_are_called_equally_slow_only_where_their_verdict_does_not_leave_that_open() {
        let quick = Scene::new(Protocol::H1).request(0, 0, 100, 125, 125).record();
        let same = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125).record();
        let [of_quick, of_same] = [&quick, &same].map(|record| CellSummary::of(&[record]));
        let said = |conclusion, median_conclusion| {
            let verdict = CellVerdict {
                conclusion,
                median_conclusion,
                tail_ratio: None,
                ..verdict_on(&of_quick, &of_same, 1)
            };
            let against = Against { label: "h1", repetitions: vec![&quick], verdict: &verdict };
            let case = Case::new("h2c × 1", vec![&same], None);
            let mut found = [Finding { cost_share: 0.5, ..Finding::default() }];
            divide(&mut found, &case, &against);
            found[0].cost.clone()
        };
        let open = "; an observation: no difference from h1 was resolved";
        let equal = "; an observation: on average requests of h2c × 1 took as long over h1";
        assert_eq!(said(Conclusion::NoDifference, None), open, "too few requests");
        assert_eq!(said(Conclusion::NoDifference, Some(Conclusion::Slower)), equal, "its median is resolved");
        assert_eq!(said(Conclusion::BothUnstable, None), equal);
    }

    #[test]
    fn what_a_larger_window_was_measured_to_lift_is_a_cause_in_a_cell_that_is_not_slower() {
        let record = Transfer::new(Direction::Down).with_stream_window(1 << 16).record();
        let summary = CellSummary::of(&[&record]);
        let verdict = CellVerdict { conclusion: Conclusion::Faster, ..verdict_on(&summary, &summary, 1) };
        let found = |wider: &[Wider]| {
            let against = Against { label: "h2c × 1", repetitions: vec![&record], verdict: &verdict };
            let found = of_case(&Case::new("h2c × 4", vec![&record], Some(against)), wider);
            let found = found.into_iter().find(|finding| finding.rule == "FLOW101").expect("it stops");
            (found.is_observation(), found.fixes.first().map(|fix| fix.setting.clone()))
        };
        assert_eq!(found(&[]), (true, None));
        let of = |cell| [Wider::testing(cell, Knob::StreamWindow, 1 << 20)];
        let own = record.cell.index;
        assert_eq!(found(&of(own)), (false, Some("-w 1048576".to_owned())));
        assert_eq!(found(&of(own + 1)), (true, None), "of another cell");
    }

    #[test]
    fn repetitions_of_one_cell_make_one_finding_and_cells_are_sorted_by_cost() {
        let first = Scene::with_shared_stall().record();
        let mut again = first.clone();
        again.cell.repetition = 1;
        let mut cheap = Scene::with_shared_stall().request(1, 1, 100, 400, 600).record();
        cheap.cell.index = 7;
        let findings = run(&[cheap, first, again]);
        let found: Vec<(&str, u32)> = findings.iter().map(|f| (f.rule.as_str(), f.cell)).collect();
        assert_eq!(found, [("LOSS101", 0), ("LOSS101", 7)]);
        assert!(findings[0].cost_share > findings[1].cost_share);
    }
}
