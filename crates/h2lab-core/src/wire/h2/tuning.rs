//! How large our receive windows are: as configured, as the measured bandwidth-delay product asks for, or as little as
//! memory allows (RFC 9113 §5.2.1 leaves all of it to the receiver).
//!
//! [`Tuner`] measures, in rounds of at least one round trip, what the role *released*: bytes that it was done with, not
//! bytes that arrived. A role that reads slowly therefore looks like a slow path, which for its window it is. The rate of
//! a round times the least round trip is the bandwidth-delay product; the window is [`HEADROOM`] times that.
//!
//! - Round trips come from the acknowledgement of our SETTINGS and from PINGs of our own. The least one counts: under load
//!   an acknowledgement queues behind the peer's DATA, and a window made to fit that queue would lengthen it. The price: a
//!   path that becomes longer while a connection lasts gets no larger window. It was rejected to let the least one expire,
//!   because the load that the window itself makes would take its place.
//! - PINGs go out only with released body, one at a time, one for each growth and [`MOST_PINGS`] in all: servers that
//!   count PINGs (gRPC allows two without DATA in between) see none that their own DATA did not cause. A PING per round,
//!   as gRPC's clients send, was rejected: the clock measures the rate just as well.
//! - A window grows by WINDOW_UPDATE, each stream's by its own pace. Raising `SETTINGS_INITIAL_WINDOW_SIZE` instead was
//!   rejected: it lifts the streams of slow readers too (RFC 9113 §6.9.2), and these could then take up all of the
//!   connection's window. The price: a new stream begins with the announced window, and grows with its second round.
//! - It never shrinks by itself: an idle sender would have to begin anew. Under [`Tuner::limit_to`] credit is withheld
//!   until windows have come down, since what was handed out cannot be taken back.

use std::time::Duration;

use super::Connection;
use super::frame::{MAX_31_BITS, kind};
use super::settings::MIN_FRAME_SIZE;
use super::stream::{Side, Stream};
use super::streams::Key;
use crate::units::{Time, nanos};
use crate::wire::FlowControl;

/// Windows per bandwidth-delay product. One is under way, a second one waits with the sender's transport (Linux lets it
/// hold twice what is in flight), and a quarter of the window is credit not yet returned: (1 + 1) / (1 - 1/4) is 2.7.
const HEADROOM: u128 = 3;

/// A growth below this share of the window, in percent, is not worth its frames.
const LEAST_GROWTH_PERCENT: u64 = 112;

/// While windows are tuned credit goes back after this share of them, in percent, at the latest.
const LATEST_CREDIT_PERCENT: u8 = 25;

/// PINGs of the tuner on one connection: growing sixteen times by the least step multiplies a window by six, by the usual
/// one by 400,000.
const MOST_PINGS: u32 = 16;

/// The first payload of the tuner's PINGs; the role's count up from 0 and never get here.
const FIRST_PAYLOAD: u64 = 1 << 63;

/// What one stream released in the round under way, or in the last one that it took part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    round: u32,
    bytes: u32,
}

impl Pace {
    /// Nothing was released yet.
    pub(super) const NONE: Self = Self { round: 0, bytes: 0 };
}

/// Bytes released from one moment, exclusively, to another, inclusively.
#[derive(Debug, Clone, Copy)]
struct Round {
    number: u32,
    /// [`Time::NEVER`] before anything was released.
    began: Time,
    last: Time,
    bytes: u64,
}

/// Says how large the windows are.
#[derive(Debug)]
pub(super) struct Tuner {
    /// The window up to which may be tuned; `None`: not at all.
    limit: Option<u32>,
    /// What memory allows.
    cap: u32,
    /// What was found to be needed; to begin with the smaller one of those configured.
    window: u32,
    greeted: Time,
    least_rtt: Option<Duration>,
    round: Round,
    /// Length and bytes of the round before.
    before: Option<(Duration, u64)>,
    /// The payload under way and when it left.
    ping: Option<(u64, Time)>,
    pings: u32,
    ping_is_due: bool,
    /// A PING that left while body arrived came back. Before that the least round trip may be that of a server that had to
    /// start first.
    is_measured: bool,
}

impl Tuner {
    /// Windows as `flow` has them, of a connection that begins at `now`.
    pub(super) fn new(flow: &FlowControl, now: Time) -> Self {
        Self {
            limit: flow.auto_limit.map(|limit| limit.min(MAX_31_BITS)),
            cap: MAX_31_BITS,
            window: flow.stream_window.min(flow.connection_window),
            greeted: now,
            least_rtt: None,
            round: Round { number: 1, began: Time::NEVER, last: Time::NEVER, bytes: 0 },
            before: None,
            ping: None,
            pings: 0,
            ping_is_due: false,
            is_measured: false,
        }
    }

    /// Memory allows windows of `bytes`, or of one frame of the least size. What was measured above that is forgotten:
    /// when there is memory again, windows grow as they did at first.
    pub(super) fn limit_to(&mut self, bytes: u32) {
        self.cap = bytes.clamp(MIN_FRAME_SIZE, MAX_31_BITS);
        self.window = self.window.min(self.cap);
    }

    /// A window of `bytes`, or of what memory allows.
    pub(super) fn capped(&self, bytes: u32) -> u32 {
        bytes.min(self.cap)
    }

    /// The window of the connection, of which `configured` bytes were asked for.
    pub(super) fn connection_window(&self, configured: u32) -> u32 {
        self.capped(if self.limit.is_some() { configured.max(self.window) } else { configured })
    }

    /// After how much of a window of `size` bytes credit goes back: at least 1 byte, at most all of it (more would never
    /// come).
    pub(super) fn credit_at(&self, size: u32, flow: &FlowControl) -> u32 {
        let latest = if self.limit.is_some() { LATEST_CREDIT_PERCENT } else { 100 };
        let share = u64::from(flow.update_threshold_percent.min(latest));
        ((u64::from(size) * share / 100) as u32).max(1)
    }

    /// The peer acknowledged our SETTINGS.
    pub(super) fn settings_acknowledged(&mut self, now: Time) {
        self.round_trip(now.since(self.greeted));
    }

    fn round_trip(&mut self, rtt: Duration) {
        self.least_rtt = Some(self.least_rtt.map_or(rtt, |least| least.min(rtt)));
    }

    /// The payload of a PING to send now, if one is due.
    pub(super) fn take_ping(&mut self, now: Time) -> Option<[u8; 8]> {
        if !self.ping_is_due || self.ping.is_some() || self.pings >= MOST_PINGS {
            return None;
        }
        let payload = FIRST_PAYLOAD + u64::from(self.pings);
        self.pings += 1;
        self.ping_is_due = false;
        self.ping = Some((payload, now));
        Some(payload.to_be_bytes())
    }

    /// A PING was acknowledged; `false` if it is not ours.
    pub(super) fn ping_acknowledged(&mut self, now: Time, payload: [u8; 8]) -> bool {
        let Some((ours, sent)) = self.ping.filter(|ping| ping.0.to_be_bytes() == payload) else {
            return false;
        };
        debug_assert!(ours >= FIRST_PAYLOAD, "the role's PINGs count from 0");
        self.ping = None;
        self.is_measured = true;
        self.round_trip(now.since(sent));
        true
    }

    /// The role is done with `bytes` of the connection.
    pub(super) fn released(&mut self, now: Time, bytes: u32) {
        if self.limit.is_none() || bytes == 0 {
            return;
        }
        if !self.round.began.happened() {
            // What comes first has no beginning to be measured from.
            (self.round.began, self.round.last) = (now, now);
            self.ping_is_due = true;
            return;
        }
        if now > self.round.last && self.is_round_over() {
            self.begin_round();
        }
        self.round.bytes += u64::from(bytes);
        self.round.last = now;
        if self.is_round_over() {
            self.consider();
        }
    }

    /// The role is done with `bytes` of a stream with a window of `size`, after [`Tuner::released`] was told. The window
    /// that the stream is to have instead, if it needs a larger one.
    pub(super) fn stream_released(&self, pace: &mut Pace, bytes: u32, size: u32) -> Option<u32> {
        self.limit?;
        let number = self.round.number;
        let mut wanted = 0;
        if pace.round != number {
            // It may have had nothing to release at the very end of the round before.
            if let Some((elapsed, _)) = self.before.filter(|_| pace.round.wrapping_add(1) == number) {
                wanted = self.wanted(u64::from(pace.bytes), elapsed);
            }
            *pace = Pace { round: number, bytes: 0 };
        }
        pace.bytes = pace.bytes.saturating_add(bytes);
        if self.is_round_over() {
            wanted = wanted.max(self.wanted(u64::from(pace.bytes), self.elapsed()));
        }
        let window = self.capped(self.window);
        (wanted > size && window > size).then_some(window)
    }

    fn elapsed(&self) -> Duration {
        self.round.last.since(self.round.began)
    }

    /// Whether the round is long enough to tell a rate.
    fn is_round_over(&self) -> bool {
        let elapsed = self.elapsed();
        self.is_measured && !elapsed.is_zero() && self.least_rtt.is_some_and(|rtt| elapsed >= rtt)
    }

    fn begin_round(&mut self) {
        self.before = Some((self.elapsed(), self.round.bytes));
        let Round { number, last, .. } = self.round;
        self.round = Round { number: number.wrapping_add(1), began: last, last, bytes: 0 };
    }

    /// The window for a rate of `bytes` in `elapsed`, which is above zero.
    fn wanted(&self, bytes: u64, elapsed: Duration) -> u32 {
        let rtt = nanos(self.least_rtt.unwrap_or_default());
        let window = HEADROOM * u128::from(bytes) * u128::from(rtt) / u128::from(nanos(elapsed));
        u32::try_from(window).unwrap_or(u32::MAX)
    }

    /// Grows the window if the round asks for it. A round together with the one before must ask for it too: what was held
    /// up by a lost packet, or by a role that was busy, arrives all at once, faster than the path carries.
    fn consider(&mut self) {
        let (elapsed, bytes) = (self.elapsed(), self.round.bytes);
        let (longer, more) = self.before.unwrap_or_default();
        let steady = self.wanted(bytes + more, elapsed + longer);
        let most = self.limit.unwrap_or(0).min(self.cap);
        let wanted = self.wanted(bytes, elapsed).min(steady).min(most);
        if u64::from(wanted) * 100 >= u64::from(self.window) * LEAST_GROWTH_PERCENT {
            self.window = wanted;
            self.ping_is_due = true;
        }
    }
}

impl Connection {
    /// See [`super::super::Connection::set_window_limit`].
    pub fn set_window_limit(&mut self, bytes: u32) {
        if !self.end.is_open() {
            return;
        }
        self.tuner.limit_to(bytes);
        self.fit_streams();
        self.return_connection_credit();
        for key in self.streams.keys() {
            if self.streams[key].remote != Side::Ended {
                self.return_stream_credit(key);
            }
        }
    }

    /// Gives all streams at least the window that was announced, as far as memory allows.
    pub(super) fn fit_streams(&mut self) {
        for stream in self.streams.iter_mut() {
            let size = stream.receive.size().max(self.stream_window);
            stream.receive.resize(self.tuner.capped(size));
        }
    }

    /// The role is done with `bytes` of the connection; asks how long the round trip is if that is worth knowing.
    pub(super) fn measure_release(&mut self, now: Time, bytes: u32) {
        self.tuner.released(now, bytes);
        if let Some(payload) = self.tuner.take_ping(now) {
            self.put_frame(kind::PING, 0, 0, &payload);
        }
    }

    /// The role is done with `bytes` of a stream whose peer may still send.
    pub(super) fn stream_released(&mut self, key: Key, bytes: u32) {
        let Stream { pace, receive, .. } = &mut self.streams[key];
        if let Some(size) = self.tuner.stream_released(pace, bytes, receive.size()) {
            receive.resize(size);
        }
        self.return_stream_credit(key);
    }

    /// Returns what credit is due to the connection.
    pub(super) fn return_connection_credit(&mut self) {
        let flow = &self.config.flow;
        let size = self.tuner.connection_window(flow.connection_window);
        self.receive_window.resize(size);
        if let Some(increment) = self.receive_window.take_credit(self.tuner.credit_at(size, flow)) {
            self.put_frame(kind::WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
        }
    }

    /// Returns what credit is due to a stream whose peer may still send.
    fn return_stream_credit(&mut self, key: Key) {
        let flow = &self.config.flow;
        let stream = &mut self.streams[key];
        // What the window loses when our SETTINGS are acknowledged; nothing from then on.
        let surplus = self.stream_window - flow.stream_window.min(self.stream_window);
        let size = stream.receive.size().saturating_sub(surplus);
        if let Some(increment) = stream.receive.take_credit(self.tuner.credit_at(size, flow)) {
            let id = stream.id;
            self.put_frame(kind::WINDOW_UPDATE, 0, id, &increment.to_be_bytes());
        }
    }
}
