//! Both sides of each condition, and what is rejected.

use super::*;
use crate::stats::analyse;
use h2lab_model::record::testing::{Model, cell, one_repetition, run};
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::scenario::Scenario;
use h2lab_model::workload::Protocol;

/// The response times of h1 are about 25 ms, of h2c × 1 about 50 ms and of h2c × 4 about 100 ms.
fn repetitions() -> Vec<CellRecord> {
    let of = |index, protocol, connections, factor| {
        let model = Model { factor, ..Model::CLEAN };
        one_repetition(&cell(index, 0, protocol, connections, 0.0), 0, &model)
    };
    vec![of(0, Protocol::H1, 32, 1.0), of(1, Protocol::H2c, 1, 2.0), of(2, Protocol::H2c, 4, 4.0)]
}

fn threshold(condition: &str) -> Threshold {
    condition.parse().unwrap_or_else(|error| panic!("{condition}: {error}"))
}

/// The message for the condition, without the condition.
fn said(repetitions: Vec<CellRecord>, condition: &str) -> Vec<String> {
    let violations = threshold(condition).check(&analyse(&run(repetitions))).unwrap();
    let lead = format!("{condition}: ");
    violations.iter().map(|v| v.to_string().strip_prefix(&lead).unwrap().to_owned()).collect()
}

/// How many cells or pairs a condition holds for.
fn held(condition: &str) -> usize {
    said(repetitions(), condition).len()
}

#[test]
fn a_metric_is_held_against_a_number_for_each_cell_that_it_names() {
    assert_eq!((held("p50 > 20ms"), held("p50 > 75ms"), held("p50 > 200ms")), (3, 1, 0));
    assert_eq!((held("h2c.p50 > 20ms"), held("h1.p50 > 20"), held("h1.p50 > 30")), (2, 1, 0));
    assert_eq!((held("throughput < 990"), held("throughput >= 990"), held("h1.max < 1s")), (0, 3, 1));
}

#[test]
fn what_is_not_true_is_judged_too_with_its_figures() {
    let all = threshold("p50 > 75ms").judge(&analyse(&run(repetitions()))).unwrap();
    let judged: Vec<(bool, &str)> = all.iter().map(|one| (one.is_true, one.measured.as_str())).collect();
    assert_eq!(judged.len(), 3);
    assert_eq!(judged[0], (false, "h1 has p50 25.1 ms"));
    assert!(judged.iter().filter(|(is_true, _)| *is_true).all(|(_, said)| said.starts_with("h2c × 4 has")));
}

#[test]
fn two_metrics_are_held_against_each_other_for_each_pair_of_cells() {
    assert_eq!(
        (held("h2c.p50 > 1.5*h1.p50"), held("h2c.p50 > 3*h1.p50"), held("h2c.p50 > 5*h1.p50")),
        (2, 1, 0)
    );
    assert_eq!(held("p50 > 0.5*h1.p50"), 2, "a cell is not compared with itself");
    assert_eq!(held("h2cx4.p50 > 0.5*h2c.p50"), 1, "nor where a protocol names it too");
    assert_eq!((held("h1.max >= h1.p50"), held("max < p50"), held("max >= p50")), (1, 0, 3));
}

#[test]
fn a_cell_is_named_by_its_label_in_any_spelling() {
    for name in ["h2c × 4", "h2c×4", "h2cx4", "h2c x 4"] {
        assert_eq!(said(repetitions(), &format!("{name}.p50 > 90ms")).len(), 1, "{name}");
        assert_eq!(said(repetitions(), &format!("{name}.p50 > 110ms")).len(), 0, "{name}");
    }
}

#[test]
fn a_label_is_meant_before_a_protocol() {
    let twin = |twin| {
        let mut twin = Cell { twin, index: twin, ..cell(0, 0, Protocol::H1, 32, 0.0) };
        twin.seed += u64::from(twin.index);
        one_repetition(&twin, 0, &Model::CLEAN)
    };
    let both = || vec![twin(0), twin(1)];
    assert_eq!(said(both(), "h1.p50 > 1ms").len(), 1, "the first of the twins is called h1");
    assert_eq!(said(both(), "h1#2.p50 > 0.5*h1.p50").len(), 1);
}

#[test]
fn a_url_with_an_x_in_it_names_its_cells() {
    let at = |index, url: &str| {
        let mut record = one_repetition(&cell(index, 0, Protocol::H1, 32, 0.0), 0, &Model::CLEAN);
        record.cell.target = h2lab_model::scenario::Target::Url { url: url.to_owned() };
        record
    };
    let both = || vec![at(0, "http://a.example/x"), at(1, "http://b.example/x")];
    assert_eq!(said(both(), "h1 at http://a.example/x.p50 > 1ms").len(), 1);
}

#[test]
fn a_number_on_the_left_is_the_same_condition_reported_once() {
    for (left, right) in [
        ("50ms < h2cx4.p50", "h2cx4.p50 > 50ms"),
        ("500ms < h2cx4.p50", "h2cx4.p50 > 500ms"),
        ("1000 >= throughput", "throughput <= 1000"),
        ("0 <= errors", "errors >= 0"),
    ] {
        assert_eq!(said(repetitions(), left), said(repetitions(), right));
    }
    assert_eq!(held("50ms < h2cx4.p50"), 1);
}

/// The three cells; of h1, which has 3,000 requests, `failed` failed and `unfinished` were cut off.
fn with_errors(failed: usize, unfinished: usize) -> Vec<CellRecord> {
    let mut repetitions = repetitions();
    let mut samples = repetitions[0].samples.edit();
    let mut measured = samples.iter_mut().filter(|sample| sample.measured);
    measured.by_ref().take(failed).for_each(|sample| sample.outcome = Outcome::Reset);
    measured.take(unfinished).for_each(|sample| sample.outcome = Outcome::Unfinished);
    drop(samples);
    repetitions
}

#[test]
fn errors_are_what_failed_and_what_was_cut_off() {
    let reported = ["h1 has errors 0.133 %"];
    for (failed, unfinished) in [(4, 0), (0, 4), (2, 2)] {
        assert_eq!(said(with_errors(failed, unfinished), "errors > 0.1%"), reported);
    }
    assert_eq!(said(with_errors(2, 1), "errors > 0.1%"), [""; 0], "3 of 3,000 are 0.1 % and not more");
    assert_eq!(said(with_errors(2, 1), "errors >= 0.001"), ["h1 has errors 0.100 %"]);
}

#[test]
fn a_percentile_may_be_written_with_a_point() {
    for (with_point, without) in [("p99.9", "p999"), ("p99.99", "p9999")] {
        for (condition, figure) in [("{} > 20ms", 3), ("h1.{} > 20ms", 1), ("h2cx4.{} > 1.5*h1.{}", 1)] {
            let written = |name| condition.replace("{}", name);
            assert_eq!(
                (held(&written(with_point)), held(&written(without))),
                (figure, figure),
                "{condition}"
            );
        }
    }
    let reported = said(repetitions(), "h2cx4.p99.9 > 1ms");
    assert!(reported[0].starts_with("h2c × 4 has p99.9 "), "{reported:?}");
    assert!("p99.9 > 2*p999".parse::<Threshold>().is_err(), "they are the same figure");
}

#[test]
fn what_was_measured_is_reported_with_its_unit() {
    let reported = said(repetitions(), "h2cx4.p50 > 1.5*h1.p50");
    assert_eq!(reported, ["h2c × 4 has p50 100 ms; h1 has p50 25.1 ms, times 1.5 is 37.6 ms"]);
    assert_eq!(said(repetitions(), "h2cx4.p50 < 1e300*h1.p50").len(), 1, "however large a factor");
    assert_eq!(said(repetitions(), "h1.throughput < 2000"), ["h1 has throughput 1000.0/s"]);
}

#[test]
fn a_cell_that_does_not_answer_keeps_no_upper_bound() {
    assert_eq!(said(with_errors(3_000, 0), "h1.p99 > 1s"), ["h1 has no successful response"]);
    assert_eq!(said(with_errors(3_000, 0), "h1.p99 < 1s"), [""; 0]);
    // Served throughput never makes a closed loop unstable.
    let mut closed = with_errors(3_000, 0);
    closed[0].cell.work.arrival = h2lab_model::workload::Arrival::Closed { concurrency: 8 };
    assert_eq!(said(closed.clone(), "h1.p99 > 1s"), ["h1 has no successful response"]);
    closed[0].samples.clear();
    assert_eq!(said(closed, "h1.errors > 99%"), ["h1 was not measured"]);
}

#[test]
fn two_sides_that_both_collapsed_fail_every_check_of_one_against_the_other() {
    let mut both = with_errors(3_000, 0);
    let mut samples = both[1].samples.edit();
    samples.iter_mut().for_each(|sample| sample.outcome = Outcome::Reset);
    drop(samples);
    both.truncate(2);
    for condition in [
        "h2c.p99 > 1.1*h1.p99",
        "h2c.p99 < h1.p99",
        "h2c.throughput < 0.9*h1.throughput",
        "h2c.errors > h1.errors",
    ] {
        assert_eq!(said(both.clone(), condition).len(), 1, "{condition}");
    }
    assert_eq!(said(with_errors(3_000, 0), "h2c.p99 > 1.1*h1.p99"), [""; 0], "one that answers is no worse");
}

#[test]
fn a_number_without_a_unit_is_reported_with_that_which_it_was_given() {
    let assumed = |condition: &str| threshold(condition).assumed_unit();
    assert_eq!(assumed("p99 > 1").as_deref(), Some("in `p99 > 1` the bound is 1ms"));
    assert_eq!(assumed("0.05 < errors").as_deref(), Some("in `0.05 < errors` the bound is 5.000 %"));
    assert_eq!(assumed("throughput < 950").as_deref(), Some("in `throughput < 950` the bound is 950.0/s"));
    for said in ["p99 > 1ms", "errors > 0", "errors > 5%", "h2c.p99 > 1.2*h1.p99"] {
        assert_eq!(assumed(said), None, "{said}");
    }
}

#[test]
fn a_name_that_is_no_metric_is_answered_with_all_that_there_are() {
    for (condition, name) in [
        ("p98 > 3", "p98"),
        ("h1.latency > 5ms", "latency"),
        ("h2c.p99 > 2*h1.p75", "p75"),
        ("2*h1.p99.5 > 1s", "p99.5"),
        ("p99.999 > 1s", "p99.999"),
    ] {
        let error = condition.parse::<Threshold>().unwrap_err().to_string();
        let all = "p50, p90, p95, p99, p999, p9999, max, mean, errors, throughput";
        assert!(error.contains(&format!("there is no metric `{name}`; write METRIC > BOUND")), "{error}");
        assert!(error.contains(all), "{error}");
    }
}

#[test]
fn what_is_no_condition_is_refused() {
    for bad in [
        "",
        "p99",
        "p99 > ",
        "1 > 2",
        "h1.p99 = 3",
        "x*h1.p99 > 1",
        ".p99 > 3",
        "p99 > -5",
        "p99 > -5ms",
        "p99 > nan",
        "p99 > inf",
        "h2c.p99 > nan*h1.p99",
        "h2c.p99 > inf*h1.p99",
        "h2c.p99 > -1*h1.p99",
        "h2c.p99 > 0*h1.p99",
        "h2c.p99 > 1e999*h1.p99",
        "p99 > p50 > 3",
    ] {
        assert!(matches!(bad.parse::<Threshold>(), Err(ThresholdError::Syntax(_))), "{bad}");
    }
}

#[test]
fn sides_of_different_units_are_refused() {
    for bad in [
        "errors > 50ms",
        "h1.p99 > 3%",
        "throughput > 10ms",
        "throughput < 95%",
        "errors > 5",
        "h1.p99 > h1.errors",
        "h1.throughput > h1.p50",
        "3% < h1.p99",
    ] {
        assert!(matches!(bad.parse::<Threshold>(), Err(ThresholdError::Unit { .. })), "{bad}");
    }
    assert_eq!(
        "errors > 50ms".parse::<Threshold>().unwrap_err().to_string(),
        "`errors > 50ms`: `errors` can only be compared with a share from 0 % to 100 % (such as 0.1%)"
    );
    for good in ["errors > 5%", "errors > 1", "p99 > 0", "throughput > 10", "h1.p99 > h1.mean"] {
        threshold(good);
    }
}

#[test]
fn unknown_names_are_refused_before_and_after_the_run() {
    assert_eq!(threshold("h2c.p99 > 1.2*h1.p99").names().collect::<Vec<_>>(), ["h2c", "h1"]);
    assert_eq!(threshold("5ms < p99").names().count(), 0);
    let plan = Scenario::from_toml("[matrix]\nconnections = [1, 4]").unwrap().plan();
    for (condition, unknown) in
        [("h2cx4.p99 > h1.p99", None), ("h2cx5.p99 > h1.p99", Some("h2cx5")), ("1ms < h2.p99", Some("h2"))]
    {
        let error = threshold(condition).check_names(&plan).err();
        let name = error.map(|error| match error {
            ThresholdError::NoSuchCell { name, known, .. } => {
                assert_eq!(known, "h1, h2c, h2c × 1, h2c × 4");
                name
            }
            other => panic!("{other}"),
        });
        assert_eq!(name.as_deref(), unknown);
    }
    let error = threshold("h2.p99 > 1").check(&analyse(&run(repetitions()))).unwrap_err();
    assert!(matches!(error, ThresholdError::NoSuchCell { name, .. } if name == "h2"));
}

#[test]
fn a_figure_held_against_itself_is_refused() {
    for condition in ["p99 > 1.5*p99", "h1.p50 < h1.p50"] {
        let error = condition.parse::<Threshold>().expect_err(condition);
        assert!(error.to_string().contains("with itself"), "{error}");
    }
    assert!("h1.p99 > 2*p99".parse::<Threshold>().is_ok());
}
