//! The least delays of a link, and the time below which a delay is not a wait.

use std::time::Duration;

use super::timeline::Timeline;
use crate::diagnose::waits::flow::{Transmission, Transmissions};
use crate::diagnose::waits::latency_breakdown::Cause;
use h2lab_base::units::Time;
use h2lab_link::LinkSpec;
use h2lab_wire::trace::Direction;

/// Shorter times between a process and its socket, or between two packets, do not count as waits.
pub(in super::super) const PROMPT: Duration = Duration::from_millis(1);

/// The least delays of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Delays {
    up: Vec<Duration>,
    down: Vec<Duration>,
}

/// A time in which bytes were missing because of a drop: from when the drop took effect to when the next one did, or
/// until the bytes arrived.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Lack<'a> {
    pub from: Time,
    pub until: Time,
    /// The drop.
    pub lost: &'a Transmission,
    /// The transmission that followed it.
    pub next: Option<&'a Transmission>,
}

impl Delays {
    /// The delays configured for a link, over time.
    pub fn of(link: &LinkSpec) -> Self {
        let delays = |impairment: &h2lab_link::Impairment| {
            let later = impairment.steps.iter().filter_map(|step| step.delay);
            std::iter::once(impairment.delay).chain(later).collect()
        };
        Self { up: delays(&link.uplink), down: delays(&link.downlink) }
    }

    /// The delays of a link without a specification: the shortest transit time of its packets.
    pub fn observed(up: Duration, down: Duration) -> Self {
        Self { up: vec![up], down: vec![down] }
    }

    pub const fn all(&self, direction: Direction) -> &Vec<Duration> {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// How much of a packet's transit is the link's delay: the delay configured at that time, as far as a single
    /// transit shows it. All of the transit if the link was faster than configured.
    pub fn base(&self, direction: Direction, transit: Duration) -> Duration {
        let all = self.all(direction).iter().copied();
        all.filter(|delay| *delay <= transit).max().unwrap_or(transit)
    }

    /// The initial delay.
    pub fn first(&self, direction: Direction) -> Duration {
        self.all(direction).first().copied().unwrap_or_default()
    }

    /// The least round trip over the whole time.
    pub fn round_trip(&self) -> Duration {
        let least = |direction| self.all(direction).iter().copied().min().unwrap_or_default();
        least(Direction::Up) + least(Direction::Down)
    }

    /// When a packet that was dropped would have arrived, judged by the transit of the one that replaced it.
    pub fn due(&self, direction: Direction, lost: &Transmission, brought: Option<&Transmission>) -> Time {
        let delay = match brought {
            Some(brought) => self.base(direction, brought.out_at.since(brought.at)),
            None => self.first(direction),
        };
        lost.at + delay
    }

    /// The times in which the bytes of these transmissions were missing because of drops.
    pub fn lacks<'a>(
        &'a self,
        direction: Direction,
        sent: &'a Transmissions,
    ) -> impl Iterator<Item = Lack<'a>> {
        let brought = sent.brought();
        sent.drops().map(move |(lost, next)| {
            let until = match next {
                Some(next) if next.is_lost => self.due(direction, next, brought),
                _ => sent.arrived(),
            };
            Lack { from: self.due(direction, lost, brought), until, lost, next }
        })
    }

    /// Claims the first transit of the bytes of these transmissions: the link's least delay, and the excess.
    pub fn claim_transit(
        &self,
        direction: Direction,
        transmissions: &Transmissions,
        (from, until): (Time, Time),
        timeline: &mut Timeline,
    ) {
        let (sent, come) = (transmissions.first_sent(), transmissions.arrived());
        let base = match transmissions.brought() {
            Some(brought) => self.base(direction, brought.out_at.since(brought.at)),
            None => self.first(direction),
        };
        timeline.claim(sent.max(from), (sent + base).min(come).min(until), Cause::Propagation);
        timeline.claim((sent + base).max(from), come.min(until), Cause::Queue);
    }
}
