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
    let diagnosis = diagnosis(&fixture, &refuted, subject);
    let own = diagnosis.own_findings().remove(0);
    assert_eq!((own.fixes, own.cost), (before.fixes, before.cost));
    assert!(diagnosis.answer().join(" ").contains("Suspect (LOSS101"), "{:?}", diagnosis.answer());
    let message = diagnosis.sarif()["runs"][0]["results"][0]["message"].to_string();
    assert!(message.contains("fix, client") && !message.contains("refuted: 4 connections"), "{message}");
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

/// More streams on a connection.
fn streams() -> Knob {
    Knob::Server(ServerSetting {
        change: Change { knob: settings::Knob::MaxConcurrentStreams, value: Some(128) },
        words: "128 streams".to_owned(),
        causes: ["MUX101", "CONN102"].map(str::to_owned).to_vec(),
    })
}

#[test]
fn of_two_causes_that_a_change_takes_away_it_confirms_the_one_that_it_shows() {
    let mut fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let finding = |rule: &str| Finding { rule: rule.to_owned(), ..fixture.findings[0].clone() };
    let both = ["CONN102", "MUX101"].map(finding);
    fixture.findings = both.to_vec();
    let of = |fixture: &Fixture, knob: Knob| {
        let trials = vec![trial(knob, Outcome::Confirmed, 2.0)];
        let experiment = Experiment { trials, ..experiment(fixture) };
        let diagnosis = diagnosis(fixture, &experiment, subject);
        let causes = diagnosis.causes().into_iter().map(|cause| (cause.id, cause.confidence));
        let costs = diagnosis.own_findings().into_iter().map(|finding| finding.cost);
        let causes: Vec<(String, String)> = causes.collect();
        (causes, costs.collect::<Vec<String>>(), diagnosis.answer().join(" "))
    };
    let said = |causes: &[(String, String)]| {
        causes.iter().map(|(id, how)| format!("{id} {how}")).collect::<Vec<_>>().join(", ")
    };
    let (causes, costs, answer) = of(&fixture, streams());
    assert_eq!(said(&causes), "MUX101 confirmed, CONN102 observed");
    let told = "; not confirmed: \"128 streams\" takes MUX101 away as well, and shows that one";
    assert!(costs[0].ends_with(told) && !costs[1].contains("not confirmed"), "{costs:?}");
    assert!(answer.contains("Confirmed (MUX101): with 128 streams"), "{answer}");
    assert_eq!(said(&of(&fixture, Knob::AwaitedSettings).0), "CONN102 confirmed, MUX101 observed");
    fixture.findings.truncate(1);
    let (causes, costs, ..) = of(&fixture, streams());
    assert_eq!((said(&causes), &costs[0]), ("CONN102 confirmed".to_owned(), &fixture.findings[0].cost));
}

#[test]
fn what_a_record_says_of_a_confirmed_cause_does_not_contradict_what_its_change_showed() {
    let mut fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let before = fixture.findings[0].cost.clone();
    let mut cost = |cost_share: f64, confidence: Confidence, of_failures: bool| {
        let first = &mut fixture.findings[0];
        (first.cost_share, first.confidence, first.of_failures) = (cost_share, confidence, of_failures);
        let trials = vec![trial(Knob::Connections(4), Outcome::Confirmed, 2.0)];
        let experiment = Experiment { trials, ..experiment(&fixture) };
        diagnosis(&fixture, &experiment, subject).own_findings().remove(0).cost
    };
    // The change is known to make it 1.8 times as good: 44 % of the time are gone.
    assert_eq!(cost(0.45, Confidence::Observed, false), before);
    let less = cost(0.44, Confidence::Observed, false);
    assert!(less.starts_with("with 4 connections, p99 improves 2.00 ×"), "{less}");
    assert!(less.ends_with(&format!("; by the record alone: {before}")), "{less}");
    assert_eq!(cost(0.45, Confidence::Inferred, false), less, "how much it costs no record shows");
    assert_eq!(cost(0.44, Confidence::Observed, true), before, "effects are on times");
}

/// A fix that is this many times better, where the other protocol was so many times better than without it.
fn remedy(outcome: Outcome, ratio: f64, before: f64) -> Remedy {
    let effect = |ratio: f64| Effect { ratio, low: ratio * 0.9, high: ratio * 1.1, before: 10.0, after: 5.0 };
    Remedy {
        metric: Metric::Served,
        before: Some(effect(before)),
        after: Some(effect(1.0)),
        effect: effect(ratio),
        outcome,
        closed: (before > 1.2).then_some([1.0, 0.88, 1.12]),
        harm: Vec::new(),
        rounds: 4,
        doubt: None,
    }
}

/// The fix, for a cause that the experiment did not confirm.
fn made(remedy: Remedy) -> Fixing {
    Fixing::Made {
        words: "haproxy: x".to_owned(),
        cause: Some(("LOSS101".to_owned(), false)),
        remedy: Some(Box::new(remedy)),
        diff: String::new(),
        files: Vec::new(),
    }
}

#[test]
fn a_cause_that_the_rounds_of_the_fix_confirm_is_confirmed_everywhere() {
    let fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let trials = vec![trial(Knob::LongFrames, Outcome::Undecided, 1.2)];
    let experiment = Experiment { trials, ..experiment(&fixture) };
    let of = |outcome: Outcome| {
        let fix = made(remedy(outcome, 1.73, 1.7));
        let diagnosis = Diagnosis { fix: Some(&fix), ..diagnosis(&fixture, &experiment, subject) };
        let cause = diagnosis.causes().remove(0).confidence;
        let own = diagnosis.own_findings().remove(0).confidence;
        let is_confirmed = [fix.confirmed() == Some("LOSS101"), own == Confidence::Confirmed];
        (is_confirmed, cause, diagnosis.answer().join(" "), diagnosis.junit())
    };
    let (is_confirmed, cause, answer, junit) = of(Outcome::Confirmed);
    assert_eq!((is_confirmed, cause.as_str()), ([true; 2], "confirmed"));
    assert!(answer.contains("Confirmed (LOSS101) by the rounds of the fix; the experiment"), "{answer}");
    assert!(answer.contains("Fix haproxy: x (LOSS101, confirmed by these rounds): requests/s"), "{answer}");
    assert!(!answer.contains("not confirmed") && !answer.contains("not shown to help"), "{answer}");
    assert!(junit.contains("failures=\"1\""), "{junit}");
    for outcome in [Outcome::Undecided, Outcome::Refuted, Outcome::Void("late".to_owned())] {
        let (is_confirmed, cause, answer, junit) = of(outcome);
        assert_eq!(is_confirmed, [false; 2]);
        assert_ne!(cause, "confirmed");
        assert!(answer.contains("Suspect (LOSS101, not confirmed): "), "{answer}");
        assert!(answer.contains("Fix haproxy: x (LOSS101, not confirmed): requests/s"), "{answer}");
        assert!(!junit.contains("failures=\"1\""), "{junit}");
    }
}

#[test]
fn a_fix_that_was_not_shown_to_help_says_so_and_claims_nothing_else() {
    let fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let experiment = experiment(&fixture);
    let says = |remedy: Remedy| {
        let fix = made(remedy);
        Diagnosis { fix: Some(&fix), ..diagnosis(&fixture, &experiment, subject) }.fix_says().join(" ")
    };
    let unclear = says(remedy(Outcome::Undecided, 1.05, 1.7));
    assert!(unclear.contains("It was not shown to help, in 4 rounds of their own."), "{unclear}");
    assert!(!unclear.contains("closes") && unclear.contains("Nothing was shown to be worse"), "{unclear}");
    let little = says(remedy(Outcome::Undecided, 1.12, 1.7));
    assert!(little.contains("not shown to help by 10 % or") && little.contains("closes 100 %"), "{little}");
    let worse = says(remedy(Outcome::Worse, 0.8, 1.7));
    assert!(worse.contains("It was shown to make this worse"), "{worse}");
    assert!(!worse.contains("Nothing was shown to be worse") && !worse.contains("closes"), "{worse}");
    let void = Outcome::Void("late".to_owned());
    let unsound = says(Remedy { doubt: Some("late".to_owned()), ..remedy(void.clone(), 1.7, 1.7) });
    assert!(unsound.contains("may mislead: late."), "{unsound}");
    let failing = says(remedy(void, 1.7, 1.7));
    assert!(failing.contains("Whether it helps could not be judged: late."), "{failing}");
    for said in [unsound, failing] {
        assert!(!said.contains("Nothing was shown to be worse") && !said.contains("closes"), "{said}");
    }
}

#[test]
fn where_the_other_protocol_was_worse_already_it_is_said_so_in_place_of_a_difference() {
    let fixture = Fixture::new();
    let subject = fixture.findings[0].cell;
    let experiment = experiment(&fixture);
    let says = |before: f64| {
        let fix = made(remedy(Outcome::Confirmed, 4.0, before));
        Diagnosis { fix: Some(&fix), ..diagnosis(&fixture, &experiment, subject) }.fix_says().join(" ")
    };
    let ahead = says(0.88);
    assert!(ahead.contains(" was better already, 1.14 × (1.03–1.26) as good as "), "{ahead}");
    assert!(!ahead.contains("the difference was"), "{ahead}");
    let alike = says(0.95);
    assert!(alike.contains("the difference was 0.95 ×") && !alike.contains("better already"), "{alike}");
    assert!(alike.contains("These rounds showed no difference to close."), "{alike}");
}
