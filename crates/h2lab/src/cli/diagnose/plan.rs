//! Which cells an experiment measures, and when.

use std::time::Duration;

use anyhow::Result;
use h2lab_analysis::experiment::{Again, Experiment, FIRST_ROUNDS, Setup, is_worth_trying, suspicion};
use h2lab_analysis::stats::CellState;
use h2lab_analysis::{diagnose, stats};
use h2lab_base::units::Time;
use h2lab_lab::sut::OwnConfig;
use h2lab_model::experiment::{Knob, ServerSetting};
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::{Cell, Scenario, Target};
use h2lab_model::settings;

use super::fix::{self, Chosen};
use crate::cli::exit::Usage;

/// Rounds of both protocols without a change.
pub(super) const AGAIN: u32 = 4;
/// Rounds of a fix, each with and without it.
pub(super) const FIX_ROUNDS: u32 = 4;
/// They may take as long as this many rounds in which nothing is measured again, and the budget in any case.
const FIX_TIME: u32 = 6;
/// What starting and ending the programs of a repetition takes beside its work.
const STARTS: Duration = Duration::from_secs(1);

/// The cells without a change: the subject, and the same work over another protocol.
pub(super) struct Base {
    /// Both, or only the subject.
    pub cells: Vec<Cell>,
    pub subject: u32,
    pub twin: Option<u32>,
    /// Twin and subject at the server itself, where the others go through a proxy.
    pub direct: Option<[u32; 2]>,
    /// All that is measured at the server itself.
    pub others: Vec<u32>,
    /// Cells at the server itself and through the proxy, of like protocols.
    pub hops: Vec<[u32; 2]>,
}

impl Base {
    /// The cells of a scenario. With `via` those of this URL are examined, and the others show what the server itself does.
    pub fn of(scenario: &Scenario, via: Option<&str>) -> Result<Self> {
        Self::of_cells(scenario.plan(), via)
    }

    fn of_cells(cells: Vec<Cell>, via: Option<&str>) -> Result<Self> {
        let is_examined = |cell: &Cell| via.is_none_or(|via| is_at(cell, via));
        let (examined, others): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| is_examined(cell));
        let (subject, twin) = pair(&examined)?;
        // A server behind a proxy may speak HTTP/1.1 alone.
        let direct = match pair(&others) {
            Ok((subject, Some(twin))) => Some([twin, subject]),
            _ => None,
        };
        let hops = via.map_or_else(Vec::new, |_| Setup::hops(&others, &examined));
        let others = others.iter().map(|cell| cell.index).collect();
        Ok(Self { cells, subject, twin, direct, others, hops })
    }

    pub fn cell(&self, index: u32) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.index == index)
    }
}

/// Whether a cell goes to this URL.
pub(super) fn is_at(cell: &Cell, url: &str) -> bool {
    matches!(&cell.target, Target::Url { url: target } if target == url)
}

/// The subject, and the cell that it is compared with.
fn pair(cells: &[&Cell]) -> Result<(u32, Option<u32>), Usage> {
    let subject = cells.iter().rfind(|cell| cell.protocol.is_multiplexed()).ok_or_else(|| {
        Usage("all configurations are of HTTP/1.1: there is no HTTP/2 to diagnose".to_owned())
    })?;
    if cells.len() > 2 {
        let alike = cells.iter().filter(|cell| cell.protocol == subject.protocol).count();
        let these = match alike {
            1 => format!("{} protocols", cells.len()),
            _ => format!("{alike} configurations of {}", subject.protocol),
        };
        return Err(Usage(format!(
            "these are {these}, and diagnose examines one against another protocol: give one value to each flag"
        )));
    }
    let twin = cells.iter().find(|cell| cell.index != subject.index);
    Ok((subject.index, twin.map(|twin| twin.index)))
}

/// Which repetitions are made next.
pub(super) struct Plan<'a> {
    pub base: &'a Base,
    pub rounds: u32,
    /// Changes, with the indices of their cells: none before the first rounds are over.
    pub knobs: Vec<(u32, Knob)>,
    /// The user's configuration of the server.
    pub own: Option<&'a OwnConfig>,
    /// Settings of the server that findings name.
    pub settings: Vec<ServerSetting>,
    /// Whether a fix is to be measured after the experiment.
    pub wants_fix: bool,
    /// The fix that is measured.
    pub fix: Option<Chosen>,
    /// When its first round began, after the command.
    pub fix_began: Option<Duration>,
    /// How long the experiment may take.
    pub budget: Duration,
}

impl<'a> Plan<'a> {
    /// Before the first round.
    pub fn new(base: &'a Base, own: Option<&'a OwnConfig>, wants_fix: bool) -> Self {
        Self {
            base,
            rounds: 0,
            knobs: Vec::new(),
            own,
            settings: Vec::new(),
            wants_fix,
            fix: None,
            fix_began: None,
            budget: Duration::ZERO,
        }
    }

    pub fn setup(&self) -> Setup {
        let Base { subject, twin, direct, .. } = *self.base;
        Setup { subject, twin, direct, hops: self.base.hops.clone(), knobs: self.knobs.clone() }
    }

    /// The repetitions of the next round: of the experiment until all is decided or the budget is spent, then of the fix. `now` is
    /// the time since the command began.
    pub fn next(&mut self, run: &RunRecord, is_spent: bool, now: Duration) -> Vec<Cell> {
        if self.fix.is_none() {
            let cells = self.experiment(run, is_spent);
            if !cells.is_empty() || !self.wants_fix {
                return cells;
            }
            self.fix = self.chosen(run);
        }
        self.fix_round(now)
    }

    /// What is measured as the fix.
    fn chosen(&self, run: &RunRecord) -> Option<Chosen> {
        let experiment = Experiment::of(run, &self.setup()).filter(|experiment| !experiment.is_healthy())?;
        let (setting, is_confirmed) = fix::choose(&experiment, &self.settings)?;
        let Base { subject, twin, .. } = *self.base;
        let first = self.first_free() + self.knobs.len() as u32;
        let again = Again { subject, twin, fixed: [first, first + 1], rounds: self.rounds.. };
        Some(Chosen { setting, is_confirmed, again })
    }

    /// How long after the first round of a fix the last one may begin: on a busy machine many repetitions are measured again.
    fn time_of_fix(&self) -> Duration {
        let pair = [self.base.twin, Some(self.base.subject)].map(|index| self.base.cell(index?));
        let once = |cell: &Cell| cell.work.phases.measure_until(Time::ZERO).since(Time::ZERO) + STARTS;
        let both: Duration = pair.into_iter().flatten().map(once).sum();
        // With the fix and without it.
        self.budget.max(both * 2 * FIX_TIME)
    }

    /// Both protocols without the fix and with it.
    fn fix_round(&mut self, now: Duration) -> Vec<Cell> {
        let time = self.time_of_fix();
        let Some(Chosen { setting, again, .. }) = &self.fix else { return Vec::new() };
        let round = self.rounds;
        let is_late = now.saturating_sub(*self.fix_began.get_or_insert(now)) >= time;
        if is_late || round >= again.rounds.start + FIX_ROUNDS {
            return Vec::new();
        }
        let knob = Knob::Server(setting.clone());
        let pair = [self.base.twin, Some(self.base.subject)].map(|index| self.base.cell(index?));
        let fixed = pair.into_iter().rev().zip(again.fixed);
        // The experiment may have a cell with the same change: labels distinguish them.
        let is_known = |cell: &Cell| {
            cell.index == self.base.subject && self.knobs.iter().any(|(_, other)| *other == knob)
        };
        let fixed = fixed.filter_map(|(cell, index)| {
            let cell = cell?;
            let twin = cell.twin + u32::from(is_known(cell));
            Some(Cell { index, twin, ..knob.apply(cell) })
        });
        let cells = pair.into_iter().flatten().cloned().chain(fixed).collect();
        self.rounds += 1;
        in_round(cells, round)
    }

    /// The repetitions of the next round of the experiment; none if all is decided, or the budget is spent.
    fn experiment(&mut self, run: &RunRecord, is_spent: bool) -> Vec<Cell> {
        let round = self.rounds;
        self.rounds += 1;
        if round < FIRST_ROUNDS {
            return self.round(round, &[]);
        }
        let Some(experiment) = Experiment::of(run, &self.setup()) else { return Vec::new() };
        if round == FIRST_ROUNDS {
            if experiment.is_healthy() || self.is_refused(run) {
                return Vec::new();
            }
            self.knobs = self.suspects(run);
        }
        let made = round - FIRST_ROUNDS;
        let open = if is_spent { Vec::new() } else { experiment.open(&self.knobs, made) };
        let open = experiment.promising(open);
        if open.is_empty() { Vec::new() } else { self.round(round, &open) }
    }

    /// Whether there is no work whose speed a change could show: none of the answers was a success, or there was no response over
    /// either protocol.
    fn is_refused(&self, run: &RunRecord) -> bool {
        let failed = |index: u32| {
            let measured = stats::repetitions_of(run, index);
            let state = (!measured.is_empty()).then(|| stats::CellSummary::of(&measured).state);
            match state {
                Some(CellState::Failed { how, .. }) => Some(how),
                _ => None,
            }
        };
        let is_silent = |index: u32| failed(index) == Some(stats::Failed::NoResponse);
        failed(self.base.subject) == Some(stats::Failed::NoSuccess)
            || is_silent(self.base.subject) && self.base.twin.is_none_or(is_silent)
    }

    /// The repetitions of the next of `rounds` without a change.
    pub fn unchanged(&mut self, rounds: u32, is_spent: bool) -> Vec<Cell> {
        let round = self.rounds;
        self.rounds += 1;
        let is_over = round >= rounds || (is_spent && round > 0);
        if is_over { Vec::new() } else { self.round(round, &[]) }
    }

    /// One repetition of each cell of the experiment.
    fn round(&self, round: u32, knobs: &[(u32, Knob)]) -> Vec<Cell> {
        let unchanged = knobs.is_empty();
        let direct = self.base.others.iter().copied().filter(|_| unchanged);
        let twin = self.base.twin.filter(|_| unchanged);
        let base = direct.chain(twin).chain([self.base.subject]).filter_map(|index| self.base.cell(index));
        let mut cells: Vec<Cell> = base.cloned().collect();
        if let Some(subject) = self.base.cell(self.base.subject) {
            cells.extend(knobs.iter().map(|(index, knob)| Cell { index: *index, ..knob.apply(subject) }));
        }
        in_round(cells, round)
    }

    /// The first index that no cell without a change has.
    fn first_free(&self) -> u32 {
        self.base.cells.iter().map(|cell| cell.index).max().unwrap_or(0) + 1
    }

    /// The changes to try: first those that would remove findings, the costliest first, and of those the server's own
    /// settings.
    fn suspects(&mut self, run: &RunRecord) -> Vec<(u32, Knob)> {
        let Some(subject) = self.base.cell(self.base.subject) else { return Vec::new() };
        let verdicts = stats::analyse(run).verdicts;
        let experiment = Experiment::of(run, &self.setup());
        let verdicts =
            experiment.map_or_else(|| verdicts.clone(), |experiment| experiment.verdicts(&verdicts));
        let findings = diagnose::findings(&run.repetitions, &verdicts);
        self.settings = fix::settings(run, &findings, subject, self.own);
        let place = |knob: &Knob| suspicion(knob, subject.index, &findings).unwrap_or(usize::MAX);
        let measured = stats::repetitions_of(run, subject.index);
        let bytes = stats::CellSummary::of(&measured);
        let bytes = bytes.goodput_bytes_per_s / bytes.served_rps.max(f64::MIN_POSITIVE);
        let mut knobs: Vec<Knob> = self.settings.iter().cloned().map(Knob::Server).collect();
        let has_quota = self.settings.iter().any(|one| one.change.knob == settings::Knob::H2Requests);
        knobs.extend(Knob::of(subject));
        knobs.retain(|knob| {
            // The server's setting is the same change.
            let is_known = has_quota && *knob == Knob::NoRequestLimit;
            knob.concerns(bytes) && is_worth_trying(knob, subject.index, &findings) && !is_known
        });
        knobs.sort_by_key(place);
        (self.first_free()..).zip(knobs).collect()
    }
}

/// The cells of a round. Every second round is in reverse order, so that drift affects no cell more than another.
pub(super) fn in_round(mut cells: Vec<Cell>, round: u32) -> Vec<Cell> {
    for cell in &mut cells {
        cell.repetition = round;
        cell.seed = cell.seed.wrapping_add(u64::from(round));
        cell.request_seed = cell.request_seed.wrapping_add(u64::from(round));
    }
    if round % 2 == 1 {
        cells.reverse();
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::compare;
    use h2lab_model::scenario::Axis;
    use h2lab_model::workload::Protocol;

    fn base() -> Base {
        let mut scenario = compare::embedded().unwrap();
        scenario.matrix.connections = Axis::one(1.into());
        scenario.link.loss = Axis::one("3%".parse().unwrap());
        scenario.repetitions = 1;
        Base::of(&scenario, None).unwrap()
    }

    #[test]
    fn a_round_changes_one_setting_of_each_cell_and_turns_the_order_around() {
        let base = base();
        let plan = Plan::new(&base, None, false);
        let first = plan.round(0, &[]);
        assert_eq!(first.len(), 2, "the twin and the subject");
        let knobs = [(7, Knob::Connections(4)), (8, Knob::LongFrames)];
        let [second, third] = [2, 3].map(|round| plan.round(round, &knobs));
        let order = |cells: &[Cell]| cells.iter().map(|cell| cell.index).collect::<Vec<_>>();
        assert_eq!(order(&second), [base.subject, 7, 8]);
        assert_eq!(order(&third), [8, 7, base.subject]);
        assert_eq!((second[1].connections, second[2].connections), (4, 1));
        assert!(second.iter().all(|cell| cell.request_seed == second[0].request_seed), "the same load");
        assert_ne!(second[0].seed, third[2].seed);
    }

    #[test]
    fn nothing_is_changed_where_no_response_is_a_success() {
        use h2lab_model::record::Outcome;
        use h2lab_model::record::testing::{Model, one_repetition, run};

        let base = base();
        let next = |status: u16| {
            let mut repetitions = Vec::new();
            for (round, cell) in
                (0..FIRST_ROUNDS).flat_map(|round| base.cells.iter().map(move |cell| (round, cell)))
            {
                let slow = if cell.index == base.subject { 4.0 } else { 1.0 };
                repetitions.push(one_repetition(cell, round, &Model { factor: slow, ..Model::CLEAN }));
            }
            let outcome = if status < 400 { Outcome::Succeeded } else { Outcome::Status };
            for one in &mut repetitions {
                for sample in one.samples.edit().iter_mut() {
                    (sample.status, sample.outcome) = (status, outcome);
                }
            }
            let mut plan = Plan { rounds: FIRST_ROUNDS, ..Plan::new(&base, None, false) };
            plan.next(&run(repetitions), false, Duration::ZERO).len()
        };
        assert!(next(200) > 2, "the subject and changes");
        assert_eq!(next(404), 0);
    }

    #[test]
    fn a_change_is_measured_until_a_look_decides_it_or_the_budget_is_spent() {
        use h2lab_model::record::testing::{Model, one_repetition, run};

        let mut base = base();
        for cell in &mut base.cells {
            cell.work.phases.measure = Duration::from_secs(1);
        }
        let subject = base.cell(base.subject).unwrap();
        let knob = Knob::Connections(4);
        let changed = Cell { index: 7, ..knob.apply(subject) };
        let next = |rounds: u32, is_spent: bool| {
            let last = FIRST_ROUNDS + rounds;
            let mut repetitions = Vec::new();
            for round in 0..last {
                repetitions.push(one_repetition(subject, round, &Model { factor: 4.0, ..Model::CLEAN }));
                if round >= FIRST_ROUNDS {
                    repetitions.push(one_repetition(&changed, round, &Model::CLEAN));
                }
            }
            let knobs = vec![(7, knob.clone())];
            let mut plan = Plan { rounds: last, knobs, ..Plan::new(&base, None, false) };
            plan.next(&run(repetitions), is_spent, Duration::ZERO).len()
        };
        assert_eq!(next(1, false), 2, "no look before the second round");
        assert_eq!([2, 5, 7].map(|rounds| next(rounds, false)), [0; 3], "it is confirmed");
        assert_eq!(next(6, false), 2, "no look after the sixth");
        assert_eq!(next(6, true), 0, "the budget is spent");
    }

    #[test]
    fn a_fix_is_measured_in_rounds_of_all_four_cells_and_no_more() {
        let base = base();
        let twin = base.twin.unwrap();
        let change = h2lab_model::scenario::Change { knob: settings::Knob::H2Requests, value: Some(9) };
        let setting = ServerSetting { change: change.clone(), words: "x".to_owned(), causes: Vec::new() };
        let again = Again { subject: base.subject, twin: Some(twin), fixed: [7, 8], rounds: 3.. };
        let fix = Some(Chosen { setting, is_confirmed: true, again });
        let mut plan = Plan { rounds: 3, fix, ..Plan::new(&base, None, true) };
        let rounds: Vec<Vec<Cell>> = (0..=FIX_ROUNDS).map(|_| plan.fix_round(Duration::ZERO)).collect();
        let order = |cells: &[Cell]| cells.iter().map(|cell| cell.index).collect::<Vec<_>>();
        assert_eq!(order(&rounds[0]), [8, 7, base.subject, twin], "round 3 runs backwards");
        assert_eq!(order(&rounds[1]), [twin, base.subject, 7, 8]);
        assert!(rounds[FIX_ROUNDS as usize].is_empty());
        let [without, fixed] = [&rounds[1][1], &rounds[1][2]];
        assert_eq!((&fixed.setup.changes[..], fixed.protocol), (&[change][..], without.protocol));
        assert_eq!(rounds[1][3].protocol, rounds[1][0].protocol, "the twin, too");
        assert!(without.setup.changes.is_empty());
    }

    #[test]
    fn rounds_of_a_fix_end_when_they_take_longer_than_six_rounds_and_the_budget() {
        let base = base();
        let change = h2lab_model::scenario::Change { knob: settings::Knob::H2Requests, value: Some(9) };
        let setting = ServerSetting { change, words: "x".to_owned(), causes: Vec::new() };
        let again = Again { subject: base.subject, twin: base.twin, fixed: [7, 8], rounds: 3.. };
        let has_second_round = |budget: Duration, after: Duration| {
            let fix = Some(Chosen { setting: setting.clone(), is_confirmed: true, again: again.clone() });
            let mut plan = Plan { rounds: 3, fix, budget, ..Plan::new(&base, None, true) };
            let began = Duration::from_secs(100);
            assert!(!plan.fix_round(began).is_empty(), "whatever the experiment took");
            !plan.fix_round(began + after).is_empty()
        };
        let six = Plan::new(&base, None, true).time_of_fix();
        assert!(six > base.cells[0].work.phases.measure * 4 * 6, "{six:?}");
        let [hour, moment] = [Duration::from_secs(3_600), Duration::from_millis(1)];
        assert!(has_second_round(Duration::ZERO, six.saturating_sub(moment)));
        assert!(!has_second_round(Duration::ZERO, six));
        assert!(has_second_round(hour, hour.saturating_sub(moment)) && !has_second_round(hour, hour));
    }

    #[test]
    fn behind_a_proxy_a_server_of_http1_alone_is_measured_and_compared() {
        let mut scenario = compare::embedded().unwrap();
        scenario.matrix.connections = Axis::one(1.into());
        scenario.repetitions = 1;
        let cells = scenario.plan();
        let at = |index: u32, protocol: Protocol, url: &str| Cell {
            index,
            protocol,
            target: Target::Url { url: url.to_owned() },
            ..cells[0].clone()
        };
        let [alone, h1, h2] = [at(0, Protocol::H1, "a"), at(1, Protocol::H1s, "b"), at(2, Protocol::H2, "b")];
        let base = Base::of_cells(vec![alone, h1, h2.clone()], Some("b")).unwrap();
        assert_eq!((base.direct, &base.hops[..]), (None, &[[0, 1]][..]));
        let order: Vec<u32> =
            Plan::new(&base, None, false).round(0, &[]).iter().map(|cell| cell.index).collect();
        assert_eq!(order, [0, 1, 2], "the server itself is measured, too");
        let h2_alone = at(0, Protocol::H2c, "a");
        assert_eq!(Base::of_cells(vec![h2_alone.clone(), h2.clone()], Some("b")).unwrap().hops, [[0, 2]]);
        let at_both = vec![at(3, Protocol::H1, "a"), h2_alone, at(1, Protocol::H1s, "b"), h2.clone()];
        assert_eq!(Base::of_cells(at_both, Some("b")).unwrap().hops, [[3, 1], [0, 2]], "each protocol");
        let base = Base::of_cells(vec![at(0, Protocol::H1, "a"), h2], Some("b")).unwrap();
        assert!(base.hops.is_empty(), "they have nothing in common");
    }

    #[test]
    fn several_configurations_are_refused() {
        let mut scenario = compare::embedded().unwrap();
        scenario.repetitions = 1;
        assert!(Base::of(&scenario, None).is_err());
        let cell = scenario.plan().remove(0);
        let why = |protocols: &[Protocol]| {
            let of = |(index, protocol): (usize, &Protocol)| Cell {
                index: index as u32,
                protocol: *protocol,
                ..cell.clone()
            };
            let cells = protocols.iter().enumerate().map(of).collect();
            Base::of_cells(cells, None).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let both = [Protocol::H1, Protocol::H2c, Protocol::H1, Protocol::H2c];
        assert!(why(&both).starts_with("these are 2 configurations of h2c, and"), "{}", why(&both));
        assert!(why(&[Protocol::H1, Protocol::H2c, Protocol::H2]).starts_with("these are 3 protocols, and"));
        assert_eq!(why(&both[..2]), "");
    }
}
