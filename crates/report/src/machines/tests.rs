use super::super::testing::Fixture;
use super::*;
use h2lab_analysis::stats::analyse;
use h2lab_model::record::HostId;
use h2lab_model::record::agents::LostShare;

/// The fixture, of which the cells of each group were measured by the agent that `by` names, on a machine of that kind.
fn measured(by: impl Fn(u32, u32) -> (&'static str, &'static str)) -> Fixture {
    let mut fixture = Fixture::new();
    for repetition in &mut fixture.run.repetitions {
        let (agent, likeness) = by(repetition.cell.group, repetition.cell.index);
        let [agent, machine, likeness] = [agent, "Linux 6.12, 4 CPUs", likeness].map(str::to_owned);
        repetition.machine = Some(MeasuredOn { agent, machine, likeness, host: HostId::default() });
    }
    fixture.analysis = analyse(&fixture.run);
    fixture
}

/// That fixture, measured by each of these agents, and what is found together. Each is given with its machine.
fn measured_by_each<const N: usize>(agents: [(&'static str, &'static str); N]) -> Fixture {
    let fixtures = agents.map(|(agent, host)| {
        let mut fixture = measured(|_, _| (agent, "x"));
        for on in fixture.run.repetitions.iter_mut().filter_map(|repetition| repetition.machine.as_mut()) {
            on.host = HostId::new(host);
        }
        fixture.analysis = analyse(&fixture.run);
        fixture
    });
    let others: Vec<_> = fixtures[1..].iter().map(|fixture| fixture.analysis.clone()).collect();
    let mut all = fixtures.into_iter();
    let mut first = all.next().unwrap();
    first.analysis = first.analysis.reproduced_by(&others);
    first
}

#[test]
fn a_run_without_agents_says_nothing_of_machines() {
    let fixture = Fixture::new();
    assert!(of(&fixture.report()).is_none() && reproductions(&fixture.report()).is_none());
    let text = crate::text(&[fixture.report()], TextStyle::default());
    assert!(!text.contains("Machines") && !text.contains("Reproduction"), "{text}");
    let document = crate::document(&fixture.report());
    assert!(document.machines.is_empty() && document.reproductions.is_empty());
}

#[test]
fn each_comparison_is_named_with_the_machine_that_made_it() {
    let fixture = measured(|group, _| if group == 0 { ("kek-1", "x") } else { ("kek-2", "x") });
    let machines = of(&fixture.report()).unwrap();
    assert_eq!(machines.title, "2 comparisons by 2 machines, alike");
    let [first, second] = &machines.lines[..] else { panic!("{:?}", machines.lines) };
    assert!(first.starts_with("kek-1 (Linux 6.12, 4 CPUs): 1 comparison: "), "{first}");
    assert!(second.starts_with("kek-2 (Linux 6.12, 4 CPUs): 1 comparison: "), "{second}");
    let report = fixture.report();
    let text = crate::text(&[report], TextStyle::default());
    assert!(text.contains("\nMachines: 2 comparisons by 2 machines, alike\n- kek-1 "), "{text}");
    assert!(crate::html(&[report]).contains("id=\"machines\""));
    let document = crate::document(&report);
    let places: Vec<_> =
        document.machines.iter().map(|one| (one.agent.as_str(), one.groups.as_slice())).collect();
    assert_eq!(places, [("kek-1", &[0][..]), ("kek-2", &[1])]);
}

#[test]
fn a_page_names_the_machines_that_measured_and_the_one_that_drove() {
    let page = |fixture: &Fixture| crate::html(&[fixture.report()]);
    let here = page(&Fixture::new());
    assert!(!here.contains("driven from") && here.contains("<th scope=\"row\">machine</th>"), "{here}");
    let mut fixture = measured(|group, _| if group == 0 { ("kek-1", "x") } else { ("kek-2", "x") });
    fixture.run.machine = "Linux 6.1, 2 CPUs".to_owned();
    let there = page(&fixture);
    let cited = ", on kek-1, kek-2 (Linux 6.12, 4 CPUs); driven from Linux 6.1, 2 CPUs.</pre>";
    assert!(there.contains(cited), "{there}");
    for fact in ["measured on</th><td>kek-1, kek-2 (", "driven from</th><td>Linux 6.1, 2 CPUs<"] {
        assert!(there.contains(fact), "{fact}: {there}");
    }
}

#[test]
fn a_load_was_measured_on_the_agents_whose_shares_are_there() {
    let mut fixture = Fixture::new();
    let share = |name: &str| ShareSummary::new(name, 0, 3);
    let lost = Some(LostShare { why: "it was silent".to_owned(), progress: None });
    fixture.run.repetitions[0].agents = vec![
        ShareSummary { machine: Some("Linux 6.12".to_owned()), ..share("kek-1") },
        ShareSummary { lost, ..share("kek-2") },
        share("kek-3"),
    ];
    assert_eq!(measured_on(&fixture.run), "kek-1 (Linux 6.12), kek-3");
    assert_eq!(measured_on(&Fixture::new().run), "");
}

#[test]
fn of_many_agents_a_citation_names_the_first_ones() {
    let words = |n: usize| {
        let names: Vec<String> = (0..n).map(|place| format!("k{place}")).collect();
        // Each of them measured twice.
        let twice = names.iter().chain(&names);
        in_words(twice.map(|name| (name.as_str(), Some("Linux"))))
    };
    assert_eq!(words(0), "");
    assert_eq!(words(NAMED), "k0, k1, k2, k3, k4, k5 (Linux)");
    assert_eq!(words(NAMED + 2), "k0, k1, k2, k3, k4, k5 and 2 more (Linux)");
}

#[test]
fn a_comparison_across_unlike_machines_has_no_verdict_and_the_reason_is_there() {
    let fixture = measured(|_, index| if index.is_multiple_of(4) { ("a", "x") } else { ("b", "y") });
    let report = fixture.report();
    let machines = of(&report).unwrap();
    assert!(
        machines.title.ends_with("of 2 kinds that are not compared with each other"),
        "{}",
        machines.title
    );
    assert!(machines.lines[2].contains("in part by each of a, b, which are unlike"), "{:?}", machines.lines);
    let verdict = &fixture.analysis.verdicts[0];
    assert_eq!(verdict.conclusion, Conclusion::UnlikeMachines);
    let sentence = sentences::verdict(&report, verdict);
    assert!(sentence.contains("unlike machines"), "{sentence}");
    let text = crate::text(&[report], TextStyle::default());
    assert!(text.contains("unlike"), "{text}");
}

#[test]
fn what_several_machines_find_stands_side_by_side_with_the_spread_of_their_ratios() {
    let [mut first, second] = [("a", "x"), ("b", "x")].map(|on| measured(move |_, _| on));
    first.analysis = first.analysis.reproduced_by(&[second.analysis]);
    let report = first.report();
    let all = reproductions(&report).unwrap();
    let n = first.analysis.verdicts.len();
    assert!(all.title.starts_with(&format!("{n} comparisons by several machines each: ")), "{}", all.title);
    assert_eq!(all.lines.len(), n);
    let line = all.lines.iter().find(|line| line.contains("smallest ratio")).unwrap();
    assert!(line.contains("; a: ") && line.contains("; b: ") && line.ends_with(" 1.00"), "{line}");
    let machines = of(&report).unwrap();
    assert_eq!(machines.title, "2 comparisons by 2 machines, alike");
    let [of_run, further] = ["a (Linux 6.12, 4 CPUs)", "b (Linux 6.12, 4 CPUs): measured again"];
    assert_eq!(machines.lines, [of_run, further].map(|line| format!("{line}: all of them")));
    let page = crate::html(&[report]);
    let cited = "on a (Linux 6.12, 4 CPUs); measured again on b (Linux 6.12, 4 CPUs)";
    assert!(page.contains(cited), "{page}");
    assert!(page.contains("id=\"reproduction\""));
    let document = crate::document(&report);
    assert_eq!(document.reproductions.len(), n);
    assert_eq!(document.reproductions[0].found.len(), 2);
}

#[test]
fn agents_of_one_machine_are_said_to_repeat_and_not_to_reproduce() {
    let words = "agents a and b ran on one machine";
    let fixture = measured_by_each([("a", "h"), ("b", "h")]);
    let report = fixture.report();
    let machines = of(&report).unwrap();
    assert_eq!(machines.title, "2 comparisons by 2 agents on 1 machine");
    assert_eq!(machines.lines.last().map(String::as_str), Some(words));
    let all = reproductions(&report).unwrap();
    assert!(all.title.contains(" by several agents each: "), "{}", all.title);
    assert!(all.title.ends_with(" repeated on one machine, which is no reproduction"), "{}", all.title);
    let line = &all.lines[0];
    assert!(line.contains(": repeated on one machine; a: "), "{line}");
    assert!(line.ends_with(&format!("; {words}: this is a repetition, not a reproduction")), "{line}");
    let document = crate::document(&report);
    assert_eq!(document.reproductions[0].agreement, "one-machine");
    assert!(document.machines.iter().all(|one| one.host == "h"));
}

#[test]
fn agents_of_different_or_unknown_machines_reproduce() {
    for hosts in [["h", "i"], ["", ""], ["h", ""]] {
        let fixture = measured_by_each([("a", hosts[0]), ("b", hosts[1])]);
        let report = fixture.report();
        assert_eq!(of(&report).unwrap().title, "2 comparisons by 2 machines, alike", "{hosts:?}");
        let all = reproductions(&report).unwrap();
        assert!(all.title.contains(" by several machines each: "), "{}", all.title);
        assert!(all.lines.iter().all(|line| !line.contains("repetition")), "{:?}", all.lines);
    }
    // A third agent, on another machine than the two.
    let fixture = measured_by_each([("a", "h"), ("b", "h"), ("c", "i")]);
    let report = fixture.report();
    assert_eq!(of(&report).unwrap().title, "2 comparisons by 3 agents on 2 machines, alike");
    let all = reproductions(&report).unwrap();
    assert!(all.title.contains(" by several machines each: "), "{}", all.title);
    assert!(all.lines[0].ends_with("; agents a and b ran on one machine: between them it is a repetition"));
}

#[test]
fn json_names_the_machines_that_measured_again() {
    let fixture = measured_by_each([("a", "h"), ("b", "i")]);
    let document = crate::document(&fixture.report());
    let [first, again] = &document.machines[..] else { panic!("{:?}", document.machines) };
    assert_eq!((first.agent.as_str(), first.host.as_str()), ("a", "h"));
    assert_eq!((first.groups.as_slice(), first.measured_again.as_slice()), (&[0, 1][..], &[][..]));
    assert_eq!((again.agent.as_str(), again.host.as_str()), ("b", "i"));
    assert_eq!((again.groups.as_slice(), again.measured_again.as_slice()), (&[][..], &[0, 1][..]));
}

#[test]
fn a_report_of_a_load_names_the_agents_with_their_shares() {
    let mut fixture = Fixture::new();
    let made = |name: &str, number: u32, host: &str| ShareSummary {
        machine: Some("Linux 6.12, 4 CPUs".to_owned()),
        host: HostId::new(host),
        due: Some(1_166),
        ..ShareSummary::new(name, number, 3)
    };
    let lost = Some(LostShare { why: "it was silent".to_owned(), progress: None });
    fixture.run.repetitions[0].agents =
        vec![made("kek-1", 0, "h"), made("kek-2", 1, "h"), ShareSummary { lost, ..made("kek-3", 2, "i") }];
    let report = fixture.report();
    let (title, lines) = shares(&report).unwrap();
    assert_eq!(title, "3 shares of one load");
    for line in [
        "Shares: 3, 1 lost",
        "agents kek-1 and kek-2 ran on one machine",
        "kek-2 (Linux 6.12, 4 CPUs): share 2 of 3, 1,166 requests",
        "kek-3 (Linux 6.12, 4 CPUs): share 3 of 3, lost",
    ] {
        assert!(lines.iter().any(|one| one == line), "{line}: {lines:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("kek-3 is lost: it was silent; ")), "{lines:?}");
    for width in [40, 80] {
        let mut out = String::new();
        text(&mut out, &report, TextStyle { width, ..TextStyle::default() });
        assert!(out.starts_with("\nAgents: 3 shares of one load\n- Shares: 3, 1 lost\n"), "{out}");
        assert!(out.lines().all(|line| line.chars().count() <= width), "{width}: {out}");
    }
    assert!(shares(&Fixture::new().report()).is_none());
}

#[test]
fn what_is_invalid_on_each_machine_is_not_said_to_be_undecided() {
    let [mut first, mut second] = [("a", "x"), ("b", "x")].map(|on| measured(move |_, _| on));
    for fixture in [&mut first, &mut second] {
        fixture.analysis.verdicts.truncate(1);
        let verdict = &mut fixture.analysis.verdicts[0];
        (verdict.conclusion, verdict.tail_ratio) = (Conclusion::Invalid, None);
    }
    first.analysis = first.analysis.reproduced_by(&[second.analysis]);
    let all = reproductions(&first.report()).unwrap();
    assert_eq!(all.title, "1 comparison by several machines each: 1 without a verdict by any of them");
    let [line] = &all.lines[..] else { panic!("{:?}", all.lines) };
    let expected = ": not reproduced, since none of the agents has a verdict; a: invalid; b: invalid";
    assert!(line.ends_with(expected), "{line}");
}

#[test]
fn what_is_void_on_one_machine_has_no_verdict_and_the_reason_is_there() {
    let mut fixture = measured_by_each([("a", "h"), ("b", "h")]);
    let mut one = fixture.analysis.reproductions[0].clone();
    one.agreement = Agreement::NoVerdict;
    for own in &mut one.found {
        (own.verdict.conclusion, own.verdict.tail_ratio) = (Conclusion::Invalid, None);
        own.why_void = Some("the link was late".to_owned());
    }
    fixture.analysis.reproductions = vec![one];
    let all = reproductions(&fixture.report()).unwrap();
    assert_eq!(all.title, "1 comparison by several agents each: 1 without a verdict by any of them");
    let late = "invalid (the link was late)";
    let words = format!(" none of the agents has a verdict; a: {late}; b: {late}; ");
    assert!(all.lines[0].contains(&words), "{:?}", all.lines);
    assert!(all.lines[0].ends_with("agents a and b ran on one machine: between them it is a repetition"));
}

#[test]
fn json_tells_cells_that_are_the_same_from_those_of_which_it_is_undecided() {
    let fixture = measured_by_each([("a", "h"), ("b", "i")]);
    let report = fixture.report();
    let found: Vec<_> =
        crate::document(&report).reproductions.into_iter().flat_map(|one| one.found).collect();
    let words = |verdict: &str| -> BTreeSet<String> {
        found.iter().filter(|one| one.verdict == verdict).map(|one| one.word.clone()).collect()
    };
    assert_eq!(words("no-difference"), BTreeSet::from(["same", "undecided"].map(str::to_owned)));
    assert_eq!(words("unstable"), BTreeSet::from(["unstable".to_owned()]));
}

#[test]
fn machines_of_several_kinds_are_told_apart_by_what_differs() {
    let kinds = ["h2lab 1, isolation full", "h2lab 1, isolation none"];
    let fixture = measured(move |group, _| if group == 0 { ("a", kinds[0]) } else { ("b", kinds[1]) });
    let machines = of(&fixture.report()).unwrap();
    let [first, second] = &machines.lines[..] else { panic!("{:?}", machines.lines) };
    assert!(first.starts_with("a (Linux 6.12, 4 CPUs; isolation full): "), "{first}");
    assert!(second.starts_with("b (Linux 6.12, 4 CPUs; isolation none): "), "{second}");
}

#[test]
fn a_terminal_gets_a_dozen_lines_and_the_number_of_the_rest() {
    let [mut first, second] = [("a", "x"), ("b", "x")].map(|on| measured(move |_, _| on));
    first.analysis = first.analysis.reproduced_by(&[second.analysis]);
    let one = first.analysis.reproductions[0].clone();
    first.analysis.reproductions = vec![one; MOST + 2];
    let mut out = String::new();
    text(&mut out, &first.report(), TextStyle::default());
    assert!(out.contains("and 2 more, in --json and the page"), "{out}");
}
