//! Several waterfalls of the same exchange as one: the median of each time, and how far it spreads.

use std::collections::BTreeMap;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::waterfall::{Connecting, InterimResponse, Waterfall, WaterfallStream};

/// The spread of a time over the runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSpread {
    /// The least, in milliseconds.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// In how many runs it happened.
    pub runs: u32,
}

/// A stream whose times are medians.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineStream {
    /// The medians. Interim responses are those of all runs. What is not a time comes from one run: of those with the
    /// most frequent status, the first of the most complete ones.
    #[serde(flatten)]
    pub stream: WaterfallStream,
    /// In how many runs it had which status, in the order of statuses.
    #[serde(default)]
    pub statuses: Vec<StatusRuns>,
    /// Pushed: in how many runs it was promised, but neither complete nor reset.
    #[serde(default)]
    pub unfinished: u32,
    /// The spread of each time, by its name here: `promise_ms`, `interim[0]`, `headers_ms` …; empty with one run.
    pub spread: BTreeMap<String, TimeSpread>,
}

/// A status, and how often it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusRuns {
    /// 200 to 999.
    pub status: u16,
    /// In how many runs.
    pub runs: u32,
}

impl TimelineStream {
    /// The number of runs with this status.
    pub fn runs_with(&self, status: u16) -> u32 {
        self.statuses.iter().find(|one| one.status == status).map_or(0, |one| one.runs)
    }
}

/// The summary of several runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineSummary {
    /// How the connections were established: medians.
    pub connect: Connecting,
    /// Spread of those times (min–max); empty with one run.
    pub connect_spread: BTreeMap<String, TimeSpread>,
    /// The streams: those of the same path that began in the same way, requested or pushed, are one.
    pub streams: Vec<TimelineStream>,
    /// Streams that are not among them, in the run that had the most of them: of each run the first 1,000 are kept.
    #[serde(default)]
    pub left_off: u32,
}

/// The median of these, of an even number the mean of the middle two; with their spread.
pub fn spread_of(values: &[f64]) -> Option<(f64, TimeSpread)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    Some((median, TimeSpread { min, max, runs: sorted.len() as u32 }))
}

/// Sums up a time that some of the runs have.
fn sum_up(
    name: &str,
    values: impl Iterator<Item = Option<f64>>,
    is_alone: bool,
    spreads: &mut BTreeMap<String, TimeSpread>,
) -> Option<f64> {
    let values: Vec<f64> = values.flatten().collect();
    let (median, spread) = spread_of(&values)?;
    if !is_alone {
        spreads.insert(name.to_owned(), spread);
    }
    Some(median)
}

/// Times of a stream by their names.
type Times = [(&'static str, fn(&mut WaterfallStream) -> &mut Option<f64>); 7];

const TIMES: Times = [
    ("promise_ms", |one| &mut one.promise_ms),
    ("request_ms", |one| &mut one.request_ms),
    ("headers_ms", |one| &mut one.headers_ms),
    ("first_data_ms", |one| &mut one.first_data_ms),
    ("last_data_ms", |one| &mut one.last_data_ms),
    ("trailers_ms", |one| &mut one.trailers_ms),
    ("end_ms", |one| &mut one.end_ms),
];

impl TimelineSummary {
    /// The summary of these runs.
    pub fn of(runs: &[Waterfall]) -> Self {
        let is_alone = runs.len() < 2;
        let mut connect_spread = BTreeMap::new();
        let mut connecting = |name: &str, time: fn(&Connecting) -> Option<f64>| {
            sum_up(name, runs.iter().map(|run| time(&run.connect)), is_alone, &mut connect_spread)
        };
        let connect = Connecting {
            connected_ms: connecting("connected_ms", |one| one.connected_ms),
            tls_ms: connecting("tls_ms", |one| one.tls_ms),
            settings_ms: connecting("settings_ms", |one| one.settings_ms),
        };
        let mut groups: Vec<(Key, Vec<WaterfallStream>)> = Vec::new();
        for run in runs {
            let mut seen: BTreeMap<(bool, String), u32> = BTreeMap::new();
            for stream in &run.streams {
                let count = seen.entry((stream.pushed, stream.path.clone())).or_default();
                let key = Key { pushed: stream.pushed, path: stream.path.clone(), repeated: *count };
                *count += 1;
                match groups.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, group)) => group.push(stream.clone()),
                    None => groups.push((key, vec![stream.clone()])),
                }
            }
        }
        let streams = groups.into_iter().map(|(_, group)| summed(group, is_alone)).collect();
        let left_off = runs.iter().map(|run| run.left_off).max().unwrap_or_default();
        Self { connect, connect_spread, streams, left_off }
    }

    /// The same as a waterfall of medians.
    pub fn waterfall(&self) -> Waterfall {
        Waterfall {
            connect: self.connect.clone(),
            streams: self.streams.iter().map(|one| one.stream.clone()).collect(),
            ..Waterfall::default()
        }
    }
}

/// The identity of a stream across runs.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    pushed: bool,
    path: String,
    /// How many streams of the same run with the same path and way came before.
    repeated: u32,
}

fn summed(mut group: Vec<WaterfallStream>, is_alone: bool) -> TimelineStream {
    let mut spread = BTreeMap::new();
    let statuses = statuses(&group);
    let mut stream = typical(&group, &statuses).cloned().unwrap_or_default();
    for (name, time) in TIMES {
        let values: Vec<Option<f64>> = group.iter_mut().map(|one| *time(one)).collect();
        *time(&mut stream) = sum_up(name, values.into_iter(), is_alone, &mut spread);
    }
    stream.interim.clear();
    for (place, (interim, times)) in interims(&group).into_iter().enumerate() {
        let name = format!("interim[{place}]");
        let ms = sum_up(&name, times.into_iter().map(Some), is_alone, &mut spread).unwrap_or(interim.ms);
        stream.interim.push(InterimResponse { ms, ..interim });
    }
    let unfinished = group.iter().filter(|one| one.pushed && !one.is_over()).count() as u32;
    TimelineStream { stream, statuses, unfinished, spread }
}

fn statuses(group: &[WaterfallStream]) -> Vec<StatusRuns> {
    let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
    for status in group.iter().filter_map(|one| one.status) {
        *counts.entry(status).or_default() += 1;
    }
    counts.into_iter().map(|(status, runs)| StatusRuns { status, runs }).collect()
}

/// The typical run: of those with the most frequent status the first of the most complete.
fn typical<'a>(group: &'a [WaterfallStream], statuses: &[StatusRuns]) -> Option<&'a WaterfallStream> {
    let frequency = |one: &WaterfallStream| {
        statuses.iter().find(|other| Some(other.status) == one.status).map_or(0, |other| other.runs)
    };
    // `max_by_key` returns the last of equals, so the order is reversed to get the first.
    group.iter().rev().max_by_key(|one| (frequency(one), one.end_ms.is_some(), one.interim.len()))
}

/// The interim responses of all runs, each with its times: two are the same if they have the same status and the same
/// position among those with this status. In the order of their medians.
fn interims(group: &[WaterfallStream]) -> Vec<(InterimResponse, Vec<f64>)> {
    let mut known: Vec<(usize, InterimResponse, Vec<f64>)> = Vec::new();
    for run in group {
        let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
        for interim in &run.interim {
            let nth = seen.entry(interim.status).or_default();
            match known.iter_mut().find(|(n, one, _)| (*n, one.status) == (*nth, interim.status)) {
                Some((_, _, times)) => times.push(interim.ms),
                None => known.push((*nth, interim.clone(), vec![interim.ms])),
            }
            *nth += 1;
        }
    }
    let median = |times: &[f64]| spread_of(times).map_or(0.0, |(median, _)| median);
    known.sort_by(|(_, _, a), (_, _, b)| median(a).total_cmp(&median(b)));
    known.into_iter().map(|(_, interim, times)| (interim, times)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{exchange, pushed};
    use super::*;

    #[test]
    fn a_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(spread_of(&[]), None);
        assert_eq!(spread_of(&[3.0]).map(|(median, _)| median), Some(3.0));
        let (median, spread) = spread_of(&[9.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((median, spread.min, spread.max, spread.runs), (2.5, 1.0, 9.0, 4));
    }

    #[test]
    fn streams_of_several_runs_meet_by_path_and_way_and_keep_their_spread() {
        let run = |offset: f64| {
            let mut run = exchange("/", &[(103, 1.0 + offset)], 80.0 + offset);
            run.streams.push(pushed("/style.css", 2.0 + offset, 4.0));
            run
        };
        let summary = TimelineSummary::of(&[run(0.0), run(3.0), run(1.0)]);
        let [main, style] = &summary.streams[..] else { panic!("{summary:?}") };
        assert_eq!((main.stream.interim[0].ms, main.stream.headers_ms), (2.0, Some(81.0)));
        assert_eq!((style.stream.promise_ms, style.stream.pushed), (Some(3.0), true));
        let spread = main.spread["headers_ms"];
        assert_eq!((spread.min, spread.max, spread.runs), (80.0, 83.0, 3));
        assert_eq!(main.spread["interim[0]"].runs, 3);
    }

    #[test]
    fn one_run_is_its_own_median_without_spread() {
        let summary = TimelineSummary::of(&[exchange("/", &[], 5.0)]);
        assert!(summary.streams[0].spread.is_empty() && summary.connect_spread.is_empty());
        assert_eq!(summary.streams[0].stream.headers_ms, Some(5.0));
    }

    #[test]
    fn what_is_no_time_is_of_the_most_frequent_status_and_the_others_are_reported() {
        let run = |status: u16, bytes: u64| {
            let mut run = exchange("/", &[], 5.0);
            (run.streams[0].status, run.streams[0].bytes) = (Some(status), bytes);
            run
        };
        let summary = TimelineSummary::of(&[run(502, 7), run(200, 1), run(200, 2), run(503, 9)]);
        let main = &summary.streams[0];
        assert_eq!((main.stream.status, main.stream.bytes), (Some(200), 1), "the first of them");
        let rendered: Vec<_> = main.statuses.iter().map(|one| (one.status, one.runs)).collect();
        assert_eq!(rendered, [(200, 2), (502, 1), (503, 1)]);
        assert_eq!((main.runs_with(200), main.runs_with(404)), (2, 0));
    }

    #[test]
    fn interim_responses_of_different_runs_meet_by_status_and_number() {
        let runs = [
            exchange("/", &[(103, 2.0), (103, 40.0)], 80.0),
            exchange("/", &[(102, 1.0), (103, 4.0), (103, 44.0)], 80.0),
            exchange("/", &[(103, 6.0), (103, 48.0)], 80.0),
        ];
        let main = TimelineSummary::of(&runs).streams.remove(0);
        let rendered: Vec<_> = main.stream.interim.iter().map(|one| (one.status, one.ms)).collect();
        assert_eq!(rendered, [(102, 1.0), (103, 4.0), (103, 44.0)]);
        assert_eq!(main.spread["interim[0]"].runs, 1);
        assert_eq!((main.spread["interim[1]"].max, main.spread["interim[2]"].min), (6.0, 40.0));
    }

    #[test]
    fn pushes_that_were_not_finished_are_counted() {
        let run = |end: Option<f64>| {
            let mut run = exchange("/", &[], 5.0);
            run.streams.push(WaterfallStream { end_ms: end, ..pushed("/style.css", 1.0, 4.0) });
            run
        };
        let style = TimelineSummary::of(&[run(Some(4.0)), run(None), run(None)]).streams.remove(1);
        assert_eq!((style.unfinished, style.stream.end_ms), (2, Some(4.0)));
    }
}
