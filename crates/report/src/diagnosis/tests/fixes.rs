//! Which fixes an experiment leaves of a finding.

use super::*;

#[test]
fn a_finding_whose_changes_were_all_without_effect_says_so_and_has_only_the_fixes_that_were_not_tried() {
    let mut fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let wish = Wish { knob: settings::Knob::UpstreamConnections, role: Role::Client, value: Some(16) };
    fixture.findings[0].fixes[0].wish = Some(wish);
    let not_tried = Fix::new("nginx", "listen 443 quic", "streams that do not wait for one another");
    fixture.findings[0].fixes.push(not_tried.clone());
    let before = fixture.findings[0].clone();
    let tried = |fixture: &Fixture, outcomes: [Outcome; 2]| {
        let [first, second] = outcomes;
        let trials = vec![
            trial(Knob::Connections(4), first, 1.0),
            trial(Knob::Connections(16), second, 0.8),
            trial(Knob::LongFrames, Outcome::Refuted, 1.0),
        ];
        Experiment { trials, ..experiment(fixture) }
    };
    let refuted = tried(&fixture, [Outcome::Refuted, Outcome::Worse]);
    let own = diagnosis(&fixture, &refuted, subject).own_findings().remove(0);
    assert_eq!(own.fixes, [not_tried]);
    let told = "; tried here: no effect of 15 % or more with 4 connections; worse here with 16 connections";
    assert_eq!(own.cost, format!("{}{told}", before.cost.trim_end_matches('.')));
    let sarif = diagnosis(&fixture, &refuted, subject).sarif();
    let message = sarif["runs"][0]["results"][0]["message"]["text"].as_str().expect("text");
    assert!(message.contains("\nrefuted: 4 connections") && !message.contains("fix, client"), "{message}");
    assert!(message.contains("fix, nginx: listen 443 quic"), "{message}");
    let open = tried(&fixture, [Outcome::Refuted, Outcome::Undecided]);
    assert_eq!(diagnosis(&fixture, &open, subject).own_findings(), std::slice::from_ref(&before));
    // What has no effect comes after what may have one.
    let other = Finding { rule: "FLOW104".to_owned(), ..fixture.findings[0].clone() };
    fixture.findings.insert(1, other);
    let first = |outcomes: [Outcome; 2]| {
        let experiment = tried(&fixture, outcomes);
        let diagnosis = diagnosis(&fixture, &experiment, subject);
        let causes = diagnosis.causes();
        assert_eq!(causes[0].id, diagnosis.own_findings()[0].rule);
        causes[0].id.clone()
    };
    assert_eq!(first([Outcome::Refuted, Outcome::Refuted]), "FLOW104");
    assert_eq!(
        first([Outcome::Refuted, Outcome::Worse]),
        "LOSS101",
        "a change may harm more than its cause does"
    );
    assert_eq!(first([Outcome::Refuted, Outcome::Undecided]), "LOSS101");
    // Response times do not disprove what costs failed requests.
    fixture.findings[0].of_failures = true;
    assert_eq!(diagnosis(&fixture, &refuted, subject).own_findings()[0].fixes, before.fixes);
}

#[test]
fn of_two_settings_of_which_one_was_shown_to_help_and_the_other_was_not_only_that_one_is_named() {
    let mut fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let [idle, limit] = [settings::Knob::H2IdleTimeout, settings::Knob::H2Requests];
    let fix = |knob, words: &str| Fix {
        wish: Some(Wish { knob, role: Role::Front, value: Some(1) }),
        ..Fix::new("nginx", words, "why")
    };
    fixture.findings[0].fixes =
        vec![fix(idle, "keepalive_timeout 60s;"), fix(limit, "keepalive_requests 9;")];
    let tried = |of_idle: Outcome| {
        let setting = |knob| {
            let causes = vec!["LOSS101".to_owned()];
            Knob::Server(ServerSetting {
                change: Change { knob, value: Some(1) },
                words: String::new(),
                causes,
            })
        };
        let trials = vec![trial(setting(idle), of_idle, 1.0), trial(setting(limit), Outcome::Confirmed, 2.0)];
        let experiment = Experiment { trials, ..experiment(&fixture) };
        let diagnosis = diagnosis(&fixture, &experiment, subject);
        (diagnosis.own_findings().remove(0).fixes.len(), diagnosis.answer().join(" "))
    };
    let (named, said) = tried(Outcome::Refuted);
    assert!(named == 1 && said.contains(" Change: keepalive_requests 9; (nginx)."), "{named}: {said}");
    assert_eq!(tried(Outcome::Undecided).0, 2);
}

#[test]
fn other_programs_learn_of_a_run_what_could_not_be_measured_and_where_the_time_of_a_single_cell_goes() {
    let mut fixture = Fixture::new();
    let of = |fixture: &Fixture| {
        let report = fixture.report();
        let sarif = crate::sarif_of_findings(&report);
        let results = sarif["runs"][0]["results"].as_array().map_or(0, Vec::len);
        (crate::junit_of_findings(&report), results, sarif["runs"][0]["invocations"].to_string())
    };
    let findings = fixture.findings.len();
    assert_eq!(of(&fixture).1, findings);
    for finding in &mut fixture.findings {
        (finding.explains, finding.cost_share) = (Some(0.0), 0.5);
    }
    assert_eq!(of(&fixture).1, 0, "no protocol explains it, and there is another protocol");
    fixture.analysis.verdicts.clear();
    assert_eq!(of(&fixture).1, findings);
    assert!(!of(&fixture).0.contains("<error"), "all was measured");
    let reasons = vec!["the generator was late".to_owned()];
    fixture.analysis.cells[0].state = CellState::Invalid { reasons };
    let (junit, _, invocations) = of(&fixture);
    assert!(junit.contains("type=\"invalid\"") && junit.contains("the generator was late"), "{junit}");
    assert!(invocations.contains("the generator was late"), "{invocations}");
}
