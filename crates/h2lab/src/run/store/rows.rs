//! How each record type lies in its table.

use anyhow::{Context, Result, bail};
use h2lab_analysis::diagnose::waits::LatencyBreakdown;
use h2lab_base::counters::TcpTick;
use h2lab_model::foreign;
use h2lab_model::record::tally::{Class, Counts, TallyPhase};
use h2lab_model::record::{
    ConnectionRecord, Histogram, Marks, Outcome, PacketFate, PacketRecord, Sample, Tally,
};
use h2lab_wire::StreamId;
use h2lab_wire::connection::FRAME_TYPES;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

use super::table::{ColumnType, RowReader, RowWriter, TableRow};

impl TableRow for Sample {
    const COLUMNS: &'static [(&'static str, ColumnType)] = &[
        ("connection", ColumnType::Int),
        ("stream", ColumnType::Int),
        ("scheduled_at_ns", ColumnType::Time),
        ("sent_at_ns", ColumnType::Time),
        ("first_byte_at_ns", ColumnType::Time),
        ("completed_at_ns", ColumnType::Time),
        ("outcome", ColumnType::Text),
        ("status", ColumnType::Int),
        ("code", ColumnType::Int),
        ("body_bytes", ColumnType::Int),
        ("replays", ColumnType::Int),
        ("stall_open_ns", ColumnType::Int),
        ("stall_socket_ns", ColumnType::Int),
        ("stall_window_ns", ColumnType::Int),
        ("measured", ColumnType::Bool),
        ("kind", ColumnType::Int),
    ];

    fn put(&self, row: &mut RowWriter<'_>) {
        row.int(self.connection);
        row.int(self.stream.0);
        row.time(self.scheduled_at);
        row.time(self.sent_at);
        row.time(self.first_byte_at);
        row.time(self.completed_at);
        row.text(self.outcome.name());
        row.int(self.status);
        row.int(self.code);
        row.int(self.body_bytes);
        row.int(self.replays);
        row.int(self.stall_open_ns);
        row.int(self.stall_socket_ns);
        row.int(self.stall_window_ns);
        row.bool(self.measured);
        row.int(self.kind);
    }

    fn take(row: &mut RowReader<'_>) -> Result<Self> {
        Ok(Self {
            connection: row.int()?,
            stream: StreamId(row.int()?),
            scheduled_at: row.time()?,
            sent_at: row.time()?,
            first_byte_at: row.time()?,
            completed_at: row.time()?,
            outcome: by_name(row.text()?, Outcome::ALL, Outcome::name)?,
            status: row.int()?,
            code: row.int()?,
            body_bytes: row.int()?,
            replays: row.int()?,
            stall_open_ns: row.int()?,
            stall_socket_ns: row.int()?,
            stall_window_ns: row.int()?,
            measured: row.bool()?,
            kind: row.int()?,
            number: 0,
        })
    }
}

/// Counts are columns, each histogram a JSON column: `{"buckets":[[lowest_ns,count],…],"n":…,"sum_ns":…,"min_ns":…, "max_ns":…}`,
/// which DuckDB reads with `response->'$.sum_ns'`. A bucket reaches to the next one's lowest value at most, and 0.1 % at most.
impl TableRow for Tally {
    const COLUMNS: &'static [(&'static str, ColumnType)] = &[
        ("at_ns", ColumnType::Time),
        ("part", ColumnType::Text),
        ("kind", ColumnType::Int),
        ("outcome", ColumnType::Text),
        ("status", ColumnType::Int),
        ("code", ColumnType::Int),
        ("requests", ColumnType::Int),
        ("assigned", ColumnType::Int),
        ("sent", ColumnType::Int),
        ("replays", ColumnType::Int),
        ("body_bytes", ColumnType::Int),
        ("served", ColumnType::Int),
        ("served_bytes", ColumnType::Int),
        ("stall_open_ns", ColumnType::Int),
        ("stall_socket_ns", ColumnType::Int),
        ("stall_window_ns", ColumnType::Int),
        ("response", ColumnType::Text),
        ("service", ColumnType::Text),
        ("ttfb", ColumnType::Text),
        ("lateness", ColumnType::Text),
    ];

    fn put(&self, row: &mut RowWriter<'_>) {
        let (class, counts) = (&self.class, &self.counts);
        row.time(self.at);
        row.text(class.part.name());
        row.int(class.kind);
        row.text(class.outcome.name());
        row.int(class.status);
        row.int(class.code);
        row.int(counts.requests);
        row.int(counts.assigned);
        row.int(counts.sent);
        row.int(counts.replays);
        row.int(counts.body_bytes);
        row.int(counts.served);
        row.int(counts.served_bytes);
        row.int(counts.stall_open_ns);
        row.int(counts.stall_socket_ns);
        row.int(counts.stall_window_ns);
        for histogram in [&self.response, &self.service, &self.ttfb, &self.lateness] {
            row.text(&serde_json::to_string(histogram).expect("a histogram is plain data"));
        }
    }

    fn take(row: &mut RowReader<'_>) -> Result<Self> {
        Ok(Self {
            at: row.time()?,
            class: Class {
                part: by_name(row.text()?, &TallyPhase::ALL, TallyPhase::name)?,
                kind: row.int()?,
                outcome: by_name(row.text()?, Outcome::ALL, Outcome::name)?,
                status: row.int()?,
                code: row.int()?,
            },
            counts: Counts {
                requests: row.int()?,
                assigned: row.int()?,
                sent: row.int()?,
                replays: row.int()?,
                body_bytes: row.int()?,
                served: row.int()?,
                served_bytes: row.int()?,
                stall_open_ns: row.int()?,
                stall_socket_ns: row.int()?,
                stall_window_ns: row.int()?,
            },
            response: histogram(row.text()?)?,
            service: histogram(row.text()?)?,
            ttfb: histogram(row.text()?)?,
            lateness: histogram(row.text()?)?,
        })
    }
}

/// Reads a histogram's JSON.
fn histogram(text: &str) -> Result<Histogram> {
    serde_json::from_str(text).context("a histogram is not JSON of this version")
}

/// The value whose name this is.
fn by_name<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T> {
    all.iter().copied().find(|value| name(*value) == text).with_context(|| format!("unknown value `{text}`"))
}

const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// As the tables have it.
pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

impl TableRow for FrameEvent {
    const COLUMNS: &'static [(&'static str, ColumnType)] = &[
        ("at_ns", ColumnType::Time),
        ("connection", ColumnType::Int),
        ("direction", ColumnType::Text),
        ("type", ColumnType::Text),
        ("flags", ColumnType::Int),
        ("stream", ColumnType::Int),
        ("length", ColumnType::Int),
        ("value", ColumnType::Int),
    ];

    fn put(&self, row: &mut RowWriter<'_>) {
        row.time(self.at);
        row.int(self.connection);
        row.text(direction_name(self.direction));
        row.text(&self.kind.to_string());
        row.int(self.flags);
        row.int(self.stream.0);
        row.int(self.length);
        row.int(self.value);
    }

    fn take(row: &mut RowReader<'_>) -> Result<Self> {
        Ok(Self {
            at: row.time()?,
            connection: row.int()?,
            direction: by_name(row.text()?, &DIRECTIONS, direction_name)?,
            kind: frame_kind(row.text()?)?,
            flags: row.int()?,
            stream: StreamId(row.int()?),
            length: row.int()?,
            value: row.int()?,
        })
    }
}

/// Reads what [`FrameKind`] prints: an RFC 9113 name, or `0x0c`.
fn frame_kind(text: &str) -> Result<FrameKind> {
    if let Some(number) = FRAME_TYPES[..10].iter().position(|name| *name == text) {
        return Ok(FrameKind(number as u8));
    }
    match text.strip_prefix("0x").map(|digits| u8::from_str_radix(digits, 16)) {
        Some(Ok(number)) => Ok(FrameKind(number)),
        _ => bail!("unknown frame type `{text}`"),
    }
}

impl TableRow for TcpTick {
    const COLUMNS: &'static [(&'static str, ColumnType)] = &[
        ("at_ns", ColumnType::Time),
        ("connection", ColumnType::Int),
        ("server", ColumnType::Bool),
        ("retransmits", ColumnType::Int),
        ("cwnd", ColumnType::Int),
        ("rtt_us", ColumnType::Int),
        ("unacked", ColumnType::Int),
    ];

    fn put(&self, row: &mut RowWriter<'_>) {
        row.time(self.at);
        row.int(self.connection);
        row.bool(self.server);
        row.int(self.retransmits);
        row.int(self.cwnd);
        row.int(self.rtt_us);
        row.int(self.unacked);
    }

    fn take(row: &mut RowReader<'_>) -> Result<Self> {
        Ok(Self {
            at: row.time()?,
            connection: row.int()?,
            server: row.bool()?,
            retransmits: row.int()?,
            cwnd: row.int()?,
            rtt_us: row.int()?,
            unacked: row.int()?,
        })
    }
}

/// What was done to a packet, in the order of a row's text.
fn marks_text(marks: Marks) -> String {
    let words = [
        marks.is_copy.then(|| "copy".to_owned()),
        marks.is_reordered.then(|| "reordered".to_owned()),
        marks.corrupt.map(|bit| format!("corrupt:{bit}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn marks_of(text: &str) -> Result<Marks> {
    let mut marks = Marks::default();
    for word in text.split_whitespace() {
        match word.split_once(':') {
            None if word == "copy" => marks.is_copy = true,
            None if word == "reordered" => marks.is_reordered = true,
            Some(("corrupt", bit)) => {
                marks.corrupt = Some(bit.parse().context("the flipped bit is not a number")?);
            }
            _ => bail!("`{word}` is not an event of a packet"),
        }
    }
    Ok(marks)
}

impl TableRow for PacketRecord {
    const COLUMNS: &'static [(&'static str, ColumnType)] = &[
        ("at_ns", ColumnType::Time),
        ("out_at_ns", ColumnType::Time),
        ("direction", ColumnType::Text),
        ("index", ColumnType::Int),
        ("fate", ColumnType::Text),
        ("client_port", ColumnType::Int),
        ("server_port", ColumnType::Int),
        ("bytes", ColumnType::Int),
        ("payload", ColumnType::Int),
        ("seq", ColumnType::Int),
        ("marks", ColumnType::Text),
    ];

    fn put(&self, row: &mut RowWriter<'_>) {
        row.time(self.at);
        row.time(self.out_at);
        row.text(direction_name(self.direction));
        row.int(self.index);
        row.text(self.fate.name());
        row.int(self.client_port);
        row.int(self.server_port);
        row.int(self.bytes);
        row.int(self.payload);
        row.int(self.seq);
        row.text(&marks_text(self.marks));
    }

    fn take(row: &mut RowReader<'_>) -> Result<Self> {
        Ok(Self {
            at: row.time()?,
            out_at: row.time()?,
            direction: by_name(row.text()?, &DIRECTIONS, direction_name)?,
            index: row.int()?,
            fate: by_name(row.text()?, PacketFate::ALL, PacketFate::name)?,
            client_port: row.int()?,
            server_port: row.int()?,
            bytes: row.int()?,
            payload: row.int()?,
            seq: row.int()?,
            marks: marks_of(row.text()?)?,
        })
    }
}

/// The scalar part is in columns; the intervals of its time, each with its cause, in one JSON column, which DuckDB reads with
/// `detail->'$.intervals'`.
impl TableRow for LatencyBreakdown {
    const COLUMNS: &'static [(&'static str, ColumnType)] = &[
        ("sample", ColumnType::Int),
        ("scheduled_at_ns", ColumnType::Time),
        ("completed_at_ns", ColumnType::Time),
        ("dominant", ColumnType::Text),
        ("client_port", ColumnType::Int),
        ("stream", ColumnType::Int),
        ("detail", ColumnType::Text),
    ];

    fn put(&self, row: &mut RowWriter<'_>) {
        row.int(self.sample);
        row.time(self.scheduled_at);
        row.time(self.completed_at);
        row.text(self.dominant.name());
        row.int(self.place.map_or(0, |place| place.client_port));
        row.int(self.place.and_then(|place| place.stream).unwrap_or(0));
        row.text(&serde_json::to_string(self).expect("a latency breakdown is plain data"));
    }

    fn take(row: &mut RowReader<'_>) -> Result<Self> {
        row.int::<u64>()?;
        row.time()?;
        row.time()?;
        row.text()?;
        row.int::<u64>()?;
        row.int::<u64>()?;
        serde_json::from_str(row.text()?).context("a latency breakdown's detail is not JSON of this version")
    }
}

/// The scalar part is in columns; what is nested (GOAWAYs, counters, both ends' `TCP_INFO`) in one JSON column, which DuckDB
/// reads with `detail->'$.goaways'`.
impl TableRow for ConnectionRecord {
    const COLUMNS: &'static [(&'static str, ColumnType)] = &[
        ("connection", ColumnType::Int),
        ("local_port", ColumnType::Int),
        ("dialled_at_ns", ColumnType::Time),
        ("connected_at_ns", ColumnType::Time),
        ("ready_at_ns", ColumnType::Time),
        ("closed_at_ns", ColumnType::Time),
        ("requests", ColumnType::Int),
        ("highest_stream", ColumnType::Int),
        ("bytes_sent", ColumnType::Int),
        ("bytes_received", ColumnType::Int),
        ("detail", ColumnType::Text),
    ];

    fn put(&self, row: &mut RowWriter<'_>) {
        row.int(self.index);
        row.int(self.local_port);
        row.time(self.dialled_at);
        row.time(self.connected_at);
        row.time(self.ready_at);
        row.time(self.closed_at);
        row.int(self.requests);
        row.int(self.highest_stream.0);
        row.int(self.bytes_sent);
        row.int(self.bytes_received);
        row.text(&serde_json::to_string(self).expect("a connection is plain data"));
    }

    fn take(row: &mut RowReader<'_>) -> Result<Self> {
        for _ in 0..2 {
            row.int::<u64>()?;
        }
        for _ in 0..4 {
            row.time()?;
        }
        for _ in 0..4 {
            row.int::<u64>()?;
        }
        foreign::read(row.text()?, &[]).context("a connection's detail is not JSON of this version")
    }
}
