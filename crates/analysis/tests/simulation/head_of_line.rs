//! LOSS101 on the model: drops shared by the streams of a connection, and similar symptoms.

use std::time::Duration;

use h2lab_analysis::diagnose;
use h2lab_analysis::diagnose::{Confidence, Finding};
use h2lab_model::scenario::{Axis, Scenario};
use h2lab_model::workload::Protocol;

use crate::model::{Setup, stalling};
use crate::trial;

fn findings(scenario: &Scenario, setup: &Setup<'_>) -> Vec<Finding> {
    let mut findings = diagnose::run(&trial::run(scenario, setup).repetitions);
    findings.retain(|finding| finding.rule == "LOSS101");
    findings
}

#[test]
fn it_is_found_on_one_http2_connection_at_3_percent_loss() {
    let findings = findings(&trial::one(Protocol::H2c, 1, 0.03), &Setup::new());
    assert_eq!(findings.len(), 1);
    println!("{}; {}", findings[0].symptom, findings[0].cost);
    assert_eq!(findings[0].confidence, Confidence::Observed);
    assert!(findings[0].cost_share > 0.05, "{}", findings[0].cost);
}

#[test]
fn it_is_found_where_the_connection_bears_the_loss() {
    let findings = findings(&trial::one(Protocol::H2c, 1, 0.003), &Setup::new());
    assert_eq!(findings.len(), 1);
}

#[test]
fn nothing_is_found_without_loss() {
    for protocol in [Protocol::H1, Protocol::H2c] {
        assert_eq!(findings(&trial::one(protocol, 1, 0.0), &Setup::new()), []);
    }
}

#[test]
fn nothing_is_found_with_one_stream_per_connection() {
    assert_eq!(findings(&trial::one(Protocol::H1, 1, 0.03), &Setup::new()), []);
    let mut scenario = trial::one(Protocol::H2c, 100, 0.03);
    scenario.matrix.streams = Axis::one(1);
    assert_eq!(findings(&scenario, &Setup::new()), []);
}

#[test]
fn a_server_that_stalls_without_loss_is_not_blamed_on_the_path() {
    let application = stalling(Duration::from_secs(1), Duration::from_millis(200), 1024);
    let setup = Setup { application: &application, ..Setup::new() };
    let run = trial::run(&trial::one(Protocol::H2c, 1, 0.0), &setup);
    let slow = run.repetitions[0].samples.iter().filter(|s| s.response_time() > Duration::from_millis(100));
    assert!(slow.count() > 200, "the stalls have the shape");
    assert_eq!(diagnose::run(&run.repetitions), []);
}
