//! A bulk transfer as records have it, for tests of summaries and reports.

use std::time::Duration;

use super::{
    BulkParameters, BulkRecord, ByteMeter, ConnectionFigures, DigestRecord, FrameFigures, IoFigures,
    PartRecord, ReceiverFigures, SenderFigures, TransferDirection, TransferOutcome, TransferRecord,
};
use crate::record::testing::{Model, cell, one_repetition};
use crate::record::{BulkRepetition, CellRecord, Fault, Offered, Sample, Samples};
use crate::workload::{Arrival, EngineSettings, Phases, Protocol};
use h2lab_base::counters::{TcpLimits, TcpSummary};
use h2lab_base::units::{Bandwidth, Time};
use h2lab_transfer::{Algorithm, Checksum};
use h2lab_wire::StreamId;

/// Bytes of a part.
pub const PART: u64 = 16 << 20;

/// The sender's end of a connection over 250 ms whose send buffer of 4 MiB is the limit: 134 Mbit/s for a minute.
pub fn small_buffer() -> ConnectionFigures {
    let wall = Duration::from_secs(60);
    ConnectionFigures {
        connection: 0,
        we_send: false,
        wall,
        bytes: 1_006_632_960,
        bytes_beside: 0,
        streams: 1,
        min_rtt: Some(Duration::from_millis(250)),
        rtt: Some(Duration::from_micros(250_400)),
        mean_data: None,
        is_clear: false,
        bandwidth: None,
        server: None,
        sender: SenderFigures {
            blocked_stream_window: Some(Duration::ZERO),
            blocked_connection_window: Some(Duration::ZERO),
            tcp_busy: Some(wall),
            tcp_rwnd_limited: Some(Duration::ZERO),
            tcp_sndbuf_limited: Some(wall.mul_f64(0.97)),
            bytes_acked: Some(1_006_632_960),
            retransmits: Some(0),
            cwnd_bytes: Some(8 << 20),
            congestion_control: Some("cubic".to_owned()),
            send_buffer: Some(4 << 20),
            disk_wait: Some(Duration::ZERO),
            cpu: Some(Duration::from_secs(1)),
        },
        receiver: ReceiverFigures {
            stream_window: Some(64 << 20),
            connection_window: Some(64 << 20),
            receive_buffer: Some(128 << 20),
            disk_wait: Some(Duration::ZERO),
            cpu: Some(Duration::from_secs(2)),
        },
    }
}

/// A repetition of a cell of bulk work over 250 ms of 1 Gbit/s, limited nine tenths of the time by a send buffer of 4 MiB: 1 s of
/// warm-up at 10 Mbit/s, and 2 s at `rate`, one response on one connection.
pub fn bulk_repetition(protocol: Protocol, rate: f64) -> CellRecord {
    let mut cell = cell(0, 0, protocol, 1, 0.0);
    let work = &mut cell.work;
    (work.method, work.path, work.bulk) = ("GET".to_owned(), "/bytes/1000G".to_owned(), true);
    work.arrival = Arrival::Closed { concurrency: 1 };
    let (warmup, measure) = (Duration::from_secs(1), Duration::from_secs(2));
    work.phases = Phases { warmup, measure, drain: Duration::ZERO };
    let link = cell.link.as_mut().expect("it has one");
    for impairment in [&mut link.uplink, &mut link.downlink] {
        impairment.delay = Duration::from_millis(125);
        impairment.bandwidth = Bandwidth::from_bits_per_second(1_000_000_000);
    }
    (cell.streams, cell.max_connections) = (1, 1);
    let mut record = one_repetition(&cell, 0, &Model::CLEAN);
    let began = Time::from_millis(1000);
    let mut meter = ByteMeter::new(began);
    for tick in 0..30_u64 {
        let rate = if tick < 10 { 10e6 } else { rate };
        meter.add(began + Duration::from_millis(100 * tick + 50), (rate / 80.0) as u64);
    }
    let end = began + Duration::from_secs(3);
    meter.add(end, 1);
    record.connections.truncate(1);
    record.connections[0].tcp_server = Some(TcpSummary {
        min_rtt_us: 250_000,
        rtt_us: 250_400,
        cwnd: 8000,
        segment_bytes: 1448,
        congestion_control: "cubic".to_owned(),
        limits: Some(TcpLimits { busy_us: 3_000_000, rwnd_limited_us: 0, sndbuf_limited_us: 2_700_000 }),
        ..TcpSummary::default()
    });
    record.samples = Samples::from_iter([Sample {
        connection: record.connections[0].index,
        sent_at: began,
        first_byte_at: began,
        completed_at: end,
        body_bytes: meter.total(),
        ..Sample::due(began, true)
    }]);
    let is_framed = protocol.is_multiplexed();
    record.bulk = Some(BulkRepetition {
        frames: FrameFigures {
            data: if is_framed { meter.total().div_ceil(16_384) } else { 0 },
            data_bytes: if is_framed { meter.total() } else { 0 },
            largest_data: if is_framed { 16_384 } else { 0 },
            updates: 0,
            update_bytes: 0,
        },
        meter,
        io: IoFigures { socket_reads: Some(700), largest_buffer: 65_536, ..IoFigures::default() },
        offered: is_framed.then_some(Offered {
            stream_window: 1 << 30,
            connection_window: 1 << 30,
            max_frame_size: 65_536,
            update_bytes: 1 << 29,
        }),
        receive_buffer: Some(32 << 20),
        send_buffer: Some(4 << 20),
    });
    record.started_at = began;
    (record.frames, record.packets) = (Vec::new(), Vec::new());
    record
}

/// A part that took from `sent` to `ended`, in milliseconds.
pub fn part(connection: u32, n: u64, bytes: u64, sent: u64, ended: u64) -> PartRecord {
    PartRecord {
        connection,
        stream: StreamId::of_request(n as u32),
        from: n * PART,
        bytes,
        sent_at: Time::from_millis(sent),
        first_byte_at: Time::from_millis(sent + 250),
        ended_at: Time::from_millis(ended),
        is_complete: bytes == PART,
    }
}

fn transfer(n: u32, parts: Vec<PartRecord>, total: u64, outcome: TransferOutcome) -> TransferRecord {
    let computed = (outcome == TransferOutcome::Complete).then(|| Checksum::crc32c(0xe306_9283));
    TransferRecord {
        url: format!("http://10.9.0.2:8080/files/{n}"),
        file: Some(format!("{n}")),
        direction: TransferDirection::Get,
        bytes: parts.iter().map(|part| part.bytes).sum(),
        held: 0,
        total: Some(total),
        outcome,
        started_at: parts.iter().map(|part| part.sent_at).min().unwrap_or(Time::NEVER),
        first_byte_at: parts.iter().map(|part| part.first_byte_at).min().unwrap_or(Time::NEVER),
        ended_at: parts.iter().map(|part| part.ended_at).max().unwrap_or(Time::NEVER),
        digest: DigestRecord::new(Algorithm::Crc32c, computed.clone(), computed),
        parts,
    }
}

/// Three files over h2c and two connections: one arrives, one breaks in the middle and is resumed until its server vanishes, one
/// is cut off when the time is over. 5 s in all.
pub fn record() -> BulkRecord {
    let began = Time::from_millis(0);
    let mut record = BulkRecord::new(Protocol::H2c, TransferDirection::Get, began);
    record.transfers = vec![
        transfer(
            0,
            vec![part(0, 0, PART, 0, 2000), part(1, 1, PART, 0, 4000)],
            2 * PART,
            TransferOutcome::Complete,
        ),
        transfer(
            1,
            vec![part(0, 0, PART, 1000, 3000), part(0, 1, PART / 2, 2000, 4000), part(1, 1, 0, 4000, 5000)],
            8 * PART,
            TransferOutcome::Failed { why: "the server vanished".to_owned(), fault: Fault::Sut },
        ),
        transfer(
            2,
            vec![part(1, 0, PART / 4, 3000, 5000)],
            PART,
            TransferOutcome::Partial { why: "the time was over".to_owned() },
        ),
    ];
    record.meter = ByteMeter::new(began);
    for part in record.transfers.iter().flat_map(|transfer| &transfer.parts) {
        // Evenly, in sixteenths; the last one arrives at the end.
        let step = part.ended_at.since(part.first_byte_at) / 16;
        (0..16).for_each(|n| record.meter.add(part.ended_at - step * n, part.bytes / 16));
    }
    let of = |connection, bytes| ConnectionFigures {
        connection,
        bytes,
        wall: Duration::from_secs(5),
        ..small_buffer()
    };
    record.figures = vec![of(0, PART * 5 / 2), of(1, PART * 5 / 4)];
    for figures in &mut record.figures {
        figures.sender.tcp_sndbuf_limited = Some(Duration::from_secs(4));
        figures.sender.tcp_busy = Some(Duration::from_secs(5));
        figures.sender.retransmits = Some(7);
        // Of at most 2 MiB in flight it was full.
        figures.sender.cwnd_bytes = Some(1 << 20);
    }
    record.connections = one_repetition(&cell(0, 0, Protocol::H2c, 2, 0.0), 0, &Model::CLEAN).connections;
    record.asked = BulkParameters {
        connections: 2,
        streams: 2,
        part_bytes: Some(PART),
        engine: EngineSettings { max_frame_size: Some(1 << 20), ..EngineSettings::default() },
        max_frame_size: Some(1 << 20),
        update_bytes: Some(1 << 20),
        ..BulkParameters::default()
    };
    record.frames = FrameFigures {
        data: 1920,
        data_bytes: PART * 15 / 4,
        largest_data: 32_768,
        updates: 120,
        update_bytes: PART * 15 / 2,
    };
    record.io = IoFigures {
        socket_reads: Some(4000),
        socket_writes: Some(130),
        file_reads: 0,
        file_writes: 300,
        largest_buffer: 262_144,
    };
    record.cpu = Duration::from_millis(12);
    record.peer_cpu = Some(Duration::from_millis(9));
    "0.1.0".clone_into(&mut record.version);
    "2026-01-31T12:00:00Z".clone_into(&mut record.started);
    record.command = ["h2lab", "bulk", "get", "http://10.9.0.2:8080/files/0"].map(str::to_owned).to_vec();
    "Linux 6.12.0 x86_64, 4 CPUs".clone_into(&mut record.machine);
    record
}
