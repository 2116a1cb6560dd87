//! What happens when connections end during a repetition: some requests are lost with them, and others wait for the
//! next connection.

use std::collections::BTreeMap;
use std::time::Duration;

use super::spans::Spans;
use super::waiting::Waiting;
use crate::diagnose::{Evidence, Repetition};
use crate::stats::replays;
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time};
use h2lab_model::record::{CellRecord, ConnectionRecord, Outcome, Sample};
use h2lab_wire::ErrorCode;
use h2lab_wire::trace::ServerEnd;

/// Ends of one repetition that are no farther apart than this, or a round trip, may be one event.
pub(in crate::diagnose::causes) const ONE_MOMENT: Duration = Duration::from_millis(50);

/// Nobody would set a shorter maximum age of connections: products count it in seconds.
pub(in crate::diagnose::causes) const SHORTEST_AGE: Duration = Duration::from_millis(500);
/// A maximum age that costs little, in ms: an hour.
pub(in crate::diagnose::causes) const LONG_AGE_MS: u64 = 3_600_000;

/// An end of a connection, and the repetition in which it happened.
pub(in crate::diagnose::causes) type End<'a> = (&'a Repetition<'a>, &'a ServerEnd);

/// All orderly ends of connections by the server.
pub(in crate::diagnose::causes) fn all<'a>(repetitions: &'a [Repetition<'_>]) -> Vec<End<'a>> {
    let of =
        |repetition: &'a Repetition<'_>| repetition.facts().ends.iter().map(move |end| (repetition, end));
    repetitions.iter().flat_map(of).collect()
}

/// Whether ends cannot be one event: they are of several repetitions, or too far apart.
pub(in crate::diagnose::causes) fn has_several_moments(ends: &[End<'_>]) -> bool {
    let Some((first, _)) = ends.first() else { return false };
    let times = || ends.iter().map(|(_, end)| end.at);
    let apart = times().max().unwrap_or_default().since(times().min().unwrap_or_default());
    apart > ONE_MOMENT.max(first.facts().rtt)
        || ends.iter().any(|(repetition, _)| !std::ptr::eq(*repetition, *first))
}

/// The ends of a repetition, arranged to find those near a request: there may be one for each request.
#[derive(Debug)]
pub(in crate::diagnose::causes) struct Ends {
    /// When the server began to end each connection.
    by_connection: BTreeMap<u32, Time>,
    /// The same times in order.
    times: Vec<Time>,
    /// From each of these times until the next connection was ready; in order and disjoint.
    gaps: Spans,
}

impl Ends {
    /// From these ends: connections and when the server began to end them.
    pub fn new(record: &CellRecord, ends: impl Iterator<Item = (u32, Time)>) -> Self {
        let mut by_connection = BTreeMap::new();
        let mut times = Vec::new();
        for (connection, at) in ends {
            let first = by_connection.entry(connection).or_insert(at);
            *first = at.min(*first);
            times.push(at);
        }
        times.sort_unstable();
        let gaps = gaps(record, &times);
        Self { by_connection, times, gaps }
    }

    /// The orderly ends by the server.
    pub fn by_server(repetition: &Repetition<'_>) -> Self {
        let ends = repetition.facts().ends.iter().map(|end| (end.connection, end.at));
        Self::new(repetition.record, ends)
    }

    /// The ends by a GOAWAY of the server with this error code.
    pub fn by_goaway(repetition: &Repetition<'_>, code: u32) -> Self {
        let of = |connection: &ConnectionRecord| {
            let goaway = connection.goaways.iter().find(|goaway| goaway.code == code)?;
            Some((connection.index, goaway.at))
        };
        Self::new(repetition.record, repetition.record.connections.iter().filter_map(of))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Connections that were dialled after the server had ended one, and carried no request.
    fn useless_dials(&self, record: &CellRecord) -> usize {
        let Some(first) = self.times.first() else { return 0 };
        let connections = record.connections.iter();
        connections
            .filter(|connection| connection.is_useless_dial() && connection.dialled_at >= *first)
            .count()
    }

    /// Whether a request failed because the server ended its connection: it was refused or aborted with it, or reset
    /// after the end had begun. Other failures have other causes.
    pub fn lost(&self, sample: &Sample) -> bool {
        let end = || self.by_connection.get(&sample.connection);
        match sample.outcome {
            // A stream may also be refused before any end, for too many streams.
            Outcome::Refused if sample.code == ErrorCode::REFUSED_STREAM.0 => {
                end().is_some_and(|at| sample.completed_at >= *at)
            }
            Outcome::GoAway | Outcome::Refused | Outcome::Closed => end().is_some(),
            Outcome::Reset => end().is_some_and(|at| sample.completed_at >= *at),
            _ => false,
        }
    }

    /// Whether a request was in flight when a connection ended, and was sent again.
    fn had_sent_again(&self, sample: &Sample) -> bool {
        let first = self.times.partition_point(|at| *at < sample.sent_at);
        sample.replays > 0 && self.times.get(first).is_some_and(|at| *at <= sample.completed_at)
    }

    /// For how long a request waited while a connection had ended and the next was not ready. Before or after that it
    /// waited for something else, such as a free stream.
    fn held_up(&self, sample: &Sample) -> Duration {
        let until = sample.sent_at.min(sample.completed_at);
        let from = until - Duration::from_nanos(sample.stall_open_ns);
        self.gaps.within(from, until)
    }
}

/// From each of these ends until the next connection was ready; if other connections carry requests meanwhile, at most
/// as long as a dial takes.
fn gaps(record: &CellRecord, ends: &[Time]) -> Spans {
    let mut dials: Vec<&ConnectionRecord> =
        record.connections.iter().filter(|dial| dial.ready_at.happened()).collect();
    dials.sort_unstable_by_key(|dial| dial.ready_at);
    let longest = dials.iter().map(|dial| dial.ready_at.since(dial.dialled_at)).max().unwrap_or_default();
    // Until when at least one of the first n connections accepts requests; computed once, since there may be many
    // thousands of ends.
    let usable: Vec<Time> = dials
        .iter()
        .scan(Time::ZERO, |latest, dial| {
            *latest = dial.usable_until().max(*latest);
            Some(*latest)
        })
        .collect();
    Spans::of(ends.iter().map(|&end| {
        let next = dials.partition_point(|dial| dial.ready_at <= end);
        let ready = dials.get(next).map_or(Time::NEVER, |dial| dial.ready_at);
        let has_another = next.checked_sub(1).is_some_and(|last| usable[last] > end);
        (end, if has_another { ready.min(end + longest) } else { ready })
    }))
}

/// What the ends of connections cost.
#[derive(Debug, Default)]
pub(in crate::diagnose::causes) struct Cost {
    /// Connections opened.
    pub opened: usize,
    /// Connections that carried no request, dialled after the server had ended one.
    pub useless: usize,
    /// How often measured requests were sent again; every report counts them this way.
    pub replayed: u64,
    /// Requests that failed with a connection.
    pub lost: usize,
    /// Requests in all.
    pub requests: usize,
    /// Requests that waited for a new connection.
    waiting: Waiting,
    /// How much longer requests that were sent again because of an end took than the quickest. It excludes that
    /// waiting, and the wait for missing segments: LOSS101 accounts for that.
    again: Duration,
    all: Duration,
}

impl Cost {
    /// The cost of the ends that `ends` finds in each repetition.
    pub fn of(repetitions: &[Repetition<'_>], ends: impl Fn(&Repetition<'_>) -> Ends) -> Self {
        let mut cost = Self::default();
        for repetition in repetitions {
            cost.opened += repetition.record.connections.len();
            let ends = ends(repetition);
            let quickest = repetition.facts().quickest;
            let mut again = Duration::ZERO;
            cost.useless += ends.useless_dials(repetition.record);
            cost.replayed += replays(repetition.record);
            for sample in &repetition.record.samples {
                // The tables count them the same way.
                cost.requests += usize::from(sample.measured);
                cost.lost += usize::from(sample.measured && ends.lost(&sample));
                cost.all += sample.response_time();
                if ends.had_sent_again(&sample) {
                    let waited = Duration::from_nanos(sample.stall_open_ns);
                    again += sample.service_time().saturating_sub(quickest + waited);
                }
                cost.waiting.add(ends.held_up(&sample));
            }
            let missing: Duration = repetition.blocked().iter().map(|blocked| blocked.again).sum();
            cost.again += again.saturating_sub(missing);
        }
        cost
    }

    /// The cost as evidence.
    pub fn evidence(&self) -> Vec<Evidence> {
        let mut list = vec![Evidence::new("connections opened", self.opened as f64, "connections")];
        if self.useless > 0 {
            let what = "connections dialled after an end that carried no request";
            list.push(Evidence::new(what, self.useless as f64, "connections"));
        }
        list.extend(self.waiting.evidence("requests that waited for a new connection"));
        list
    }

    /// The cost in a sentence.
    pub fn sentence(&self) -> String {
        let again = if self.again.is_zero() {
            String::new()
        } else {
            format!(", and those sent again took {} longer in sum", measured_time(self.again))
        };
        let repeated = if self.replayed == 0 && self.lost == 0 {
            String::new()
        } else {
            let again = plural(self.replayed, "time");
            format!("; requests sent again {again}, {} lost", count(self.lost as u64))
        };
        let opened = plural(self.opened as u64, "connection");
        if self.waiting.requests == 0 && self.again.is_zero() {
            return format!("{opened} opened{repeated}; no request waited for a new connection");
        }
        format!(
            "{opened} opened{repeated}; {} waited {} each on average for a new connection{again} ({:.1} % of all response time)",
            count(self.waiting.requests),
            measured_time(self.waiting.each()),
            self.share() * 100.0
        )
    }

    /// Whether there are requests that show what the ends cost.
    pub const fn is_known(&self) -> bool {
        self.requests > 0
    }

    /// The share of all response time for which requests waited, or were sent again.
    pub fn share(&self) -> f64 {
        let cost = self.waiting.time + self.again;
        (cost.as_secs_f64() / self.all.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0)
    }

    /// The share of all requests that were lost.
    fn lost_share(&self) -> f64 {
        self.lost as f64 / self.requests.max(1) as f64
    }

    /// What is served late or not at all: the sum of both shares.
    pub fn whole(&self) -> f64 {
        (self.share() + self.lost_share()).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::Scene;
    use h2lab_model::workload::Protocol;

    /// How long a request that was sent at 3 s, after a wait of `waited` ms, waited because of ends at 1 s and 2 s.
    /// Each end is followed by a connection that is ready 40 ms later; `others` of the first connections stay.
    fn held_up(waited: u64, others: u32) -> Duration {
        let scene =
            Scene::new(Protocol::H2c).connections(3 + others).established(1, 1_040).established(2, 2_040);
        let scene = scene.goaway(0, 1_000, 99, 0).goaway(1, 2_000, 99, 0).request(2, 1, 3_000, 3_050, 3_050);
        let record = scene.record();
        let mut sample = record.samples.get(0).unwrap();
        sample.stall_open_ns = waited * 1_000_000;
        let ends = [(0, 1_000), (1, 2_000)].map(|(connection, at)| (connection, Time::from_millis(at)));
        Ends::new(&record, ends.into_iter()).held_up(&sample)
    }

    #[test]
    fn only_the_time_without_a_connection_is_due_to_an_end() {
        let expected = [(900, 0), (960, 0), (970, 10), (1_500, 40), (2_500, 80)];
        for (waited, held) in expected {
            assert_eq!(held_up(waited, 0), Duration::from_millis(held), "of {waited} ms of waiting");
        }
        assert!(held_up(2_500, 1) <= Duration::from_millis(80), "beside another connection");
    }
}
