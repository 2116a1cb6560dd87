//! The record of a run: its [`BulkRecord`].

use std::time::Duration;

use h2lab_base::counters::{TcpLimits, TcpSummary};
use h2lab_base::units::Time;
use h2lab_model::bulk::{
    BulkParameters, BulkRecord, ConnectionFigures, IoFigures, Overflow, PartRecord, ReceiverFigures,
    SenderFigures, TransferDirection, TransferRecord,
};
use h2lab_model::record::ConnectionRecord;
use h2lab_model::workload::H2cMode;
use h2lab_wire::Config;
use h2lab_wire::h2::setting as setting_id;

use super::driver::BulkResult;
use super::fetch::Fetch;
use super::job::{CpuTime, Job};
use h2lab_net::tcp::largest_buffers;

/// The record of what was done by a `job` whose engines were configured with `config`.
pub(super) fn of(job: &Job<'_>, config: &Config, done: &BulkResult, cpu: CpuTime) -> BulkRecord {
    let (over, overflow) = done.transfers.complete();
    let open = done.transfers.fetches().iter().filter(|fetch| !fetch.is_put_away);
    let mut transfers: Vec<TransferRecord> =
        over.iter().cloned().chain(open.clone().map(Fetch::record)).collect();
    if !over.is_empty() {
        transfers.sort_by_key(|transfer| transfer.started_at);
    }
    let multiplexed = job.protocol.is_multiplexed();
    let (is_h2, counts_calls) = (multiplexed && !job.protocol.is_quic(), !job.protocol.is_quic());
    let is_get = job.options.direction == TransferDirection::Get;
    let mean_data = done.transfers.frames().mean_data().map(|mean| mean.round() as u64);
    BulkRecord {
        h2c_mode: if job.upgrade { H2cMode::Upgrade } else { H2cMode::PriorKnowledge },
        asked: BulkParameters {
            connections: job.connections,
            streams: job.streams,
            part_bytes: open.clone().filter_map(|fetch| fetch.part_bytes).max(),
            duration: job.duration,
            engine: job.settings,
            max_frame_size: largest_frame(job.options.direction, config, done).filter(|_| is_h2),
            // We do not know when a server returns credit.
            update_bytes: (is_h2 && is_get).then_some(credit_after(config)),
            congestion: job.congestion.clone(),
            ..BulkParameters::default()
        },
        figures: done
            .records
            .iter()
            .map(|record| {
                let mut carried = carried(record, &transfers, overflow, cpu);
                if !overflow.connections.is_empty() {
                    carried.0.streams = done.transfers.at_a_time(record.index);
                }
                let figures = match job.options.direction {
                    TransferDirection::Get => received(carried, record, config, multiplexed),
                    TransferDirection::Put => sent(carried, record, multiplexed),
                };
                with_disk(ConnectionFigures { mean_data, is_clear: !job.protocol.is_tls(), ..figures }, done)
            })
            .collect(),
        transfers,
        overflow: overflow.clone(),
        connections: done.records.clone(),
        meter: done.meter.clone(),
        frames: done.transfers.frames(),
        io: IoFigures {
            socket_reads: counts_calls.then_some(done.calls.0),
            socket_writes: counts_calls.then_some(done.calls.1),
            ..done.transfers.io()
        },
        cpu: cpu.process,
        interrupted: done.interrupted,
        paused: done.paused,
        warnings: open
            .filter_map(|fetch| fetch.doubt().map(str::to_owned))
            .chain(pause(done.paused, done.meter.elapsed()))
            .collect(),
        ..BulkRecord::new(job.protocol, job.options.direction, done.meter.began())
    }
}

/// The doubt that this end did not run for `paused` of `all`, if that is more than 1 %.
fn pause(paused: Duration, all: Duration) -> Option<String> {
    (paused.as_secs_f64() > 0.01 * all.as_secs_f64()).then(|| {
        format!(
            "h2lab did not run for {paused:.1?} of {all:.1?}: it, or its machine, was stopped; the rate may not reflect the server"
        )
    })
}

/// Bytes of a stream window after which an engine configured with `config` returns credit.
pub fn credit_after(config: &Config) -> u32 {
    let window = config.flow.stream_window;
    let share = u64::from(window) * u64::from(config.flow.update_threshold_percent) / 100;
    config.flow.update_bytes.map_or(share as u32, |bytes| bytes.min(window))
}

/// The largest frame that the receiving end accepts; the smallest of those if connections lead to several servers.
/// `None` if no server declared it.
fn largest_frame(direction: TransferDirection, config: &Config, done: &BulkResult) -> Option<u32> {
    match direction {
        TransferDirection::Get => Some(config.max_frame_size),
        TransferDirection::Put => {
            done.records.iter().filter_map(|record| setting(record, setting_id::MAX_FRAME_SIZE)).min()
        }
    }
}

/// The window of a peer that announces none (RFC 9113 §6.9.2).
const DEFAULT_WINDOW: u32 = 65_535;

/// What the server announced for a setting.
fn setting(record: &ConnectionRecord, name: u16) -> Option<u32> {
    record.http.settings_remote.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// What a connection carried, and when, in either direction.
fn carried(
    record: &ConnectionRecord,
    transfers: &[TransferRecord],
    overflow: &Overflow,
    cpu: CpuTime,
) -> (ConnectionFigures, Duration) {
    let parts = || transfers.iter().flat_map(|transfer| &transfer.parts);
    let is_ours = |part: &&PartRecord| part.connection == record.index && part.first_byte_at.happened();
    let (mut from, mut until, mut bytes) = (Time::NEVER, Time::ZERO, 0);
    for part in parts().filter(is_ours) {
        from = from.min(part.first_byte_at);
        until = until.max(part.ended_at);
        bytes += part.bytes;
    }
    if let Some(share) = overflow.connections.get(&record.index) {
        (from, until, bytes) = (from.min(share.from), until.max(share.until), bytes + share.bytes);
    }
    let of_others =
        |part: &&PartRecord| part.connection != record.index && part.ended_at > from && part.sent_at < until;
    let beside = overflow
        .connections
        .iter()
        .filter(|(index, share)| **index != record.index && share.until > from && share.from < until);
    let wall = until.since(from.min(until));
    let micros = |us: u32| (us > 0).then(|| Duration::from_micros(us.into()));
    let (tcp, quic) = (record.tcp_client.as_ref(), record.quic_client.as_ref());
    let figures = ConnectionFigures {
        connection: record.index,
        wall,
        bytes,
        bytes_beside: parts().filter(of_others).map(|part| part.bytes).sum::<u64>()
            + beside.map(|(_, share)| share.bytes).sum::<u64>(),
        streams: streams_at_a_time(parts().filter(is_ours)),
        min_rtt: record.min_rtt_us().and_then(micros),
        rtt: tcp.map(|end| end.rtt_us).or(quic.map(|end| end.rtt_us)).and_then(micros),
        server: record.server_software.clone(),
        ..ConnectionFigures::default()
    };
    (figures, cpu.of(wall))
}

/// A connection that carried data to us. All that we can observe of the server's end is when our windows stopped it.
fn received(
    (figures, cpu): (ConnectionFigures, Duration),
    record: &ConnectionRecord,
    config: &Config,
    multiplexed: bool,
) -> ConnectionFigures {
    let receiver = ReceiverFigures {
        stream_window: multiplexed.then_some(config.flow.stream_window.into()),
        connection_window: multiplexed.then_some(config.flow.connection_window.into()),
        receive_buffer: record.tcp_client.as_ref().and_then(|_| largest_buffers().0),
        disk_wait: None,
        cpu: Some(cpu),
    };
    // The engine records when the server had used up our windows.
    let counters = &record.counters;
    let sender = SenderFigures {
        blocked_stream_window: figures.of_each(counters.peer_waited_stream_window, figures.streams),
        blocked_connection_window: figures.of_each(counters.peer_waited_connection_window, 1),
        ..SenderFigures::default()
    };
    ConnectionFigures { sender, receiver, ..figures }
}

/// A connection that carried data from us: our kernel counts what TCP waited for. The server's end is not observable.
fn sent(
    (figures, cpu): (ConnectionFigures, Duration),
    record: &ConnectionRecord,
    multiplexed: bool,
) -> ConnectionFigures {
    let (tcp, quic) = (record.tcp_client.as_ref(), record.quic_client.as_ref());
    // HTTP/3's windows are QUIC's, which the engine does not see.
    let has_windows = multiplexed && tcp.is_some();
    let name = tcp.map(|end| &end.congestion_control).or(quic.map(|end| &end.congestion_control));
    let limits = tcp.and_then(|end| end.limits);
    let micros = |of: fn(TcpLimits) -> u64| limits.map(|limits| Duration::from_micros(of(limits)));
    let cwnd = |end: &TcpSummary| u64::from(end.cwnd) * u64::from(end.segment_bytes);
    let sender = SenderFigures {
        tcp_busy: micros(|limits| limits.busy_us),
        tcp_rwnd_limited: micros(|limits| limits.rwnd_limited_us),
        tcp_sndbuf_limited: micros(|limits| limits.sndbuf_limited_us),
        bytes_acked: tcp.map(|end| end.bytes_acked).filter(|bytes| *bytes > 0),
        blocked_stream_window: has_windows.then_some(record.counters.stalled_stream_window),
        blocked_connection_window: has_windows.then_some(record.counters.stalled_connection_window),
        retransmits: tcp.map(|end| end.retransmits.into()).or(quic.map(|end| end.packets_lost)),
        cwnd_bytes: quic.map(|end| end.cwnd_bytes).or_else(|| tcp.map(cwnd).filter(|bytes| *bytes > 0)),
        congestion_control: name.filter(|name| !name.is_empty()).cloned(),
        send_buffer: tcp.and_then(|_| largest_buffers().1),
        cpu: Some(cpu),
        ..SenderFigures::default()
    };
    let announced = setting(record, setting_id::INITIAL_WINDOW_SIZE).unwrap_or(DEFAULT_WINDOW);
    let receiver = ReceiverFigures {
        stream_window: has_windows.then_some(announced.into()),
        ..ReceiverFigures::default()
    };
    ConnectionFigures { we_send: true, sender, receiver, ..figures }
}

/// The same, with the time that disks took. One thread waits for them, and all connections with it: each connection
/// that carried data gets its share.
fn with_disk(mut figures: ConnectionFigures, done: &BulkResult) -> ConnectionFigures {
    let share = figures.wall.as_secs_f64() / done.meter.elapsed().as_secs_f64().max(1e-9);
    let wait = done.transfers.disk_wait().map(|wait| wait.mul_f64(share.min(1.0)));
    if figures.we_send {
        figures.sender.disk_wait = wait;
    } else {
        figures.receiver.disk_wait = wait;
    }
    figures
}

/// The most requests in flight at a time.
fn streams_at_a_time<'a>(parts: impl Iterator<Item = &'a PartRecord>) -> u32 {
    let mut steps: Vec<(Time, i32)> =
        parts.flat_map(|part| [(part.sent_at, 1), (part.ended_at, -1)]).collect();
    // An end comes before a beginning at the same time.
    steps.sort_unstable();
    let (mut now, mut most) = (0_i32, 0_i32);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    most.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use h2lab_wire::StreamId;

    use super::*;

    #[test]
    fn streams_that_follow_each_other_are_not_two_at_a_time() {
        let part = |sent: u64, ended: u64| PartRecord {
            connection: 0,
            stream: StreamId(1),
            from: 0,
            bytes: 1,
            sent_at: Time::from_millis(sent),
            first_byte_at: Time::from_millis(sent),
            ended_at: Time::from_millis(ended),
            is_complete: true,
        };
        assert_eq!(streams_at_a_time([].into_iter()), 0);
        assert_eq!(streams_at_a_time([part(0, 5), part(5, 9)].iter()), 1);
        assert_eq!(streams_at_a_time([part(0, 5), part(4, 9), part(4, 6)].iter()), 3);
    }

    /// A connection of TCP that carried data for 10 s.
    fn connection() -> (ConnectionRecord, ConnectionFigures) {
        let record =
            ConnectionRecord { tcp_client: Some(TcpSummary::default()), ..ConnectionRecord::default() };
        (
            record,
            ConnectionFigures { wall: Duration::from_secs(10), streams: 2, ..ConnectionFigures::default() },
        )
    }

    #[test]
    fn what_a_server_waited_for_our_windows_is_of_each_stream_and_unknown_where_it_was_not_seen() {
        let (mut record, figures) = connection();
        let blocked = |record: &ConnectionRecord| {
            let found = received(
                (figures.clone(), Duration::ZERO),
                record,
                &Config::new(h2lab_wire::Role::Client),
                true,
            )
            .sender;
            (found.blocked_stream_window, found.blocked_connection_window)
        };
        assert_eq!(blocked(&record), (None, None));
        record.counters.peer_waited_stream_window = Some(Duration::from_secs(6));
        record.counters.peer_waited_connection_window = Some(Duration::from_secs(11));
        assert_eq!(blocked(&record), (Some(Duration::from_secs(3)), Some(Duration::from_secs(10))));
    }

    #[test]
    fn an_upload_has_what_its_kernel_counted_and_the_window_that_the_server_announced() {
        let (mut record, figures) = connection();
        record.tcp_client = Some(TcpSummary {
            cwnd: 10,
            segment_bytes: 1_448,
            limits: Some(TcpLimits {
                busy_us: 9_000_000,
                rwnd_limited_us: 1_000_000,
                sndbuf_limited_us: 2_000_000,
            }),
            ..TcpSummary::default()
        });
        let of = |record: &ConnectionRecord| sent((figures.clone(), Duration::ZERO), record, true);
        let found = of(&record);
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!((found.sender.tcp_busy, found.sender.tcp_rwnd_limited), (seconds(9), seconds(1)));
        assert_eq!((found.sender.tcp_sndbuf_limited, found.sender.cwnd_bytes), (seconds(2), Some(14_480)));
        assert_eq!(found.receiver.stream_window, Some(65_535), "it announced none");
        record.http.settings_remote = vec![(setting_id::INITIAL_WINDOW_SIZE, 131_072)];
        assert_eq!(of(&record).receiver.stream_window, Some(131_072));
    }
}
