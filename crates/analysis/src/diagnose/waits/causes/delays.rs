//! The least delays of a link, and what is too short to be a wait.

use std::time::Duration;

use crate::diagnose::waits::flow::Transmission;
use h2lab_base::units::Time;
use h2lab_link::LinkSpec;
use h2lab_wire::trace::Direction;

/// Shorter times between a process and its socket, or between two packets, are no waits.
pub(super) const PROMPT: Duration = Duration::from_millis(1);

/// The least delays of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Delays {
    up: Vec<Duration>,
    down: Vec<Duration>,
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

    /// The delays of a link without a specification: the least transit of its packets.
    pub fn observed(up: Duration, down: Duration) -> Self {
        Self { up: vec![up], down: vec![down] }
    }

    pub const fn all(&self, direction: Direction) -> &Vec<Duration> {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// How much of a packet's transit is the link's delay: what was configured then, as far as a single transit shows. All
    /// of it if the link was faster than configured.
    pub fn base(&self, direction: Direction, transit: Duration) -> Duration {
        let all = self.all(direction).iter().copied();
        all.filter(|delay| *delay <= transit).max().unwrap_or(transit)
    }

    /// The least delay at first.
    pub fn first(&self, direction: Direction) -> Duration {
        self.all(direction).first().copied().unwrap_or_default()
    }

    /// The least round trip of all.
    pub fn round_trip(&self) -> Duration {
        let least = |direction| self.all(direction).iter().copied().min().unwrap_or_default();
        least(Direction::Up) + least(Direction::Down)
    }

    /// When a packet that was dropped would have arrived, by the transit of the one that replaced it.
    pub fn due(&self, direction: Direction, lost: &Transmission, brought: Option<&Transmission>) -> Time {
        let delay = match brought {
            Some(brought) => self.base(direction, brought.out_at.since(brought.at)),
            None => self.first(direction),
        };
        lost.at + delay
    }
}
