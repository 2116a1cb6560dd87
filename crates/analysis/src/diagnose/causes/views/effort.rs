//! CPU time of both ends, and findings about what costs CPU time but no response time.

use std::time::Duration;

use crate::diagnose::{Case, CauseMeta, Evidence, Finding};
use h2lab_model::record::{CellRecord, ConnectionRecord};
use h2lab_wire::trace::{Direction, FrameKind};

/// An end that works for less of the time than this has CPU time left: the cost of a frame does not matter to it.
const BUSY: f64 = 0.5;
/// In a shorter time an end is busy with its start.
const SHORTEST: Duration = Duration::from_millis(500);

/// The part of the time in which the generator's busiest thread worked.
pub(in crate::diagnose::causes) fn generator(record: &CellRecord) -> f64 {
    let generator = &record.generator;
    let wall = generator.wall_ns.max(1) as f64;
    let all = generator.cpu_ns.saturating_sub(generator.awake_ns) as f64
        / (wall * f64::from(generator.threads.max(1)));
    all.max(generator.busiest_ns as f64 / wall)
}

/// The busier end of a cell: its name, and how many CPUs it used on average. `None` if neither is busy.
pub(in crate::diagnose::causes) fn busy_end(case: &Case<'_>) -> Option<(String, f64)> {
    let is_long = |ns: u64| u128::from(ns) >= SHORTEST.as_nanos();
    let mean = |each: Vec<f64>| each.iter().sum::<f64>() / each.len().max(1) as f64;
    let measured = || case.records().filter(|record| is_long(record.generator.wall_ns));
    let client = mean(measured().map(generator).collect());
    let servers = || case.records().filter_map(|record| record.server.as_ref());
    let of_server = servers().filter(|server| is_long(server.wall_ns));
    let server = mean(of_server.map(|server| server.cpu_ns as f64 / server.wall_ns as f64).collect());
    let name = servers().next().map_or("server", |server| server.name.as_str());
    let (name, most) = if server > client { (name, server) } else { ("our client", client) };
    (most >= BUSY).then(|| (name.to_owned(), most))
}

/// The findings that `find` makes from what was sent in each direction, if an end of the cell is busy.
pub(in crate::diagnose::causes) fn of_both_ways(
    case: &Case<'_>,
    find: impl Fn(Direction, &Sent, &(String, f64)) -> Option<Finding>,
) -> Vec<Finding> {
    let Some(end) = busy_end(case) else { return Vec::new() };
    let ways = [Direction::Down, Direction::Up].into_iter();
    ways.filter_map(|way| find(way, &Sent::of(case, way), &end)).collect()
}

/// An observation: it costs CPU time at that end, but no response time.
pub(in crate::diagnose::causes) fn observation(
    case: &Case<'_>,
    meta: &CauseMeta,
    what: &str,
    (name, cpus): &(String, f64),
) -> Finding {
    Finding {
        cost: format!(
            "an observation: {what}; {name} used {cpus:.2} CPUs, and no response is known to have waited for it"
        ),
        evidence: vec![Evidence::new(&format!("CPU time of {name} per time"), *cpus, "CPUs")],
        explains: Some(0.0),
        ..case.finding_of_share(meta, 0.0)
    }
}

/// What one end of all HTTP/2 connections of a cell sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::diagnose::causes) struct Sent {
    /// Requests.
    pub requests: u64,
    /// Frames of all types.
    pub frames: u64,
    /// DATA frames.
    pub data: u64,
    /// WINDOW_UPDATE frames of the other end.
    pub credits: u64,
    /// Segments with data; 0 if the kernel did not report them.
    pub segments: u64,
    /// Bytes, without TLS overhead.
    pub bytes: u64,
}

impl Sent {
    /// What was sent in this direction.
    pub fn of(case: &Case<'_>, direction: Direction) -> Self {
        let mut sent = Self::default();
        if case.cell().protocol.is_multiplexed() && !case.cell().protocol.is_quic() {
            case.connections().for_each(|connection| sent.add(connection, direction));
        }
        sent
    }

    fn add(&mut self, connection: &ConnectionRecord, direction: Direction) {
        let counters = &connection.counters;
        let tcp = connection.tcp_client.as_ref();
        let (frames, back, segments, bytes) = match direction {
            Direction::Up => (
                &counters.frames_sent,
                &counters.frames_received,
                tcp.map(|tcp| tcp.segments_out),
                connection.bytes_sent,
            ),
            Direction::Down => (
                &counters.frames_received,
                &counters.frames_sent,
                tcp.map(|tcp| tcp.segments_in),
                connection.bytes_received,
            ),
        };
        self.requests += u64::from(connection.requests);
        self.frames += frames.iter().sum::<u64>();
        self.data += frames[usize::from(FrameKind::DATA.0)];
        self.credits += back[usize::from(FrameKind::WINDOW_UPDATE.0)];
        self.segments += u64::from(segments.unwrap_or(0));
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::Scene;
    use h2lab_model::record::ServerSummary;
    use h2lab_model::workload::Protocol;

    /// The busy end of a cell of `wall` milliseconds, in which the client worked for `client` ms and the server for
    /// `server` ms.
    fn busy(client: u64, server: u64, wall: u64) -> Option<(String, f64)> {
        let mut record = Scene::new(Protocol::H2c).record();
        let ns = |ms: u64| ms * 1_000_000;
        (record.generator.busiest_ns, record.generator.wall_ns) = (ns(client), ns(wall));
        record.server = Some(ServerSummary {
            name: "nginx".to_owned(),
            cpu_ns: ns(server),
            wall_ns: ns(wall),
            ..ServerSummary::default()
        });
        busy_end(&Case::new("h2c", vec![&record], None))
    }

    #[test]
    fn the_busier_end_is_named_from_half_a_cpu_on() {
        assert_eq!(busy(500, 400, 1_000), Some(("our client".to_owned(), 0.5)));
        assert_eq!(busy(500, 700, 1_000), Some(("nginx".to_owned(), 0.7)));
        assert_eq!(busy(499, 499, 1_000), None);
        assert_eq!(busy(499, 499, 499), None, "a start");
    }

    #[test]
    fn frames_and_segments_are_those_of_one_direction() {
        let mut record = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125).record();
        let connection = &mut record.connections[0];
        connection.counters.frames_sent = [5, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0];
        connection.counters.frames_received = [3, 2, 0, 0, 0, 0, 0, 0, 4, 0, 0];
        (connection.bytes_sent, connection.bytes_received) = (50, 60);
        let case = Case::new("h2c", vec![&record], None);
        let up = Sent { requests: 1, frames: 13, data: 5, credits: 4, segments: 0, bytes: 50 };
        assert_eq!(Sent::of(&case, Direction::Up), up);
        let down = Sent { requests: 1, frames: 9, data: 3, credits: 7, segments: 0, bytes: 60 };
        assert_eq!(Sent::of(&case, Direction::Down), down);
        record.cell.protocol = Protocol::H1;
        assert_eq!(Sent::of(&Case::new("h1", vec![&record], None), Direction::Up), Sent::default());
    }
}
