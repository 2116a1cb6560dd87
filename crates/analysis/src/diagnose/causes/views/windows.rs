//! When data waited for flow-control credit (RFC 9113 §5.2), from the frames of both directions at the client.
//!
//! In an upload the client is the sender, and its credit is known exactly. In a download it is the receiver. A frame
//! that used the credit of a WINDOW_UPDATE cannot have been sent before the server had received that; a frame that
//! arrives one round trip after the WINDOW_UPDATE was sent at once. A frame that arrives later waited for something
//! else: the link, the congestion window, the server.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::paced::{Arrivals, Paced, Promptness};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, ConnectionRecord};
use h2lab_wire::h2::frame::flag;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// The initial size of every window (RFC 9113 §6.9.2).
pub(in crate::diagnose::causes) const DEFAULT_WINDOW: u64 = 65_535;
/// Less credit than this counts as none: senders do not send such short frames of a longer body.
pub(in crate::diagnose::causes) const SPENT: i64 = 1_024;
/// On a shorter path a window of 64 KiB carries 500 Mbit/s and more, and our own processes take as long as the path.
const LEAST_RTT: Duration = Duration::from_millis(1);
/// The least time that reading and answering may take in addition to the path.
const LEAST_SLACK: Duration = Duration::from_millis(5);

/// A shorter time is not a stop: it may be the scheduling of our own processes, or credit that comes in several updates
/// at once.
fn least_stop(rtt: Duration) -> Duration {
    (rtt / 8).max(LEAST_RTT)
}

/// Which window was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::diagnose) enum Scope {
    /// The stream's.
    Stream,
    /// The connection's.
    Connection,
}

/// A time in which a stream had data and no credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::diagnose) struct Stop {
    /// Its connection.
    pub connection: u32,
    /// The stream.
    pub stream: u32,
    /// The direction of the data.
    pub direction: Direction,
    /// The window that was the last to have no credit.
    pub scope: Scope,
    /// Upload: when the last data before it was sent. Download: when the next data would have arrived, had it followed
    /// as fast as the data before.
    pub begin: Time,
    /// When the next data arrived, or could be sent.
    pub end: Time,
    /// For how long data had been flowing before, since the last stop of the stream or its beginning.
    pub flowed: Duration,
    /// Bytes of the window: its largest size so far.
    pub window: u64,
    /// Whether credit came as fast as the path allows, so that a larger window would have avoided the stop. Otherwise
    /// the data or the credit was delayed: by loss, a congestion window, or a receiver that had not read yet.
    pub is_prompt: bool,
    /// Download: data arrived all the time, spread over a round trip; the stop is the part of it that a larger window
    /// would have saved.
    pub is_paced: bool,
    /// Download: for how much of the stop the client had the data whose credit ended it and did not return that credit,
    /// like a client that has not read the data yet. No window changes that part.
    pub held: Duration,
}

impl Stop {
    /// How long it lasted.
    pub const fn duration(&self) -> Duration {
        self.end.since(self.begin)
    }

    /// Whether the client held the credit for longer than it takes to return it for several pieces at once, which come
    /// within a round trip.
    pub fn is_read_slowly(&self, rtt: Duration) -> bool {
        self.held > rtt + rtt / 4
    }

    /// The part of the stop that a larger window would have avoided.
    pub fn of_window(&self) -> Duration {
        self.duration().saturating_sub(self.held)
    }
}

/// The stops of a repetition over a path with this round trip, in the order of their ends. Empty if frames were not
/// recorded.
pub(in crate::diagnose) fn stops(record: &CellRecord, rtt: Duration) -> Vec<Stop> {
    if rtt < LEAST_RTT || record.cell.protocol.is_quic() || !record.cell.protocol.is_multiplexed() {
        return Vec::new();
    }
    let bandwidth = record.cell.link.as_ref().and_then(|link| link.downlink.bandwidth);
    let capacity = bandwidth.map(|bandwidth| bandwidth.bits_per_second() as f64 / 8.0);
    let connections = record.connections.iter();
    let mut flows: BTreeMap<u32, Flows> =
        connections.map(|connection| (connection.index, Flows::of(connection, rtt, capacity))).collect();
    for frame in &record.frames {
        if let Some(flows) = flows.get_mut(&frame.connection) {
            flows.see(frame);
        }
    }
    let mut stops: Vec<Stop> = flows.into_values().flat_map(|flows| flows.stops).collect();
    stops.sort_by_key(|stop| stop.end);
    stops
}

/// The stream window that an end announced: the server's for uploads, ours for downloads.
pub(in crate::diagnose::causes) fn initial_window(connection: &ConnectionRecord, data: Direction) -> u64 {
    let settings = match data {
        Direction::Up => &connection.http.settings_remote,
        Direction::Down => &connection.http.settings_local,
    };
    settings
        .iter()
        .find(|(id, _)| *id == setting::INITIAL_WINDOW_SIZE)
        .map_or(DEFAULT_WINDOW, |(_, value)| (*value).into())
}

/// An increment of a window.
#[derive(Debug, Clone, Copy)]
struct Grant {
    /// The total of all increments including this one.
    total: u64,
    /// When the client sent or received it.
    at: Time,
    /// Download: how long the client had had the data that the credit is for.
    held: Duration,
    /// Download: how long no data had arrived before it.
    silence: Duration,
}

impl Grant {
    /// For how long the client held the credit back. A client that returns credit as soon as data arrives holds nothing
    /// back, however old the data is that the total refers to: it has made its window smaller (nghttp2 does so, by
    /// never returning some credit). And a delay that a busy machine causes is not slow reading.
    fn kept_back(&self, slack: Duration) -> Duration {
        if self.held > slack && self.silence > LEAST_SLACK { self.held } else { Duration::ZERO }
    }
}

/// A window as its sender sees it.
#[derive(Debug)]
struct Window {
    initial: u64,
    /// The most credit that there was at any time.
    size: u64,
    /// The value of `size` before the last increment.
    size_before: u64,
    /// Download: the most credit that there was since the last data; a part of it may be credit for a part of the next
    /// frame.
    claimed: u64,
    /// Its increments.
    granted: Vec<Grant>,
    /// The total of DATA so far.
    taken: u64,
    /// The value of `taken` after each frame, and when the client sent or received that frame.
    data: Vec<(u64, Time)>,
    /// Bytes that were sent when a stop ended: their position, when they were sent, and which stop it was. The time of
    /// their credit shows whether they had waited for the transport.
    probes: VecDeque<(u64, Time, usize)>,
    /// Download: since when the window's data has arrived as soon as the credit allowed.
    in_time: Promptness,
}

impl Window {
    fn new(initial: u64) -> Self {
        Self {
            initial,
            size: initial,
            size_before: initial,
            claimed: 0,
            granted: Vec::new(),
            taken: 0,
            data: Vec::new(),
            probes: VecDeque::new(),
            in_time: Promptness::default(),
        }
    }

    fn total(&self) -> u64 {
        self.granted.last().map_or(0, |grant| grant.total)
    }

    fn credit(&self) -> i64 {
        (self.initial + self.total()).cast_signed() - self.taken.cast_signed()
    }

    fn grant(&mut self, frame: &FrameEvent) {
        let total = self.total() + u64::from(frame.value);
        let held = self.held(total, frame);
        let silence = self.data.last().map_or(Duration::ZERO, |(_, at)| frame.at.since(*at));
        self.granted.push(Grant { total, at: frame.at, held, silence });
        self.size_before = self.size;
        let credit = self.credit().max(0).cast_unsigned();
        match frame.direction {
            Direction::Down => self.size = self.size.max(credit),
            Direction::Up => self.claimed = self.claimed.max(credit),
        }
    }

    /// Upload: the increments so far came with the server's SETTINGS, so that they return no credit but make the window
    /// larger, whatever a client that did not wait for them has used of it.
    fn enlarge(&mut self) {
        self.size = self.size.max(self.initial + self.total());
    }

    /// How long the client had had the last byte for which an increment that makes this total returns credit. Zero if
    /// more is returned than has arrived in complete frames.
    fn held(&self, total: u64, frame: &FrameEvent) -> Duration {
        let read = total.saturating_sub(self.size - self.initial);
        if frame.direction == Direction::Down || read == 0 || read > self.taken {
            return Duration::ZERO;
        }
        let came = self.data.get(self.data.partition_point(|(taken, _)| *taken < read));
        came.map_or(Duration::ZERO, |(_, at)| frame.at.since(*at))
    }

    /// A frame of data is complete. A client may return credit for the part of a frame that has arrived so far (nghttp2
    /// does), and an increment that is no more than such a part does not make the window larger.
    fn take(&mut self, at: Time, length: u64) {
        self.taken += length;
        self.data.push((self.taken, at));
        let claimed = std::mem::take(&mut self.claimed);
        if claimed > self.size + length {
            self.size = claimed;
        }
    }

    /// The increment that was needed before all data so far could be sent. Its time is `Time::ZERO` if the initial
    /// window sufficed; `None` if more arrived than was granted.
    fn opened(&self) -> Option<Grant> {
        let Some(needed) = self.taken.checked_sub(self.initial).filter(|needed| *needed > 0) else {
            return Some(Grant { total: 0, at: Time::ZERO, held: Duration::ZERO, silence: Duration::ZERO });
        };
        self.granted.get(self.granted.partition_point(|grant| grant.total < needed)).copied()
    }

    /// The time from the last byte for which there is credit until its credit arrived at `at`.
    fn loop_time(&self, at: Time) -> Duration {
        let total = self.total();
        let first = self.data.partition_point(|(taken, _)| *taken < total);
        self.data.get(first).or(self.data.last()).map_or(Duration::ZERO, |(_, sent)| at.since(*sent))
    }

    /// Upload: the longest time between `from` and `to` in which no data was sent.
    fn silence(&self, from: Time, to: Time) -> Duration {
        let first = self.data.partition_point(|(_, sent)| *sent < from);
        let times = self.data[first..].iter().map(|(_, sent)| *sent).chain([to]);
        let gaps = times.scan(from, |last, at| Some(at.since(std::mem::replace(last, at))));
        gaps.max().unwrap_or_default()
    }
}

/// A stream in one direction.
#[derive(Debug)]
struct Stream {
    window: Window,
    /// When its last frame arrived or was sent.
    last: Time,
    /// Download: the interval between its last two frames while data flowed: what the link needs for a frame.
    spacing: Duration,
    /// Since when its data has flowed.
    flows_since: Time,
    /// Upload: since when it has had no credit.
    stopped: Option<Time>,
    /// Upload: when its own window had credit again in that time; the beginning if it had credit throughout.
    reopened: Option<Time>,
    /// Upload: the most recent stop that ended, until data is sent.
    ended: Option<usize>,
    /// Download: a period without a stop in which the data arrived as soon as its credit allowed, and the window
    /// concerned.
    paced: Option<(Paced, Scope)>,
}

impl Stream {
    fn new(initial: u64, at: Time) -> Self {
        let window = Window::new(initial);
        Self {
            window,
            last: at,
            spacing: Duration::ZERO,
            flows_since: at,
            stopped: None,
            reopened: None,
            ended: None,
            paced: None,
        }
    }

    /// Upload: from now on the stream has no credit.
    fn stop(&mut self, at: Time) {
        if self.stopped.is_none() {
            self.stopped = Some(at);
            self.reopened = (self.window.credit() >= SPENT).then_some(at);
        }
    }
}

/// Both directions of a connection.
#[derive(Debug)]
struct Flows {
    connection: u32,
    rtt: Duration,
    /// How much longer than a round trip credit may take and still count as prompt.
    slack: Duration,
    initial: [u64; 2],
    windows: [Window; 2],
    streams: [BTreeMap<u32, Stream>; 2],
    /// DATA from the server.
    arrivals: Arrivals,
    /// More arrived than was granted as far as we know: nothing more is concluded.
    is_broken: bool,
    /// The server has sent its SETTINGS, and nothing since but credit for the connection.
    is_announcing: bool,
    stops: Vec<Stop>,
}

const UP: usize = 0;
const DOWN: usize = 1;

const fn side(direction: Direction) -> usize {
    match direction {
        Direction::Up => UP,
        Direction::Down => DOWN,
    }
}

impl Flows {
    /// `capacity`: bytes per second that the link carries to the client, if that is known.
    fn of(connection: &ConnectionRecord, rtt: Duration, capacity: Option<f64>) -> Self {
        Self {
            connection: connection.index,
            rtt,
            slack: (rtt / 4).max(LEAST_SLACK),
            initial: [Direction::Up, Direction::Down].map(|data| initial_window(connection, data)),
            windows: [Window::new(DEFAULT_WINDOW), Window::new(DEFAULT_WINDOW)],
            streams: [BTreeMap::new(), BTreeMap::new()],
            arrivals: Arrivals::new(least_stop(rtt), capacity),
            is_broken: false,
            is_announcing: false,
            stops: Vec::new(),
        }
    }

    fn see(&mut self, frame: &FrameEvent) {
        if self.is_broken {
            return;
        }
        if frame.direction == Direction::Down {
            let is_shared_credit = frame.kind == FrameKind::WINDOW_UPDATE && frame.stream.0 == 0;
            let is_settings = frame.kind == FrameKind::SETTINGS && frame.flags & flag::ACK == 0;
            self.is_announcing = is_settings || (self.is_announcing && is_shared_credit);
        }
        match frame.kind {
            FrameKind::HEADERS if !frame.ends_stream() => self.begin(frame),
            FrameKind::DATA if frame.length > 0 => self.data(frame),
            FrameKind::WINDOW_UPDATE => self.credit(frame),
            _ => {}
        }
        // A complete response ends the upload, too, and a reset ends both.
        let is_over = frame.ends_stream() && frame.direction == Direction::Down;
        if is_over || frame.kind == FrameKind::RST_STREAM {
            self.paced(frame.stream.0, frame.at);
            self.streams.iter_mut().for_each(|streams| drop(streams.remove(&frame.stream.0)));
        } else if frame.ends_stream() {
            self.streams[UP].remove(&frame.stream.0);
        }
    }

    /// Ends the period, if there is one, in which the data of a response arrived as soon as its credit allowed.
    fn paced(&mut self, id: u32, end: Time) {
        let Some(stream) = self.streams[DOWN].get_mut(&id) else { return };
        let Some((paced, scope)) = stream.paced.take() else { return };
        let window = match scope {
            Scope::Stream => stream.window.size,
            Scope::Connection => self.windows[DOWN].size,
        };
        let lost = paced.lost(end, self.rtt, &self.arrivals);
        self.stops.extend(lost.into_iter().map(|(end, lost)| Stop {
            connection: self.connection,
            stream: id,
            direction: Direction::Down,
            scope,
            begin: end - lost,
            end,
            flowed: Duration::ZERO,
            window,
            is_prompt: true,
            is_paced: true,
            held: Duration::ZERO,
        }));
    }

    fn begin(&mut self, frame: &FrameEvent) {
        let at = side(frame.direction);
        let initial = self.initial[at];
        let stream = self.streams[at].entry(frame.stream.0).or_insert_with(|| Stream::new(initial, frame.at));
        stream.last = frame.at;
        if at == UP && self.windows[UP].credit() < SPENT {
            stream.stop(frame.at);
        }
    }

    fn data(&mut self, frame: &FrameEvent) {
        let length = u64::from(frame.length);
        if frame.direction == Direction::Down {
            self.arrivals.see(frame.at, length);
        }
        let Self { windows, streams, .. } = self;
        let (window, streams) = (&mut windows[side(frame.direction)], &mut streams[side(frame.direction)]);
        window.take(frame.at, length);
        let Some(stream) = streams.get_mut(&frame.stream.0) else { return };
        stream.window.take(frame.at, length);
        match frame.direction {
            Direction::Up => self.sent(frame),
            Direction::Down => self.came(frame),
        }
    }

    /// DATA from the server: determines whether it waited for credit.
    fn came(&mut self, frame: &FrameEvent) {
        let (rtt, slack) = (self.rtt, self.slack);
        let Some(stream) = self.streams[DOWN].get_mut(&frame.stream.0) else { return };
        let (Some(own), Some(shared)) = (stream.window.opened(), self.windows[DOWN].opened()) else {
            self.is_broken = true;
            return;
        };
        // Credit of both windows is often returned together, in any order, and then the stream window is too small,
        // too.
        let (scope, grant, window) = if shared.at.since(own.at) >= least_stop(rtt) {
            (Scope::Connection, shared, self.windows[DOWN].size)
        } else {
            (Scope::Stream, own, stream.window.size)
        };
        let last = std::mem::replace(&mut stream.last, frame.at);
        let gap = frame.at.since(last);
        let longest = rtt + slack + stream.spacing.min(rtt / 2);
        let is_prompt = grant.at > Time::ZERO && frame.at.since(grant.at) <= longest;
        let held = grant.kept_back(slack);
        stream.window.in_time.see(own.at, frame.at, longest, own.kept_back(slack).is_zero());
        self.windows[DOWN].in_time.see(shared.at, frame.at, longest, shared.kept_back(slack).is_zero());
        // Data that flows has shorter intervals, even if each frame brings credit for another one.
        if !is_prompt || gap < least_stop(rtt).max(stream.spacing * 2) {
            stream.spacing = gap;
            let in_time = match scope {
                Scope::Stream => &stream.window.in_time,
                Scope::Connection => &self.windows[DOWN].in_time,
            };
            if in_time.since.is_none() {
                self.paced(frame.stream.0, last);
            } else if stream.paced.is_none() {
                stream.paced = Some((Paced { begin: frame.at, before: self.arrivals.total }, scope));
            }
            return;
        }
        let begin = last + stream.spacing;
        let flowed = last.since(stream.flows_since);
        stream.flows_since = frame.at;
        self.paced(frame.stream.0, last);
        self.stops.push(Stop {
            connection: self.connection,
            stream: frame.stream.0,
            direction: Direction::Down,
            scope,
            begin,
            end: frame.at,
            flowed,
            window,
            is_prompt,
            is_paced: false,
            held,
        });
    }

    /// DATA that we sent: determines whether it was the last for which there was credit.
    fn sent(&mut self, frame: &FrameEvent) {
        let Self { windows, streams, stops, .. } = self;
        let (shared, streams) = (&mut windows[UP], &mut streams[UP]);
        let Some(stream) = streams.get_mut(&frame.stream.0) else { return };
        stream.last = frame.at;
        if let Some(ended) = stream.ended.take() {
            let window = if stops[ended].scope == Scope::Stream { &mut stream.window } else { &mut *shared };
            window.probes.push_back((window.taken - u64::from(frame.length) + 1, frame.at, ended));
        }
        if frame.ends_stream() {
            return;
        }
        if stream.window.credit() < SPENT {
            stream.stop(frame.at);
        }
        if shared.credit() < SPENT {
            // All other streams have data left that they cannot send.
            for stream in streams.values_mut() {
                stream.stop(frame.at);
            }
        }
    }

    /// A WINDOW_UPDATE: data may flow again.
    fn credit(&mut self, frame: &FrameEvent) {
        let data = side(frame.direction.opposite());
        let Self { windows, streams, is_announcing, .. } = self;
        let (shared, streams) = (&mut windows[data], &mut streams[data]);
        let is_shared = frame.stream.0 == 0;
        if is_shared {
            shared.grant(frame);
            if data == UP && *is_announcing {
                shared.enlarge();
            }
        } else if let Some(stream) = streams.get_mut(&frame.stream.0) {
            stream.window.grant(frame);
        }
        if data == UP {
            self.resume(frame, is_shared);
        }
    }

    /// Ends the stops of those of our streams that have credit again.
    fn resume(&mut self, frame: &FrameEvent, is_shared: bool) {
        let Self { windows, streams, stops, connection, rtt, slack, .. } = self;
        let shared = &mut windows[UP];
        for (id, stream) in &mut streams[UP] {
            if !is_shared && *id != frame.stream.0 {
                continue;
            }
            if stream.window.credit() >= SPENT {
                stream.reopened.get_or_insert(frame.at);
            }
            let has_credit = stream.window.credit() >= SPENT && shared.credit() >= SPENT;
            let window = if is_shared { &mut *shared } else { &mut stream.window };
            settle(window, frame.at, *rtt + (*rtt / 2).max(*slack), stops);
            let Some(begin) = stream.stopped.filter(|_| has_credit) else { continue };
            // Credit of both windows is often returned together, in any order, and then the stream window is too small,
            // too.
            let is_of_connection =
                is_shared && stream.reopened.is_some_and(|at| frame.at.since(at) >= least_stop(*rtt));
            let (scope, window) = if is_of_connection {
                (Scope::Connection, &*shared)
            } else {
                (Scope::Stream, &stream.window)
            };
            stream.stopped = None;
            if frame.at.since(begin) < least_stop(*rtt) {
                continue;
            }
            let took = window.loop_time(frame.at);
            // Where the streams together send all the time, the link may be full: then the data waits for that of the
            // others, and its credit comes later than an idle path would return it.
            let is_idle = shared.silence(frame.at - took, frame.at) >= *rtt / 2;
            let slack = if scope == Scope::Connection || is_idle { *slack } else { least_stop(*rtt) };
            let is_prompt = took <= *rtt + slack;
            stream.ended = Some(stops.len());
            stops.push(Stop {
                connection: *connection,
                stream: *id,
                direction: Direction::Up,
                scope,
                begin,
                end: frame.at,
                flowed: begin.since(stream.flows_since),
                // The increment that ends the stop may raise the window far above its former size, as nginx does with a
                // body that it reads.
                window: window.size_before,
                is_prompt,
                is_paced: false,
                held: Duration::ZERO,
            });
            stream.flows_since = frame.at;
        }
    }
}

/// Credit came at `at`. If the credit for the first byte after a stop took longer than `longest`, that byte had waited
/// in the socket, and would have done so without the stop.
fn settle(window: &mut Window, at: Time, longest: Duration, stops: &mut [Stop]) {
    let total = window.total();
    while let Some(&(_, sent, stop)) = window.probes.front().filter(|(byte, ..)| *byte <= total) {
        window.probes.pop_front();
        if at.since(sent) > longest {
            stops[stop].is_prompt = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::transfer::Transfer;
    use super::*;
    use h2lab_wire::StreamId;

    const UP: Direction = Direction::Up;
    const DOWN: Direction = Direction::Down;

    /// The stops of a transfer, and the share of all response time that the prompt ones take.
    fn seen(transfer: Transfer) -> (Vec<Stop>, f64) {
        let record = transfer.record();
        let stops = stops(&record, Duration::from_millis(transfer.rtt));
        let all: Duration = record.samples.iter().map(|sample| sample.response_time()).sum();
        let prompt: Duration = stops.iter().filter(|stop| stop.is_prompt).map(Stop::duration).sum();
        (stops, prompt.as_secs_f64() / all.as_secs_f64())
    }

    #[test]
    fn credit_far_above_the_window_does_not_change_what_the_window_was() {
        let mut record = Transfer::new(UP).with_stream_window(64 << 10).record();
        let is_credit =
            |frame: &&mut FrameEvent| frame.kind == FrameKind::WINDOW_UPDATE && frame.stream.0 > 0;
        record.frames.iter_mut().filter(is_credit).for_each(|frame| frame.value = 1 << 28);
        let windows: Vec<u64> =
            stops(&record, Duration::from_millis(40)).iter().map(|stop| stop.window).collect();
        assert_eq!(windows, [64 << 10; 4], "each body stops once, at its first window");
    }

    #[test]
    fn credit_for_a_part_of_a_frame_makes_a_window_no_larger() {
        let mut record = Transfer::new(DOWN).with_stream_window(64 << 10).record();
        // As nghttp2 returns it: half of each frame's credit when half of the frame has arrived, before the frame is
        // complete.
        let credits: Vec<FrameEvent> = record
            .frames
            .iter()
            .filter(|frame| frame.kind == FrameKind::WINDOW_UPDATE && frame.stream.0 > 0)
            .copied()
            .collect();
        record.frames.retain(|frame| frame.kind != FrameKind::WINDOW_UPDATE || frame.stream.0 == 0);
        for credit in credits {
            let early = FrameEvent { at: credit.at - Duration::from_micros(1), value: 8 << 10, ..credit };
            let late = FrameEvent { value: credit.value - (8 << 10), ..credit };
            record.frames.extend([early, late]);
        }
        record.frames.sort_by_key(|frame| (frame.at, frame.kind != FrameKind::DATA));
        let stops = stops(&record, Duration::from_millis(40));
        assert!(!stops.is_empty() && stops.iter().all(|stop| stop.window == 64 << 10), "{stops:?}");
    }

    #[test]
    fn a_window_below_the_need_stops_the_sender_once_per_window_in_either_direction() {
        for direction in [UP, DOWN] {
            let (stops, share) = seen(Transfer::new(direction).with_stream_window(64 << 10));
            // 512 KiB are eight windows: seven stops of a round trip, four times.
            assert_eq!(stops.len(), 28, "{direction:?}");
            let is_usual = |stop: &Stop| {
                stop.is_prompt
                    && stop.scope == Scope::Stream
                    && (39..=40).contains(&stop.duration().as_millis())
            };
            assert!(stops.iter().all(is_usual), "{stops:?}");
            assert!((0.8..0.9).contains(&share), "{direction:?}: {share}");
        }
    }

    #[test]
    fn a_sender_that_spreads_what_a_window_lets_through_waits_for_credit() {
        // 64 KiB per round trip of 40 ms.
        for window in [64 << 10, 96 << 10] {
            let through = Transfer { stream_window: window, ..Transfer::new(DOWN) };
            let spread = Transfer { pace: window / 40, ..through };
            let (stops, share) = seen(spread);
            let paced: Vec<&Stop> = stops.iter().filter(|stop| stop.is_paced).collect();
            assert!(paced.len() >= 8 && share > 0.25, "{window}: {share} {paced:?}");
            assert!(paced.iter().all(|stop| stop.is_prompt && stop.window == window), "{paced:?}");
            let full = Transfer { rate: window / 40, pace: 1 << 30, ..spread };
            assert!(seen(full).1 < 0.02, "a link that is full: {window}");
            let large = Transfer { stream_window: window * 2, ..spread };
            let (stops, share) = seen(large);
            assert!(
                share < 0.02 && !stops.iter().any(|stop| stop.is_paced),
                "credit in hand: {window} {stops:?}"
            );
        }
    }

    #[test]
    fn the_window_that_opens_last_is_the_one_that_stops() {
        for direction in [UP, DOWN] {
            let transfer = Transfer { connection_window: 65_535, ..Transfer::new(direction) };
            let (stops, share) = seen(transfer);
            assert!(stops.iter().all(|stop| stop.scope == Scope::Connection), "{stops:?}");
            assert!(share > 0.7, "{direction:?}: {share}");
        }
    }

    /// nghttp2 makes the connection window smaller by never returning some credit, and returns the credit of both
    /// windows together.
    #[test]
    fn a_connection_window_that_was_made_smaller_beside_the_streams_is_no_slow_reader() {
        let small = Transfer { count: 1, ..Transfer::new(DOWN).with_stream_window(16 << 10) };
        let mut record = small.record();
        let is_credit = |frame: &FrameEvent| frame.kind == FrameKind::WINDOW_UPDATE;
        record.frames.retain(|frame| !is_credit(frame) || frame.stream.0 > 0);
        let never_given = DEFAULT_WINDOW - (16 << 10);
        let mut total = 0;
        let credits = record.frames.iter().filter(|frame| is_credit(frame)).copied().filter(|frame| {
            total += u64::from(frame.value);
            total > never_given
        });
        let credits: Vec<FrameEvent> = credits
            .map(|frame| FrameEvent { stream: StreamId(0), at: frame.at + Duration::from_millis(2), ..frame })
            .collect();
        record.frames.extend(credits);
        record.frames.sort_by_key(|frame| frame.at);
        let stops = stops(&record, Duration::from_millis(40));
        assert!(stops.len() > 20, "{stops:?}");
        let is_of_stream = |stop: &Stop| stop.scope == Scope::Stream && stop.is_prompt && stop.held.is_zero();
        assert!(stops.iter().all(is_of_stream), "{stops:?}");
    }

    #[test]
    fn windows_that_nothing_fills_stop_nobody() {
        for direction in [UP, DOWN] {
            assert_eq!(seen(Transfer::new(direction)).0, [], "{direction:?}");
            let slow_start = Transfer { slow_start: true, ..Transfer::new(direction) };
            assert_eq!(seen(slow_start).0, [], "{direction:?}");
        }
    }

    #[test]
    fn a_link_that_is_full_is_no_window_that_is_too_small() {
        for direction in [UP, DOWN] {
            // 640 bytes per ms: the path holds 25 KiB, and a window of 64 KiB keeps it full.
            let full = Transfer { rate: 640, ..Transfer::new(direction).with_stream_window(64 << 10) };
            let share = seen(full).1;
            assert!(share < 0.02, "{direction:?}: {share}");
        }
    }

    #[test]
    fn a_server_without_data_does_not_wait_for_credit() {
        let pausing = Transfer { pause: 20, ..Transfer::new(DOWN).with_stream_window(64 << 10) };
        assert_eq!(seen(pausing).0, [], "40 KiB per round trip");
    }

    #[test]
    fn a_client_that_reads_slowly_holds_the_credit_back() {
        let small = Transfer::new(DOWN).with_stream_window(64 << 10);
        assert!(seen(small).0.iter().all(|stop| stop.held.is_zero()));
        // 64 KiB take 218 ms to be read; their credit is returned as a whole.
        let slow = Transfer { read_rate: 300, credit_after: 64 << 10, ..small };
        let (stops, _) = seen(slow);
        let is_held = |stop: &Stop| (100..=218).contains(&stop.held.as_millis()) && stop.is_prompt;
        assert!(stops.len() >= 20 && stops.iter().all(is_held), "{stops:?}");
    }

    #[test]
    fn a_receiver_that_reads_slowly_gives_no_prompt_credit() {
        let slow = Transfer { read_rate: 300, ..Transfer::new(UP).with_stream_window(64 << 10) };
        let (stops, share) = seen(slow);
        assert!(!stops.is_empty() && share < 0.1, "{share}");
    }

    #[test]
    fn a_body_that_fits_into_the_first_flights_of_tcp_waits_for_those() {
        let transfer = Transfer { body: 100 << 10, slow_start: true, ..Transfer::new(UP) };
        let (_, share) = seen(Transfer { credit_after: 1, ..transfer.with_stream_window(64 << 10) });
        assert!(share < 0.02, "{share}");
    }

    #[test]
    fn what_follows_a_long_flow_of_data_was_late() {
        // 1,638 bytes per ms: the path holds 64 KiB, and the window is four times as large.
        let late = Transfer {
            rate: 1_638,
            body: 2 << 20,
            stream_window: 256 << 10,
            credit_after: 256 << 10,
            ..Transfer::new(DOWN)
        };
        let (stops, _) = seen(late);
        assert!(
            !stops.is_empty() && stops.iter().all(|stop| stop.flowed > Duration::from_millis(100)),
            "{stops:?}"
        );
        let in_time = Transfer { credit_after: 128 << 10, ..late };
        assert!(seen(in_time).1 < 0.02);
    }

    #[test]
    fn more_data_than_was_granted_ends_the_conclusions() {
        let mut record = Transfer::new(DOWN).with_stream_window(64 << 10).record();
        record.connections[0].http.settings_local = vec![(setting::INITIAL_WINDOW_SIZE, 1_000)];
        assert_eq!(stops(&record, Duration::from_millis(40)), []);
    }

    #[test]
    fn a_short_path_or_one_of_quic_has_no_stops() {
        let mut record = Transfer::new(DOWN).with_stream_window(64 << 10).record();
        assert_eq!(stops(&record, Duration::from_micros(999)), []);
        record.cell.protocol = h2lab_model::workload::Protocol::H3;
        assert_eq!(stops(&record, Duration::from_millis(40)), []);
    }
}
