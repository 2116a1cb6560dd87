//! What the peer has used up of its [`Limits`], and what becomes of it when one is exceeded.

use super::Connection;
use super::fault::Fault;
use super::frame::HEADER_LENGTH;
use super::stream::{Side, Wait};
use super::streams::Ending;
use crate::units::Time;
use crate::wire::limits::{Bucket, Exceeded, Limit, Limits};
use crate::wire::patience::Overdue;
use crate::wire::{Config, Error, ErrorCode, Role};

/// DATA frames shorter than this cost more to hold than they carry (GHSA-q83h-524g-xf6h).
const FAIR_FRAME: u32 = 256;
/// The least budget for such overhead.
const LEAST_SMALL_DATA: u32 = 100 * FAIR_FRAME;
/// No body is cut into shorter pieces for the sake of a small window, once [`Limits::dribbles`] are used up.
pub(super) const FAIR_PIECE: usize = 1_024;
/// Frames that change nothing are granted for so many streams before the first.
const STREAMS_GRANTED: u64 = 10;

/// The accounts of one connection.
#[derive(Debug)]
pub(super) struct Guard {
    limits: Limits,
    resets: Bucket,
    settings: Bucket,
    stream_errors: u32,
    empty_data: u32,
    /// Overhead of DATA frames that the role holds.
    overhead: u32,
    /// The most that this may be.
    overhead_allowed: u32,
    noise: u64,
    dribbles_left: u32,
    /// Bytes of bodies that we sent, less those whose credit came when their stream was over.
    unreturned: u64,
    /// Frames of which we have seen the beginning: tells one incomplete head from the next.
    frames: u64,
    /// Streams that were ended for being slow, of which the role is still to be told.
    pub(super) evicted: Vec<u32>,
}

/// The fault of a peer that exceeded a bound.
const fn excess(limit: Limit, allowed: u64) -> Fault {
    Fault::Excess(Exceeded { limit, allowed })
}

impl Guard {
    pub(super) fn new(config: &Config, now: Time) -> Self {
        let limits = config.limits;
        let by_window = (config.flow.connection_window / 2).max(LEAST_SMALL_DATA);
        Self {
            limits,
            resets: Bucket::new(limits.resets, now),
            settings: Bucket::new(limits.settings, now),
            stream_errors: 0,
            empty_data: 0,
            overhead: 0,
            overhead_allowed: limits.small_data.unwrap_or(by_window),
            noise: 0,
            dribbles_left: limits.dribbles,
            unreturned: 0,
            frames: 0,
            evicted: Vec::new(),
        }
    }

    /// The peer reset a stream that it had begun.
    pub(super) fn reset(&mut self, now: Time) -> Result<(), Fault> {
        let allowed = u64::from(self.limits.resets.burst);
        if self.resets.take(now) { Ok(()) } else { Err(excess(Limit::Resets, allowed)) }
    }

    /// The peer sent SETTINGS.
    pub(super) fn settings(&mut self, now: Time) -> Result<(), Fault> {
        let allowed = u64::from(self.limits.settings.burst);
        if self.settings.take(now) { Ok(()) } else { Err(excess(Limit::Settings, allowed)) }
    }

    /// A violation by the peer is to be answered with RST_STREAM.
    pub(super) fn stream_error(&mut self) -> Result<(), Fault> {
        let allowed = self.limits.stream_errors;
        if self.stream_errors >= allowed {
            return Err(excess(Limit::StreamErrors, u64::from(allowed)));
        }
        self.stream_errors += 1;
        Ok(())
    }

    /// The peer sent a frame that changes nothing; it has begun `streams` so far.
    pub(super) fn noise(&mut self, streams: u64) -> Result<(), Fault> {
        let allowed = u64::from(self.limits.noise) * (STREAMS_GRANTED + streams);
        self.noise += 1;
        if self.noise > allowed { Err(excess(Limit::Noise, allowed)) } else { Ok(()) }
    }

    /// The peer sent DATA with `length` bytes of body that does not end its stream. `held`: the role releases it later.
    pub(super) fn data(&mut self, length: u32, held: bool) -> Result<(), Fault> {
        if length == 0 {
            self.empty_data += 1;
            let allowed = self.limits.empty_data;
            let exceeded = self.empty_data > allowed;
            return if exceeded { Err(excess(Limit::EmptyData, u64::from(allowed))) } else { Ok(()) };
        }
        self.empty_data = 0;
        if held && length < FAIR_FRAME {
            self.overhead = self.overhead.saturating_add(FAIR_FRAME - length);
            if self.overhead > self.overhead_allowed {
                return Err(excess(Limit::SmallData, u64::from(self.overhead_allowed)));
            }
        }
        Ok(())
    }

    /// The role released `released` of the `held` bytes of DATA that it had, and with them that share of their overhead.
    pub(super) fn released(&mut self, released: u32, held: u32) {
        if released >= held {
            self.overhead = 0;
        } else {
            let share = u64::from(self.overhead) * u64::from(released) / u64::from(held);
            self.overhead -= share as u32;
        }
    }

    /// A field block has had `continuations`, in frames of up to `frame` bytes, for a list of up to `list` bytes.
    pub(super) fn continuations(&self, continuations: u32, list: u32, frame: u32) -> Result<(), Fault> {
        let needed = list.div_ceil(frame);
        let allowed = self.limits.continuations.max(needed + needed / 4);
        if continuations > allowed {
            return Err(excess(Limit::Continuations, u64::from(allowed)));
        }
        Ok(())
    }

    /// A field block in pieces has `bytes` so far.
    pub(super) fn field_block(bytes: usize, config: &Config) -> Result<(), Fault> {
        let allowed = config.max_header_list_size.max(config.max_frame_size);
        if bytes > allowed as usize {
            return Err(excess(Limit::FieldBlock, u64::from(allowed)));
        }
        Ok(())
    }

    /// A request has had this many interim responses; whether that is too many.
    pub(super) const fn too_many_interims(&self, interims: u32) -> bool {
        interims > self.limits.interims
    }

    /// The shortest piece that may go of a body of which `wanted` bytes are left: nothing below [`FAIR_PIECE`], unless
    /// dribbles are left, or that is all.
    pub(super) fn shortest_piece(&self, wanted: usize) -> usize {
        if self.dribbles_left > 0 { 1 } else { wanted.min(FAIR_PIECE) }
    }

    /// A piece of a body goes; `cut_short`: the peer's windows leave no room for more.
    pub(super) fn piece(&mut self, length: usize, cut_short: bool) {
        self.unreturned += length as u64;
        if length >= FAIR_PIECE {
            self.dribbles_left = self.limits.dribbles.min(self.dribbles_left.saturating_add(1));
        } else if length > 0 && cut_short {
            self.dribbles_left = self.dribbles_left.saturating_sub(1);
        }
    }

    /// The peer returns `credit` of a stream that is over. Whether that is for a body that we sent: who reads a response
    /// from its own buffer says so piece by piece, and knows no sooner than its end that nobody listens any more. No piece
    /// counts as less than [`FAIR_PIECE`].
    pub(super) fn is_of_body_sent(&mut self, credit: u32) -> bool {
        let cost = u64::from(credit).max(FAIR_PIECE as u64);
        let is_covered = credit > 0 && cost <= self.unreturned;
        self.unreturned -= if is_covered { cost } else { 0 };
        is_covered
    }

    /// A whole frame was taken off the input.
    pub(super) const fn frame_taken(&mut self) {
        self.frames += 1;
    }

    /// What it takes of memory, in bytes.
    pub(super) const fn held(&self) -> usize {
        self.evicted.capacity() * size_of::<u32>()
    }
}

impl Connection {
    /// Counts that a bound was met.
    pub(super) const fn limit_hit(&mut self, limit: Limit) {
        self.counters.limits_hit[limit as usize] += 1;
    }

    /// The peer sent a frame that changes nothing.
    pub(super) fn noise(&mut self) -> Result<(), Fault> {
        let streams = match self.config.role {
            Role::Server => self.highest_peer.div_ceil(2),
            Role::Client => self.next_local / 2,
        };
        self.guard.noise(u64::from(streams))
    }

    /// Ends the connection with the bound that the peer exceeded.
    pub(super) fn exceed(&mut self, exceeded: Exceeded, code: ErrorCode) {
        self.limit_hit(exceeded.limit);
        self.fail(Error::Exceeded(exceeded), code, exceeded.to_string().as_bytes());
    }

    /// All whole frames are taken: notes whether a head, or a frame without body, has begun and is incomplete.
    pub(super) fn watch_input(&mut self, now: Time) {
        let unread = self.input.unread();
        let is_data = unread.len() >= HEADER_LENGTH && unread[3] == super::kind::DATA;
        let block = self.assembly.begun_at_frame();
        let number = match (block, unread.is_empty() || is_data) {
            (Some(_), _) => block,
            (None, true) => None,
            (None, false) => Some(self.guard.frames),
        };
        // The rest may have come: we do not read it.
        let number = number.filter(|_| self.wants_input());
        self.patience.head_under_way(now, number);
    }

    /// The number of the frame under way.
    pub(super) const fn frame_number(&self) -> u64 {
        self.guard.frames
    }

    /// Deals with what the peer has let us wait for too long.
    pub(super) fn handle_impatience(&mut self, now: Time) {
        while let Some(overdue) = self.patience.overdue(now, self.streams.len() > 0) {
            match overdue {
                Overdue::Head => self.lose_patience(Limit::SlowHead),
                Overdue::Output => self.lose_patience(Limit::Stall),
                Overdue::Idle => {
                    let idle = self.patience.exceeded(Limit::Idle);
                    self.limit_hit(Limit::Idle);
                    self.accept_no_more(ErrorCode::NO_ERROR, idle.to_string().as_bytes());
                }
                Overdue::Body(mark) => self.evict_slow_bodies(now, mark),
                Overdue::BodyInTime => self.rearm_bodies(now),
                Overdue::Windows => self.evict_stalled(now),
            }
        }
    }

    fn lose_patience(&mut self, limit: Limit) {
        self.exceed(self.patience.exceeded(limit), ErrorCode::ENHANCE_YOUR_CALM);
    }

    /// Ends the streams whose body was due when the period began and still is.
    fn evict_slow_bodies(&mut self, now: Time, mark: u32) {
        for key in self.streams.keys() {
            let stream = &self.streams[key];
            if stream.id <= mark && self.is_body_due(stream) && self.lets_send(stream) {
                self.evict(stream.id, Limit::SlowBody);
            }
        }
        self.rearm_bodies(now);
    }

    /// A new period begins if bodies are due, also those that wait for us: it is looked at again when they do not.
    fn rearm_bodies(&mut self, now: Time) {
        let keys = self.streams.keys();
        let due = keys.into_iter().map(|key| &self.streams[key]).filter(|stream| self.is_body_due(stream));
        if let Some(highest) = due.map(|stream| stream.id).max() {
            self.patience.body_waits(now, highest);
        }
    }

    /// Whether the peer's body is to come next: a stream that is answered already may be as slow as both sides like.
    fn is_body_due(&self, stream: &super::stream::Stream) -> bool {
        let open = stream.remote != Side::Ended && stream.local == Side::Head;
        open && self.is_of_peer(stream.id)
    }

    /// Whether it is not us who keeps the peer from sending: without credit it cannot, and what we do not read goes nowhere.
    fn lets_send(&self, stream: &super::stream::Stream) -> bool {
        stream.receive.has_room() && self.receive_window.has_room() && self.wants_input()
    }

    /// Ends the streams that have waited for a window for too long.
    fn evict_stalled(&mut self, now: Time) {
        let Some(overdue_since) = self.patience.windows_overdue_since(now) else { return };
        for key in self.streams.keys() {
            let stream = &self.streams[key];
            match self.short_of_window_since(stream) {
                Some(since) if since <= overdue_since => self.evict(stream.id, Limit::Stall),
                Some(since) => self.patience.window_waits(since),
                // It waits for our output, or its turn, and may wait for a window next, without a piece to tell of.
                None if stream.wait == Wait::Turn => self.patience.window_waits(now),
                None => {}
            }
        }
    }

    /// Resets a stream; the role is told by the next events.
    fn evict(&mut self, stream: u32, limit: Limit) {
        let Some(key) = self.streams.find(stream) else { return };
        self.limit_hit(limit);
        self.put_reset(stream, ErrorCode::ENHANCE_YOUR_CALM);
        self.remove(key, Ending::ResetByUs);
        self.guard.evicted.push(stream);
    }
}
