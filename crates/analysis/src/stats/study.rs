//! A study: every configuration compared with every other, under every condition, and how many connections HTTP/2
//! needs.

use std::time::Duration;

use super::ramps::Ramps;
use super::{Analysis, CellState, CellSummary, CellVerdict, Conclusion, RatioInterval, Unclaimed, verdict};
use h2lab_model::record::Level;
use h2lab_model::scenario::{Cell, Scenario};
use h2lab_model::workload::Protocol;

/// The result of a run as a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// The conditions, in the order of the matrix.
    pub conditions: Vec<Condition>,
    /// The configurations, in the order of their first cells.
    pub configurations: Vec<Configuration>,
    /// How many connections each multiplexed protocol needs between the same parties.
    pub needs: Vec<Need>,
    /// The ramps of each cell whose requests were all kept, by the cell's index, in order.
    pub ramps: Vec<(u32, Ramps)>,
}

/// The part that cells share across parties: link, congestion control, sysctls, work, and the seed where a scenario has
/// several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Condition {
    /// The index of its first cell, which has everything of it but the seed.
    pub first: u32,
    /// The seed, one of the scenario's; `None` if there is only one.
    pub seed: Option<u64>,
    /// Both one-way delays.
    pub rtt: Duration,
    /// The worse direction's share of packets lost, 0 to 1.
    pub loss: f64,
    /// Connections that the PFTK model says the work needs in a multiplexed protocol; `None` if the model does not cover it.
    pub predicted: Option<u32>,
}

/// Parties, a protocol and a number of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// The parties after the generator: [`Cell::parties`].
    pub parties: String,
    /// The label of its cells among those of these parties.
    pub label: String,
    /// The index of its cell in each condition, in their order; `None` if there is none.
    pub cells: Vec<Option<u32>>,
}

/// How many connections one protocol needs between the same parties.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// The parties after the generator: [`Cell::parties`].
    pub parties: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The label of its cells among those of these parties, without their connections: `h2c`, `h2c, limit 137`.
    pub label: String,
    /// The answer in each condition, in their order.
    pub found: Vec<Needed>,
}

/// How many connections HTTP/2 or HTTP/3 needs so that its tail is no slower than that of HTTP/1.1 between the same parties,
/// by the verdicts on its cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Needed {
    /// The least number tried that is enough.
    Connections(u32),
    /// This many are enough; whether fewer of the numbers tried are enough is undecided, or was not measured soundly.
    AtMost(u32),
    /// More than the most that were tried.
    MoreThan(u32),
    /// The proxy cannot be configured, and decides by itself:
    /// [`can_be_configured`](h2lab_model::scenario::Sidecar::can_be_configured).
    CameOut {
        /// Connections over the link that it held in a repetition, on average.
        held: f64,
        /// Whether the tail is no slower with these; `None` if the verdict is undecided.
        matches: Option<bool>,
    },
    /// None of the numbers tried is known to be enough, and of some the verdict is undecided.
    Undecided {
        /// The least number whose verdict is undecided.
        connections: u32,
        /// The ratio of its tail to that of HTTP/1.1; `None` if too few requests were measured for an interval.
        tail: Option<RatioInterval>,
    },
    /// Not measured, or not soundly.
    Unknown,
}

impl Study {
    /// The study of a run of this scenario.
    pub fn of(analysis: &Analysis, scenario: &Scenario) -> Self {
        let mut study =
            Self { conditions: Vec::new(), configurations: Vec::new(), needs: Vec::new(), ramps: Vec::new() };
        let mut firsts: Vec<(Option<u64>, &Cell)> = Vec::new();
        for group in analysis.groups() {
            let Some(first) = group.first() else { continue };
            let seed = scenario.seed_of(first.cell.group).filter(|_| scenario.seed.varies());
            let is_here =
                |&(of, cell): &(Option<u64>, &Cell)| of == seed && is_same_condition(cell, &first.cell);
            let place = firsts.iter().position(is_here).unwrap_or_else(|| {
                firsts.push((seed, &first.cell));
                study.conditions.push(Condition::of(&first.cell, seed));
                firsts.len() - 1
            });
            for summary in &group {
                study.add_configuration(place, summary);
            }
            study.add_needs(place, &group, |http1, candidate| {
                let is_of =
                    |one: &&CellVerdict| (one.baseline, one.cell) == (http1.cell.index, candidate.cell.index);
                let known = analysis.verdicts.iter().find(is_of).cloned();
                let seed = scenario.seed_of(first.cell.group).unwrap_or_default();
                // A group has one baseline, and may have several targets.
                known.unwrap_or_else(|| verdict::one(http1, candidate, seed, 1))
            });
        }
        study.ramps = analysis
            .cells
            .iter()
            .filter(|summary| summary.level == Level::Full && summary.repetitions > 0)
            .map(|summary| (summary.cell.index, Ramps::of(&summary.series)))
            .collect();
        let n = study.conditions.len();
        study.configurations.iter_mut().for_each(|configuration| configuration.cells.resize(n, None));
        study.needs.iter_mut().for_each(|need| need.found.resize(n, Needed::Unknown));
        study
    }

    /// The ramps of the cell with this index.
    pub fn ramps_of(&self, index: u32) -> Option<Ramps> {
        self.ramps.iter().find(|(cell, _)| *cell == index).map(|(_, ramps)| *ramps)
    }

    fn add_configuration(&mut self, place: usize, summary: &CellSummary) {
        let (parties, label) = (summary.cell.parties(), summary.label.clone());
        let known = self
            .configurations
            .iter()
            .position(|configuration| (&configuration.parties, &configuration.label) == (&parties, &label));
        let at = known.unwrap_or_else(|| {
            self.configurations.push(Configuration { parties, label, cells: Vec::new() });
            self.configurations.len() - 1
        });
        put(&mut self.configurations[at].cells, place, Some(summary.cell.index), None);
    }

    /// The needs of the multiplexed protocols of one group, each compared with the HTTP/1.1 beside it. Cells that
    /// differ in something other than their connections, for instance in the limit of requests, have separate needs.
    fn add_needs(
        &mut self,
        place: usize,
        group: &[&CellSummary],
        verdict: impl Fn(&CellSummary, &CellSummary) -> CellVerdict,
    ) {
        let is_shared = |summary: &&CellSummary| summary.cell.protocol.is_multiplexed();
        let mut shared: Vec<&CellSummary> = group.iter().copied().filter(is_shared).collect();
        shared.sort_by_key(|summary| summary.cell.protocol);
        while let Some(&first) = shared.first() {
            let label = first.naming.kind(&first.cell);
            let cells: Vec<&CellSummary>;
            (cells, shared) = shared.into_iter().partition(|one| one.naming.kind(&one.cell) == label);
            let Some(http1) = http1_beside(group, first) else { continue };
            let (parties, protocol) = (http1.cell.parties(), first.cell.protocol);
            let known = self.needs.iter().position(|n| (&n.parties, &n.label) == (&parties, &label));
            let at = known.unwrap_or_else(|| {
                self.needs.push(Need { parties, protocol, label, found: Vec::new() });
                self.needs.len() - 1
            });
            put(&mut self.needs[at].found, place, needed(&cells, |one| verdict(http1, one)), Needed::Unknown);
        }
    }
}

/// Puts a value at its position, and fills the gap before it with `absent`.
fn put<T: Clone>(values: &mut Vec<T>, place: usize, value: T, absent: T) {
    if values.len() <= place {
        values.resize(place + 1, absent);
    }
    values[place] = value;
}

impl Condition {
    fn of(cell: &Cell, seed: Option<u64>) -> Self {
        Self {
            first: cell.index,
            seed,
            rtt: cell.link.as_ref().map_or(Duration::ZERO, h2lab_link::LinkSpec::rtt),
            loss: cell.loss(),
            predicted: cell.connections_predicted(),
        }
    }
}

fn is_same_condition(one: &Cell, other: &Cell) -> bool {
    (&one.link, &one.congestion, &one.sysctls) == (&other.link, &other.congestion, &other.sysctls)
        && one.work == other.work
}

/// The first HTTP/1.1 cell of the group that the same target speaks with the same limit of requests per connection.
fn http1_beside<'a>(group: &[&'a CellSummary], of: &CellSummary) -> Option<&'a CellSummary> {
    let parties = |cell: &Cell| (cell.target.clone(), cell.max_requests_per_connection);
    let is_beside = |one: &&CellSummary| {
        !one.cell.protocol.is_multiplexed() && parties(&one.cell) == parties(&of.cell) && is_spoken(one)
    };
    group.iter().copied().find(is_beside)
}

/// Whether the target speaks the cell's protocol; unsupported cells do not count, as in [`verdict::compare`].
fn is_spoken(summary: &CellSummary) -> bool {
    !matches!(summary.state, CellState::Unsupported { .. })
}

/// See [`Needed`]: for cells of a group that differ only in their connections. `verdict` is that on a cell against HTTP/1.1.
fn needed(cells: &[&CellSummary], verdict: impl Fn(&CellSummary) -> CellVerdict) -> Needed {
    let mut tried: Vec<&CellSummary> = cells.iter().copied().filter(|summary| is_spoken(summary)).collect();
    tried.sort_by_key(|summary| summary.cell.connections);
    let (Some(least), Some(most)) = (tried.first(), tried.last()) else { return Needed::Unknown };
    if least.cell.sidecar.as_ref().is_some_and(|sidecar| !sidecar.can_be_configured()) {
        let matches = match is_enough(&verdict(least)) {
            IsEnough::Yes => Some(true),
            IsEnough::No => Some(false),
            IsEnough::Undecided(_) => None,
            IsEnough::NotMeasured => return Needed::Unknown,
        };
        let Some(all) = least.hop_connections else { return Needed::Unknown };
        return Needed::CameOut { held: all as f64 / f64::from(least.repetitions.max(1)), matches };
    }
    let mut all_are_known = true;
    let mut undecided = None;
    for summary in &tried {
        let connections = summary.cell.connections;
        match is_enough(&verdict(summary)) {
            IsEnough::Yes if all_are_known => return Needed::Connections(connections),
            IsEnough::Yes => return Needed::AtMost(connections),
            IsEnough::No => continue,
            IsEnough::Undecided(tail) => {
                undecided = undecided.or(Some(Needed::Undecided { connections, tail }));
            }
            IsEnough::NotMeasured => {}
        }
        all_are_known = false;
    }
    let otherwise = if all_are_known { Needed::MoreThan(most.cell.connections) } else { Needed::Unknown };
    undecided.unwrap_or(otherwise)
}

/// Whether a cell has enough connections for a tail that is no slower than that of HTTP/1.1 by a relevant amount.
#[derive(Debug, Clone, Copy, PartialEq)]
enum IsEnough {
    Yes,
    No,
    /// There is no verdict on the tails yet: their ratio, if it has an interval.
    Undecided(Option<RatioInterval>),
    /// One of the two was not measured soundly, neither carries the load, or their machines are unlike.
    NotMeasured,
}

/// What the verdict on a cell against HTTP/1.1 says of its connections.
fn is_enough(verdict: &CellVerdict) -> IsEnough {
    match verdict.conclusion {
        Conclusion::Faster | Conclusion::BaselineUnstable { .. } => IsEnough::Yes,
        Conclusion::Slower | Conclusion::Unstable { .. } => IsEnough::No,
        Conclusion::NoDifference if verdict.unclaimed().is_some_and(Unclaimed::is_alike) => IsEnough::Yes,
        Conclusion::NoDifference => IsEnough::Undecided(verdict.tail_ratio.filter(RatioInterval::is_sound)),
        Conclusion::BothUnstable
        | Conclusion::Failed
        | Conclusion::Invalid
        | Conclusion::Unsupported
        | Conclusion::UnlikeMachines => IsEnough::NotMeasured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::analyse;
    use h2lab_model::record::testing::{Model, cell, compare, one_repetition, run};
    use h2lab_model::record::{CellRecord, RunRecord, SidecarSummary};
    use h2lab_model::scenario::{Sidecar, Target};

    /// A cell of `compare` whose requests all take `factor` times as long as the round trip.
    fn made(index: u32, group: u32, protocol: Protocol, connections: u32, factor: f64) -> CellRecord {
        let loss = if group.is_multiple_of(2) { 0.0 } else { 0.03 };
        one_repetition(&cell(index, group, protocol, connections, loss), 0, &Model { factor, ..Model::CLEAN })
    }

    fn study(repetitions: Vec<CellRecord>) -> Study {
        let run = run(repetitions);
        Study::of(&analyse(&run), &run.scenario)
    }

    /// The same behind two sidecars of this program; the client's has `held` connections over the link.
    fn behind(mut record: CellRecord, program: &str, held: u32) -> CellRecord {
        let sidecar = Sidecar { name: program.to_owned(), warm_pool: 32, max_connections: 512 };
        record.cell.target = Target::Sut { name: program.to_owned() };
        record.cell.sidecar = Some(sidecar);
        record.sidecar = Some(SidecarSummary { connections: held, ..SidecarSummary::default() });
        record
    }

    /// A cell that its target does not support.
    fn unspoken(like: &CellRecord) -> CellRecord {
        CellRecord::unsupported(like.cell.clone(), "no".to_owned())
    }

    #[test]
    fn configurations_are_found_again_in_every_condition_and_holes_stay_holes() {
        let study = study(vec![
            made(0, 0, Protocol::H1, 32, 1.0),
            made(1, 0, Protocol::H2c, 4, 1.0),
            made(2, 1, Protocol::H1, 32, 1.0),
        ]);
        let reported: Vec<(&str, &[Option<u32>])> = study
            .configurations
            .iter()
            .map(|configuration| (configuration.label.as_str(), configuration.cells.as_slice()))
            .collect();
        assert_eq!(reported, [("h1", &[Some(0), Some(2)][..]), ("h2c × 4", &[Some(1), None])]);
        let conditions: Vec<_> = study.conditions.iter().map(|c| (c.first, c.loss, c.predicted)).collect();
        assert_eq!(conditions, [(0, 0.0, Some(1)), (2, 0.03, Some(5))]);
        assert_eq!(study.needs[0].found, [Needed::Connections(4), Needed::Unknown]);
    }

    #[test]
    fn the_least_number_that_is_no_slower_is_enough_and_a_tenth_is_no_difference() {
        let with = |factors: &[f64]| {
            let mut repetitions = vec![made(0, 0, Protocol::H1, 32, 1.0)];
            for (k, &factor) in factors.iter().enumerate() {
                repetitions.push(made(1 + k as u32, 0, Protocol::H2c, 1 << k, factor));
            }
            study(repetitions).needs[0].found[0]
        };
        assert_eq!(with(&[2.0, 1.05, 0.8]), Needed::Connections(2));
        assert_eq!(with(&[1.2, 1.15]), Needed::MoreThan(2));
        assert_eq!(with(&[1.0]), Needed::Connections(1));
    }

    #[test]
    fn what_does_not_carry_the_load_is_not_enough_and_of_what_is_invalid_nothing_is_said() {
        let http1 = made(0, 0, Protocol::H1, 32, 1.0);
        let mut one = made(1, 0, Protocol::H2c, 1, 1.0);
        one.link.as_mut().unwrap().device_drops = 1;
        assert_eq!(study(vec![http1.clone(), one.clone()]).needs[0].found, [Needed::Unknown]);
        let two = made(2, 0, Protocol::H2c, 2, 1.0);
        assert_eq!(study(vec![http1.clone(), one.clone(), two.clone()]).needs[0].found, [Needed::AtMost(2)]);
        // An unsound cell with more connections than the answer does not count.
        let sound = made(1, 0, Protocol::H2c, 1, 1.5);
        let mut four = made(3, 0, Protocol::H2c, 4, 1.0);
        four.link.as_mut().unwrap().device_drops = 1;
        let found = study(vec![http1.clone(), sound, two, four]);
        assert_eq!(found.needs[0].found, [Needed::Connections(2)]);
        let slow =
            one_repetition(&cell(1, 0, Protocol::H2c, 1, 0.0), 0, &Model { pace: 200.0, ..Model::CLEAN });
        assert_eq!(study(vec![http1, slow]).needs[0].found, [Needed::MoreThan(1)]);
    }

    #[test]
    fn an_undecided_verdict_decides_nothing_and_is_reported_with_its_ratio() {
        let mut run = compare(false);
        let found = |run: &RunRecord| Study::of(&analyse(run), &run.scenario).needs[0].found.clone();
        let [clean, lossy] = found(&run)[..] else { panic!("two conditions") };
        assert_eq!(clean, Needed::Connections(1));
        let Needed::Undecided { connections: 16, tail: Some(tail) } = lossy else { panic!("{lossy:?}") };
        assert!(tail.low < 1.0 && tail.ratio > 1.0 && tail.high > 1.1, "{tail:?}");
        // That 32 are enough does not say whether 16 are.
        let many = cell(100, 1, Protocol::H2c, 32, 0.03);
        run.repetitions.extend((0..2).map(|repetition| one_repetition(&many, repetition, &Model::CLEAN)));
        assert_eq!(found(&run), [Needed::Connections(1), Needed::AtMost(32)]);
    }

    #[test]
    fn whether_a_cell_is_enough_is_what_its_verdict_says() {
        let cells = [made(0, 0, Protocol::H1, 32, 1.0), made(1, 0, Protocol::H2c, 4, 1.0)];
        let [http1, own] = cells.each_ref().map(|record| CellSummary::of(&[record]));
        let alike = verdict::one(&http1, &own, 1, 1);
        assert_eq!(is_enough(&alike), IsEnough::Yes);
        let of = |conclusion| is_enough(&CellVerdict { conclusion, ..alike.clone() });
        let (offered_rps, served_rps) = (1000.0, 290.0);
        for enough in [Conclusion::Faster, Conclusion::BaselineUnstable { offered_rps, served_rps }] {
            assert_eq!(of(enough), IsEnough::Yes);
        }
        for too_few in [Conclusion::Slower, Conclusion::Unstable { offered_rps, served_rps }] {
            assert_eq!(of(too_few), IsEnough::No);
        }
        for void in [
            Conclusion::BothUnstable,
            Conclusion::Failed,
            Conclusion::Invalid,
            Conclusion::Unsupported,
            Conclusion::UnlikeMachines,
        ] {
            assert_eq!(of(void), IsEnough::NotMeasured);
        }
        let with = |tail_ratio| is_enough(&CellVerdict { tail_ratio, ..alike.clone() });
        let wide = RatioInterval { low: 0.9, high: 1.2, ..alike.tail_ratio.unwrap() };
        assert_eq!(with(Some(wide)), IsEnough::Undecided(Some(wide)));
        let unsound = RatioInterval { longest_stall: wide.block, ..wide };
        assert_eq!([with(Some(unsound)), with(None)], [IsEnough::Undecided(None); 2]);
    }

    #[test]
    fn a_proxy_that_decides_by_itself_is_reported_with_what_it_held() {
        let http1 = behind(made(0, 0, Protocol::H1, 32, 1.0), "haproxy", 40);
        let one = |factor| behind(made(1, 0, Protocol::H2c, 1, factor), "haproxy", 3);
        let found = study(vec![http1.clone(), one(1.5)]);
        assert_eq!(found.needs[0].found, [Needed::CameOut { held: 3.0, matches: Some(false) }]);
        assert_eq!(found.needs[0].parties, "two haproxy sidecars");
        // The sidecar cannot have honoured its configuration.
        let four = behind(made(2, 0, Protocol::H2c, 4, 1.0), "haproxy", 3);
        let found = study(vec![http1, one(1.0), unspoken(&four)]);
        assert_eq!(found.needs[0].found, [Needed::CameOut { held: 3.0, matches: Some(true) }]);
    }

    #[test]
    fn a_proxy_with_a_configured_number_is_judged_by_it_even_if_one_was_tried() {
        for program in ["envoy", "nghttpx"] {
            let found = |factor| {
                let http1 = behind(made(0, 0, Protocol::H1, 32, 1.0), program, 40);
                let one = behind(made(1, 0, Protocol::H2c, 1, factor), program, 1);
                study(vec![http1, one]).needs[0].found.clone()
            };
            assert_eq!((found(1.5), found(1.0)), (vec![Needed::MoreThan(1)], vec![Needed::Connections(1)]));
        }
    }

    #[test]
    fn needs_are_held_against_the_same_target_under_the_same_limit() {
        let limited = |index, protocol, factor, limit| {
            let mut record = made(index, 0, protocol, 4, factor);
            record.cell.max_requests_per_connection = limit;
            record
        };
        let found = study(vec![
            limited(0, Protocol::H1, 1.0, None),
            limited(1, Protocol::H1, 2.0, Some(137)),
            limited(2, Protocol::H2c, 1.5, None),
            limited(3, Protocol::H2c, 1.5, Some(137)),
        ]);
        let reported: Vec<_> = found.needs.iter().map(|need| (need.label.as_str(), need.found[0])).collect();
        let expected = [("h2c, no limit", Needed::MoreThan(4)), ("h2c, limit 137", Needed::Connections(4))];
        assert_eq!(reported, expected);
        let at = |index, protocol, factor, url: &str| {
            let mut record = made(index, 0, protocol, 4, factor);
            record.cell.target = Target::Url { url: url.to_owned() };
            record
        };
        let found = study(vec![
            at(0, Protocol::H1, 1.0, "http://a/"),
            at(1, Protocol::H2c, 1.5, "http://a/"),
            at(2, Protocol::H1, 2.0, "http://b/"),
            at(3, Protocol::H2c, 1.5, "http://b/"),
        ]);
        let reported: Vec<_> =
            found.needs.iter().map(|need| (need.parties.as_str(), need.found[0])).collect();
        assert_eq!(reported, [("http://a/", Needed::MoreThan(4)), ("http://b/", Needed::Connections(4))]);
    }

    #[test]
    fn what_the_target_does_not_speak_is_neither_held_against_nor_judged() {
        let (h1, h1s) = (made(0, 0, Protocol::H1, 32, 1.0), made(1, 0, Protocol::H1s, 32, 1.0));
        let one = made(2, 0, Protocol::H2c, 1, 1.5);
        let two = made(3, 0, Protocol::H2c, 2, 1.0);
        assert_eq!(study(vec![unspoken(&h1), h1s, one.clone()]).needs[0].found, [Needed::MoreThan(1)]);
        assert_eq!(
            study(vec![h1.clone(), one.clone(), unspoken(&two)]).needs[0].found,
            [Needed::MoreThan(1)]
        );
        assert_eq!(study(vec![h1.clone(), unspoken(&one)]).needs[0].found, [Needed::Unknown]);
        assert_eq!(study(vec![unspoken(&h1), one]).needs, []);
    }

    #[test]
    fn cells_of_several_seeds_are_of_several_conditions_and_none_is_lost() {
        let text = "seed = [1, 2]\nrepetitions = 1\n[matrix]\nprotocols = 'h1,h2c'";
        let of = |text: &str| {
            let scenario = Scenario::from_toml(text).unwrap();
            let repetitions =
                scenario.plan().iter().map(|cell| one_repetition(cell, 0, &Model::CLEAN)).collect();
            let run = RunRecord { scenario, ..run(repetitions) };
            Study::of(&analyse(&run), &run.scenario)
        };
        let study = of(text);
        let conditions: Vec<_> = study.conditions.iter().map(|one| (one.first, one.seed)).collect();
        assert_eq!(conditions, [(0, Some(1)), (2, Some(2))]);
        let cells: Vec<_> =
            study.configurations.iter().map(|configuration| configuration.cells.clone()).collect();
        assert_eq!(cells, [[Some(0), Some(2)], [Some(1), Some(3)]]);
        let one = of(&text.replace("[1, 2]", "1"));
        assert_eq!((one.conditions.len(), one.conditions[0].seed), (1, None));
    }

    #[test]
    fn ramps_are_reported_of_cells_whose_requests_were_kept() {
        let mut counted = made(1, 0, Protocol::H2c, 1, 1.0);
        counted.generator.level = Level::Hist;
        let study = study(vec![made(0, 0, Protocol::H1, 32, 1.0), counted]);
        assert_eq!((study.ramps_of(0), study.ramps_of(1)), (Some(Ramps::default()), None));
    }
}
