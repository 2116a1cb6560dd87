//! Small records for the tests of rules, built step by step: [`Scene`].

use std::time::Duration;

use h2lab_base::counters::{TcpTick, TlsRecords};
use h2lab_base::text::PeerText;
use h2lab_base::units::Time;
use h2lab_model::record::testing::cell;
use h2lab_model::record::{
    CellRecord, CloseReason, ConnectionRecord, Environment, GeneratorSummary, GoAwayRecord, HttpRecord,
    LinkSummary, Marks, Outcome, PacketFate, PacketRecord, Sample, Samples,
};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};
use h2lab_wire::{Counters, StreamId};

/// Bytes in each segment of a scene.
const SEGMENT: u32 = 1_400;

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

    /// A request that was due and sent at once, and its answer in one frame.
    pub(super) fn request(
        self,
        connection: u32,
        stream: u32,
        sent: u64,
        first_byte: u64,
        completed: u64,
    ) -> Self {
        let mut scene = self.connections(connection + 1);
        let mut sample = Sample::due(Time::from_millis(sent), true);
        sample.connection = connection;
        sample.stream = StreamId(stream);
        sample.sent_at = Time::from_millis(sent);
        sample.first_byte_at = Time::from_millis(first_byte);
        sample.completed_at = Time::from_millis(completed);
        sample.outcome = Outcome::Succeeded;
        sample.status = 200;
        scene.0.samples.push(&sample);
        scene.0.connections[connection as usize].requests += 1;
        scene.frame(connection, stream, completed)
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
