//! The experiment of a run that `diagnose` made, reconstructed from its record: its cells show what was changed.

use std::collections::BTreeMap;

use h2lab_model::experiment::{Knob, ServerSetting};
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::{Cell, Target};
use h2lab_model::settings::{Peer, Role, Version, edit};

use super::{Again, FIRST_ROUNDS, Setup, is_worth_trying, repetitions_of};
use crate::diagnose::Finding;
use crate::stats::CellSummary;

/// An experiment that was made before.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its cells.
    pub setup: Setup,
    /// The cells of its fix, if one was measured, and what that changed.
    pub fix: Option<(Again, ServerSetting)>,
    /// The cell that was examined.
    pub subject: Cell,
    /// Whether the subject goes through a proxy in front of a server that was also measured.
    pub is_via: bool,
}

impl Recorded {
    /// The experiment of `run`, with `findings` in it; `None` if the run was not made by `diagnose`, or was interrupted
    /// before HTTP/2 was measured.
    pub fn of(run: &RunRecord, findings: &[Finding]) -> Option<Self> {
        if !is_of_diagnose(run) {
            return None;
        }
        let cells = first_of_each(run);
        let unchanged: Vec<&Cell> = cells.values().copied().filter(|cell| cell.repetition == 0).collect();
        let via = Self::via(run);
        let is_examined =
            |cell: &&&Cell| via.is_none_or(|via| matches!(&cell.target, Target::Url { url } if url == via));
        let pair = |cells: &[&Cell]| {
            let subject = cells.iter().rfind(|cell| cell.protocol.is_multiplexed())?.index;
            Some((subject, cells.iter().find(|cell| cell.index != subject).map(|twin| twin.index)))
        };
        let (examined, others): (Vec<&Cell>, Vec<&Cell>) =
            unchanged.iter().partition(|cell| is_examined(cell));
        let (subject, twin) = pair(&examined)?;
        let direct = pair(&others).and_then(|(subject, twin)| Some([twin?, subject]));
        let hops = Setup::hops(&others, &examined);
        let mut setup = Setup { subject, twin, direct, hops, knobs: Vec::new() };
        let subject = cells[&subject].clone();
        let changed = cells.values().filter(|cell| cell.repetition >= FIRST_ROUNDS);
        let fix_began = fix_round(run, twin);
        let (fixed, tried): (Vec<&Cell>, Vec<&Cell>) =
            changed.copied().partition(|cell| fix_began.is_some_and(|began| cell.repetition >= began));
        let knob = |cell: &Cell| {
            let setting = setting_of(run, &subject, cell, findings).map(Knob::Server);
            setting.into_iter().chain(Knob::of(&subject)).find(|knob| is_same(&knob.apply(&subject), cell))
        };
        setup.knobs = tried.into_iter().filter_map(|cell| Some((cell.index, knob(cell)?))).collect();
        if setup.knobs.is_empty() && !is_again(run) {
            setup.knobs = untried(run, &subject, &cells, findings);
        }
        let fix = fix_began.and_then(|began| {
            let with = |of: &Cell| fixed.iter().find(|cell| cell.protocol == of.protocol).copied();
            let cell = with(&subject)?;
            let of_twin =
                setup.twin.and_then(|twin| with(cells[&twin])).map_or(cell.index + 1, |cell| cell.index);
            let fixed = [cell.index, of_twin];
            let again = Again { subject: setup.subject, twin: setup.twin, fixed, rounds: began.. };
            Some((again, setting_of(run, &subject, cell, findings)?))
        });
        Some(Self { setup, fix, subject, is_via: via.is_some() })
    }

    /// The URL of the proxy through which `run` examined a service (`diagnose --via`): it is listed after that of the
    /// server itself. Other commands list URLs that are compared with each other.
    pub fn via(run: &RunRecord) -> Option<&str> {
        let proxy = run.scenario.matrix.live.get(1).filter(|_| is_of_diagnose(run))?;
        Some(proxy.url.as_str())
    }
}

fn is_of_diagnose(run: &RunRecord) -> bool {
    run.command.get(1).is_some_and(|word| word == "diagnose")
}

/// Whether the run measured the cells of an earlier one again, and changed nothing.
fn is_again(run: &RunRecord) -> bool {
    run.command.iter().any(|word| word == "--again" || word.starts_with("--again="))
}

/// The first repetition of each cell, by the cell's index.
fn first_of_each(run: &RunRecord) -> BTreeMap<u32, &Cell> {
    let mut cells: BTreeMap<u32, &Cell> = BTreeMap::new();
    for cell in run.repetitions.iter().map(|one| &one.cell) {
        let first = cells.entry(cell.index).or_insert(cell);
        if cell.repetition < first.repetition {
            *first = cell;
        }
    }
    cells
}

/// The first round of the fix. Rounds with changes have no twin, rounds of a fix do.
fn fix_round(run: &RunRecord, twin: Option<u32>) -> Option<u32> {
    let cells = || run.repetitions.iter().map(|one| &one.cell).filter(|cell| cell.repetition >= FIRST_ROUNDS);
    let has_changes =
        |round: u32| cells().any(|cell| cell.repetition == round && !cell.setup.changes.is_empty());
    let rounds = cells().filter(|cell| Some(cell.index) == twin).map(|cell| cell.repetition);
    rounds.filter(|round| has_changes(*round)).min()
}

/// Whether both have the same settings, regardless of cell and repetition.
fn is_same(one: &Cell, other: &Cell) -> bool {
    let (index, repetition, seed, request_seed) =
        (other.index, other.repetition, other.seed, other.request_seed);
    Cell { index, repetition, seed, request_seed, ..one.clone() } == *other
}

/// The setting of the server that was changed in `cell`.
fn setting_of(run: &RunRecord, subject: &Cell, cell: &Cell, findings: &[Finding]) -> Option<ServerSetting> {
    let change = cell.setup.changes.iter().find(|change| !subject.setup.changes.contains(change))?.clone();
    let server = repetitions_of(run, subject.index).into_iter().find_map(|one| one.server.as_ref());
    let version = server.and_then(|server| Version::parse(&server.version));
    let peer = Peer { version, ..Peer::started(cell.target.name()) };
    let is_it = |finding: &&Finding| {
        let mut wishes = finding.fixes.iter().filter_map(|fix| fix.wish);
        finding.cell == subject.index
            && wishes.any(|wish| wish.knob == change.knob && wish.role == Role::Front)
    };
    let causes = findings.iter().filter(is_it).map(|finding| finding.rule.clone()).collect();
    let words = edit::words(&peer, &change).unwrap_or_else(|| change.knob.to_string());
    Some(ServerSetting { change, words, causes })
}

/// The changes for which no time was left, as far as the record shows them: settings of the server come from the
/// findings at that time, so they are not included.
fn untried(
    run: &RunRecord,
    subject: &Cell,
    cells: &BTreeMap<u32, &Cell>,
    findings: &[Finding],
) -> Vec<(u32, Knob)> {
    let measured = CellSummary::of(&repetitions_of(run, subject.index));
    let bytes = measured.goodput_bytes_per_s / measured.served_rps.max(f64::MIN_POSITIVE);
    let first = cells.keys().max().map_or(0, |last| last + 1);
    let is_tried = |knob: &Knob| knob.concerns(bytes) && is_worth_trying(knob, subject.index, findings);
    let knobs = Knob::of(subject).into_iter().filter(is_tried);
    (first..).zip(knobs).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Experiment, Outcome};
    use super::*;
    use h2lab_model::experiment::ServerSetting;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::scenario::{Axis, Change, LiveTarget};
    use h2lab_model::settings::{Knob as Setting, Wish, advise};
    use h2lab_model::workload::Protocol;

    /// A twin, and a subject four times as slow, in two rounds; then these changes in two more rounds; the first change
    /// helps.
    fn diagnosed(knobs: &[Knob]) -> RunRecord {
        let [twin, subject] = [cell(0, 0, Protocol::H1, 1, 0.0), cell(1, 0, Protocol::H2c, 1, 0.0)];
        let mut repetitions = Vec::new();
        for round in 0..4 {
            let mut add = |cell: &Cell, factor| {
                repetitions.push(one_repetition(cell, round, &Model { factor, ..Model::CLEAN }));
            };
            if round < FIRST_ROUNDS {
                add(&twin, 1.0);
            }
            add(&subject, 4.0);
            for (index, knob) in (2..).zip(knobs).filter(|_| round >= FIRST_ROUNDS) {
                add(&Cell { index, ..knob.apply(&subject) }, if index == 2 { 1.0 } else { 4.0 });
            }
        }
        let mut run = run(repetitions);
        run.command = ["h2lab", "diagnose"].map(str::to_owned).to_vec();
        run
    }

    #[test]
    fn the_cells_of_a_record_say_what_was_changed() {
        let knobs = [Knob::Connections(4), Knob::LongFrames];
        let run = diagnosed(&knobs);
        let found = Recorded::of(&run, &[]).unwrap();
        let [first, second] = knobs;
        let knobs = vec![(2, first), (3, second)];
        let setup = Setup { subject: 1, twin: Some(0), direct: None, hops: Vec::new(), knobs };
        assert_eq!((&found.setup, found.fix.is_none(), found.is_via), (&setup, true, false));
        let experiment = Experiment::of(&run, &found.setup).unwrap();
        assert_eq!(experiment.trials[0].outcome, Outcome::Confirmed);
        assert_ne!(experiment.trials[1].outcome, Outcome::Confirmed);
    }

    #[test]
    fn runs_of_other_commands_have_no_experiment() {
        let mut run = diagnosed(&[Knob::LongFrames]);
        run.command[1] = "compare".to_owned();
        assert!(Recorded::of(&run, &[]).is_none());
        run.command[1] = "diagnose".to_owned();
        run.repetitions.retain(|one| one.cell.protocol == Protocol::H1);
        assert!(Recorded::of(&run, &[]).is_none(), "interrupted before HTTP/2 was measured");
    }

    #[test]
    fn the_second_url_is_that_of_a_proxy_where_diagnose_made_the_run() {
        let mut run = diagnosed(&[]);
        let live = |url: &str| LiveTarget {
            url: url.to_owned(),
            path: "/".to_owned(),
            protocols: Axis::one(Protocol::H1),
        };
        run.scenario.matrix.live = vec![live("http://a/")];
        assert_eq!(Recorded::via(&run), None, "there is none");
        run.scenario.matrix.live.push(live("http://b/"));
        assert_eq!(Recorded::via(&run), Some("http://b/"));
        run.command[1] = "compare".to_owned();
        assert_eq!(Recorded::via(&run), None, "both are compared");
    }

    #[test]
    fn changes_without_a_round_are_untried_and_a_repeated_diagnosis_has_none() {
        let mut run = diagnosed(&[]);
        let experiment = Experiment::of(&run, &Recorded::of(&run, &[]).unwrap().setup).unwrap();
        assert!(experiment.trials.is_empty() && experiment.untried > 0, "{experiment:?}");
        let untried = |findings: &[Finding]| Recorded::of(&run, findings).unwrap().setup.knobs.len();
        let named = Finding { cell: 1, rule: "LOSS104".to_owned(), ..Finding::default() };
        assert_eq!(untried(&[named]), untried(&[]) + 1, "a finding names one that is else not tried");
        run.command.extend(["--again", "latest"].map(str::to_owned));
        assert!(Recorded::of(&run, &[]).unwrap().setup.knobs.is_empty());
    }

    #[test]
    fn a_setting_of_the_server_has_the_causes_that_ask_for_it_and_its_fix_its_rounds() {
        let change = Change { knob: Setting::H2Requests, value: Some(100_000) };
        let setting = ServerSetting { change: change.clone(), words: String::new(), causes: Vec::new() };
        let mut run = diagnosed(&[Knob::Server(setting.clone())]);
        for one in &mut run.repetitions {
            one.cell.target = Target::Sut { name: "nginx".to_owned() };
        }
        let wish = Wish { knob: change.knob, role: Role::Front, value: change.value };
        let mut finding = Finding { cell: 1, rule: "CONN101".to_owned(), ..Finding::default() };
        finding.fixes = vec![advise(&Peer::started("nginx"), wish)];
        let found = Recorded::of(&run, std::slice::from_ref(&finding)).unwrap();
        let Knob::Server(known) = &found.setup.knobs[0].1 else { panic!("{found:?}") };
        assert_eq!((&known.change, &known.causes[..]), (&change, &["CONN101".to_owned()][..]));
        assert!(known.words.contains("keepalive_requests 100000"), "{}", known.words);
        // Both protocols again, with and without it.
        let cells: Vec<Cell> = first_of_each(&run).values().map(|cell| (*cell).clone()).collect();
        let knob = Knob::Server(setting);
        for (index, of) in
            [(0, &cells[0]), (1, &cells[1]), (3, &knob.apply(&cells[1])), (4, &knob.apply(&cells[0]))]
        {
            run.repetitions.push(one_repetition(&Cell { index, ..of.clone() }, 4, &Model::CLEAN));
        }
        let found = Recorded::of(&run, &[finding]).unwrap();
        let (again, fixed) = found.fix.unwrap();
        assert_eq!(again, Again { subject: 1, twin: Some(0), fixed: [3, 4], rounds: 4.. });
        assert_eq!((fixed.change, found.setup.knobs.len()), (change, 1));
    }
}
