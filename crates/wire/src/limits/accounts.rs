//! What a peer has used up of its [`Limits`]: the accounts of a connection with streams.

use super::{Bucket, Exceeded, Limit, Limits};
use crate::fault::Fault;
use h2lab_base::units::Time;

/// DATA frames shorter than this cost more to hold than they carry (GHSA-q83h-524g-xf6h).
const FAIR_FRAME: u32 = 256;
/// DATA frames shorter than this count for [`Limits::short_data`].
const SHORT_DATA: u32 = 16;
/// The least budget for such overhead.
const LEAST_SMALL_DATA: u32 = 100 * FAIR_FRAME;
/// Bodies are not cut into shorter pieces for small windows once [`Limits::small_data_frames`] are used up.
pub(crate) const FAIR_PIECE: usize = 1_024;
/// The budget of frames without effect begins as if this many streams had begun.
const STREAMS_GRANTED: u64 = 10;

/// The accounts of one connection.
#[derive(Debug)]
pub(crate) struct Accounts {
    limits: Limits,
    resets: Bucket,
    settings: Bucket,
    stream_errors: u32,
    empty_data: u32,
    /// Overhead of DATA frames that the role holds.
    overhead: u32,
    /// The largest permitted `overhead`.
    overhead_allowed: u32,
    noise: u64,
    small_data_frames_left: u32,
    /// Bytes of bodies that we sent and whose credit has not been returned, of streams and of the connection; a piece
    /// counts as [`FAIR_PIECE`] at least.
    unreturned: [u64; 2],
    short_data: Bucket,
    /// Frames of which we have seen the beginning: distinguishes incomplete heads.
    frames: u64,
    /// Streams that were reset for being slow, not yet reported to the role.
    pub(crate) evicted: Vec<u32>,
}

/// The fault of a peer that exceeded a bound.
const fn excess(limit: Limit, allowed: u64) -> Fault {
    Fault::Excess(Exceeded { limit, allowed })
}

impl Accounts {
    /// Empty accounts; `connection_window` is the one that we announce.
    pub(crate) fn new(limits: Limits, connection_window: u32, now: Time) -> Self {
        let by_window = (connection_window / 2).max(LEAST_SMALL_DATA);
        Self {
            limits,
            resets: Bucket::new(limits.resets, now),
            settings: Bucket::new(limits.settings, now),
            stream_errors: 0,
            empty_data: 0,
            overhead: 0,
            overhead_allowed: limits.small_data.unwrap_or(by_window),
            noise: 0,
            small_data_frames_left: limits.small_data_frames,
            unreturned: [0; 2],
            short_data: Bucket::new(limits.short_data, now),
            frames: 0,
            evicted: Vec::new(),
        }
    }

    /// The peer reset a stream that it had begun.
    pub(crate) fn reset(&mut self, now: Time) -> Result<(), Fault> {
        let allowed = u64::from(self.limits.resets.burst);
        if self.resets.take(now) { Ok(()) } else { Err(excess(Limit::Resets, allowed)) }
    }

    /// The peer sent SETTINGS.
    pub(crate) fn settings(&mut self, now: Time) -> Result<(), Fault> {
        let allowed = u64::from(self.limits.settings.burst);
        if self.settings.take(now) { Ok(()) } else { Err(excess(Limit::Settings, allowed)) }
    }

    /// A violation by the peer is to be answered with RST_STREAM.
    pub(crate) fn stream_error(&mut self) -> Result<(), Fault> {
        let allowed = self.limits.stream_errors;
        if self.stream_errors >= allowed {
            return Err(excess(Limit::StreamErrors, u64::from(allowed)));
        }
        self.stream_errors += 1;
        Ok(())
    }

    /// The peer sent a frame without effect; it has begun `streams` so far.
    pub(crate) fn noise(&mut self, streams: u64) -> Result<(), Fault> {
        let allowed = u64::from(self.limits.noise) * (STREAMS_GRANTED + streams);
        self.noise += 1;
        if self.noise > allowed { Err(excess(Limit::Noise, allowed)) } else { Ok(()) }
    }

    /// The peer sent DATA with `length` bytes of body that does not end its stream. `held`: the role releases it later.
    pub(crate) fn data(&mut self, now: Time, length: u32, held: bool) -> Result<(), Fault> {
        if length == 0 {
            self.empty_data += 1;
            let allowed = self.limits.empty_data;
            let exceeded = self.empty_data > allowed;
            return if exceeded { Err(excess(Limit::EmptyData, u64::from(allowed))) } else { Ok(()) };
        }
        self.empty_data = 0;
        if length < SHORT_DATA && !self.short_data.take(now) {
            return Err(excess(Limit::ShortData, u64::from(self.limits.short_data.burst)));
        }
        if held && length < FAIR_FRAME {
            self.overhead = self.overhead.saturating_add(FAIR_FRAME - length);
            if self.overhead > self.overhead_allowed {
                return Err(excess(Limit::SmallData, u64::from(self.overhead_allowed)));
            }
        }
        Ok(())
    }

    /// The role released `released` of the `held` bytes of DATA that it held, and with them that share of their
    /// overhead.
    pub(crate) fn released(&mut self, released: u32, held: u32) {
        if released >= held {
            self.overhead = 0;
        } else {
            let share = u64::from(self.overhead) * u64::from(released) / u64::from(held);
            self.overhead -= share as u32;
        }
    }

    /// A field block of `bytes` so far has had `continuations`, in frames of up to `frame` bytes, for a list of up to
    /// `list` bytes.
    pub(crate) fn continuations(
        &self,
        continuations: u32,
        bytes: usize,
        list: u32,
        frame: u32,
    ) -> Result<(), Fault> {
        let needed = list.max(u32::try_from(bytes).unwrap_or(u32::MAX)).div_ceil(frame);
        let allowed = self.limits.continuations.max(needed + needed / 4);
        if continuations > allowed {
            return Err(excess(Limit::Continuations, u64::from(allowed)));
        }
        Ok(())
    }

    /// A field block in pieces has `bytes` so far, in frames of up to `frame` bytes, for a list of up to `list` bytes.
    /// One that is larger than the list is decoded all the same, so that the header tables stay in step and only its
    /// stream ends (RFC 9113 §10.5.1).
    pub(crate) fn field_block(&self, bytes: usize, list: u32, frame: u32) -> Result<(), Fault> {
        let allowed = list.saturating_mul(self.limits.field_list_factor.max(1)).max(frame);
        if bytes > allowed as usize {
            return Err(excess(Limit::FieldBlock, u64::from(allowed)));
        }
        Ok(())
    }

    /// A request has had this many interim responses; returns whether that is too many.
    pub(crate) const fn too_many_interims(&self, interims: u32) -> bool {
        interims > self.limits.interims
    }

    /// The shortest piece that may be sent of a body of which `wanted` bytes are left: [`FAIR_PIECE`] at least, unless
    /// small DATA frames are left, or the rest is shorter.
    pub(crate) fn shortest_piece(&self, wanted: usize) -> usize {
        if self.small_data_frames_left > 0 { 1 } else { wanted.min(FAIR_PIECE) }
    }

    /// A piece of a body is sent; `cut_short`: the peer's windows leave no room for more.
    pub(crate) fn piece(&mut self, length: usize, cut_short: bool) {
        if length > 0 {
            self.unreturned =
                self.unreturned.map(|bytes| bytes.saturating_add(length.max(FAIR_PIECE) as u64));
        }
        if length >= FAIR_PIECE {
            self.small_data_frames_left =
                self.limits.small_data_frames.min(self.small_data_frames_left.saturating_add(1));
        } else if length > 0 && cut_short {
            self.small_data_frames_left = self.small_data_frames_left.saturating_sub(1);
        }
    }

    /// The peer gives `credit` to a stream, or to the connection. Returns whether the credit is for a body that we
    /// sent, also after its stream has ended here. A client may return credit for each DATA frame; it has no reason to
    /// do so more often, beyond the few times when it makes a window larger. Each piece counts as [`FAIR_PIECE`] at
    /// least.
    pub(crate) const fn is_of_body_sent(&mut self, to_connection: bool, credit: u32) -> bool {
        let cost = if (credit as usize) < FAIR_PIECE { FAIR_PIECE as u64 } else { credit as u64 };
        let unreturned = &mut self.unreturned[to_connection as usize];
        let is_covered = credit > 0 && cost <= *unreturned;
        *unreturned -= if is_covered { cost } else { 0 };
        is_covered
    }

    /// A whole frame was taken off the input.
    pub(crate) const fn frame_taken(&mut self) {
        self.frames += 1;
    }

    /// How many frames were taken so far.
    pub(crate) const fn frames(&self) -> u64 {
        self.frames
    }

    /// The memory that it takes, in bytes.
    pub(crate) const fn held(&self) -> usize {
        self.evicted.capacity() * size_of::<u32>()
    }
}
