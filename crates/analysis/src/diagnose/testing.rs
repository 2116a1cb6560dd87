//! Small records for the tests of rules, built step by step: [`Scene`]; and what rules say of them.

use std::time::Duration;

use super::facts::ANNOUNCEMENT;
use super::{Finding, client, run};
use h2lab_base::counters::{TcpTick, TlsRecords};
use h2lab_base::text::PeerText;
use h2lab_base::units::Time;
use h2lab_model::record::testing::cell;
use h2lab_model::record::{
    CellRecord, CloseReason, ConnectionRecord, Environment, GeneratorSummary, GoAwayRecord, HttpRecord,
    LinkSummary, Marks, Outcome, PacketFate, PacketRecord, Sample, Samples,
};
use h2lab_model::workload::Protocol;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};
use h2lab_wire::{Counters, StreamId};

/// Bytes in each segment of a scene.
const SEGMENT: u32 = 1_400;

/// The finding of this rule in a repetition, if there is one.
pub(super) fn found(rule: &str, record: CellRecord) -> Option<Finding> {
    run(&[record]).into_iter().find(|finding| finding.rule == rule)
}

/// The same of a client that was alone.
pub(super) fn found_alone(rule: &str, record: CellRecord) -> Option<Finding> {
    let found = client::of_client(Vec::new(), &[record], &client::Client::default());
    found.findings.into_iter().find(|finding| finding.rule == rule)
}

/// Fails, and shows the text, unless it is the expected one, in which `…` stands for any words.
#[track_caller]
pub(super) fn says(text: &str, expected: &str) {
    assert!(fits(text, expected), "{text:?} is not {expected:?}");
}

fn fits(text: &str, expected: &str) -> bool {
    let Some((begin, others)) = expected.split_once('…') else { return text == expected };
    text.strip_prefix(begin).is_some_and(|rest| {
        let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
        ends.any(|at| fits(&rest[at..], others))
    })
}

/// A frame of connection 0: DATA that arrives with so many bytes, or credit for as many that the client returns.
pub(super) fn frame(kind: FrameKind, stream: u32, bytes: u32, at: u64) -> FrameEvent {
    let is_data = kind == FrameKind::DATA;
    FrameEvent {
        at: Time::from_millis(at),
        connection: 0,
        stream: StreamId(stream),
        length: if is_data { bytes } else { 4 },
        value: if is_data { 0 } else { bytes },
        kind,
        flags: 0,
        direction: if is_data { Direction::Down } else { Direction::Up },
    }
}

/// A repetition under construction. Times are milliseconds; the link's round trip is 25 ms and the server answers at once.
#[derive(Debug, Clone)]
pub(super) struct Scene(CellRecord);

impl Scene {
    /// One connection, without traffic.
    pub(super) fn new(protocol: Protocol) -> Self {
        let record = CellRecord {
            cell: cell(0, 0, protocol, 1, 0.0),
            attempt: 0,
            started_at: Time::ZERO,
            samples: Samples::new(),
            tallies: Vec::new(),
            connections: Vec::new(),
            frames: Vec::new(),
            tcp: Vec::new(),
            packets: Vec::new(),
            link: Some(LinkSummary::default()),
            generator: GeneratorSummary::default(),
            server: None,
            sidecar: None,
            bulk: None,
            agents: Vec::new(),
            environment: Environment::default(),
            warnings: Vec::new(),
            unsupported: None,
            machine: None,
        };
        Self(record).connections(1)
    }

    /// The case that LOSS101 is about: streams 1, 3 and 5 of one connection are sent at 100 ms; the segment with the
    /// answers to 3 and 5 is lost, and is retransmitted 30 ms later.
    pub(super) fn with_shared_stall() -> Self {
        Self::new(Protocol::H2c)
            .request(0, 1, 100, 125, 125)
            .request(0, 3, 100, 155, 155)
            .request(0, 5, 100, 155, 155)
            .drop(Direction::Down, 0, 113, 5_000)
            .deliver(Direction::Down, 0, 142, 5_000)
    }

    /// Connections that the server ended by GOAWAY: when each was established, when it ended, and after how many
    /// requests. One more stays.
    pub(super) fn ended(ends: impl IntoIterator<Item = (u64, u64, u32)>) -> Self {
        (0..).zip(ends).fold(Self::new(Protocol::H2), |scene, (n, (begin, end, requests))| {
            let scene = scene.goaway(n, end, 2 * requests - 1, 0).connections(n + 2);
            scene.established(n, begin)
        })
    }

    /// Connections of a server that only announces ends. For each: how many requests were sent, how many of them had
    /// been answered by the end, and the age of the connection. All requests are sent 1 ms before the end.
    pub(super) fn announced(ends: &[(u32, u32, u64)]) -> Self {
        let scene = Self::new(Protocol::H2).connections(ends.len() as u32 + 1);
        (0..).zip(ends).fold(scene, |scene, (n, &(begun, answered, age))| {
            let end = 10_000 * (u64::from(n) + 1);
            let scene = (0..begun).fold(scene, |scene, request| {
                let answered_at = if request < answered { end } else { end + 20 };
                scene.request(n, 2 * request + 1, end - 1, answered_at, answered_at)
            });
            scene.goaway(n, end, ANNOUNCEMENT, 0).established(n, end - age)
        })
    }

    /// Two connections of HTTP/1.1 that the server closes, each `gap` ms after the last of so many requests.
    pub(super) fn closed(gap: u64, requests: [u32; 2]) -> Self {
        (0..).zip(requests).fold(Self::new(Protocol::H1s).connections(2), |scene, (connection, requests)| {
            let sent = |n: u32| 100 + 1_000 * u64::from(connection) + 30 * u64::from(n);
            let scene = (0..requests).fold(scene, |scene, n| {
                scene.request(connection, 2 * n + 1, sent(n), sent(n) + 25, sent(n) + 25)
            });
            scene.closed_by_server(connection, sent(requests - 1) + 25 + gap)
        })
    }

    /// One connection with so many requests, of which one is sent each millisecond from 100 ms on; each is answered after
    /// 25 ms.
    pub(super) fn requests(protocol: Protocol, count: u32) -> Self {
        (0..count).fold(Self::new(protocol), |scene, n| {
            let at = 100 + u64::from(n);
            scene.request(0, 2 * n + 1, at, at + 25, at + 25)
        })
    }

    /// The `first` of the requests so far end in this way instead, with this status (0 if no response begins) and code.
    pub(super) fn failing(mut self, first: usize, outcome: Outcome, status: u16, code: u32) -> Self {
        for sample in self.0.samples.edit().iter_mut().take(first) {
            (sample.outcome, sample.status, sample.code) = (outcome, status, code);
            sample.first_byte_at = if status == 0 { Time::NEVER } else { sample.first_byte_at };
        }
        self
    }

    /// The record of the repetition.
    pub(super) fn record(self) -> CellRecord {
        let Self(mut record) = self;
        record.samples.edit().sort_by_key(|sample| sample.scheduled_at);
        record.frames.sort_by_key(|frame| frame.at);
        record.packets.sort_by_key(|packet| packet.at);
        record
    }

    /// A live network: no link of ours, no packet log.
    pub(super) fn no_link(mut self) -> Self {
        self.0.cell.link = None;
        self.0.link = None;
        self.0.packets.clear();
        self
    }

    /// Opens connections until there are `n`.
    pub(super) fn connections(mut self, n: u32) -> Self {
        for index in self.0.connections.len() as u32..n {
            self.0.connections.push(ConnectionRecord {
                index,
                local_port: port(index),
                remote_port: 80,
                dialled_at: Time::ZERO,
                connected_at: Time::ZERO,
                ready_at: Time::ZERO,
                tls_resumed: None,
                tls_records: TlsRecords::default(),
                closed_at: Time::NEVER,
                closed: CloseReason::Cell,
                goaways: Vec::new(),
                resets_received: Vec::new(),
                highest_stream: StreamId::CONNECTION,
                requests: 0,
                bytes_sent: 0,
                bytes_received: 0,
                counters: Counters::default(),
                server_software: None,
                tcp_client: None,
                tcp_server: None,
                quic_client: None,
                http: HttpRecord::default(),
            });
        }
        self
    }

    /// The server's `server` field, on all connections so far.
    pub(super) fn server_software(mut self, name: &str) -> Self {
        for connection in &mut self.0.connections {
            connection.server_software = Some(name.into());
        }
        self
    }

    /// How many streams the server's SETTINGS allow, on all connections so far; `None` if they set no limit.
    pub(super) fn allows(mut self, streams: Option<u32>) -> Self {
        let limit = streams.map(|streams| (setting::MAX_CONCURRENT_STREAMS, streams));
        for connection in &mut self.0.connections {
            let window = (setting::INITIAL_WINDOW_SIZE, 65_535);
            connection.http.settings_remote = [window].into_iter().chain(limit).collect();
        }
        self
    }

    /// A request that was due and sent at once, and its answer in one frame.
    pub(super) fn request(
        self,
        connection: u32,
        stream: u32,
        sent: u64,
        first_byte: u64,
        completed: u64,
    ) -> Self {
        self.sample(connection, stream, [sent, sent, first_byte, completed])
    }

    /// A request that was due at the first of these times and sent at the second: it waited for a connection or a
    /// stream. Its answer came at the third.
    pub(super) fn waited(self, connection: u32, stream: u32, [due, sent, completed]: [u64; 3]) -> Self {
        self.sample(connection, stream, [due, sent, completed, completed])
    }

    fn sample(self, connection: u32, stream: u32, times: [u64; 4]) -> Self {
        let mut scene = self.connections(connection + 1);
        let [due, sent, first_byte, completed] = times.map(Time::from_millis);
        let mut sample = Sample::due(due, true);
        (sample.connection, sample.stream) = (connection, StreamId(stream));
        (sample.sent_at, sample.first_byte_at, sample.completed_at) = (sent, first_byte, completed);
        sample.stall_open_ns = sent.nanos_since(due);
        (sample.outcome, sample.status) = (Outcome::Succeeded, 200);
        scene.0.samples.push(&sample);
        scene.0.connections[connection as usize].requests += 1;
        scene.frame(connection, stream, times[3])
    }

    /// A frame that arrives.
    pub(super) fn frame(mut self, connection: u32, stream: u32, at: u64) -> Self {
        self.0.frames.push(FrameEvent {
            at: Time::from_millis(at),
            connection,
            stream: StreamId(stream),
            length: 10,
            value: 0,
            kind: FrameKind::HEADERS,
            flags: 5,
            direction: Direction::Down,
        });
        self
    }

    /// A data segment that enters the link at `at` and is delivered.
    pub(super) fn deliver(self, direction: Direction, connection: u32, at: u64, seq: u32) -> Self {
        let out_at = Time::from_millis(at) + Duration::from_micros(12_500);
        self.packet(direction, connection, at, seq, PacketFate::Delivered, out_at)
    }

    /// A data segment that enters the link at `at` and is lost.
    pub(super) fn drop(self, direction: Direction, connection: u32, at: u64, seq: u32) -> Self {
        self.packet(direction, connection, at, seq, PacketFate::Lost, Time::NEVER)
    }

    fn packet(
        mut self,
        direction: Direction,
        connection: u32,
        at: u64,
        seq: u32,
        fate: PacketFate,
        out_at: Time,
    ) -> Self {
        self.0.packets.push(PacketRecord {
            at: Time::from_millis(at),
            out_at,
            index: self.0.packets.len() as u64,
            client_port: port(connection),
            server_port: 80,
            bytes: SEGMENT + 52,
            payload: SEGMENT,
            seq,
            direction,
            fate,
            marks: Marks::default(),
        });
        self
    }

    /// A sample of `TCP_INFO`.
    pub(super) fn tick(mut self, connection: u32, at: u64, retransmits: u32, server: bool) -> Self {
        let at = Time::from_millis(at);
        self.0.tcp.push(TcpTick {
            at,
            connection,
            retransmits,
            cwnd: 10,
            rtt_us: 25_000,
            unacked: 0,
            server,
        });
        self
    }

    /// A GOAWAY that arrives.
    pub(super) fn goaway(self, connection: u32, at: u64, last_stream: u32, code: u32) -> Self {
        let mut scene = self.connections(connection + 1);
        let goaway =
            GoAwayRecord { at: Time::from_millis(at), code, last_stream, debug: PeerText::default() };
        scene.0.connections[connection as usize].goaways.push(goaway);
        scene
    }

    /// When a connection was established and ready, if not at the beginning.
    pub(super) fn established(mut self, connection: u32, at: u64) -> Self {
        let connection = &mut self.0.connections[connection as usize];
        connection.connected_at = Time::from_millis(at);
        connection.ready_at = connection.connected_at;
        self
    }

    /// When a connection was dialled, and when it was ready.
    pub(super) fn dialled(self, connection: u32, at: u64, ready: u64) -> Self {
        let mut scene = self.connections(connection + 1).established(connection, ready);
        scene.0.connections[connection as usize].dialled_at = Time::from_millis(at);
        scene
    }

    /// The server closes a connection.
    pub(super) fn closed_by_server(mut self, connection: u32, at: u64) -> Self {
        let connection = &mut self.0.connections[connection as usize];
        connection.closed = CloseReason::Server;
        connection.closed_at = Time::from_millis(at);
        self
    }
}

/// Our port of a connection.
fn port(connection: u32) -> u16 {
    40_000 + connection as u16
}

#[test]
fn a_text_is_as_expected_if_the_words_around_the_gaps_come_in_order() {
    for expected in ["ab cd", "ab…", "…cd", "…b c…", "…a…d", "…"] {
        assert!(fits("ab cd", expected), "{expected}");
    }
    for expected in ["ab", "cd…", "…ab", "…d…a…", ""] {
        assert!(!fits("ab cd", expected), "{expected}");
    }
}
