//! Comparisons that several machines made: on which machine each was made, which of them may not be made, and whether machines
//! that are alike find the same.
//!
//! Figures of two machines differ by more than what is compared. So the verdict on cells of unlike machines is refused
//! ([`Conclusion::UnlikeMachines`]), and the same comparison on several like ones is not pooled: each machine gives its own verdict,
//! and how far their ratios lie apart says how well the result is reproduced.
//! Agents of one machine only repeat what it finds ([`Agreement::OneMachine`]).

use std::collections::BTreeSet;

use super::{Analysis, CellState, CellSummary, CellVerdict, Conclusion, Unclaimed};
use h2lab_model::record::{CellRecord, MeasuredOn};

/// The machines of a cell's repetitions, each once, in the order in which they come first; none where agents made none of them.
pub(super) fn machines(repetitions: &[&CellRecord]) -> Vec<MeasuredOn> {
    let mut machines: Vec<MeasuredOn> = Vec::new();
    for machine in repetitions.iter().filter_map(|repetition| repetition.machine.as_ref()) {
        if !machines.contains(machine) {
            machines.push(machine.clone());
        }
    }
    machines
}

/// Whether these cells were measured by machines whose figures may not be compared.
pub(super) fn are_unlike(cells: &[&CellSummary]) -> bool {
    let machines = cells.iter().flat_map(|summary| &summary.machines);
    machines.map(|machine| &machine.likeness).collect::<BTreeSet<_>>().len() > 1
}

/// The comparison of a group of cells, and where it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedOn {
    /// The group.
    pub group: u32,
    /// The machines, each once.
    pub machines: Vec<MeasuredOn>,
}

impl ComparedOn {
    /// Whether they are of more than one kind, so that there is no verdict.
    pub fn are_unlike(&self) -> bool {
        self.machines.iter().any(|machine| machine.likeness != self.machines[0].likeness)
    }
}

/// What one agent found in a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnVerdict {
    /// The machine; the first one where several took part.
    pub machine: MeasuredOn,
    /// Its verdict.
    pub verdict: CellVerdict,
    /// Why there is none: the first reason of the cell, else of its baseline; `None` if there is a verdict or no reason.
    pub why_void: Option<String>,
}

/// Whether several machines find the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Agreement {
    /// All of them resolve it, and find the same.
    Reproduced,
    /// Two of them find different things: one that a cell is slower, another that it is faster, or that the two are alike.
    NotReproduced,
    /// At least one of them resolves nothing, and no two contradict each other.
    Undecided,
    /// None of them has a verdict, whatever their machines: on each a cell is invalid, failed or could not be measured.
    NoVerdict,
    /// The machines are unlike: what they find is not compared.
    UnlikeMachines,
    /// The agents ran on one machine: this is a repetition, not a reproduction.
    OneMachine,
}

impl Agreement {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One comparison that several agents made, each by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduction {
    /// The baseline's index in the matrix.
    pub baseline: u32,
    /// The cell's index in the matrix.
    pub cell: u32,
    /// What each agent found, that of the run itself first.
    pub found: Vec<OwnVerdict>,
    /// Whether that is the same.
    pub agreement: Agreement,
    /// The largest ratio of the tails divided by the smallest one, 1 or more; `None` with fewer than two, and of unlike machines.
    pub spread: Option<f64>,
}

impl Analysis {
    /// Where each comparison was made of which something was measured; none if no agent took part.
    pub fn compared_on(&self) -> Vec<ComparedOn> {
        let on = |group: Vec<&CellSummary>| {
            let mut machines: Vec<MeasuredOn> = Vec::new();
            // An agent that found a cell unsupported has measured nothing of it.
            let measured = group.iter().filter(|summary| summary.repetitions > 0);
            for machine in measured.flat_map(|summary| &summary.machines) {
                if !machines.contains(machine) {
                    machines.push(machine.clone());
                }
            }
            let group = group.first()?.cell.group;
            (!machines.is_empty()).then_some(ComparedOn { group, machines })
        };
        self.groups().into_iter().filter_map(on).collect()
    }

    /// With the comparisons that these runs of the same plan, each by other agents, have made, too.
    #[must_use]
    pub fn reproduced_by(mut self, others: &[Self]) -> Self {
        let reproduce = |verdict: &CellVerdict| {
            let is_same =
                |other: &&CellVerdict| (other.baseline, other.cell) == (verdict.baseline, verdict.cell);
            let of_others = others.iter().filter_map(|run| Some((run, run.verdicts.iter().find(is_same)?)));
            let found = std::iter::once((&self, verdict)).chain(of_others);
            // A second measurement by the same agent says nothing of another machine.
            let mut agents = BTreeSet::new();
            let found: Vec<OwnVerdict> = found
                .filter_map(|(run, verdict)| OwnVerdict::of(run, verdict))
                .filter(|one| agents.insert(one.machine.agent.clone()))
                .collect();
            (found.len() > 1).then(|| Reproduction::of(found))
        };
        self.reproductions = self.verdicts.iter().filter_map(reproduce).collect();
        self
    }
}

impl OwnVerdict {
    /// The verdict of a run that an agent made; `None` if none did.
    fn of(run: &Analysis, verdict: &CellVerdict) -> Option<Self> {
        let machine = run.cell(verdict.cell)?.machines.first()?.clone();
        let reason = |index: u32| match &run.cell(index)?.state {
            CellState::Invalid { reasons } => reasons.first().cloned(),
            CellState::Failed { why, .. } | CellState::Unsupported { why } => Some(why.clone()),
            CellState::Ok | CellState::Unstable { .. } => None,
        };
        let is_void = verdict.conclusion.is_void();
        let why_void = is_void.then(|| reason(verdict.cell).or_else(|| reason(verdict.baseline))).flatten();
        Some(Self { machine, verdict: verdict.clone(), why_void })
    }
}

impl Reproduction {
    /// Of what these agents, two or more, have found about the same two cells.
    fn of(found: Vec<OwnVerdict>) -> Self {
        let kinds: BTreeSet<&String> = found.iter().map(|one| &one.machine.likeness).collect();
        let are_unlike = kinds.len() > 1;
        let machines = MeasuredOn::by_machine(found.iter().map(|one| &one.machine));
        let sides: Vec<Option<Side>> = found.iter().map(|one| Side::of(&one.verdict)).collect();
        let known: BTreeSet<Side> = sides.iter().copied().flatten().collect();
        let agreement = match known.len() {
            _ if found.iter().all(|one| one.verdict.conclusion.is_void()) => Agreement::NoVerdict,
            _ if machines.len() == 1 => Agreement::OneMachine,
            _ if are_unlike => Agreement::UnlikeMachines,
            1 if sides.iter().all(Option::is_some) => Agreement::Reproduced,
            0 | 1 => Agreement::Undecided,
            _ => Agreement::NotReproduced,
        };
        let ratios = found.iter().filter_map(|one| Some(one.verdict.tail_ratio?.ratio));
        let ratios: Vec<f64> = ratios.filter(|ratio| *ratio > 0.0).collect();
        let largest = ratios.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let smallest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let spread = (ratios.len() > 1 && !are_unlike).then_some(largest / smallest);
        let CellVerdict { baseline, cell, .. } = found[0].verdict;
        Self { baseline, cell, found, agreement, spread }
    }
}

/// What a verdict says of a cell against its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Better,
    Alike,
    Worse,
}

impl Side {
    /// `None` if the verdict resolves nothing, or if there is none.
    fn of(verdict: &CellVerdict) -> Option<Self> {
        match verdict.conclusion {
            Conclusion::Faster | Conclusion::BaselineUnstable { .. } => Some(Self::Better),
            Conclusion::Slower | Conclusion::Unstable { .. } => Some(Self::Worse),
            Conclusion::BothUnstable => Some(Self::Alike),
            Conclusion::NoDifference => {
                verdict.unclaimed().is_some_and(Unclaimed::is_alike).then_some(Self::Alike)
            }
            Conclusion::Failed
            | Conclusion::Invalid
            | Conclusion::Unsupported
            | Conclusion::UnlikeMachines => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::analyse;
    use h2lab_model::record::HostId;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::workload::Protocol;

    fn on(agent: &str, likeness: &str) -> MeasuredOn {
        let [agent, machine, likeness] = [agent, "Linux", likeness].map(str::to_owned);
        MeasuredOn { agent, machine, likeness, host: HostId::default() }
    }

    /// HTTP/1.1 and HTTP/2, whose responses take `factor` times as long, by these machines.
    fn measured(factor: f64, machines: [Option<MeasuredOn>; 2]) -> Analysis {
        let [first, second] = machines;
        let made = |index, protocol, factor, machine| CellRecord {
            machine,
            ..one_repetition(&cell(index, 0, protocol, 4, 0.0), 0, &Model { factor, ..Model::CLEAN })
        };
        analyse(&run(vec![made(0, Protocol::H1, 1.0, first), made(1, Protocol::H2c, factor, second)]))
    }

    fn by(agent: &str, likeness: &str, factor: f64) -> Analysis {
        measured(factor, [(); 2].map(|()| Some(on(agent, likeness))))
    }

    #[test]
    fn cells_of_unlike_machines_are_not_compared() {
        let conclusion = |machines| {
            let analysis = measured(2.0, machines);
            let is_refused = analysis.compared_on().iter().any(ComparedOn::are_unlike);
            assert_eq!(analysis.verdicts[0].tail_ratio.is_none(), is_refused);
            analysis.verdicts[0].conclusion
        };
        assert_eq!(conclusion([None, None]), Conclusion::Slower);
        assert_eq!(conclusion([Some(on("a", "x")), Some(on("a", "x"))]), Conclusion::Slower);
        assert_eq!(conclusion([Some(on("a", "x")), Some(on("b", "x"))]), Conclusion::Slower, "alike");
        assert_eq!(conclusion([Some(on("a", "x")), Some(on("b", "y"))]), Conclusion::UnlikeMachines);
        assert_eq!(
            conclusion([Some(on("a", "x")), None]),
            Conclusion::Slower,
            "of the other nothing is known"
        );
    }

    #[test]
    fn repetitions_of_one_cell_by_unlike_machines_have_no_verdict_either() {
        let of = |index, protocol, repetition, likeness| CellRecord {
            machine: Some(on("a", likeness)),
            ..one_repetition(&cell(index, 0, protocol, 4, 0.0), repetition, &Model::CLEAN)
        };
        let repetitions = |last| {
            vec![
                of(0, Protocol::H1, 0, "x"),
                of(1, Protocol::H2c, 0, "x"),
                of(1, Protocol::H2c, 1, "x"),
                of(0, Protocol::H1, 1, last),
            ]
        };
        let conclusion = |last| analyse(&run(repetitions(last))).verdicts[0].conclusion;
        assert_eq!(conclusion("y"), Conclusion::UnlikeMachines);
        assert_ne!(conclusion("x"), Conclusion::UnlikeMachines);
    }

    #[test]
    fn each_comparison_has_its_machines_and_a_run_without_agents_none() {
        assert!(measured(1.0, [None, None]).compared_on().is_empty());
        let [found] = &by("a", "x", 1.0).compared_on()[..] else { panic!("one group") };
        assert_eq!((found.group, found.machines.as_slice()), (0, &[on("a", "x")][..]));
    }

    #[test]
    fn like_machines_reproduce_a_result_or_contradict_it() {
        let agreement = |factors: &[f64]| {
            let runs: Vec<Analysis> =
                factors.iter().enumerate().map(|(n, factor)| by(&format!("kek-{n}"), "x", *factor)).collect();
            let analysis = runs[0].clone().reproduced_by(&runs[1..]);
            let [one] = &analysis.reproductions[..] else { panic!("{:?}", analysis.reproductions) };
            assert_eq!(one.found.len(), factors.len());
            (one.agreement, one.spread.unwrap())
        };
        let (agreed, spread) = agreement(&[2.0, 2.0]);
        assert_eq!((agreed, spread), (Agreement::Reproduced, 1.0), "the same requests");
        let (agreed, spread) = agreement(&[2.0, 4.0, 3.0]);
        assert!(agreed == Agreement::Reproduced && (1.8..2.2).contains(&spread), "{agreed:?} {spread}");
        let (agreed, spread) = agreement(&[2.0, 0.5]);
        assert!(agreed == Agreement::NotReproduced && (3.6..4.4).contains(&spread), "{agreed:?} {spread}");
    }

    #[test]
    fn a_machine_that_finds_two_cells_alike_contradicts_one_that_finds_a_difference() {
        let mut alike = by("b", "x", 2.0);
        let verdict = &mut alike.verdicts[0];
        verdict.conclusion = Conclusion::NoDifference;
        let tail = verdict.tail_ratio.as_mut().unwrap();
        (tail.ratio, tail.low, tail.high) = (1.0, 0.98, 1.02);
        let analysis = by("a", "x", 2.0).reproduced_by(&[alike]);
        assert_eq!(analysis.reproductions[0].agreement, Agreement::NotReproduced);
    }

    #[test]
    fn what_one_machine_does_not_resolve_is_neither_reproduced_nor_refuted() {
        let slower = by("a", "x", 2.0);
        let mut open = by("b", "x", 2.0);
        (open.verdicts[0].conclusion, open.verdicts[0].tail_ratio) = (Conclusion::Invalid, None);
        let analysis = slower.reproduced_by(&[open]);
        assert_eq!(analysis.reproductions[0].agreement, Agreement::Undecided);
        assert_eq!(analysis.reproductions[0].spread, None);
    }

    #[test]
    fn what_no_machine_measured_soundly_is_not_said_to_be_undecided() {
        let on_host = |agent: &str, host: &str| {
            let on = MeasuredOn { host: HostId::new(host), ..on(agent, "x") };
            measured(2.0, [(); 2].map(|()| Some(on.clone())))
        };
        let agreement_on = |hosts: [&str; 2], conclusions: [Conclusion; 2]| {
            let mut runs = [on_host("a", hosts[0]), on_host("b", hosts[1])];
            for (run, conclusion) in runs.iter_mut().zip(conclusions) {
                (run.verdicts[0].conclusion, run.verdicts[0].tail_ratio) = (conclusion, None);
            }
            let [first, second] = runs;
            first.reproduced_by(&[second]).reproductions[0].agreement
        };
        let agreement = |conclusions| agreement_on(["g", "h"], conclusions);
        assert_eq!(agreement([Conclusion::Invalid; 2]), Agreement::NoVerdict);
        assert_eq!(agreement([Conclusion::Invalid, Conclusion::Failed]), Agreement::NoVerdict);
        assert_eq!(agreement([Conclusion::Invalid, Conclusion::NoDifference]), Agreement::Undecided);
        let on_one_machine = |conclusions| agreement_on(["h", "h"], conclusions);
        assert_eq!(on_one_machine([Conclusion::Invalid; 2]), Agreement::NoVerdict);
        assert_eq!(on_one_machine([Conclusion::Invalid, Conclusion::NoDifference]), Agreement::OneMachine);
    }

    #[test]
    fn a_verdict_that_is_void_has_the_first_reason_of_its_cell_or_of_its_baseline() {
        let why = |states: [(usize, CellState); 2]| {
            let mut second = by("b", "x", 2.0);
            second.verdicts[0].conclusion = Conclusion::Invalid;
            for (place, state) in states {
                second.cells[place].state = state;
            }
            let analysis = by("a", "x", 2.0).reproduced_by(&[second]);
            let [first, second] = &analysis.reproductions[0].found[..] else { panic!("two") };
            assert_eq!(first.why_void, None, "it has a verdict");
            second.why_void.clone()
        };
        let reasons = ["the link was late", "the generator was late"].map(str::to_owned).to_vec();
        let invalid = || CellState::Invalid { reasons: reasons.clone() };
        let unsupported = CellState::Unsupported { why: "h2 no".to_owned() };
        assert_eq!(why([(0, invalid()), (1, unsupported)]).as_deref(), Some("h2 no"));
        assert_eq!(why([(0, invalid()), (1, CellState::Ok)]).as_deref(), Some("the link was late"));
        assert_eq!(why([(0, CellState::Ok), (1, CellState::Ok)]), None);
    }

    #[test]
    fn a_comparison_of_which_nothing_was_measured_has_no_machine() {
        let made = |index, protocol| CellRecord {
            machine: Some(on("a", "x")),
            ..CellRecord::unsupported(cell(index, 0, protocol, 4, 0.0), "no".to_owned())
        };
        let compared = |records| analyse(&run(records)).compared_on().len();
        let unsupported = || vec![made(0, Protocol::H1), made(1, Protocol::H2c)];
        assert_eq!(compared(unsupported()), 0);
        let measured = one_repetition(&cell(2, 0, Protocol::H1, 1, 0.0), 0, &Model::CLEAN);
        let measured = CellRecord { machine: Some(on("a", "x")), ..measured };
        assert_eq!(compared([unsupported(), vec![measured]].concat()), 1, "one cell of it was measured");
    }

    #[test]
    fn results_of_unlike_machines_are_shown_and_not_compared() {
        let analysis = by("a", "x", 2.0).reproduced_by(&[by("b", "y", 2.0)]);
        let [one] = &analysis.reproductions[..] else { panic!("one") };
        assert_eq!((one.agreement, one.spread, one.found.len()), (Agreement::UnlikeMachines, None, 2));
    }

    #[test]
    fn what_agents_of_one_machine_find_is_a_repetition() {
        let made = |agent: &str, host: &str, likeness: &str| {
            let on = MeasuredOn { host: HostId::new(host), ..on(agent, likeness) };
            measured(2.0, [(); 2].map(|()| Some(on.clone())))
        };
        let found = |runs: &[Analysis]| {
            let analysis = runs[0].clone().reproduced_by(&runs[1..]);
            let [one] = &analysis.reproductions[..] else { panic!("{:?}", analysis.reproductions) };
            assert_eq!(one.found.len(), runs.len(), "each of them is shown");
            (one.agreement, one.spread)
        };
        let same = found(&[made("a", "x", "k"), made("b", "x", "k")]);
        assert_eq!(same, (Agreement::OneMachine, Some(1.0)));
        let same_but_unlike = found(&[made("a", "x", "k"), made("b", "x", "l")]);
        assert_eq!(same_but_unlike, (Agreement::OneMachine, None));
        for hosts in [["x", "y"], ["", ""], ["x", ""]] {
            let [first, second] = hosts;
            let (agreement, _) = found(&[made("a", first, "k"), made("b", second, "k")]);
            assert_eq!(agreement, Agreement::Reproduced, "{hosts:?}");
        }
        let (agreement, _) = found(&[made("a", "x", "k"), made("b", "x", "k"), made("c", "y", "k")]);
        assert_eq!(agreement, Agreement::Reproduced, "on the other machine");
    }

    #[test]
    fn a_second_measurement_by_the_same_agent_is_no_reproduction() {
        let first = by("a", "x", 2.0);
        assert!(first.clone().reproduced_by(&[by("a", "x", 2.0)]).reproductions.is_empty());
        let analysis = first.reproduced_by(&[by("a", "x", 0.5), by("b", "x", 2.0)]);
        let [one] = &analysis.reproductions[..] else { panic!("one") };
        let agents: Vec<&str> = one.found.iter().map(|found| found.machine.agent.as_str()).collect();
        assert_eq!((agents, one.agreement), (vec!["a", "b"], Agreement::Reproduced));
    }

    #[test]
    fn what_only_one_machine_has_compared_is_no_reproduction() {
        let alone = by("a", "x", 2.0);
        assert!(alone.clone().reproduced_by(&[]).reproductions.is_empty());
        let mut other = by("b", "x", 2.0);
        other.verdicts.clear();
        assert!(alone.reproduced_by(&[other]).reproductions.is_empty());
    }
}
