//! The stops of a cell that one window explains, and what they cost.

use std::collections::BTreeMap;
use std::time::Duration;

use super::windows::{Scope, Stop};
use crate::diagnose::{Case, Evidence, Repetition};
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, format_bytes, measured_time, millis_f64};
use h2lab_wire::trace::{Direction, FrameKind};

/// Fewer stops may be chance.
pub(in crate::diagnose) const LEAST_STOPS: usize = 3;

/// Stops by one kind of window in one direction.
#[derive(Debug)]
pub(in crate::diagnose) struct Stopped {
    /// How many.
    pub count: usize,
    /// How long they lasted in total: streams that stopped at the same time are counted separately.
    pub time: Duration,
    /// Bytes of the window in most of them.
    pub window: u64,
    /// The round trip of the path.
    pub rtt: Duration,
    /// The longest.
    pub longest: Stop,
    /// Whether, in most of them, data arrived all the time, spread by its sender.
    pub is_paced: bool,
    /// Bits per second of the streams that stopped, without their first window; `None` if no more than that arrived.
    /// `None` for a window that streams share: the rate of each stream says little about it.
    measured: Option<f64>,
}

impl Stopped {
    /// The stops in this direction by this window, if they are worth a finding, are more than those by the other
    /// window, and both together are more than half of all in this direction. Concurrent transfers are stopped by the
    /// connection window, single ones by their stream window. The stops are counted, not timed: a pause of a busy
    /// machine makes one of the others long. `is_late`: those after a round trip or more of data, which earlier credit
    /// would have avoided; else the others. Stops for which the client read slowly are not due to a window.
    pub fn of(case: &Case<'_>, direction: Direction, scope: Scope, is_late: bool) -> Option<Self> {
        let rtt = case.repetitions.iter().map(|repetition| repetition.facts().rtt).max()?;
        let all = case.repetitions.iter().flat_map(Repetition::stops);
        let all: Vec<&Stop> = all.filter(|stop| stop.direction == direction).collect();
        let is_kind =
            |stop: &&&Stop| stop.is_prompt && !stop.is_read_slowly(rtt) && (stop.flowed >= rtt) == is_late;
        let (its, others): (Vec<&Stop>, Vec<&Stop>) =
            all.iter().filter(is_kind).copied().partition(|stop| stop.scope == scope);
        let is_most = match scope {
            Scope::Stream => its.len() >= others.len(),
            Scope::Connection => its.len() > others.len(),
        };
        let time = its.iter().map(|stop| stop.of_window()).sum();
        let mut windows: Vec<u64> = its.iter().map(|stop| stop.window).collect();
        windows.sort_unstable();
        let is_usual = (its.len() + others.len()) * 2 > all.len();
        let is_sure = its.len() >= LEAST_STOPS && is_most && is_usual && case.is_worth_time(time);
        let is_paced = its.iter().filter(|stop| stop.is_paced).count() * 2 > its.len();
        let longest = **its.iter().max_by_key(|stop| stop.duration()).filter(|_| is_sure)?;
        let window = windows[windows.len() / 2];
        let measured = measured(case, direction, window).filter(|_| scope == Scope::Stream);
        Some(Self { count: its.len(), time, window, rtt, longest, is_paced, measured })
    }

    /// `12 times a response stopped for 38ms on average`, or, if data arrived all the time, `… which its sender spread,
    /// waited for …`.
    pub fn symptom(&self) -> String {
        let what = match self.longest.direction {
            Direction::Up => "a request body",
            Direction::Down => "a response",
        };
        let each = self.time / u32::try_from(self.count).unwrap_or(u32::MAX).max(1);
        let each = measured_time(each);
        let how = if self.is_paced { "which its sender spread, waited" } else { "stopped" };
        let what = if self.is_paced { format!("{what},") } else { what.to_owned() };
        format!("{} {what} {how} for {each} on average", plural(self.count as u64, "time"))
    }

    /// `64 KiB per round trip of 40ms (13.1 Mbit/s measured)`: what the window lets through, and the resulting rate.
    pub fn rate(&self) -> String {
        let most = self.window as f64 * 8.0 / self.rtt.as_secs_f64().max(f64::MIN_POSITIVE);
        let (bits, how) = self.measured.map_or((most, "at most"), |measured| (measured, "measured"));
        format!(
            "{} per round trip of {} ({:.1} Mbit/s {how})",
            format_bytes(self.window),
            measured_time(self.rtt),
            bits / 1e6
        )
    }

    /// The numbers that the finding is based on.
    pub fn evidence(&self, window: &str) -> Vec<Evidence> {
        let longest = &self.longest;
        vec![
            Evidence::new(
                &format!("times without credit of {window} while data waited"),
                self.count as f64,
                "stops",
            ),
            Evidence::new("bytes of the window", self.window as f64, "bytes"),
            Evidence::new("round trip of the path", millis_f64(self.rtt), "ms"),
            Evidence::new(
                &format!("the longest stop, of stream {}", longest.stream),
                millis_f64(longest.duration()),
                "ms",
            )
            .seen(longest.connection, longest.begin),
        ]
    }
}

/// The first and the last DATA frame of a stream, and the bytes of all.
type Carried = (Time, Time, u64);

/// Bits per second of the streams that stopped in this direction, without their first window, which needed no credit.
fn measured(case: &Case<'_>, direction: Direction, window: u64) -> Option<f64> {
    let (mut bytes, mut time) = (0, Duration::ZERO);
    for repetition in &case.repetitions {
        let stops = repetition.stops().iter().filter(|stop| stop.direction == direction);
        let mut streams: BTreeMap<(u32, u32), Option<Carried>> =
            stops.map(|stop| ((stop.connection, stop.stream), None)).collect();
        for frame in &repetition.record.frames {
            if frame.kind != FrameKind::DATA || frame.direction != direction {
                continue;
            }
            let Some(seen) = streams.get_mut(&(frame.connection, frame.stream.0)) else { continue };
            let (_, last, bytes) = seen.get_or_insert((frame.at, frame.at, 0));
            (*last, *bytes) = (frame.at, *bytes + u64::from(frame.length));
        }
        for (first, last, all) in streams.into_values().flatten() {
            bytes += all.saturating_sub(window);
            time += last.since(first);
        }
    }
    (bytes > 0 && !time.is_zero()).then(|| bytes as f64 * 8.0 / time.as_secs_f64())
}

/// A window at which nothing stops: eight times the one that was too small, and at least `least`.
pub(in crate::diagnose) fn large_enough(window: u64, least: u64) -> u64 {
    (window * 8).max(least).min(i32::MAX as u64)
}
