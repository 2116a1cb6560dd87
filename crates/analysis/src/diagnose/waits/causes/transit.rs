//! What the bytes of a message in transit waited for.

use super::half_exchange::HalfExchange;
use super::{Timeline, window};
use crate::diagnose::waits::flow::ByteRange;
use crate::diagnose::waits::latency_breakdown::Cause;
use crate::diagnose::waits::streams::Placed;
use h2lab_base::units::Time;
use h2lab_wire::trace::FrameKind;

impl<'a> HalfExchange<'a> {
    /// Claims the time between `from` and `until`, in which the message is in transit. `idle` is why bytes that could
    /// have been sent did not exist yet.
    pub fn claim(&self, from: Time, until: Time, idle: Cause, timeline: &mut Timeline) {
        if from >= until {
            return;
        }
        let missing = self.half_connection().history.missing(from, self.end);
        let (own, others): (Vec<&ByteRange>, Vec<&ByteRange>) =
            missing.iter().partition(|byte_range| self.is_own(&byte_range.bytes));
        self.claim_losses(&own, from, until, timeline);
        self.claim_unsent(&own, &others, (from, until), idle, timeline);
        for byte_range in &own {
            self.delays.claim_transit(self.direction, &byte_range.sent, (from, until), timeline);
        }
        // All of its bytes have arrived, and some before them have not.
        self.claim_losses(&others, from, until, timeline);
        for byte_range in &others {
            let (sent, come) = (byte_range.sent.first_sent(), byte_range.sent.arrived());
            timeline.claim(sent.max(from), come.min(until), Cause::Queue);
        }
    }

    /// Claims the time between `from` and `until`, in which the message waits for its first byte to be sent. `idle` as
    /// above.
    pub fn claim_held(&self, from: Time, until: Time, idle: Cause, timeline: &mut Timeline) {
        if from < until {
            self.claim_unsent_byte(self.start, &[], (from, until), idle, timeline);
        }
    }

    /// Claims the times in which the sender still held bytes of the message, in order.
    fn claim_unsent(
        &self,
        own: &[&ByteRange],
        others: &[&ByteRange],
        (from, until): (Time, Time),
        idle: Cause,
        timeline: &mut Timeline,
    ) {
        let mut since = from;
        for byte_range in own {
            let sent = byte_range.sent.first_sent().min(until);
            if sent > since {
                self.claim_unsent_byte(byte_range.bytes.start, others, (since, sent), idle, timeline);
                since = sent;
            }
        }
    }

    /// Claims the time between `from` and `until`; the byte at `place` was sent at its end.
    fn claim_unsent_byte(
        &self,
        place: u64,
        others: &[&ByteRange],
        (from, until): (Time, Time),
        idle: Cause,
        timeline: &mut Timeline,
    ) {
        let frame = self.frame_at(place);
        if let Some(frame) = frame {
            window::claim(self, frame, others, (from, until), timeline);
        }
        if let Some(held) = self.half_connection().sending.held(place) {
            let (since, after) = held;
            self.claim_losses(others, since.max(from), until, timeline);
            timeline.claim(since.max(from), until, Cause::CongestionWindow { after });
        }
        // The rest of a frame that has begun exists: frames are written as a whole.
        if let Some(begun) = frame.and_then(|frame| self.begun(frame, place)) {
            self.claim_losses(others, begun.max(from), until, timeline);
            let after = self.half_connection().sending.shrunk_by(place);
            timeline.claim(begun.max(from), until, Cause::CongestionWindow { after });
        }
        timeline.claim(from, until, idle);
    }

    /// The message's frame with the byte at `place`; only in HTTP/2, whose frames announce their length.
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

    /// When the first byte of a frame was sent, if the frame began before `place`.
    fn begun(&self, frame: &Placed, place: u64) -> Option<Time> {
        (frame.bytes.start < place).then(|| self.half_connection().first_sent(frame.bytes.start))
    }
}
