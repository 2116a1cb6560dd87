//! Transfers over a path with flow control, for tests: the frames that result for a body from a sender with credit, a
//! link and a receiver.

use std::time::Duration;

use crate::diagnose::testing::Scene;
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Outcome, Sample};
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// Bytes that TCP sends in its first round trip.
const FIRST_FLIGHT: u64 = 14_600;
/// Bytes of a DATA frame at most.
const FRAME: u64 = 16_384;

/// Transfers of bodies, one after another on one connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::diagnose) struct Transfer {
    /// The direction of the bodies.
    pub direction: Direction,
    /// Bytes of each.
    pub body: u64,
    /// How many.
    pub count: u32,
    /// The round trip in milliseconds.
    pub rtt: u64,
    /// Bytes of the stream window.
    pub stream_window: u64,
    /// Bytes of the connection window.
    pub connection_window: u64,
    /// Bytes that the receiver reads before it returns their credit; for the connection, half of its window.
    pub credit_after: u64,
    /// Bytes per millisecond of the link.
    pub rate: u64,
    /// Bytes per millisecond at which the sender spreads a body, except for its first half window.
    pub pace: u64,
    /// Bytes per millisecond that the receiver reads.
    pub read_rate: u64,
    /// The sender pauses for this many milliseconds before each frame: it has no data.
    pub pause: u64,
    /// Whether TCP is still in slow start.
    pub slow_start: bool,
}

impl Transfer {
    /// Bodies of 512 KiB over a round trip of 40 ms, through windows that are never full.
    pub const fn new(direction: Direction) -> Self {
        Self {
            direction,
            body: 512 << 10,
            count: 4,
            rtt: 40,
            stream_window: 16 << 20,
            connection_window: 16 << 20,
            credit_after: 16 << 10,
            rate: 1 << 30,
            pace: 1 << 30,
            read_rate: 1 << 30,
            pause: 0,
            slow_start: false,
        }
    }

    /// The same through this stream window, half of which is returned at a time.
    pub const fn with_stream_window(self, bytes: u64) -> Self {
        Self { stream_window: bytes, credit_after: bytes / 2, ..self }
    }

    /// The record of these transfers.
    pub fn record(&self) -> CellRecord {
        let mut record = Scene::new(Protocol::H2c).no_link().tick(0, 0, 0, false).record();
        record.tcp[0].rtt_us = (self.rtt * 1_000) as u32;
        if self.direction == Direction::Up {
            record.cell.work.body_bytes = self.body;
        }
        let connection = &mut record.connections[0];
        let settings = match self.direction {
            Direction::Up => &mut connection.http.settings_remote,
            Direction::Down => &mut connection.http.settings_local,
        };
        settings.push((setting::INITIAL_WINDOW_SIZE, self.stream_window as u32));
        let mut run = Run::new(*self, &mut record);
        for stream in 0..self.count {
            run.one(2 * stream + 1);
        }
        record.frames.sort_by_key(|frame| frame.at);
        record
    }
}

/// Credit in flight to the sender.
#[derive(Debug, Clone, Copy)]
struct Credit {
    at: Duration,
    bytes: u64,
    is_shared: bool,
}

/// A transfer in progress. Times are since the beginning of the record.
struct Run<'a> {
    of: Transfer,
    record: &'a mut CellRecord,
    now: Duration,
    link_free: Duration,
    read_until: Duration,
    shared_credit: u64,
    shared_unreturned: u64,
}

impl<'a> Run<'a> {
    fn new(of: Transfer, record: &'a mut CellRecord) -> Self {
        let mut run = Self {
            of,
            record,
            now: Duration::from_millis(100),
            link_free: Duration::ZERO,
            read_until: Duration::ZERO,
            shared_credit: of.connection_window,
            shared_unreturned: 0,
        };
        let growth = of.connection_window.saturating_sub(65_535);
        if growth > 0 {
            run.frame(run.now, of.direction.opposite(), 0, FrameKind::WINDOW_UPDATE, growth, 0);
        }
        run
    }

    fn one_way(&self) -> Duration {
        Duration::from_micros(self.of.rtt * 500)
    }

    /// Records a frame; `at` is when the client sees it.
    fn frame(
        &mut self,
        at: Duration,
        direction: Direction,
        stream: u32,
        kind: FrameKind,
        bytes: u64,
        flags: u8,
    ) {
        let is_credit = kind == FrameKind::WINDOW_UPDATE;
        self.record.frames.push(FrameEvent {
            at: Time::ZERO + at,
            connection: 0,
            stream: StreamId(stream),
            length: if is_credit { 4 } else { bytes as u32 },
            value: if is_credit { bytes as u32 } else { 0 },
            kind,
            flags,
            direction,
        });
    }

    /// One body, and the sample of its request.
    fn one(&mut self, stream: u32) {
        let Transfer { direction, body, .. } = self.of;
        let begin = self.now;
        // When the client sees a frame: when it sends it, or when it receives it.
        let seen = |sent: Duration, came: Duration| if direction == Direction::Up { sent } else { came };
        let asked = if direction == Direction::Up { begin } else { begin + self.one_way() };
        self.now = asked;
        self.frame(seen(asked, asked + self.one_way()), direction, stream, FrameKind::HEADERS, 20, 4);
        let (mut sent, mut credit, mut unreturned) = (0, self.of.stream_window, 0);
        let mut to_come: Vec<Credit> = Vec::new();
        while sent < body {
            self.now += Duration::from_millis(self.of.pause);
            to_come.retain(|one| {
                let has_come = one.at <= self.now;
                if has_come {
                    *(if one.is_shared { &mut self.shared_credit } else { &mut credit }) += one.bytes;
                }
                !has_come
            });
            let length = (body - sent).min(FRAME).min(credit).min(self.shared_credit);
            if length == 0 {
                self.now = to_come.iter().map(|one| one.at).min().expect("credit is on its way");
                continue;
            }
            sent += length;
            credit -= length;
            self.shared_credit -= length;
            let came = self.transported(asked, sent, length);
            let flags = u8::from(sent == body);
            self.frame(seen(self.now, came), direction, stream, FrameKind::DATA, length, flags);
            self.read_until = came.max(self.read_until) + per(length, self.of.read_rate);
            unreturned += length;
            if unreturned >= self.of.credit_after {
                to_come.push(self.returned(stream, std::mem::take(&mut unreturned)));
            }
            self.shared_unreturned += length;
            if self.shared_unreturned >= self.of.connection_window / 2 {
                let bytes = std::mem::take(&mut self.shared_unreturned);
                to_come.push(self.returned(0, bytes));
            }
        }
        // What was in flight has arrived when the next request begins.
        self.now = self.read_until + self.one_way() * 2;
        self.shared_credit += to_come.iter().filter(|one| one.is_shared).map(|one| one.bytes).sum::<u64>();
        self.answered(stream, begin);
    }

    /// When a frame has arrived whose last byte is this one of its body.
    fn transported(&mut self, asked: Duration, byte: u64, length: u64) -> Duration {
        let flight = (byte / FIRST_FLIGHT + 1).ilog2();
        let allowed =
            if self.of.slow_start { Duration::from_millis(self.of.rtt) * flight } else { Duration::ZERO };
        let rate =
            if byte > self.of.stream_window / 2 { self.of.rate.min(self.of.pace) } else { self.of.rate };
        self.link_free = self.now.max(asked + allowed).max(self.link_free) + per(length, rate);
        self.link_free + self.one_way()
    }

    /// Credit that the receiver returns for what it has read.
    fn returned(&mut self, stream: u32, bytes: u64) -> Credit {
        let direction = self.of.direction.opposite();
        let (given, come) = (self.read_until, self.read_until + self.one_way());
        let at = if direction == Direction::Up { given } else { come };
        self.frame(at, direction, stream, FrameKind::WINDOW_UPDATE, bytes, 0);
        Credit { at: come, bytes, is_shared: stream == 0 }
    }

    fn answered(&mut self, stream: u32, begin: Duration) {
        let ended = if self.of.direction == Direction::Up {
            let ended = self.read_until + self.one_way();
            self.frame(ended, Direction::Down, stream, FrameKind::HEADERS, 20, 5);
            ended
        } else {
            self.read_until
        };
        let [begin, ended] = [begin, ended].map(|at| Time::ZERO + at);
        let sample = Sample {
            connection: 0,
            stream: StreamId(stream),
            sent_at: begin,
            first_byte_at: match self.of.direction {
                Direction::Up => ended,
                Direction::Down => begin + Duration::from_millis(self.of.rtt),
            },
            completed_at: ended,
            outcome: Outcome::Succeeded,
            status: 200,
            ..Sample::due(begin, true)
        };
        self.record.samples.push(&sample);
        self.record.connections[0].requests += 1;
    }
}

fn per(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos(bytes * 1_000_000 / rate)
}

/// Adds a request that waited for `millis` ms without any data: other work of the cell.
pub(in crate::diagnose) fn with_other_work(mut record: CellRecord, millis: u64) -> CellRecord {
    let mut sample = Sample::due(Time::ZERO, true);
    (sample.sent_at, sample.completed_at) = (Time::ZERO, Time::from_millis(millis));
    (sample.outcome, sample.status) = (Outcome::Succeeded, 200);
    record.samples.push(&sample);
    record
}
