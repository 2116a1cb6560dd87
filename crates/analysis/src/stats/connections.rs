//! The ends and the traffic of a cell's connections, its repetitions pooled.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Latency;
use super::tallied::Tallies;
use h2lab_base::JsonSchema;
use h2lab_base::text::PeerText;
use h2lab_base::units::{Time, measured_time};
use h2lab_model::record::{CellRecord, CloseReason, ConnectionRecord, GoAwayRecord};
use h2lab_wire::ErrorCode;
use serde::{Deserialize, Serialize};

/// GOAWAYs with equal contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GoAwayCount {
    /// The error code (RFC 9113 §7).
    pub code: u32,
    /// The highest stream that was or might be processed.
    pub last_stream_id: u32,
    /// Debug data, made printable.
    pub debug: PeerText,
    /// How many arrived.
    pub count: u64,
}

/// Connections that ended in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Closing {
    /// `goaway`, `server` (an orderly end without a GOAWAY), `reset` (of TCP), `timeout`, `broken`, `ours`, `cell` (the end
    /// of the cell), `not-established`.
    pub reason: String,
    /// The cause in words; for a GOAWAY its code, last stream and debug data.
    pub why: String,
    /// How many.
    pub count: u64,
}

impl Closing {
    /// How `connection` ended. The last GOAWAY counts: a server that shuts down gracefully sends two, and only the
    /// second is final.
    fn of(connection: &ConnectionRecord) -> (&'static str, String) {
        let why = connection.closed.why().unwrap_or_default().to_owned();
        match (&connection.closed, connection.goaways.last()) {
            // A broken connection after a GOAWAY is only the server's way to close it.
            (CloseReason::Server | CloseReason::Broken { .. } | CloseReason::Reset { .. }, Some(goaway)) => {
                ("goaway", words(goaway))
            }
            (CloseReason::Server, None) => ("server", why),
            (CloseReason::Reset { .. }, None) => ("reset", why),
            (CloseReason::Broken { .. }, None) => ("broken", why),
            (CloseReason::TimedOut { .. }, _) => ("timeout", why),
            (CloseReason::Local { .. }, _) => ("ours", why),
            (CloseReason::Cell, _) => ("cell", why),
            (CloseReason::NotEstablished { .. }, _) => ("not-established", why),
        }
    }
}

/// `NO_ERROR, last stream 1999: bye`
fn words(goaway: &GoAwayRecord) -> String {
    let debug = if goaway.debug.is_empty() { String::new() } else { format!(": {}", goaway.debug) };
    format!("{}, last stream {}{debug}", ErrorCode(goaway.code), goaway.last_stream)
}

/// The spread of a number over connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it all")]
pub struct RequestSpread {
    pub min: u32,
    pub p50: u32,
    pub max: u32,
}

impl RequestSpread {
    /// `None` if empty.
    fn of(mut counts: Vec<u32>) -> Option<Self> {
        counts.sort_unstable();
        let (min, max) = (*counts.first()?, *counts.last()?);
        Some(Self { min, p50: counts[(counts.len() - 1) / 2], max })
    }
}

/// How long measured requests waited, in total, by what they waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stalls {
    /// A connection or a stream slot.
    pub open: Duration,
    /// A flow-control window, of the stream or of the connection.
    pub window: Duration,
    /// Room in the socket.
    pub socket: Duration,
}

/// TLS handshakes that were completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TlsHandshakes {
    /// All of them.
    pub all: u64,
    /// Those that resumed the session of an earlier connection: they saved a certificate and a signature.
    pub resumed: u64,
}

impl TlsHandshakes {
    /// `None` if there was none.
    fn of<'a>(connections: impl Iterator<Item = &'a ConnectionRecord>) -> Option<Self> {
        let ended = connections.filter_map(|connection| connection.tls_resumed);
        ended.fold(None, |so_far: Option<Self>, resumed| {
            let Self { all, resumed: before } = so_far.unwrap_or_default();
            Some(Self { all: all + 1, resumed: before + u64::from(resumed) })
        })
    }
}

/// `RST_STREAM`s with the same code and sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResetCount {
    /// The error code (RFC 9113 §7).
    pub code: u32,
    /// Who sent it: `remote`, or `local`, which is our end.
    pub initiator: String,
    /// How many.
    pub count: u64,
}

/// Responses that the server pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PushCounts {
    /// Accepted.
    pub accepted: u64,
    /// Refused with `RST_STREAM`.
    pub refused: u64,
}

/// Bytes in clear, warm-up included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ByteCounts {
    /// Passed to the transport.
    pub sent: u64,
    /// Received from the transport.
    pub received: u64,
    /// Header bytes as sent: HPACK field blocks, QPACK field sections, or heads as text.
    pub headers_sent: u64,
    /// Header bytes as received.
    pub headers_received: u64,
    /// What the header fields sent would take as HTTP/1.1 text.
    pub headers_plain: u64,
}

/// Connections of a cell and what crossed them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConnectionTotals {
    /// Established connections.
    pub opened: u64,
    /// Failed dials.
    pub not_established: u64,
    /// Established connections that never carried a request.
    pub useless_dials: u64,
    /// How and why connections ended, the most frequent first.
    pub closed: Vec<Closing>,
    /// Time in which no connection could take a request, from the first request due to the end of the measured time.
    pub without_any: Duration,
    /// Requests begun on them, including the warm-up.
    pub requests: u64,
    /// Requests on each connection that carried any; `None` if none did.
    pub per_connection: Option<RequestSpread>,
    /// How long requests waited.
    pub stalls: Stalls,
    /// From dialling to ready: TCP, TLS and HTTP/2 preface.
    pub handshakes: Latency,
    /// TLS handshakes that were completed, and how many of them resumed an earlier session; `None` in clear.
    pub tls: Option<TlsHandshakes>,
    /// GOAWAYs received.
    pub goaways: Vec<GoAwayCount>,
    /// `RST_STREAM`s, those received first.
    pub resets: Vec<ResetCount>,
    /// Responses that the server pushed.
    pub pushes: PushCounts,
    /// Interim responses: (status, count).
    pub interim: Vec<(u16, u64)>,
    /// Our settings in effect, (identifier, value): those of the first connection that had any.
    pub settings_local: Vec<(u16, u32)>,
    /// The server's settings, likewise.
    pub settings_remote: Vec<(u16, u32)>,
    /// Bytes in clear.
    pub bytes: ByteCounts,
    /// Frames sent, by the number of their type; the last slot is for all unknown types.
    pub frames_sent: [u64; 11],
    /// Frames received, likewise.
    pub frames_received: [u64; 11],
}

impl ConnectionTotals {
    /// The totals of all connections of these repetitions, whose requests are counted in `tallies`.
    pub(super) fn of(repetitions: &[&CellRecord], tallies: &Tallies<'_>) -> Self {
        let mut totals = Self::default();
        let connections = || repetitions.iter().flat_map(|repetition| &repetition.connections);
        for connection in connections() {
            totals.add_life(connection);
            totals.add_bytes(connection);
            totals.add_settings(connection);
        }
        let handshakes = connections().filter(|connection| connection.ready_at.happened());
        totals.handshakes =
            Latency::new(handshakes.map(|connection| connection.ready_at.since(connection.dialled_at)));
        totals.tls = TlsHandshakes::of(connections());
        totals.per_connection = RequestSpread::of(
            connections().map(|connection| connection.requests).filter(|&n| n > 0).collect(),
        );
        totals.closed = closings(connections());
        totals.goaways = goaways(connections());
        let received = sums(connections().flat_map(|connection| &connection.resets_received));
        let sent = sums(connections().flat_map(|connection| &connection.http.resets_sent));
        for (resets, initiator) in [(received, "remote"), (sent, "local")] {
            let count = |(code, count)| ResetCount { code, initiator: initiator.to_owned(), count };
            totals.resets.extend(resets.into_iter().map(count));
        }
        totals.interim = sums(connections().flat_map(|connection| &connection.http.interim));
        totals.without_any = repetitions.iter().map(|repetition| without_any(repetition)).sum();
        for tally in tallies.measured() {
            totals.stalls.open += Duration::from_nanos(tally.counts.stall_open_ns);
            totals.stalls.window += Duration::from_nanos(tally.counts.stall_window_ns);
            totals.stalls.socket += Duration::from_nanos(tally.counts.stall_socket_ns);
        }
        totals
    }

    /// Header bytes that HPACK saved; 0 in HTTP/1.1, where the request line is added to the fields.
    pub const fn header_bytes_saved(&self) -> u64 {
        self.bytes.headers_plain.saturating_sub(self.bytes.headers_sent)
    }

    fn add_life(&mut self, connection: &ConnectionRecord) {
        if connection.connected_at.happened() {
            self.opened += 1;
        } else {
            self.not_established += 1;
        }
        self.useless_dials += u64::from(connection.is_useless_dial());
        self.requests += u64::from(connection.requests);
        self.pushes.accepted += u64::from(connection.http.pushes_accepted);
        self.pushes.refused += u64::from(connection.http.pushes_refused);
    }

    fn add_bytes(&mut self, connection: &ConnectionRecord) {
        let counters = &connection.counters;
        self.bytes.sent += connection.bytes_sent;
        self.bytes.received += connection.bytes_received;
        self.bytes.headers_sent += counters.headers_sent;
        self.bytes.headers_received += counters.headers_received;
        self.bytes.headers_plain += counters.headers_plain;
        for (total, n) in self.frames_sent.iter_mut().zip(counters.frames_sent) {
            *total += n;
        }
        for (total, n) in self.frames_received.iter_mut().zip(counters.frames_received) {
            *total += n;
        }
    }

    fn add_settings(&mut self, connection: &ConnectionRecord) {
        let http = &connection.http;
        for (known, more) in [
            (&mut self.settings_local, &http.settings_local),
            (&mut self.settings_remote, &http.settings_remote),
        ] {
            if known.is_empty() {
                known.clone_from(more);
            }
        }
    }
}

/// The sum of the counts of each key, by key.
fn sums<'a, K: Ord + Copy + 'a>(counts: impl Iterator<Item = &'a (K, u32)>) -> Vec<(K, u64)> {
    let mut sums = BTreeMap::new();
    for &(key, count) in counts {
        *sums.entry(key).or_insert(0) += u64::from(count);
    }
    sums.into_iter().collect()
}

fn closings<'a>(connections: impl Iterator<Item = &'a ConnectionRecord>) -> Vec<Closing> {
    let mut counts: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
    for connection in connections {
        *counts.entry(Closing::of(connection)).or_insert(0) += 1;
    }
    let mut closings: Vec<Closing> = counts
        .into_iter()
        .map(|((reason, why), count)| Closing { reason: reason.to_owned(), why, count })
        .collect();
    closings.sort_by_key(|closing| std::cmp::Reverse(closing.count));
    closings
}

fn goaways<'a>(connections: impl Iterator<Item = &'a ConnectionRecord>) -> Vec<GoAwayCount> {
    let mut counts: BTreeMap<(u32, u32, &PeerText), u64> = BTreeMap::new();
    for goaway in connections.flat_map(|connection| &connection.goaways) {
        *counts.entry((goaway.code, goaway.last_stream, &goaway.debug)).or_insert(0) += 1;
    }
    let count = |((code, last_stream_id, debug), count): ((u32, u32, &PeerText), u64)| GoAwayCount {
        code,
        last_stream_id,
        debug: debug.clone(),
        count,
    };
    counts.into_iter().map(count).collect()
}

/// From the first request due to the end of the measured time.
fn measured(repetition: &CellRecord) -> (Time, Time) {
    let from = repetition.started_at;
    let wall = Duration::from_nanos(repetition.generator.wall_ns);
    (from, repetition.cell.work.phases.measure_until(from).min(from + wall))
}

/// A server counts as permanently gone only if it cannot be reached for this long before the end, or for [`GONE_SHARE`]
/// of the time.
const GONE: Duration = Duration::from_millis(100);
/// See [`GONE`].
const GONE_SHARE: f64 = 0.05;

/// Whether, and why, a server could no longer be reached from some time to the end: there were connections, then dials
/// failed. A dial that had not failed by the end proves nothing: the path may be long.
pub(super) fn unreachable(repetition: &CellRecord) -> Option<String> {
    let (from, until) = measured(repetition);
    let established = repetition.connections.iter().filter(|connection| connection.ready_at.happened());
    let last = established.map(|connection| connection.usable_until().min(until)).max()?;
    let failed = |connection: &&ConnectionRecord| {
        connection.dialled_at >= last
            && connection.closed_at <= until
            && matches!(connection.closed, CloseReason::NotEstablished { .. })
    };
    // The first attempt may have coincided with the server's end, and describes that; the last attempts describe the
    // state since then.
    let attempts =
        repetition.connections.iter().filter(failed).filter(|connection| connection.closed.why().is_some());
    let why = attempts.max_by_key(|connection| connection.dialled_at)?.closed.why()?;
    let gone = until.since(last);
    (gone >= GONE.max(until.since(from).mul_f64(GONE_SHARE))).then(|| {
        format!(
            "no connection succeeded from {} after the first request until the end, for {}: {why}",
            measured_time(last.since(from)),
            measured_time(gone)
        )
    })
}

/// Time of a repetition, from the first request due to the end of the measured time, in which no connection could take
/// a request.
fn without_any(repetition: &CellRecord) -> Duration {
    let (from, until) = measured(repetition);
    let lives = repetition.connections.iter().filter(|connection| connection.ready_at.happened());
    let mut lives: Vec<(Time, Time)> =
        lives.map(|connection| (connection.ready_at, connection.usable_until())).collect();
    lives.sort_unstable();
    let (mut covered, mut gaps) = (from, Duration::ZERO);
    for (begin, end) in lives {
        gaps += begin.min(until).since(covered);
        covered = covered.max(end.min(until));
    }
    gaps + until.since(covered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::HttpRecord;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::workload::Protocol;
    use h2lab_wire::h2::setting;

    /// A repetition with four connections: 10 ms to the first request, half a second of warm-up and 3 s of measured
    /// time.
    fn four() -> CellRecord {
        one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN)
    }

    fn goaway(last_stream: u32, at: Time) -> GoAwayRecord {
        GoAwayRecord { at, code: 0, last_stream, debug: PeerText::default() }
    }

    #[test]
    fn equal_goaways_are_counted_together() {
        let mut record = four();
        for (connection, last_stream) in record.connections.iter_mut().zip([1999, 1999, 1999, 7]) {
            connection.goaways.push(goaway(last_stream, Time::ZERO));
        }
        let totals = ConnectionTotals::of(&[&record], &Tallies::of(&[&record]));
        let counts: Vec<_> = totals.goaways.iter().map(|g| (g.last_stream_id, g.count)).collect();
        assert_eq!(counts, [(7, 1), (1999, 3)]);
    }

    #[test]
    fn connections_are_counted_by_what_ended_them_the_most_frequent_first() {
        let mut record = four();
        let ends = [
            (CloseReason::Server, true),
            (CloseReason::Reset { why: "reset by peer".to_owned() }, true),
            (CloseReason::Reset { why: "reset by peer".to_owned() }, false),
            (CloseReason::Local { why: "enough".to_owned() }, true),
        ];
        for (connection, (closed, said)) in record.connections.iter_mut().zip(ends) {
            connection.closed = closed;
            connection.goaways.extend(said.then(|| goaway(1999, Time::ZERO)));
        }
        let totals = ConnectionTotals::of(&[&record], &Tallies::of(&[&record]));
        let closed: Vec<_> = totals.closed.iter().map(|c| (&*c.reason, &*c.why, c.count)).collect();
        assert_eq!(
            closed,
            [
                ("goaway", "NO_ERROR, last stream 1999", 2),
                ("ours", "enough", 1),
                ("reset", "reset by peer", 1)
            ]
        );
    }

    #[test]
    fn a_connection_without_a_request_is_a_useless_dial_if_it_was_ready() {
        let mut record = four();
        record.connections[0].requests = 0;
        record.connections[1].requests = 0;
        record.connections[1].ready_at = Time::NEVER;
        (record.connections[2].requests, record.connections[3].requests) = (7, 9);
        let totals = ConnectionTotals::of(&[&record], &Tallies::of(&[&record]));
        assert_eq!(totals.useless_dials, 1);
        assert_eq!(totals.per_connection, Some(RequestSpread { min: 7, p50: 7, max: 9 }));
    }

    #[test]
    fn the_time_without_a_usable_connection_is_what_no_life_covers() {
        let mut record = four();
        let at = |ms| record.started_at + Duration::from_millis(ms);
        let end = at(3_500);
        // 100 ms to 1 s, 900 ms to 2 s, 2.5 s until a GOAWAY at 3 s, and one that was never ready.
        let lives =
            [(at(100), at(1_000)), (at(900), at(2_000)), (at(2_500), Time::NEVER), (Time::NEVER, at(9_000))];
        let heard = goaway(1, at(3_000));
        for (connection, (ready, closed)) in record.connections.iter_mut().zip(lives) {
            (connection.ready_at, connection.closed_at) = (ready, closed);
        }
        record.connections[2].goaways = vec![heard];
        assert_eq!(without_any(&record), Duration::from_millis(100 + 500 + 500));
        record.connections[2].goaways.clear();
        assert_eq!(without_any(&record), Duration::from_millis(600), "it lives on beyond {end:?}");
    }

    #[test]
    fn a_server_is_gone_if_no_dial_succeeds_from_some_time_to_the_end() {
        let mut record = four();
        let at = |ms| record.started_at + Duration::from_millis(ms);
        let (early, ended, late) = (at(500), at(1_200), at(3_450));
        for connection in &mut record.connections {
            connection.closed_at = ended;
            connection.closed = CloseReason::Reset { why: "reset by peer".to_owned() };
        }
        assert_eq!(unreachable(&record), None, "nobody tried to connect again");
        let mut dial = record.connections[0].clone();
        (dial.dialled_at, dial.ready_at) = (early, Time::NEVER);
        dial.closed = CloseReason::NotEstablished { why: "connection refused".to_owned() };
        record.connections.push(dial);
        assert_eq!(unreachable(&record), None, "what failed before says nothing of the end");
        (record.connections[4].dialled_at, record.connections[4].closed_at) = (ended, at(3_600));
        assert_eq!(unreachable(&record), None, "it may have succeeded later");
        record.connections[4].closed_at = ended;
        assert_eq!(
            unreachable(&record).unwrap(),
            "no connection succeeded from 1.20 s after the first request until the end, for 2.30 s: connection refused"
        );
        let mut first = record.connections[4].clone();
        first.closed = CloseReason::NotEstablished { why: "reset before it responds".to_owned() };
        record.connections[4].dialled_at = at(1_300);
        record.connections.insert(4, first);
        assert!(
            unreachable(&record).unwrap().ends_with(": connection refused"),
            "the last attempt says what is so now"
        );
        record.connections[0].closed_at = late;
        assert_eq!(unreachable(&record), None, "the last 50 ms of 3.5 s");
        for connection in &mut record.connections[..4] {
            connection.ready_at = Time::NEVER;
        }
        assert_eq!(unreachable(&record), None, "it was never there");
    }

    #[test]
    fn what_http_did_beside_requests_is_added_up() {
        let mut record = four();
        for connection in &mut record.connections[..2] {
            connection.http = HttpRecord {
                resets_sent: vec![(8, 3)],
                pushes_accepted: 1,
                pushes_refused: 2,
                interim: vec![(103, 5), (100, 1)],
                settings_local: vec![(setting::ENABLE_PUSH, 0)],
                ..HttpRecord::default()
            };
        }
        record.connections[3].http.settings_remote = vec![(setting::MAX_CONCURRENT_STREAMS, 128)];
        record.samples.edit()[999].replays = 2;
        record.samples.edit()[999].stall_open_ns = 1_000;
        let totals = ConnectionTotals::of(&[&record], &Tallies::of(&[&record]));
        let resets = vec![ResetCount { code: 8, initiator: "local".to_owned(), count: 6 }];
        let pushes = PushCounts { accepted: 2, refused: 4 };
        assert_eq!((totals.resets, totals.pushes), (resets, pushes));
        assert_eq!(totals.interim, [(100, 2), (103, 10)]);
        assert_eq!(
            (totals.settings_local, totals.settings_remote),
            (vec![(setting::ENABLE_PUSH, 0)], vec![(setting::MAX_CONCURRENT_STREAMS, 128)])
        );
        let replayed = crate::stats::analyse(&run(vec![record])).cells[0].requests.replayed;
        assert_eq!((replayed, totals.stalls.open), (2, Duration::from_micros(1)));
    }
}
