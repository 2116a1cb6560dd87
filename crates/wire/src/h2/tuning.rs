//! How large our receive windows are: as configured, as the measured bandwidth-delay product requires, or as little as
//! memory allows (RFC 9113 §5.2.1 leaves this to the receiver).
//!
//! [`Tuner`] measures, in rounds of at least one round trip, what the role *released*: bytes that it consumed, not
//! bytes that arrived. A role that reads slowly therefore looks like a slow path, which for its window it is. The rate
//! of a round times the least round trip is the bandwidth-delay product; the window is [`HEADROOM`] times that. It
//! grows during the round, as bytes arrive, so that a sender limited by the window has three times as much one round
//! trip later.
//!
//! - Round trips come from the acknowledgement of our SETTINGS and from PINGs of our own. The least one counts: under
//!   load an acknowledgement queues behind the peer's DATA, and a window made to fit that queue would lengthen it. The
//!   price: a path that becomes longer during a connection gets no larger window. Letting the minimum expire was
//!   rejected, because the load that the window itself makes would take its place.
//! - PINGs go out only with released body, one at a time, one for each growth and [`MOST_PINGS`] in all: servers that
//!   count PINGs (gRPC allows two without DATA in between) see none that their own DATA did not cause. A PING per
//!   round, as gRPC's clients send, was rejected: the clock measures the rate just as well.
//! - A window grows by WINDOW_UPDATE, each stream's by its own pace. Raising `SETTINGS_INITIAL_WINDOW_SIZE` instead was
//!   rejected: it lifts the streams of slow readers too (RFC 9113 §6.9.2), and these could then take up all of the
//!   connection's window. The price: a new stream begins with the announced window, and grows with its second round.
//! - It never shrinks by itself: an idle sender would have to start over. Under [`Tuner::limit_to`] credit is withheld
//!   until windows have come down, since what was handed out cannot be taken back.

use std::sync::Arc;
use std::time::Duration;

use super::Connection;
use super::frame::{MAX_31_BITS, kind};
use super::settings::MIN_FRAME_SIZE;
use super::stream::{Pace, Side, Stream};
use super::streams::Key;
use crate::FlowControl;
use h2lab_base::units::{Time, nanos};

/// Windows per bandwidth-delay product. One is under way, a second one waits with the sender's transport (Linux lets it
/// hold twice what is in flight), and a quarter of the window is credit not yet returned: (1 + 1) / (1 - 1/4) is 2.7.
const HEADROOM: u128 = 3;

/// A growth to less than this share of the window that a round began with, in percent, is not worth its frames.
const LEAST_GROWTH_PERCENT: u64 = 112;

/// While windows are tuned, credit is returned after this share of them, in percent, at the latest.
const LATEST_CREDIT_PERCENT: u8 = 25;

/// PINGs of the tuner on one connection: growing sixteen times by the least step multiplies a window by six, by the
/// usual one by 400,000.
const MOST_PINGS: u32 = 16;

/// The first payload of the tuner's PINGs; the role's count up from 0 and never reach this.
const FIRST_PAYLOAD: u64 = 1 << 63;

/// Bytes released after one moment and up to another, which is included.
#[derive(Debug, Clone, Copy)]
struct Round {
    number: u32,
    /// [`Time::NEVER`] before anything was released.
    began: Time,
    last: Time,
    bytes: u64,
    /// The window when the round began, or what memory has left of that.
    window: u32,
}

/// Decides how large the windows are.
#[derive(Debug)]
pub(super) struct Tuner {
    /// The largest window to tune to; `None`: no tuning.
    limit: Option<u32>,
    /// What memory allows.
    cap: u32,
    /// The window found necessary; initially the smaller of those configured.
    window: u32,
    greeted: Time,
    least_rtt: Option<Duration>,
    round: Round,
    /// Length and bytes of the round before.
    before: Option<(Duration, u64)>,
    /// The PING under way: its payload and when it was sent.
    ping: Option<(u64, Time)>,
    pings: u32,
    ping_is_due: bool,
}

impl Tuner {
    /// Windows as `flow` has them, of a connection that begins at `now`.
    pub(super) fn new(flow: &FlowControl, now: Time) -> Self {
        let window = flow.stream_window.min(flow.connection_window);
        Self {
            limit: flow.auto_limit.map(|limit| limit.min(MAX_31_BITS)),
            cap: MAX_31_BITS,
            window,
            greeted: now,
            least_rtt: None,
            round: Round { number: 1, began: Time::NEVER, last: Time::NEVER, bytes: 0, window },
            before: None,
            ping: None,
            pings: 0,
            ping_is_due: false,
        }
    }

    /// Memory allows windows of `bytes`, or of one frame of the least size. What was measured above that is dropped:
    /// when there is memory again, windows grow as they did at first.
    pub(super) fn limit_to(&mut self, bytes: u32) {
        self.cap = bytes.clamp(MIN_FRAME_SIZE, MAX_31_BITS);
        self.window = self.window.min(self.cap);
        self.round.window = self.round.window.min(self.cap);
    }

    /// A window of `bytes`, or of what memory allows.
    pub(super) fn capped(&self, bytes: u32) -> u32 {
        bytes.min(self.cap)
    }

    /// The window of the connection, of which `configured` bytes were asked for.
    pub(super) fn connection_window(&self, configured: u32) -> u32 {
        self.capped(if self.limit.is_some() { configured.max(self.window) } else { configured })
    }

    /// After how much of a window of `size` bytes credit is returned: at least 1 byte, at most all of it (more would
    /// never arrive).
    pub(super) fn credit_at(&self, size: u32, flow: &FlowControl) -> u32 {
        let latest = if self.limit.is_some() { LATEST_CREDIT_PERCENT } else { 100 };
        let at = |percent: u8| (u64::from(size) * u64::from(percent) / 100) as u32;
        let asked = flow.update_bytes.unwrap_or_else(|| at(flow.update_threshold_percent.min(latest)));
        asked.min(at(latest)).max(1)
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
        self.round_trip(now.since(sent));
        true
    }

    /// Whether windows are tuned at all: fixed ones need no measurement.
    pub(super) const fn is_tuning(&self) -> bool {
        self.limit.is_some()
    }

    /// The role is done with `bytes` of the connection.
    pub(super) fn released(&mut self, now: Time, bytes: u32) {
        if !self.is_tuning() || bytes == 0 {
            return;
        }
        if !self.round.began.happened() {
            // The first release has no start to measure from.
            (self.round.began, self.round.last) = (now, now);
            self.ping_is_due = true;
            return;
        }
        if now > self.round.last && self.is_round_over() {
            self.begin_round();
        }
        self.round.bytes += u64::from(bytes);
        self.round.last = now;
        if self.shows_a_rate() {
            self.consider();
        }
    }

    /// The role is done with `bytes` of a stream with a window of `size`; call [`Tuner::released`] first. Returns a
    /// larger window for the stream, if it needs one.
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
        if self.shows_a_rate() {
            wanted = wanted.max(self.wanted(u64::from(pace.bytes), self.elapsed()));
        }
        let window = self.capped(self.window);
        (wanted > size && window > size).then_some(window)
    }

    fn elapsed(&self) -> Duration {
        self.round.last.since(self.round.began)
    }

    /// Whether the round is long enough to show a rate. If our SETTINGS were acknowledged late, by a server that had to
    /// start first, the PING that leaves with the first round is answered before the round is over.
    fn is_round_over(&self) -> bool {
        let elapsed = self.elapsed();
        !elapsed.is_zero() && self.least_rtt.is_some_and(|rtt| elapsed >= rtt)
    }

    /// Whether the round shows a lower bound of the rate. It does before it is over: these bytes came within a round
    /// trip. Waiting for its end costs a window that is too small a second round trip for each growth.
    const fn shows_a_rate(&self) -> bool {
        self.least_rtt.is_some()
    }

    fn begin_round(&mut self) {
        self.before = Some((self.elapsed(), self.round.bytes));
        let Round { number, last, .. } = self.round;
        let number = number.wrapping_add(1);
        self.round = Round { number, began: last, last, bytes: 0, window: self.window };
    }

    /// The window for a rate of `bytes` in `elapsed`, or in a round trip if that is longer.
    fn wanted(&self, bytes: u64, elapsed: Duration) -> u32 {
        let rtt = nanos(self.least_rtt.unwrap_or_default());
        let time = nanos(elapsed).max(rtt).max(1);
        let window = HEADROOM * u128::from(bytes) * u128::from(rtt) / u128::from(time);
        u32::try_from(window).unwrap_or(u32::MAX)
    }

    /// Grows the window if the round calls for it. From one round to the next a rate is trusted to double at most, as
    /// in TCP's slow start: data delayed by a lost packet or a busy role arrives in a burst, faster than the path
    /// carries, after a round that had less.
    fn consider(&mut self) {
        let believed = self.before.map_or(u32::MAX, |(elapsed, bytes)| self.wanted(2 * bytes, elapsed));
        let most = self.limit.unwrap_or(0).min(self.cap);
        let wanted = self.wanted(self.round.bytes, self.elapsed()).min(believed).min(most);
        let is_worth_it = u64::from(wanted) * 100 >= u64::from(self.round.window) * LEAST_GROWTH_PERCENT;
        if wanted > self.window && is_worth_it {
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
        // The time is not known here, so what the peer waited for is not measured.
        let now = Time::NEVER;
        self.return_connection_credit(now);
        for key in self.streams.keys() {
            if self.streams[key].remote != Side::Ended {
                self.return_stream_credit(now, key);
            }
        }
    }

    /// See [`super::super::Connection::set_send_buffer`].
    pub fn set_send_buffer(&mut self, bytes: usize) {
        if self.config.send_buffer != bytes {
            Arc::make_mut(&mut self.config).send_buffer = bytes;
        }
        self.output.shrink();
    }

    /// Gives all streams at least the window that was announced, as far as memory allows.
    pub(super) fn fit_streams(&mut self) {
        for stream in self.streams.iter_mut() {
            let size = stream.receive.size().max(self.stream_window);
            stream.receive.resize(self.tuner.capped(size));
        }
    }

    /// The role is done with `bytes` of the connection; measures the round trip if that is needed.
    #[inline]
    pub(super) fn measure_release(&mut self, now: Time, bytes: u32) {
        if !self.tuner.is_tuning() {
            return;
        }
        self.tuner.released(now, bytes);
        if let Some(payload) = self.tuner.take_ping(now) {
            self.put_ping(payload);
        }
    }

    /// The role is done with `bytes` of a stream whose peer may still send.
    pub(super) fn stream_released(&mut self, now: Time, key: Key, bytes: u32) {
        let Stream { pace, receive, .. } = &mut self.streams[key];
        if let Some(size) = self.tuner.stream_released(pace, bytes, receive.size()) {
            receive.resize(size);
        }
        self.return_stream_credit(now, key);
    }

    /// Returns what credit is due to the connection.
    pub(super) fn return_connection_credit(&mut self, now: Time) {
        let flow = &self.config.flow;
        let size = self.tuner.connection_window(flow.connection_window);
        self.receive_window.resize(size);
        let (had_room, available) = (self.receive_window.has_room(), self.receive_window.available());
        if let Some(increment) = self.receive_window.take_credit(self.tuner.credit_at(size, flow)) {
            if !had_room {
                self.deadlines.excuse_bodies();
            }
            self.credit_watch.raised(now, available);
            self.put_frame(kind::WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
        }
    }

    /// Returns what credit is due to a stream whose peer may still send.
    fn return_stream_credit(&mut self, now: Time, key: Key) {
        let flow = &self.config.flow;
        let stream = &mut self.streams[key];
        // The amount by which the window shrinks when our SETTINGS are acknowledged; zero from then on.
        let surplus = self.stream_window - flow.stream_window.min(self.stream_window);
        let size = stream.receive.size().saturating_sub(surplus);
        let (had_room, available) = (stream.receive.has_room(), stream.receive.available());
        if let Some(increment) = stream.receive.take_credit(self.tuner.credit_at(size, flow)) {
            let id = stream.id;
            stream.credit_watch.raised(now, available);
            if !had_room {
                self.deadlines.excuse_bodies();
            }
            self.put_frame(kind::WINDOW_UPDATE, 0, id, &increment.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn flow(auto_limit: Option<u32>) -> FlowControl {
        FlowControl { auto_limit, ..FlowControl::default() }
    }

    /// A tuner that has measured the round trip, and the time at which it has begun its first round.
    fn begun(limit: u32) -> (Tuner, Time) {
        let mut tuner = Tuner::new(&flow(Some(limit)), Time::ZERO);
        let now = Time::ZERO + RTT;
        tuner.settings_acknowledged(now);
        tuner.released(now, 1);
        (tuner, now)
    }

    /// Releases `bytes` in ten pieces over one round trip.
    fn round(tuner: &mut Tuner, now: &mut Time, bytes: u32) {
        for _ in 0..10 {
            *now += RTT / 10;
            tuner.released(*now, bytes / 10);
        }
    }

    #[test]
    fn the_window_is_three_products_of_rate_and_least_round_trip() {
        let (mut tuner, mut now) = begun(1 << 30);
        round(&mut tuner, &mut now, 50_000);
        assert_eq!(tuner.connection_window(65_535), 150_000);
        round(&mut tuner, &mut now, 50_000);
        assert_eq!(tuner.connection_window(65_535), 150_000, "the same rate");
    }

    #[test]
    fn a_rate_that_needs_no_larger_window_changes_nothing() {
        // 65,535 × 112 % / 3 is 24,466.
        for (bytes, window) in [(24_460, 65_535), (24_470, 73_410)] {
            let (mut tuner, mut now) = begun(1 << 30);
            round(&mut tuner, &mut now, bytes);
            assert_eq!(tuner.connection_window(65_535), window, "{bytes} bytes per round trip");
        }
    }

    #[test]
    fn a_rate_is_believed_to_double_from_round_to_round_and_no_more() {
        let (mut tuner, mut now) = begun(1 << 30);
        round(&mut tuner, &mut now, 50_000);
        round(&mut tuner, &mut now, 1_000_000);
        assert_eq!(tuner.connection_window(0), 300_000);
    }

    #[test]
    fn the_window_grows_before_a_round_is_over_by_what_has_come() {
        let (mut tuner, mut now) = begun(1 << 30);
        for (bytes, window) in [(20_000, 65_535), (20_000, 120_000), (20_000, 180_000)] {
            now += RTT / 10;
            tuner.released(now, bytes);
            assert_eq!(tuner.connection_window(0), window);
        }
    }

    #[test]
    fn what_comes_late_and_at_once_makes_no_window() {
        let (mut tuner, mut now) = begun(1 << 30);
        round(&mut tuner, &mut now, 100_000);
        // A lost packet delays everything for a round trip; then it all arrives at once.
        now += RTT;
        tuner.released(now, 100_000);
        round(&mut tuner, &mut now, 100_000);
        assert_eq!(tuner.connection_window(0), 300_000);
    }

    #[test]
    fn limit_and_memory_bound_the_window() {
        let (mut tuner, mut now) = begun(120_000);
        round(&mut tuner, &mut now, 50_000);
        assert_eq!(tuner.connection_window(65_535), 120_000);
        tuner.limit_to(100_000);
        assert_eq!(tuner.connection_window(65_535), 100_000);
        tuner.limit_to(0);
        assert_eq!(tuner.connection_window(65_535), 16_384, "one frame remains");
        tuner.limit_to(u32::MAX);
        assert_eq!(tuner.connection_window(65_535), 65_535, "and it grows as at first");
    }

    #[test]
    fn without_a_limit_nothing_is_measured_and_no_ping_sent() {
        let mut tuner = Tuner::new(&flow(None), Time::ZERO);
        let mut now = Time::ZERO + RTT;
        tuner.settings_acknowledged(now);
        for _ in 0..3 {
            round(&mut tuner, &mut now, 1_000_000);
        }
        assert_eq!(tuner.connection_window(65_535), 65_535);
        assert_eq!(tuner.take_ping(now), None);
    }

    #[test]
    fn one_ping_is_under_way_at_a_time_and_one_goes_with_each_growth() {
        let (mut tuner, mut now) = begun(1 << 30);
        let first = tuner.take_ping(now).expect("the first body asks for the round trip");
        round(&mut tuner, &mut now, 50_000);
        assert_eq!(tuner.take_ping(now), None, "the first is not back");
        assert!(!tuner.ping_acknowledged(now, [0; 8]), "that is the role's");
        assert!(tuner.ping_acknowledged(now, first));
        assert!(!tuner.ping_acknowledged(now, first), "it comes back once");
        let second = tuner.take_ping(now).expect("the window has grown");
        assert!(tuner.ping_acknowledged(now, second));
        round(&mut tuner, &mut now, 50_000);
        assert_eq!(tuner.take_ping(now), None, "no growth, no PING");
    }

    #[test]
    fn a_connection_sends_sixteen_pings_and_no_more() {
        let (mut tuner, mut now) = begun(1 << 30);
        let (mut sent, mut rate) = (0, 50_000);
        for _ in 0..20 {
            while let Some(payload) = tuner.take_ping(now) {
                sent += 1;
                tuner.ping_acknowledged(now + RTT, payload);
            }
            round(&mut tuner, &mut now, rate);
            rate += rate / 4;
        }
        assert_eq!(sent, MOST_PINGS);
    }

    #[test]
    fn settings_acknowledged_late_are_corrected_by_the_first_ping() {
        let mut tuner = Tuner::new(&flow(Some(1 << 30)), Time::ZERO);
        let mut now = Time::ZERO + 10 * RTT;
        tuner.settings_acknowledged(now);
        tuner.released(now, 1);
        let ping = tuner.take_ping(now).expect("the first body");
        round(&mut tuner, &mut now, 50_000);
        assert_eq!(
            tuner.connection_window(0),
            150_000,
            "nothing is taken for faster that took less than it says"
        );
        tuner.ping_acknowledged(now, ping);
        for _ in 0..20 {
            round(&mut tuner, &mut now, 50_000);
        }
        assert!((150_000..170_000).contains(&tuner.connection_window(0)));
    }

    #[test]
    fn a_stream_grows_by_its_own_pace() {
        let (mut tuner, mut now) = begun(1 << 30);
        let (mut fast, mut slow) = (Pace::NONE, Pace::NONE);
        let (mut fast_window, mut slow_window) = (65_535, 65_535);
        for _ in 0..40 {
            now += RTT / 10;
            tuner.released(now, 10_000);
            fast_window = tuner.stream_released(&mut fast, 10_000, fast_window).unwrap_or(fast_window);
            tuner.released(now, 1_000);
            slow_window = tuner.stream_released(&mut slow, 1_000, slow_window).unwrap_or(slow_window);
        }
        // Three times the 100,000 bytes of a round trip, and a part of the round under way.
        assert!((300_001..=tuner.connection_window(0)).contains(&fast_window), "{fast_window}");
        assert_eq!(slow_window, 65_535);
    }

    #[test]
    fn credit_goes_back_after_a_share_of_the_window_and_sooner_while_it_is_tuned() {
        let at = |percent, auto_limit| {
            let flow = FlowControl { update_threshold_percent: percent, ..flow(auto_limit) };
            Tuner::new(&flow, Time::ZERO).credit_at(1000, &flow)
        };
        assert_eq!([0, 50, 100, 255].map(|percent| at(percent, None)), [1, 500, 1000, 1000]);
        assert_eq!([0, 24, 25, 26].map(|percent| at(percent, Some(1 << 20))), [1, 240, 250, 250]);
        let after = |bytes, auto_limit| {
            let flow =
                FlowControl { update_bytes: Some(bytes), update_threshold_percent: 1, ..flow(auto_limit) };
            Tuner::new(&flow, Time::ZERO).credit_at(1000, &flow)
        };
        assert_eq!([0, 1, 1000, 1001].map(|bytes| after(bytes, None)), [1, 1, 1000, 1000]);
        assert_eq!([250, 251].map(|bytes| after(bytes, Some(1 << 20))), [250, 250]);
    }
}
