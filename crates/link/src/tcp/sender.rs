//! The sending half: what is in flight, what is lost, and when it is sent again.

use std::collections::VecDeque;
use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_base::units::Time;

use super::congestion::Window;
use super::trips::RoundTrips;
use super::{Config, EndFigures, Segment};

/// Transmissions after a segment whose delivery shows that it was lost (RFC 5681 §3.2).
const DUPLICATES: usize = 3;
/// The longest retransmission timeout (Linux's `TCP_RTO_MAX`).
const LONGEST_RTO: Duration = Duration::from_secs(120);
/// No timer is shorter (Linux's `TCP_TIMEOUT_MIN`).
const SHORTEST_TIMER: Duration = Duration::from_millis(2);

/// A segment that was sent and not acknowledged in order.
#[derive(Debug)]
struct Flight {
    seq: u64,
    length: usize,
    fin: bool,
    sent_at: Time,
    /// The number of its last transmission among all transmissions of this end.
    serial: u64,
    /// Sent more than once: its acknowledgement gives no round-trip sample (Karn's rule).
    repeated: bool,
    standing: Standing,
}

/// The state of a segment that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It counts as being in the network.
    Inside,
    /// It has arrived, as a selective acknowledgement says.
    Arrived,
    /// It is considered lost, and waits for retransmission.
    Lost,
}

impl Flight {
    /// One past its last byte; FIN counts as one.
    fn end(&self) -> u64 {
        self.seq + self.length as u64 + u64::from(self.fin)
    }

    fn is_inside(&self) -> bool {
        self.standing == Standing::Inside
    }

    fn is_lost(&self) -> bool {
        self.standing == Standing::Lost
    }

    fn has_arrived(&self) -> bool {
        self.standing == Standing::Arrived
    }

    /// The round-trip sample of its acknowledgement, unless it was sent twice.
    fn trip(&self, now: Time) -> Option<Duration> {
        (!self.repeated).then(|| now.since(self.sent_at))
    }
}

/// Why the window does not grow normally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recovery {
    /// Losses were found by acknowledgements: the window stays until all that was in flight then is acknowledged.
    Fast(u64),
    /// A timeout expired: slow start, without a further reduction until then.
    Timeout(u64),
}

/// The tail loss probe (RFC 8985 §7): the end of what is in flight is sent again, so that its acknowledgement shows what
/// else is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TailProbe {
    /// Not armed.
    Off,
    /// To be sent at this time, if nothing is acknowledged before.
    At(Time),
    /// To be sent now.
    Due,
    /// It was sent; the next one comes only after something new was acknowledged.
    Spent,
}

impl TailProbe {
    fn at(self) -> Time {
        if let Self::At(at) = self { at } else { Time::NEVER }
    }
}

/// The stream that this end sends.
#[derive(Debug)]
pub(super) struct Sender {
    config: Config,
    /// Bytes from `acknowledged` on, sent or not.
    buffer: VecDeque<u8>,
    /// Every byte before this one has arrived.
    acknowledged: u64,
    /// The next new byte to send.
    next: u64,
    /// One past the last byte that the receiver has room for.
    limit: u64,
    /// FIN follows the last byte.
    closing: bool,
    flights: VecDeque<Flight>,
    window: Window,
    /// The window, not the application, ended the last burst.
    held_back: bool,
    recovery: Option<Recovery>,
    serials: u64,
    /// The serials of the last transmissions known to have been delivered, newest first.
    delivered: [u64; DUPLICATES],
    trips: RoundTrips,
    /// When the retransmission timeout, or that of a window probe, expires.
    timeout_at: Time,
    backoff: u32,
    tail_probe: TailProbe,
    /// A window probe is to be sent.
    probe_window: bool,
    lengths: Counter,
    figures: EndFigures,
}

impl Sender {
    pub fn new(config: Config) -> Self {
        Self {
            buffer: VecDeque::new(),
            acknowledged: 1,
            next: 1,
            limit: 1,
            closing: false,
            flights: VecDeque::new(),
            window: Window::new(config.congestion, config.initial_window),
            held_back: false,
            recovery: None,
            serials: 0,
            delivered: [0; DUPLICATES],
            trips: RoundTrips::default(),
            timeout_at: Time::NEVER,
            backoff: 0,
            tail_probe: TailProbe::Off,
            probe_window: false,
            lengths: Counter::new(config.shred.unwrap_or(0), "segments"),
            figures: EndFigures::default(),
            config,
        }
    }

    /// A round trip was measured by the handshake.
    pub fn measured(&mut self, rtt: Duration) {
        self.trips.measured(rtt);
    }

    /// Takes as much of `bytes` as there is room for.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.config.send_buffer.saturating_sub(self.buffer.len()));
        if self.closing {
            return 0;
        }
        self.buffer.extend(&bytes[..n]);
        n
    }

    /// No more bytes will be written.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// One past the last byte written.
    fn end(&self) -> u64 {
        self.acknowledged + self.buffer.len() as u64
    }

    /// An acknowledgement has arrived.
    pub fn take_ack(&mut self, now: Time, segment: &Segment) {
        let before = self.limit;
        self.limit = self.limit.max(segment.ack + segment.window);
        let mut newly = 0;
        let mut sample = None;
        let progress = segment.ack > self.acknowledged;
        while let Some(flight) = self.flights.front().filter(|flight| flight.end() <= segment.ack) {
            if !flight.has_arrived() {
                newly += 1;
                sample = flight.trip(now).or(sample);
                note_delivery(&mut self.delivered, &self.trips, now, flight);
            }
            let length = flight.length;
            self.buffer.drain(..length);
            self.acknowledged += length as u64;
            self.flights.pop_front();
        }
        for flight in self.flights.iter_mut().filter(|flight| !flight.has_arrived()) {
            if segment.sack.iter().any(|(first, end)| *first <= flight.seq && flight.end() <= *end) {
                flight.standing = Standing::Arrived;
                newly += 1;
                sample = flight.trip(now).or(sample);
                note_delivery(&mut self.delivered, &self.trips, now, flight);
            }
        }
        if let Some(rtt) = sample {
            self.trips.measured(rtt);
        }
        self.after_ack(now, newly);
        self.find_losses(now);
        if progress || self.limit > before {
            self.backoff = 0;
            if progress {
                self.tail_probe = TailProbe::Off;
            }
            self.rearm(now);
        }
    }

    /// Lets the window follow `newly` delivered segments.
    fn after_ack(&mut self, now: Time, newly: u32) {
        match self.recovery {
            Some(Recovery::Fast(until) | Recovery::Timeout(until)) if self.acknowledged >= until => {
                self.recovery = None;
            }
            _ => {}
        }
        let may_grow = !matches!(self.recovery, Some(Recovery::Fast(_)));
        if newly > 0 && may_grow && self.held_back {
            self.window.grow(now, newly, self.trips.smoothed());
        }
    }

    /// Considers a segment lost if three later transmissions have been delivered, or if one has and the segment was
    /// sent at least a reordering window ago (RFC 8985 §6.2).
    fn find_losses(&mut self, now: Time) {
        let [newest, .., third] = self.delivered;
        let reordering_window = self.trips.reordering_window();
        let mut found = false;
        for flight in self.flights.iter_mut().filter(|flight| flight.is_inside()) {
            let overdue = flight.serial < newest && flight.sent_at + reordering_window <= now;
            if flight.serial < third || overdue {
                flight.standing = Standing::Lost;
                found = true;
            }
        }
        if found && self.recovery.is_none() {
            self.recovery = Some(Recovery::Fast(self.next));
            self.window.shrink();
        }
    }

    /// When a segment that was sent before a delivered one is considered lost.
    fn reordering_at(&self) -> Time {
        let waiting =
            self.flights.iter().filter(|flight| flight.is_inside() && flight.serial < self.delivered[0]);
        waiting.map(|flight| flight.sent_at + self.trips.reordering_window()).min().unwrap_or(Time::NEVER)
    }

    /// Starts the timeout anew, or stops it when nothing is in flight and nothing waits for the receiver's window.
    fn rearm(&mut self, now: Time) {
        let waits = !self.flights.is_empty() || self.next < self.end();
        self.timeout_at = if waits {
            now + (self.trips.timeout(self.config.min_rto) * (1 << self.backoff.min(16))).min(LONGEST_RTO)
        } else {
            Time::NEVER
        };
        self.arm_tail_probe(now);
    }

    /// A single segment in flight may wait for a delayed acknowledgement, so the probe gives it as long as Linux does.
    fn arm_tail_probe(&mut self, now: Time) {
        if matches!(self.tail_probe, TailProbe::Due | TailProbe::Spent) {
            return;
        }
        let is_open = self.recovery.is_none() && self.flights.iter().all(Flight::is_inside);
        let allowance = if self.flights.len() == 1 { self.config.min_rto } else { SHORTEST_TIMER };
        self.tail_probe = match self.trips.known() {
            Some(trip) if is_open && !self.flights.is_empty() => {
                TailProbe::At((now + trip * 2 + allowance).min(self.timeout_at))
            }
            _ => TailProbe::Off,
        };
    }

    /// When [`Sender::handle_timeout`] must be called.
    pub fn timeout_at(&self) -> Time {
        self.timeout_at.min(self.tail_probe.at()).min(self.reordering_at())
    }

    /// A deadline has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.find_losses(now);
        if self.tail_probe.at() <= now {
            self.tail_probe = TailProbe::Due;
            self.rearm(now);
            return;
        }
        if self.timeout_at > now {
            return;
        }
        self.backoff += 1;
        if self.flights.is_empty() {
            self.probe_window = self.next < self.end();
        } else {
            self.figures.timeouts += 1;
            for flight in self.flights.iter_mut().filter(|flight| !flight.has_arrived()) {
                flight.standing = Standing::Lost;
            }
            if self.recovery.is_none() {
                self.window.shrink();
            }
            self.window.restart();
            self.recovery = Some(Recovery::Timeout(self.next));
        }
        self.rearm(now);
    }

    /// The next segment that may leave: lost ones first, then new ones.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        let inside = self.flights.iter().filter(|flight| flight.is_inside()).count();
        let has_room = inside < self.window.segments() as usize;
        let has_lost = self.flights.iter().any(Flight::is_lost);
        self.held_back = !has_room && (has_lost || self.next < self.end());
        if has_room && has_lost {
            let lost = self.flights.iter().position(Flight::is_lost)?;
            return Some(self.again(now, lost));
        }
        if self.tail_probe == TailProbe::Due && !self.flights.is_empty() {
            self.tail_probe = TailProbe::Spent;
            let new = self.new_segment(now);
            return Some(new.unwrap_or_else(|| self.again(now, self.flights.len() - 1)));
        }
        if std::mem::take(&mut self.probe_window) {
            // One byte below what is acknowledged, as Linux sends it: the answer carries the window.
            return Some(Segment { seq: self.acknowledged - 1, probe: true, ..Segment::default() });
        }
        if !has_room {
            return None;
        }
        self.new_segment(now)
    }

    /// Sends a segment in flight again.
    fn again(&mut self, now: Time, place: usize) -> Segment {
        self.serials += 1;
        self.figures.retransmits += 1;
        let flight = &mut self.flights[place];
        (flight.standing, flight.repeated) = (Standing::Inside, true);
        (flight.sent_at, flight.serial) = (now, self.serials);
        let (seq, length, fin) = (flight.seq, flight.length, flight.fin);
        self.segment(now, seq, length, fin)
    }

    fn new_segment(&mut self, now: Time) -> Option<Segment> {
        let unsent = self.end().saturating_sub(self.next);
        if unsent == 0 {
            let fin_sent = self.next > self.end();
            return (self.closing && !fin_sent).then(|| self.launch(now, 0, true));
        }
        let allowed = self.limit.saturating_sub(self.next);
        let full = self.full_length().min(unsent);
        // A sliver of window is not used while a larger part of it may still open (RFC 9293 §3.8.6.2.1).
        let length = if allowed >= full || self.flights.is_empty() { full.min(allowed) } else { 0 };
        if length > 0 {
            return Some(self.launch(now, length as usize, false));
        }
        if self.flights.is_empty() && !self.timeout_at.happened() {
            self.rearm(now); // nothing in flight will bring an acknowledgement: probe
        }
        None
    }

    /// Sends what is next for the first time.
    fn launch(&mut self, now: Time, length: usize, fin: bool) -> Segment {
        self.serials += 1;
        let flight = Flight {
            seq: self.next,
            length,
            fin,
            sent_at: now,
            serial: self.serials,
            repeated: false,
            standing: Standing::Inside,
        };
        self.next = flight.end();
        let seq = flight.seq;
        self.flights.push_back(flight);
        self.segment(now, seq, length, fin)
    }

    fn segment(&mut self, now: Time, seq: u64, length: usize, fin: bool) -> Segment {
        self.figures.segments_out += u32::from(length > 0);
        let first = (seq - self.acknowledged) as usize;
        let payload = copy(&self.buffer, first, length);
        if self.flights.len() == 1 || !self.timeout_at.happened() {
            self.rearm(now);
        } else {
            self.arm_tail_probe(now);
        }
        Segment { seq, payload, fin, ..Segment::default() }
    }

    /// The length of the next new segment, if there are bytes enough.
    fn full_length(&mut self) -> u64 {
        let full = self.config.segment as u64;
        match self.config.shred {
            None => full,
            Some(_) if self.lengths.below(4) == 0 => 1 + self.lengths.below(full),
            Some(_) => 1 + self.lengths.below(full.min(64)),
        }
    }

    /// Segments in flight, how many of them are known to be lost or beyond a lost one, and bytes that were never sent.
    #[allow(dead_code, reason = "the pool of h2lab-proxy is simulated over this model, too, and asks")]
    pub fn flight(&self) -> (u32, u32, u32) {
        let known = self.flights.iter().filter(|flight| !flight.is_inside()).count();
        (self.flights.len() as u32, known as u32, self.end().saturating_sub(self.next) as u32)
    }

    /// Bytes that were acknowledged, and bytes that were written, so far.
    pub fn progress(&self) -> (u64, u64) {
        (self.acknowledged - 1, self.end() - 1)
    }

    /// What this end has done so far.
    pub fn figures(&self) -> EndFigures {
        EndFigures {
            cwnd: self.window.segments(),
            rtt: self.trips.smoothed(),
            min_rtt: self.trips.shortest(),
            ..self.figures
        }
    }
}

/// A copy of `length` bytes from place `first` on; in blocks, since a debug build would spend most of its time here.
fn copy(buffer: &VecDeque<u8>, first: usize, length: usize) -> Vec<u8> {
    let (front, back) = buffer.as_slices();
    let in_front = &front[first.min(front.len())..(first + length).min(front.len())];
    let from = first.max(front.len()) - front.len();
    let in_back = &back[from..from + length - in_front.len()];
    [in_front, in_back].concat()
}

/// Records that the last transmission of `flight` has arrived. If that was a repetition less than a round trip ago, it
/// has not: the acknowledgement is for an earlier transmission (RFC 8985 §6.2 step 2).
fn note_delivery(delivered: &mut [u64; DUPLICATES], trips: &RoundTrips, now: Time, flight: &Flight) {
    let too_soon = flight.repeated && now.since(flight.sent_at) < trips.shortest();
    if too_soon {
        return;
    }
    let mut serial = flight.serial;
    for place in delivered {
        if serial > *place {
            std::mem::swap(place, &mut serial);
        }
    }
}
