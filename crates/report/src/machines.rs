//! On which machine each comparison was made, where agents made them, and whether like machines find the same; and who made
//! which share of a load: in sentences.

use super::format::{count, millis_unit, plural, ratio};
use super::style::{Paint, TextStyle, painted, paragraph};
use super::{Report, condition, load_text, sentences};
use h2lab_analysis::stats::{
    Agreement, CellVerdict, ComparedOn, Conclusion, OwnVerdict, Reproduction, ShareState,
};
use h2lab_base::text::made_printable;
use h2lab_model::record::{MeasuredOn, RunRecord, ShareSummary};
use std::collections::BTreeSet;

/// Of more lines a terminal gets only the first so many; JSON and the page have all.
const MOST: usize = 12;

/// Of more agents of like machines a citation names only the first so many.
const NAMED: usize = 6;

/// What a report says of machines.
pub(super) struct Machines {
    /// How many there are, and whether they are alike.
    pub title: String,
    /// What each agent is and measured, which of them ran on one machine, and each comparison that was measured by several.
    pub lines: Vec<String>,
}

/// What a report says of comparisons that several agents made.
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
    let hosts = MeasuredOn::by_machine(machines.iter().map(|machine| machine.on));
    let agents: usize = hosts.iter().map(Vec::len).sum();
    let alike = match (hosts.len(), kinds.len()) {
        (1, 1) => String::new(),
        (_, 1) => ", alike".to_owned(),
        (_, kinds) => format!(", of {kinds} kinds that are not compared with each other"),
    };
    let comparisons = plural(compared.len() as u64, "comparison");
    let by = match plural(hosts.len() as u64, "machine") {
        machines if agents > hosts.len() => format!("{} on {machines}", plural(agents as u64, "agent")),
        machines => machines,
    };
    let title = format!("{comparisons} by {by}{alike}");
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
    let shared = of_one_machine(machines.iter().map(|machine| machine.on));
    let lines = machines.iter().map(line).chain(shared).chain(mixed).collect();
    Some(Machines { title, lines })
}

/// `agents kek-1, kek-2 and kek-3 ran on one machine`: for each machine that is known to be that of several agents.
fn of_one_machine<'a>(all: impl IntoIterator<Item = &'a MeasuredOn>) -> Vec<String> {
    let sentence = |of: Vec<&MeasuredOn>| {
        let names: Vec<_> = of.iter().map(|on| made_printable(&on.agent)).collect();
        let (last, others) = names.split_last().filter(|(_, others)| !others.is_empty())?;
        Some(format!("agents {} and {last} ran on one machine", others.join(", ")))
    };
    MeasuredOn::by_machine(all).into_iter().filter_map(sentence).collect()
}

/// The same of the agents that shared a load.
pub(super) fn shares_of_one_machine(shares: &[ShareSummary]) -> Vec<String> {
    let on = |share: &ShareSummary| MeasuredOn {
        agent: share.agent.clone(),
        machine: String::new(),
        likeness: String::new(),
        host: share.host.clone(),
    };
    let machines: Vec<MeasuredOn> = shares.iter().map(on).collect();
    of_one_machine(&machines)
}

/// `; isolation none`: what a kind has that not all of these kinds have. Machines of two kinds may have one description.
fn peculiar(likeness: &str, kinds: &BTreeSet<&String>) -> String {
    let is_of_all = |part: &str| kinds.iter().all(|kind| kind.split(", ").any(|other| other == part));
    let parts: Vec<&str> = likeness.split(", ").filter(|part| !part.is_empty() && !is_of_all(part)).collect();
    if parts.is_empty() { String::new() } else { format!("; {}", made_printable(&parts.join(", "))) }
}

/// An agent with its machine, and the groups of cells that it compared.
pub(super) struct Machine<'a> {
    /// The agent.
    pub on: &'a MeasuredOn,
    /// Those whose figures are in the run, or a part of them.
    pub measured: Vec<u32>,
    /// Those that it measured once more, after another one.
    pub reproduced: Vec<u32>,
}

/// The agents of a run, those that reproduced something after those whose figures are in the run.
pub(super) fn each<'a>(report: &Report<'a>, compared: &'a [ComparedOn]) -> Vec<Machine<'a>> {
    let mut machines: Vec<Machine<'a>> = Vec::new();
    let mut add = |on: &'a MeasuredOn, group: u32, is_again: bool| {
        // The identity of a machine is another one after a restart.
        let key = |on: &'a MeasuredOn| (&on.agent, &on.machine, &on.likeness);
        let is_same = |machine: &Machine<'a>| key(machine.on) == key(on);
        let place = machines.iter().position(is_same).unwrap_or(machines.len());
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

/// The comparisons that several agents made; `None` if there are none.
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
        counted(Agreement::NoVerdict, "without a verdict by any of them"),
        counted(Agreement::UnlikeMachines, "of unlike machines, which are not compared"),
        counted(Agreement::OneMachine, "repeated on one machine, which is no reproduction"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let machines =
        |one: &Reproduction| MeasuredOn::by_machine(one.found.iter().map(|own| &own.machine)).len();
    let several = if all.iter().any(|one| machines(one) == 1) { "agents" } else { "machines" };
    let comparisons = plural(all.len() as u64, "comparison");
    let title = format!("{comparisons} by several {several} each: {}", counts.join(", "));
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
        Agreement::NoVerdict => "not reproduced, since none of the agents has a verdict",
        Agreement::UnlikeMachines => "not compared, since the machines are unlike",
        Agreement::OneMachine => "repeated on one machine",
    };
    let so = match one.agreement {
        Agreement::OneMachine => "this is a repetition, not a reproduction",
        _ => "between them it is a repetition",
    };
    let shared = of_one_machine(one.found.iter().map(|own| &own.machine));
    let shared = shared.iter().map(|shared| format!("{shared}: {so}"));
    let found: Vec<String> = one.found.iter().map(own).collect();
    let spread = one.spread.map(|spread| format!("largest ratio / smallest ratio {}", ratio(spread)));
    let (cell, baseline) = (name(one.cell), name(one.baseline));
    let all: Vec<String> = found.into_iter().chain(spread).chain(shared).collect();
    format!("{place}, {cell} against {baseline}: {agreement}; {}", all.join("; "))
}

/// A verdict in a word: of two cells without a difference it says whether they are the same, or whether that is undecided.
pub(super) fn word(verdict: &CellVerdict) -> &'static str {
    match verdict.conclusion {
        Conclusion::NoDifference => match verdict.unclaimed() {
            Some(why) if why.is_alike() => "same",
            _ => "undecided",
        },
        Conclusion::BothUnstable => "both unstable",
        Conclusion::BaselineUnstable { .. } => "baseline unstable",
        other => other.name(),
    }
}

/// What one agent found; without a verdict the reason.
fn own(one: &OwnVerdict) -> String {
    let agent = made_printable(&one.machine.agent);
    let word = word(&one.verdict);
    let tail = one.verdict.tail_ratio.map_or_else(String::new, |tail| {
        let (percentile, figure) = (one.verdict.tail.name(), ratio(tail.ratio));
        let [candidate, baseline] = [tail.candidate, tail.baseline].map(millis_unit);
        format!(", {percentile} {figure} × ({candidate} against {baseline})")
    });
    let why = one.why_void.as_ref().map_or_else(String::new, |why| format!(" ({})", made_printable(why)));
    format!("{agent}: {word}{why}{tail}")
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

/// The agents of a run that is a load: how many shares it had, and its lines, those about all of them first.
fn shares(report: &Report<'_>) -> Option<(String, Vec<String>)> {
    let parts = load_text::agents::parts(report)?;
    let repetition = report.run.repetitions.iter().find(|repetition| !repetition.agents.is_empty())?;
    let all = &repetition.agents;
    let facts = parts.lines.into_iter().map(|(name, text)| format!("{name}: {text}"));
    let lines = facts.chain(parts.sentences).chain(all.iter().map(share));
    Some((format!("{} of one load", plural(all.len() as u64, "share")), lines.collect()))
}

/// `kek-2 (Linux 6.12, 4 CPUs): share 2 of 3, 1,166 requests, late`. Requests of a lost one are not among those of the load.
fn share(share: &ShareSummary) -> String {
    let machine = share.machine.as_ref().map_or_else(String::new, |machine| format!(" ({machine})"));
    let (number, of) = (count(u64::from(share.number) + 1), count(share.of.into()));
    let (state, requests) = (ShareState::of(share), plural(share.due.unwrap_or_default(), "request"));
    let came = match state {
        ShareState::Whole => requests,
        ShareState::Late => format!("{requests}, {}", state.name()),
        ShareState::Lost => state.name().to_owned(),
    };
    let text = format!("{}{machine}: share {number} of {of}, {came}", share.agent);
    made_printable(&text).into_owned()
}

/// Appends all of it to a report for a terminal.
pub(super) fn text(out: &mut String, report: &Report<'_>, style: TextStyle) {
    let in_all = "in --json and the page";
    let shares = shares(report).map(|(title, lines)| ("Agents", title, lines, "in the page"));
    let machines = of(report).map(|of| ("Machines", of.title, of.lines, in_all));
    let reproductions = reproductions(report).map(|of| ("Reproduction", of.title, of.lines, in_all));
    for (heading, title, lines, place) in shares.into_iter().chain(machines).chain(reproductions) {
        out.push('\n');
        painted(out, style, Paint::Bold, "", &format!("{heading}: {title}"));
        for line in lines.iter().take(MOST) {
            paragraph(out, style, "- ", line);
        }
        let more = lines.len().saturating_sub(MOST);
        if more > 0 {
            paragraph(out, style, "  ", &format!("and {more} more, {place}"));
        }
    }
}

#[cfg(test)]
mod tests;
