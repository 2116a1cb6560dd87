//! Assigns causes to the parts of a request's time: one file for each part, and for each reason to wait.

mod before;
mod half_exchange;
mod handshake;
mod opaque;
mod timeline;
mod transit;
mod unsent;
mod window;

use std::time::Duration;

use half_exchange::HalfExchange;
pub(super) use opaque::{unlocated, unread};
pub(super) use timeline::Timeline;
pub(super) use unsent::{NearEnd, assigned};

use super::connection::{HalfConnection, Traced};
use super::flow::Transmission;
use super::latency_breakdown::{Cause, Interval};
use h2lab_base::units::Time;
use h2lab_link::LinkSpec;
use h2lab_model::record::Sample;
use h2lab_wire::trace::Direction;

/// Shorter times between a process and its socket, or between two packets, are no waits.
const PROMPT: Duration = Duration::from_millis(1);

/// The least delays of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delays {
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

    const fn all(&self, direction: Direction) -> &Vec<Duration> {
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
    fn due(&self, direction: Direction, lost: &Transmission, brought: Option<&Transmission>) -> Time {
        let delay = match brought {
            Some(brought) => self.base(direction, brought.out_at.since(brought.at)),
            None => self.first(direction),
        };
        lost.at + delay
    }
}

/// The intervals of a request that was found on a stream of a connection; `None` if the stream is not there.
///
/// `is_direct`: the connection is the generator's own, so that the sample covers the time before the link.
pub(super) fn life(
    traced: &Traced,
    stream: u32,
    sample: &Sample,
    is_direct: bool,
    delays: &Delays,
) -> Option<Vec<Interval>> {
    let exchange = traced.streams.exchange(stream)?;
    let up = HalfExchange::new(traced, exchange, Direction::Up, delays)?;
    let down = HalfExchange::new(traced, exchange, Direction::Down, delays);
    let mut timeline = Timeline::new(sample.scheduled_at, sample.completed_at);
    let sent = up.first_sent();
    before::claim(&up, sample, is_direct, &mut timeline);
    let (answered, come) =
        down.as_ref().map_or((Time::NEVER, Time::NEVER), |down| (down.first_sent(), down.come()));
    // A response may begin before the request has ended. If it even ends before, the rest of the request was not waited for.
    let asked = if up.come() <= come { up.come() } else { answered.max(sent) };
    up.claim(sent, asked, Cause::Client, &mut timeline);
    if let Some(down) = &down {
        down.claim_held(asked, answered, Cause::Server, &mut timeline);
        down.claim(answered.max(asked), come, Cause::Server, &mut timeline);
    } else {
        // No byte of it ever entered the link: it may be queued behind those of others that were blocked.
        claim_holds(&traced.down, &mut timeline, asked);
        timeline.claim(asked, Time::NEVER, Cause::Server);
    }
    timeline.claim(come, Time::NEVER, Cause::Client);
    Some(timeline.finish())
}

/// Claims the times from `from` on in which one end of a connection held back data.
fn claim_holds(half_connection: &HalfConnection, timeline: &mut Timeline, from: Time) {
    for hold in half_connection.sending.holds().skip_while(|hold| hold.until <= from) {
        let cause = Cause::CongestionWindow { after: hold.after };
        timeline.claim(hold.from.max(from), hold.until, cause);
    }
}
