//! What the bytes of a message on its way waited for.

use super::way::Way;
use super::{Timeline, window};
use crate::diagnose::waits::flow::Stretch;
use crate::diagnose::waits::story::Cause;
use crate::diagnose::waits::streams::Placed;
use h2lab_base::units::Time;
use h2lab_wire::trace::FrameKind;

impl<'a> Way<'a> {
    /// Claims the time between the two, in which the message is on its way. `idle` is why bytes did not exist that nothing
    /// kept from being sent.
    pub fn claim(&self, from: Time, until: Time, idle: Cause, timeline: &mut Timeline) {
        if from >= until {
            return;
        }
        let missing = self.lane().history.missing(from, self.end);
        let (own, others): (Vec<&Stretch>, Vec<&Stretch>) =
            missing.iter().partition(|stretch| self.is_own(&stretch.bytes));
        self.claim_losses(&own, from, until, timeline);
        self.claim_unsent(&own, &others, (from, until), idle, timeline);
        for stretch in &own {
            self.claim_transit(stretch, from, until, timeline);
        }
        // All of its bytes have come, and some before them have not.
        self.claim_losses(&others, from, until, timeline);
        for stretch in &others {
            let (sent, come) = (stretch.sent.first_sent(), stretch.sent.arrived());
            timeline.claim(sent.max(from), come.min(until), Cause::Queue);
        }
    }

    /// Claims the time between the two, in which the message waits for its first byte to be sent. `idle` as above.
    pub fn claim_held(&self, from: Time, until: Time, idle: Cause, timeline: &mut Timeline) {
        if from < until {
            self.claim_unsent_byte(self.start, &[], (from, until), idle, timeline);
        }
    }

    /// The times in which the sender still held bytes of the message, in their order.
    fn claim_unsent(
        &self,
        own: &[&Stretch],
        others: &[&Stretch],
        (from, until): (Time, Time),
        idle: Cause,
        timeline: &mut Timeline,
    ) {
        let mut since = from;
        for stretch in own {
            let sent = stretch.sent.first_sent().min(until);
            if sent > since {
                self.claim_unsent_byte(stretch.bytes.start, others, (since, sent), idle, timeline);
                since = sent;
            }
        }
    }

    /// The time between the two, at whose end the byte at `place` was sent.
    fn claim_unsent_byte(
        &self,
        place: u64,
        others: &[&Stretch],
        (from, until): (Time, Time),
        idle: Cause,
        timeline: &mut Timeline,
    ) {
        let frame = self.frame_at(place);
        if let Some(frame) = frame {
            window::claim(self, frame, others, (from, until), timeline);
        }
        if let Some(held) = self.lane().sending.held(place) {
            let (since, after) = held;
            self.claim_losses(others, since.max(from), until, timeline);
            timeline.claim(since.max(from), until, Cause::CongestionWindow { after });
        }
        // The rest of a frame that has begun exists: frames are written as a whole.
        if let Some(begun) = frame.and_then(|frame| self.begun(frame, place)) {
            self.claim_losses(others, begun.max(from), until, timeline);
            let after = self.lane().sending.shrunk_by(place);
            timeline.claim(begun.max(from), until, Cause::CongestionWindow { after });
        }
        timeline.claim(from, until, idle);
    }

    /// The message's frame with the byte at `place`; in HTTP/2 only, since only its frames say what is to come.
    fn frame_at(&self, place: u64) -> Option<&'a Placed> {
        if !self.traced.streams.is_http2() {
            return None;
        }
        let frames = self.traced.frames(self.direction).of(&(place..place + 1));
        frames
            .iter()
            .find(|frame| self.is_own(&frame.bytes) && frame.kind == FrameKind::DATA)
            .or(frames.first())
    }

    /// When the first byte of a frame was sent that goes on at `place`.
    fn begun(&self, frame: &Placed, place: u64) -> Option<Time> {
        (frame.bytes.start < place).then(|| self.lane().first_sent(frame.bytes.start))
    }

    /// A stretch's first transit: the link's least delay, and what it took beyond.
    fn claim_transit(&self, stretch: &Stretch, from: Time, until: Time, timeline: &mut Timeline) {
        let (sent, come) = (stretch.sent.first_sent(), stretch.sent.arrived());
        let transit = stretch.sent.brought().map(|brought| brought.out_at.since(brought.at));
        let base = match transit {
            Some(transit) => self.delays.base(self.direction, transit),
            None => self.delays.first(self.direction),
        };
        timeline.claim(sent.max(from), (sent + base).min(come).min(until), Cause::Propagation);
        timeline.claim((sent + base).max(from), come.min(until), Cause::Queue);
    }
}
