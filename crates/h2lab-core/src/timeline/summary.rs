//! Several waterfalls of the same exchange as one: the median of each time, and how far it spreads.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::waterfall::{Connecting, Stream, Waterfall};

/// How far a time lies apart in the runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The least, in milliseconds.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// In how many runs it happened.
    pub runs: u32,
}

/// A stream whose times are medians.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineStream {
    /// The medians; what is no time is that of the first run in which the stream is.
    #[serde(flatten)]
    pub stream: Stream,
    /// How far each time lies apart, by its name here: `promise_ms`, `interim[0]`, `headers_ms` …; empty with one run.
    pub spread: BTreeMap<String, Spread>,
}

/// What is to be known of several runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// How the connections came to be: medians.
    pub connect: Connecting,
    /// How far those times lie apart; empty with one run.
    pub connect_spread: BTreeMap<String, Spread>,
    /// The streams, by what they are about: those of the same path that came to be in the same way are one.
    pub streams: Vec<TimelineStream>,
}

/// The middle of these, of an even number the mean of both; with their spread.
pub fn spread_of(values: &[f64]) -> Option<(f64, Spread)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    Some((median, Spread { min, max, runs: sorted.len() as u32 }))
}

/// Sums up a time that some of the runs have.
fn sum_up(
    name: &str,
    values: impl Iterator<Item = Option<f64>>,
    is_alone: bool,
    spreads: &mut BTreeMap<String, Spread>,
) -> Option<f64> {
    let values: Vec<f64> = values.flatten().collect();
    let (median, spread) = spread_of(&values)?;
    if !is_alone {
        spreads.insert(name.to_owned(), spread);
    }
    Some(median)
}

/// Times of a stream by their names.
type Times = [(&'static str, fn(&mut Stream) -> &mut Option<f64>); 7];

const TIMES: Times = [
    ("promise_ms", |one| &mut one.promise_ms),
    ("request_ms", |one| &mut one.request_ms),
    ("headers_ms", |one| &mut one.headers_ms),
    ("first_data_ms", |one| &mut one.first_data_ms),
    ("last_data_ms", |one| &mut one.last_data_ms),
    ("trailers_ms", |one| &mut one.trailers_ms),
    ("end_ms", |one| &mut one.end_ms),
];

impl Summary {
    /// Of these runs.
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
        let mut groups: Vec<(Key, Vec<Stream>)> = Vec::new();
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
        Self { connect, connect_spread, streams }
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

/// What makes streams of different runs the same.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    pushed: bool,
    path: String,
    /// How many of the same run came before.
    repeated: u32,
}

fn summed(mut group: Vec<Stream>, is_alone: bool) -> TimelineStream {
    let mut spread = BTreeMap::new();
    // The run that saw the most says what there is.
    let fullest = group.iter().max_by_key(|one| (one.end_ms.is_some(), one.interim.len()));
    let mut stream = fullest.cloned().unwrap_or_default();
    for (name, time) in TIMES {
        let values: Vec<Option<f64>> = group.iter_mut().map(|one| *time(one)).collect();
        *time(&mut stream) = sum_up(name, values.into_iter(), is_alone, &mut spread);
    }
    for (place, interim) in stream.interim.iter_mut().enumerate() {
        let same = |one: &Stream| {
            let found = one.interim.get(place).filter(|other| other.status == interim.status)?;
            Some(found.ms)
        };
        let values: Vec<Option<f64>> = group.iter().map(same).collect();
        let name = format!("interim[{place}]");
        interim.ms = sum_up(&name, values.into_iter(), is_alone, &mut spread).unwrap_or(interim.ms);
    }
    TimelineStream { stream, spread }
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
        let summary = Summary::of(&[run(0.0), run(3.0), run(1.0)]);
        let [main, style] = &summary.streams[..] else { panic!("{summary:?}") };
        assert_eq!((main.stream.interim[0].ms, main.stream.headers_ms), (2.0, Some(81.0)));
        assert_eq!((style.stream.promise_ms, style.stream.pushed), (Some(3.0), true));
        let spread = main.spread["headers_ms"];
        assert_eq!((spread.min, spread.max, spread.runs), (80.0, 83.0, 3));
        assert_eq!(main.spread["interim[0]"].runs, 3);
    }

    #[test]
    fn one_run_is_its_own_median_without_spread() {
        let summary = Summary::of(&[exchange("/", &[], 5.0)]);
        assert!(summary.streams[0].spread.is_empty() && summary.connect_spread.is_empty());
        assert_eq!(summary.streams[0].stream.headers_ms, Some(5.0));
    }
}
