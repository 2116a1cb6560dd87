//! On which machine each comparison was made, where agents made them, and whether like machines find the same: in sentences.

use super::format::{millis_unit, plural, ratio};
use super::style::{Paint, TextStyle, painted, paragraph};
use super::{Report, condition, sentences};
use h2lab_analysis::stats::{Agreement, ComparedOn, Conclusion, OwnVerdict, Reproduction};
use h2lab_base::text::made_printable;
use h2lab_model::record::{MeasuredOn, RunRecord};
use std::collections::BTreeSet;

/// Of more lines a terminal gets only the first so many; JSON and the page have all.
const MOST: usize = 12;

/// Of more agents of like machines a citation names only the first so many.
const NAMED: usize = 6;

/// What a report says of machines.
pub(super) struct Machines {
    /// How many there are, and whether they are alike.
    pub title: String,
    /// What each of them is and measured, and each comparison that has no verdict because of them.
    pub lines: Vec<String>,
}

/// What a report says of comparisons that several machines made.
pub(super) struct Reproductions {
    /// How many there are, and how many agree.
    pub title: String,
    /// One line for each; those that are not reproduced first.
    pub lines: Vec<String>,
}

/// The machines of a run; `None` if no agent took part.
pub(super) fn of(report: &Report<'_>) -> Option<Machines> {
    let compared = report.analysis.compared_on();
    if compared.is_empty() {
        return None;
    }
    let machines = each(report, &compared);
    let kinds: BTreeSet<&String> = machines.iter().map(|machine| &machine.on.likeness).collect();
    let alike = match (machines.len(), kinds.len()) {
        (1, _) => String::new(),
        (_, 1) => ", alike".to_owned(),
        (_, kinds) => format!(", of {kinds} kinds that are not compared with each other"),
    };
    let comparisons = plural(compared.len() as u64, "comparison");
    let title = format!("{comparisons} by {}{alike}", plural(machines.len() as u64, "machine"));
    let which = |groups: &[u32]| {
        if groups.len() == compared.len() { "all of them".to_owned() } else { conditions(report, groups) }
    };
    let line = |machine: &Machine<'_>| {
        let measured = (!machine.measured.is_empty()).then(|| which(&machine.measured));
        let again = (!machine.reproduced.is_empty()).then(|| which(&machine.reproduced));
        let what = [measured, again.map(|which| format!("measured again: {which}"))];
        let what: Vec<String> = what.into_iter().flatten().collect();
        let [agent, text] = [&machine.on.agent, &machine.on.machine].map(|text| made_printable(text));
        let peculiar = peculiar(&machine.on.likeness, &kinds);
        format!("{agent} ({text}{peculiar}): {}", what.join("; "))
    };
    let mixed = compared.iter().filter(|one| one.machines.len() > 1).map(|one| {
        let names: Vec<_> = one.machines.iter().map(|machine| made_printable(&machine.agent)).collect();
        let so = if one.are_unlike() { "which are unlike: there is no verdict" } else { "which are alike" };
        format!("{}: measured in part by each of {}, {so}", at(report, one.group), names.join(", "))
    });
    let lines = machines.iter().map(line).chain(mixed).collect();
    Some(Machines { title, lines })
}

/// `; isolation none`: what a kind has that not all of these kinds have. Machines of two kinds may have one description.
fn peculiar(likeness: &str, kinds: &BTreeSet<&String>) -> String {
    let is_of_all = |part: &str| kinds.iter().all(|kind| kind.split(", ").any(|other| other == part));
    let parts: Vec<&str> = likeness.split(", ").filter(|part| !part.is_empty() && !is_of_all(part)).collect();
    if parts.is_empty() { String::new() } else { format!("; {}", made_printable(&parts.join(", "))) }
}

/// A machine, and the groups of cells that it compared.
struct Machine<'a> {
    on: &'a MeasuredOn,
    /// Those whose figures are in the run, or a part of them.
    measured: Vec<u32>,
    /// Those that it measured once more, after another one.
    reproduced: Vec<u32>,
}

/// The machines of a run, those that reproduced something after those whose figures are in the run.
fn each<'a>(report: &Report<'a>, compared: &'a [ComparedOn]) -> Vec<Machine<'a>> {
    let mut machines: Vec<Machine<'a>> = Vec::new();
    let mut add = |on: &'a MeasuredOn, group: u32, is_again: bool| {
        let place = machines.iter().position(|machine| machine.on == on).unwrap_or(machines.len());
        if place == machines.len() {
            machines.push(Machine { on, measured: Vec::new(), reproduced: Vec::new() });
        }
        let machine = &mut machines[place];
        let groups = if is_again { &mut machine.reproduced } else { &mut machine.measured };
        // A group has several comparisons.
        if !groups.contains(&group) {
            groups.push(group);
        }
    };
    for one in compared {
        for on in &one.machines {
            add(on, one.group, false);
        }
    }
    for found in report.analysis.reproductions.iter().flat_map(|one| one.found.iter().skip(1)) {
        add(&found.machine, found.verdict.group, true);
    }
    machines
}

/// Conditions that a machine measured, in their order: `3 comparisons: no loss; 1% loss; 3% loss`.
fn conditions(report: &Report<'_>, groups: &[u32]) -> String {
    let names: Vec<String> = groups.iter().map(|group| at(report, *group)).collect();
    format!("{}: {}", plural(names.len() as u64, "comparison"), names.join("; "))
}

/// The condition of a group, as the matrix names it.
fn at(report: &Report<'_>, group: u32) -> String {
    let groups = report.analysis.groups();
    let its = groups.iter().find(|cells| cells.first().is_some_and(|first| first.cell.group == group));
    its.map_or_else(String::new, |cells| {
        condition::distinction(report, cells).unwrap_or_else(|| condition::heading(report, cells))
    })
}

/// The comparisons that several machines made; `None` if there are none.
pub(super) fn reproductions(report: &Report<'_>) -> Option<Reproductions> {
    let all = &report.analysis.reproductions;
    if all.is_empty() {
        return None;
    }
    let counted = |agreement: Agreement, words: &str| {
        let n = all.iter().filter(|one| one.agreement == agreement).count();
        (n > 0).then(|| format!("{n} {words}"))
    };
    let counts = [
        counted(Agreement::Reproduced, "reproduced"),
        counted(Agreement::NotReproduced, "not reproduced"),
        counted(Agreement::Undecided, "undecided"),
        counted(Agreement::NoVerdict, "without a verdict on any of them"),
        counted(Agreement::UnlikeMachines, "of unlike machines, which are not compared"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let title =
        format!("{} by several machines each: {}", plural(all.len() as u64, "comparison"), counts.join(", "));
    let mut sorted: Vec<&Reproduction> = all.iter().collect();
    sorted.sort_by_key(|one| one.agreement != Agreement::NotReproduced);
    Some(Reproductions { title, lines: sorted.into_iter().map(|one| reproduction(report, one)).collect() })
}

/// `3% loss, 4 HTTP/2 connections against HTTP/1.1: reproduced; kek-1: slower, p99 1.83 × (…); kek-2: …; the ratios lie 1.05 × apart`.
pub(super) fn reproduction(report: &Report<'_>, one: &Reproduction) -> String {
    let name = |index| report.analysis.cell(index).map_or_else(String::new, sentences::name);
    let place = report.analysis.cell(one.cell).map_or_else(String::new, |cell| at(report, cell.cell.group));
    let agreement = match one.agreement {
        Agreement::Reproduced => "reproduced",
        Agreement::NotReproduced => "not reproduced",
        Agreement::Undecided => "undecided",
        Agreement::NoVerdict => "not reproduced, since none of the machines has a verdict",
        Agreement::UnlikeMachines => "not compared, since the machines are unlike",
    };
    let found: Vec<String> = one.found.iter().map(own).collect();
    let spread = one
        .spread
        .map_or_else(String::new, |spread| format!("; largest ratio / smallest ratio {}", ratio(spread)));
    let (cell, baseline) = (name(one.cell), name(one.baseline));
    format!("{place}, {cell} against {baseline}: {agreement}; {}{spread}", found.join("; "))
}

/// What one machine found.
fn own(one: &OwnVerdict) -> String {
    let agent = made_printable(&one.machine.agent);
    let word = match one.verdict.conclusion {
        Conclusion::NoDifference => match one.verdict.unclaimed() {
            Some(why) if why.is_alike() => "same",
            _ => "undecided",
        },
        Conclusion::BothUnstable => "both unstable",
        Conclusion::BaselineUnstable { .. } => "baseline unstable",
        other => other.name(),
    };
    let tail = one.verdict.tail_ratio.map_or_else(String::new, |tail| {
        let (percentile, figure) = (one.verdict.tail.name(), ratio(tail.ratio));
        let [candidate, baseline] = [tail.candidate, tail.baseline].map(millis_unit);
        format!(", {percentile} {figure} × ({candidate} against {baseline})")
    });
    format!("{agent}: {word}{tail}")
}

/// The agents that measured a run, with their machines, in words, and those that measured it again; empty if none did.
pub(super) fn measured_by(report: &Report<'_>) -> String {
    let mut words = measured_on(report.run);
    let further = report.analysis.reproductions.iter().flat_map(|one| one.found.iter().skip(1));
    let again = in_words(further.map(|one| (one.machine.agent.as_str(), Some(one.machine.machine.as_str()))));
    if !again.is_empty() {
        words.push_str("; measured again on ");
        words.push_str(&again);
    }
    words
}

/// The agents whose figures are in a run, with their machines, in words; empty if there are none.
fn measured_on(run: &RunRecord) -> String {
    let of_units = run.repetitions.iter().filter_map(|one| one.machine.as_ref());
    let of_units = of_units.map(|on| (on.agent.as_str(), Some(on.machine.as_str())));
    // The figures of a share that was lost are not among those of the load.
    let shares = run.repetitions.iter().flat_map(|one| &one.agents).filter(|share| share.lost.is_none());
    let shares = shares.map(|share| (share.agent.as_str(), share.machine.as_deref()));
    in_words(of_units.chain(shares))
}

/// `kek-1, kek-2 (Linux 6.12, 4 CPUs), kek-3 (Linux 6.1, 8 CPUs)`: agents by their machines, as far as these are known.
pub(super) fn in_words<'a>(agents: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut machines: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
    for (agent, machine) in agents {
        match machines.iter_mut().find(|(known, _)| *known == machine) {
            Some((_, names)) if names.contains(&agent) => {}
            Some((_, names)) => names.push(agent),
            None => machines.push((machine, vec![agent])),
        }
    }
    let words = |(machine, names): &(Option<&str>, Vec<&str>)| {
        let more = names.len().saturating_sub(NAMED);
        let named = names[..names.len() - more].join(", ");
        let all = if more == 0 { named } else { format!("{named} and {more} more") };
        match machine {
            Some(machine) => format!("{all} ({machine})"),
            None => all,
        }
    };
    let machines: Vec<String> = machines.iter().map(words).collect();
    made_printable(&machines.join(", ")).into_owned()
}

/// Appends both to a report for a terminal.
pub(super) fn text(out: &mut String, report: &Report<'_>, style: TextStyle) {
    let machines = of(report).map(|of| ("Machines", of.title, of.lines));
    let reproductions = reproductions(report).map(|of| ("Reproduction", of.title, of.lines));
    for (heading, title, lines) in machines.into_iter().chain(reproductions) {
        out.push('\n');
        painted(out, style, Paint::Bold, "", &format!("{heading}: {title}"));
        for line in lines.iter().take(MOST) {
            paragraph(out, style, "- ", line);
        }
        let more = lines.len().saturating_sub(MOST);
        if more > 0 {
            paragraph(out, style, "  ", &format!("and {more} more, in --json and the page"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;
    use h2lab_analysis::stats::analyse;
    use h2lab_model::record::agents::{LostShare, ShareSummary};

    /// The fixture, of which the cells of each group were measured by the agent that `by` names, on a machine of that kind.
    fn measured(by: impl Fn(u32, u32) -> (&'static str, &'static str)) -> Fixture {
        let mut fixture = Fixture::new();
        for repetition in &mut fixture.run.repetitions {
            let (agent, likeness) = by(repetition.cell.group, repetition.cell.index);
            let [agent, machine, likeness] = [agent, "Linux 6.12, 4 CPUs", likeness].map(str::to_owned);
            repetition.machine = Some(MeasuredOn { agent, machine, likeness });
        }
        fixture.analysis = analyse(&fixture.run);
        fixture
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
        assert!(
            machines.lines[2].contains("in part by each of a, b, which are unlike"),
            "{:?}",
            machines.lines
        );
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
        assert!(
            all.title.starts_with(&format!("{n} comparisons by several machines each: ")),
            "{}",
            all.title
        );
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
    fn what_is_invalid_on_each_machine_is_not_said_to_be_undecided() {
        let [mut first, mut second] = [("a", "x"), ("b", "x")].map(|on| measured(move |_, _| on));
        for fixture in [&mut first, &mut second] {
            fixture.analysis.verdicts.truncate(1);
            let verdict = &mut fixture.analysis.verdicts[0];
            (verdict.conclusion, verdict.tail_ratio) = (Conclusion::Invalid, None);
        }
        first.analysis = first.analysis.reproduced_by(&[second.analysis]);
        let all = reproductions(&first.report()).unwrap();
        assert_eq!(all.title, "1 comparison by several machines each: 1 without a verdict on any of them");
        let [line] = &all.lines[..] else { panic!("{:?}", all.lines) };
        let expected = ": not reproduced, since none of the machines has a verdict; a: invalid; b: invalid";
        assert!(line.ends_with(expected), "{line}");
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
}
