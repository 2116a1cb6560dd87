//! Assigns causes to the parts of a request's time: one file for each part, and for each reason to wait.

mod before;
mod delays;
mod half_exchange;
mod handshake;
mod opaque;
mod timeline;
mod transit;
mod unsent;
mod window;

pub(super) use delays::{Delays, PROMPT};
use half_exchange::HalfExchange;
pub(super) use opaque::{unlocated, unread};
pub(super) use timeline::Timeline;
pub(super) use unsent::{NearEnd, assigned};

use super::connection::{HalfConnection, Traced};
use super::latency_breakdown::{Cause, Interval};
use h2lab_base::units::Time;
use h2lab_model::record::Sample;
use h2lab_wire::trace::Direction;

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
    // A response may begin before the request has ended. If it even ends before that, nothing waited for the rest of
    // the request.
    let asked = if up.come() <= come { up.come() } else { answered.max(sent) };
    up.claim(sent, asked, Cause::Client, &mut timeline);
    if let Some(down) = &down {
        down.claim_held(asked, answered, Cause::Server, &mut timeline);
        down.claim(answered.max(asked), come, Cause::Server, &mut timeline);
    } else {
        // No byte of it ever entered the link: it may be queued behind bytes of other streams that were blocked.
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
