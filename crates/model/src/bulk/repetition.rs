//! A repetition of a cell of bulk work as a bulk record: with what the lab records of both ends and of the link.

use std::time::Duration;

use super::{
    BulkParameters, BulkRecord, ConnectionFigures, DigestRecord, PartRecord, ReceiverFigures, SenderFigures,
    TIME_WAS_OVER, TransferDirection, TransferOutcome, TransferRecord,
};
use crate::record::{BulkRepetition, CellRecord, ConnectionRecord, Fault, Outcome, Sample};
use crate::workload::Work;
use h2lab_base::counters::TcpLimits;
use h2lab_base::units::Time;

impl BulkRecord {
    /// What a repetition moved; `None` if its work is not bulk, or it was not made.
    pub fn of_repetition(repetition: &CellRecord) -> Option<Self> {
        let bulk = repetition.bulk.as_ref()?;
        let cell = &repetition.cell;
        let offered = bulk.offered;
        Some(Self {
            h2c_mode: cell.h2c_mode,
            asked: BulkParameters {
                connections: cell.connections,
                streams: cell.streams,
                duration: Some(duration(&cell.work)),
                engine: cell.client,
                max_frame_size: offered.map(|offered| offered.max_frame_size),
                update_bytes: offered.map(|offered| offered.update_bytes),
                congestion: cell.congestion.clone(),
                ..BulkParameters::default()
            },
            transfers: repetition.samples.iter().map(|sample| transfer(&cell.work, &sample)).collect(),
            figures: repetition
                .connections
                .iter()
                .map(|connection| figures(repetition, bulk, connection))
                .collect(),
            connections: repetition.connections.clone(),
            frames: bulk.frames,
            io: bulk.io,
            cpu: Duration::from_nanos(repetition.generator.cpu_ns),
            peer_cpu: repetition.server.as_ref().map(|server| Duration::from_nanos(server.cpu_ns)),
            warnings: repetition.warnings.clone(),
            meter: bulk.meter.clone(),
            ..Self::new(cell.protocol, TransferDirection::Get, bulk.meter.began())
        })
    }
}

/// How long data comes: the warm-up, in which TCP finds its speed, and the measured time.
pub fn duration(work: &Work) -> Duration {
    work.phases.warmup + work.phases.measure
}

/// A response.
fn transfer(work: &Work, sample: &Sample) -> TransferRecord {
    let outcome = match sample.outcome {
        Outcome::Succeeded => TransferOutcome::Complete,
        Outcome::Unfinished => TransferOutcome::Partial { why: TIME_WAS_OVER.to_owned() },
        other => {
            TransferOutcome::Failed { why: other.to_string(), fault: other.fault().unwrap_or(Fault::Sut) }
        }
    };
    TransferRecord {
        url: work.path.clone(),
        file: None,
        direction: TransferDirection::Get,
        bytes: sample.body_bytes,
        held: 0,
        total: None,
        started_at: sample.sent_at,
        first_byte_at: sample.first_byte_at,
        ended_at: sample.completed_at,
        digest: DigestRecord::default(),
        parts: vec![PartRecord {
            connection: sample.connection,
            stream: sample.stream,
            from: 0,
            bytes: sample.body_bytes,
            sent_at: sample.sent_at,
            first_byte_at: sample.first_byte_at,
            ended_at: sample.completed_at,
            // A response still open when the time is over is not broken.
            is_complete: !matches!(outcome, TransferOutcome::Failed { .. }),
        }],
        outcome,
    }
}

/// The figures of a connection: our end is the receiver.
fn figures(
    repetition: &CellRecord,
    bulk: &BulkRepetition,
    connection: &ConnectionRecord,
) -> ConnectionFigures {
    let is_its = |sample: &Sample| sample.connection == connection.index && sample.first_byte_at.happened();
    let (mut from, mut until, mut bytes) = (Time::NEVER, Time::ZERO, 0);
    for sample in repetition.samples.iter().filter(is_its) {
        from = from.min(sample.first_byte_at);
        until = until.max(sample.completed_at);
        bytes += sample.body_bytes;
    }
    let is_beside = |sample: &Sample| {
        sample.connection != connection.index && sample.completed_at > from && sample.first_byte_at < until
    };
    let wall = until.since(from.min(until));
    let micros = |us: u32| (us > 0).then(|| Duration::from_micros(us.into()));
    let (ours, theirs) = (connection.tcp_client.as_ref(), connection.tcp_server.as_ref());
    let quic = connection.quic_client.as_ref();
    // Acknowledgements of data give the sender more round-trip samples than the receiver, which sends next to nothing.
    let min_rtt = theirs.and_then(|end| micros(end.min_rtt_us)).or(connection.min_rtt_us().and_then(micros));
    let generator = &repetition.generator;
    let busiest = generator.busiest_ns.max(generator.cpu_ns / u64::from(generator.threads.max(1)));
    let share = |cpu_ns: u64, wall_ns: u64| wall.mul_f64(cpu_ns as f64 / wall_ns.max(1) as f64);
    let figures = ConnectionFigures {
        connection: connection.index,
        we_send: false,
        wall,
        bytes,
        bytes_beside: repetition.samples.iter().filter(is_beside).map(|sample| sample.body_bytes).sum(),
        streams: repetition.cell.streams,
        min_rtt,
        rtt: theirs.or(ours).map(|end| end.rtt_us).or(quic.map(|end| end.rtt_us)).and_then(micros),
        mean_data: bulk.frames.mean_data().map(|mean| mean.round() as u64),
        bandwidth: repetition.cell.link.as_ref().and_then(|link| link.downlink.bandwidth),
        is_clear: !repetition.cell.protocol.is_tls(),
        server: connection.server_software.clone(),
        sender: SenderFigures {
            send_buffer: bulk.send_buffer.filter(|_| quic.is_none()),
            // Each of our servers uses one thread.
            cpu: repetition.server.as_ref().map(|server| share(server.cpu_ns, server.wall_ns)),
            ..sender(connection)
        },
        receiver: ReceiverFigures {
            stream_window: bulk.offered.map(|offered| offered.stream_window.into()),
            connection_window: bulk.offered.map(|offered| offered.connection_window.into()),
            receive_buffer: bulk.receive_buffer.filter(|_| quic.is_none()),
            disk_wait: None,
            cpu: (generator.wall_ns > 0).then(|| share(busiest, generator.wall_ns)),
        },
    };
    let counters = &connection.counters;
    let sender = SenderFigures {
        blocked_stream_window: figures.of_each(counters.peer_waited_stream_window, figures.streams),
        blocked_connection_window: figures.of_each(counters.peer_waited_connection_window, 1),
        ..figures.sender.clone()
    };
    ConnectionFigures { sender, ..figures }
}

/// What the kernel counted at the server's end, while it sent.
fn sender(connection: &ConnectionRecord) -> SenderFigures {
    let Some(end) = &connection.tcp_server else { return SenderFigures::default() };
    let time =
        |of: fn(&TcpLimits) -> u64| end.limits.as_ref().map(|limits| Duration::from_micros(of(limits)));
    SenderFigures {
        tcp_busy: time(|limits| limits.busy_us),
        tcp_rwnd_limited: time(|limits| limits.rwnd_limited_us),
        tcp_sndbuf_limited: time(|limits| limits.sndbuf_limited_us),
        bytes_acked: (end.bytes_acked > 0).then_some(end.bytes_acked),
        retransmits: Some(end.retransmits.into()),
        cwnd_bytes: (end.segment_bytes > 0).then(|| u64::from(end.cwnd) * u64::from(end.segment_bytes)),
        congestion_control: Some(end.congestion_control.clone()).filter(|name| !name.is_empty()),
        ..SenderFigures::default()
    }
}
