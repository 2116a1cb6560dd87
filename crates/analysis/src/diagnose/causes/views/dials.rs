//! Dials of a repetition, and how long requests waited for them.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, ConnectionRecord, Sample};

/// For how long a request waited for its connection: from when it was due, or when the connection was dialled for it,
/// until the connection was ready. Zero if the connection was ready before.
pub(in crate::diagnose::causes) fn waited(record: &CellRecord, sample: &Sample) -> Duration {
    let ready = record.connection(sample.connection).map(|connection| connection.ready_at);
    let until = ready.filter(|at| at.happened()).unwrap_or(Time::ZERO);
    until.since(sample.scheduled_at).min(Duration::from_nanos(sample.stall_open_ns))
}

/// Connections that were dialled together: each of them before the first was ready.
#[derive(Debug)]
pub(in crate::diagnose::causes) struct Burst<'a> {
    /// All of them.
    pub dials: Vec<&'a ConnectionRecord>,
}

impl Burst<'_> {
    /// When the first was dialled.
    pub fn begin(&self) -> Time {
        self.dials.first().map_or(Time::NEVER, |dial| dial.dialled_at)
    }

    /// When the first of them was ready; [`Time::NEVER`] if none ever was.
    pub fn ready(&self) -> Time {
        self.dials.iter().map(|dial| dial.ready_at).min().unwrap_or(Time::NEVER)
    }

    /// How many carried no request.
    pub fn useless(&self) -> usize {
        self.dials.iter().filter(|dial| dial.is_useless_dial()).count()
    }
}

/// The bursts of a repetition while requests were due: earlier ones open the configured pool. Where the connection of
/// the first request was dialled for it, dials that were under way then belong to its burst: which of those connections
/// carries the request is decided later.
pub(in crate::diagnose::causes) fn bursts(record: &CellRecord) -> Vec<Burst<'_>> {
    let first = record.samples.iter().min_by_key(|sample| sample.scheduled_at);
    let first_due = first.map_or(Time::NEVER, |sample| sample.scheduled_at);
    let its_own = first.and_then(|sample| record.connection(sample.connection));
    let is_dialled_for = its_own.is_some_and(|dial| dial.dialled_at >= first_due);
    let is_in = |dial: &&ConnectionRecord| {
        let was_under_way = dial.ready_at.happened() && dial.ready_at > first_due;
        dial.dialled_at >= first_due || (is_dialled_for && was_under_way)
    };
    let mut dials: Vec<&ConnectionRecord> = record.connections.iter().filter(is_in).collect();
    dials.sort_by_key(|dial| dial.dialled_at);
    let mut bursts: Vec<Burst<'_>> = Vec::new();
    let mut ready = Time::ZERO;
    for dial in dials {
        match bursts.last_mut().filter(|_| dial.dialled_at < ready) {
            Some(burst) => {
                burst.dials.push(dial);
                ready = ready.min(dial.ready_at);
            }
            None => {
                bursts.push(Burst { dials: vec![dial] });
                ready = dial.ready_at;
            }
        }
    }
    bursts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::Scene;
    use h2lab_model::workload::Protocol;

    /// A request at 100 ms, and connections dialled and ready at these times.
    fn record(dials: &[(u64, u64)]) -> CellRecord {
        let scene = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125);
        let scene = (1..).zip(dials).fold(scene, |scene, (n, &(at, ready))| scene.dialled(n, at, ready));
        scene.record()
    }

    #[test]
    fn dials_belong_together_until_the_first_of_them_is_ready() {
        let sizes = |dials: &[(u64, u64)]| {
            bursts(&record(dials)).iter().map(|burst| burst.dials.len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[(100, 125), (124, 150)]), [2]);
        assert_eq!(sizes(&[(100, 125), (125, 150)]), [1, 1]);
        assert_eq!(sizes(&[(100, 200), (110, 130), (129, 150), (130, 155)]), [3, 1]);
        assert_eq!(sizes(&[(99, 125), (100, 125)]), [1], "the first was dialled before any request was due");
    }

    #[test]
    fn dials_under_way_belong_to_the_first_request_if_its_own_connection_was_dialled_for_it() {
        let size = |ready: u64, due: u64| {
            let scene = Scene::new(Protocol::H2c).dialled(0, 100, 130).dialled(1, 95, ready);
            let record = scene.waited(0, 1, [due, 130, 155]).record();
            bursts(&record).first().map_or(0, |burst| burst.dials.len())
        };
        assert_eq!(size(101, 100), 2);
        assert_eq!(size(100, 100), 1, "it was ready when the request was due");
        assert_eq!(size(130, 101), 0, "its own was dialled before it was due: a pool");
    }

    #[test]
    fn a_request_waited_for_its_connection_only_if_that_was_not_ready() {
        let mut record = record(&[(100, 125)]);
        let waited_ms = |record: &CellRecord, connection: u32, stall: u64| {
            let mut sample = record.samples.get(0).unwrap();
            (sample.connection, sample.stall_open_ns) = (connection, stall * 1_000_000);
            waited(record, &sample).as_millis()
        };
        assert_eq!(waited_ms(&record, 1, 40), 25);
        assert_eq!(waited_ms(&record, 1, 20), 20, "it was dialled before");
        assert_eq!(waited_ms(&record, 0, 40), 0, "it waited for a stream");
        assert_eq!(waited_ms(&record, Sample::NO_CONNECTION, 40), 0);
        record.connections[1].ready_at = Time::NEVER;
        assert_eq!(waited_ms(&record, 1, 40), 0);
    }
}
