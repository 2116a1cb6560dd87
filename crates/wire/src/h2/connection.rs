//! The receive path: from the input buffer to events.

use std::ops::Range;

use super::fault::Fault;
use super::frame::{Frame, FrameHeader, HEADER_LENGTH, PREFACE, flag, kind};
use super::preface::{self, Beginning};
use super::stream::Side;
use super::streams::{Ending, Key};
use super::{Connection, Occurrence, Received};
use crate::connection::{FRAME_TYPES, Refused};
use crate::message;
use crate::{Error, ErrorCode, Initiator, Role};
use h2lab_base::units::Time;

/// A frame in the input buffer, or a piece of a DATA frame as if it were a frame: its header and where its payload
/// lies.
type Framed = (FrameHeader, Range<usize>);

/// The role gets a DATA frame of at least twice this length, in octets, in pieces no shorter than this. Holding it
/// until its end would take memory that the peer decides on, up to 16 MiB for each connection, and each read would move
/// what is held: a third of all bytes, seen with frames of 64 KiB.
pub(super) const PIECE: usize = 16 * 1024;

impl Connection {
    /// Handles frames until one produces an event.
    pub(super) fn advance(&mut self, now: Time) -> Option<Occurrence> {
        loop {
            if !self.end.is_open() {
                return self.end.is_due().then_some(Occurrence::Closed);
            }
            if let Some(occurrence) = self.next_unprocessed().or_else(|| self.next_evicted()) {
                return Some(occurrence);
            }
            let framed = match self.next_frame() {
                Ok(framed) => framed,
                Err(fault) => {
                    self.punish(fault);
                    continue;
                }
            };
            let Some((header, payload)) = framed else {
                if self.has_ended() {
                    continue;
                }
                // The role reads no more from such a peer, so that no later frame would trigger this check.
                if !self.wants_input()
                    && let Err(fault) = self.check_answers()
                {
                    self.punish(fault);
                    continue;
                }
                self.watch_input(now);
                return self.next_writable(now).map(|stream| Occurrence::Writable { stream });
            };
            match self.receive(now, header, payload) {
                Ok(None) => {}
                Ok(occurrence) => return occurrence,
                Err(fault) => {
                    if let Some(occurrence) = self.punish(fault) {
                        return Some(occurrence);
                    }
                }
            }
        }
    }

    /// Takes the next complete frame off the input, or the next piece of a long DATA frame.
    fn next_frame(&mut self) -> Result<Option<Framed>, Fault> {
        if let Some(rest) = self.rest {
            return Ok(self.next_piece(rest));
        }
        if !self.is_established() && !self.take_beginning()? {
            return Ok(None);
        }
        let unread = self.input.unread();
        let Some(header) = unread.first_chunk().map(FrameHeader::parse) else { return Ok(None) };
        if header.length > self.config.max_frame_size {
            return Err(Fault::frame_size("a frame is larger than SETTINGS_MAX_FRAME_SIZE (RFC 9113 §4.2)"));
        }
        if unread.len() < HEADER_LENGTH + least_payload(header) {
            return Ok(None);
        }
        self.input.advance(HEADER_LENGTH);
        self.accounts.frame_taken();
        self.counters.frames_received[usize::from(header.kind).min(FRAME_TYPES.len() - 1)] += 1;
        Ok(self.next_piece(header))
    }

    /// Takes the part of a frame that is in the input, if that is enough. All pieces but the last are frames that do
    /// not end their stream.
    fn next_piece(&mut self, frame: FrameHeader) -> Option<Framed> {
        let here = self.input.unread().len();
        if here < least_payload(frame) {
            return None;
        }
        let start = self.input.position();
        let left = frame.length as usize;
        let taken = if here < left { here.min(left - PIECE) } else { left };
        self.input.advance(taken);
        let mut piece = frame;
        self.rest = None;
        if taken < left {
            self.rest = Some(FrameHeader { length: (left - taken) as u32, ..frame });
            piece = FrameHeader { length: taken as u32, flags: frame.flags & !flag::END_STREAM, ..frame };
        }
        Some((piece, start..start + taken))
    }

    /// Checks the peer's preface; `false` until it is complete.
    fn take_beginning(&mut self) -> Result<bool, Fault> {
        let server = self.config.role == Role::Server;
        let beginning = match (server, self.handshake.is_preface_due()) {
            (true, true) => preface::of_client(self.input.unread()),
            _ => preface::of_server(self.input.unread()),
        };
        match beginning {
            Beginning::Right if server && self.handshake.is_preface_due() => {
                self.input.advance(PREFACE.len());
                self.handshake.preface_seen();
                self.take_beginning()
            }
            Beginning::Right => Ok(true),
            Beginning::Incomplete => Ok(false),
            Beginning::Foreign(hint) if !server || self.handshake.is_preface_due() => {
                let error = Error::WrongProtocol { expected: "HTTP/2", hint };
                self.fail(error, ErrorCode::PROTOCOL_ERROR, hint.as_bytes());
                Ok(false)
            }
            Beginning::Foreign(_) | Beginning::Wrong if self.handshake.is_preface_due() => {
                Err(Fault::protocol("the connection preface is wrong (RFC 9113 §3.4)"))
            }
            Beginning::Foreign(_) | Beginning::Wrong => {
                Err(Fault::protocol("the first frame is not SETTINGS (RFC 9113 §3.4)"))
            }
        }
    }

    fn receive(&mut self, now: Time, header: FrameHeader, payload: Range<usize>) -> Received {
        if self.assembly.is_under_way() && !self.assembly.continues(header) {
            return Err(Fault::protocol("a field block is interrupted by another frame (RFC 9113 §4.3)"));
        }
        self.check_answers()?;
        let at = payload.start;
        let within = |range: Range<usize>| at + range.start..at + range.end;
        let id = header.stream;
        match Frame::parse(header, self.input.slice(payload.start, payload.end))? {
            Frame::Data { body, end_stream } => {
                self.pings.message_came();
                self.receive_data(now, header, within(body), end_stream)
            }
            Frame::Headers { fragment, end_stream, end_headers, depends_on } => {
                self.pings.message_came();
                self.receive_headers(header, within(fragment), end_stream, end_headers, depends_on)
            }
            Frame::Priority { depends_on } if depends_on == id => {
                Err(Fault::malformed(id, "a stream depends on itself (RFC 7540 §5.3.1)"))
            }
            // Priorities are deprecated and ignored (RFC 9113 §5.3.2), unknown frames too (§4.1).
            Frame::Priority { .. } | Frame::Unknown => self.noise().map(|()| None),
            Frame::Reset { code } => self.receive_reset(now, id, code),
            Frame::Settings => {
                self.accounts.settings(now)?;
                self.receive_settings(payload)
            }
            Frame::SettingsAck => self.settings_acknowledged(now).map(|()| None),
            Frame::PushPromise { promised, fragment, end_headers } => {
                self.receive_push_promise(id, promised, within(fragment), end_headers)
            }
            Frame::Ping { payload } => {
                self.acknowledge_ping(payload);
                Ok(None)
            }
            Frame::PingAck { payload } => self.ping_acknowledged(now, payload),
            Frame::GoAway { last_stream, code, debug } => {
                self.receive_goaway(last_stream, code, within(debug).start)
            }
            Frame::WindowUpdate { increment } => self.receive_window_update(id, increment),
            Frame::Continuation { end_headers } => self.receive_continuation(payload, end_headers),
            Frame::PriorityUpdate { stream, value } => self.receive_priority_update(stream, within(value)),
        }
    }

    fn receive_data(
        &mut self,
        now: Time,
        header: FrameHeader,
        body: Range<usize>,
        end_stream: bool,
    ) -> Received {
        if !self.receive_window.receive(header.length) {
            return Err(Fault::flow_control("DATA exceeds the connection window (RFC 9113 §6.9.1)"));
        }
        let waited = self.credit_watch.received(now, header.length, &mut self.credit_rtt);
        *self.counters.peer_waited_connection_window.get_or_insert_default() += waited;
        let by_hand = self.is_by_hand(header.stream);
        let free = free_at_once(header, &body, by_hand);
        self.measure_release(now, free);
        let taken = self.take_data(now, header, &body, end_stream, by_hand);
        let held = taken == Ok(true) && by_hand;
        // Whatever happens to the frame, its credit for the connection must not be lost.
        if held {
            self.receive_window.hold(body.len() as u32);
        }
        if !end_stream {
            self.accounts.data(now, body.len() as u32, held)?;
        }
        self.return_connection_credit(now);
        if !taken? || (body.is_empty() && !end_stream) {
            return Ok(None);
        }
        Ok(Some(Occurrence::Data { stream: header.stream, start: body.start, end: body.end, end_stream }))
    }

    /// Records DATA on its stream; `false` if the caller must ignore it.
    fn take_data(
        &mut self,
        now: Time,
        header: FrameHeader,
        body: &Range<usize>,
        end_stream: bool,
        by_hand: bool,
    ) -> Result<bool, Fault> {
        let id = header.stream;
        let Some(key) = self.streams.find(id) else {
            if self.is_repeated_end(header, end_stream) {
                self.noise()?;
            } else {
                self.check_absent(id, kind::DATA)?;
            }
            return Ok(false);
        };
        let free = free_at_once(header, body, by_hand);
        let stream = &mut self.streams[key];
        match stream.remote {
            Side::Body => {}
            Side::Head => {
                return Err(Fault::malformed(id, "DATA before the head of the message (RFC 9113 §8.1)"));
            }
            Side::Ended => {
                let code = ErrorCode::STREAM_CLOSED;
                return Err(Fault::Stream {
                    stream: id,
                    code,
                    reason: "DATA after END_STREAM (RFC 9113 §5.1)",
                });
            }
        }
        if !stream.receive.receive(header.length) {
            let code = ErrorCode::FLOW_CONTROL_ERROR;
            return Err(Fault::Stream {
                stream: id,
                code,
                reason: "DATA exceeds the stream window (RFC 9113 §6.9.1)",
            });
        }
        let waited = stream.credit_watch.received(now, header.length, &mut self.credit_rtt);
        *self.counters.peer_waited_stream_window.get_or_insert_default() += waited;
        let malformed = |reason| Fault::malformed(id, reason);
        stream.content.body(body.len() as u64).map_err(malformed)?;
        if by_hand {
            stream.receive.hold(body.len() as u32);
        }
        if end_stream {
            stream.end_remote().map_err(malformed)?;
            self.remove_if_closed(key);
        } else {
            self.stream_released(now, key, free);
        }
        Ok(true)
    }

    /// Client role: an empty DATA frame that ends a response which had ended before. nginx (seen with 1.22) sends it
    /// after HEADERS with END_STREAM that could not be sent at once, for example because the socket was full.
    ///
    /// RFC 9113 allows a connection error here and does not demand one (§5.1, "closed": MAY). Such an error would cost
    /// every request on the connection for a redundant frame, and no other client does this.
    fn is_repeated_end(&self, header: FrameHeader, end_stream: bool) -> bool {
        self.config.role == Role::Client
            && end_stream
            && header.length == 0
            && self.streams.ending(header.stream) == Ending::Complete
    }

    /// Whether a frame of this kind is legal for a stream that is not in the store; `Ok` means: ignore it
    /// (RFC 9113 §5.1, "idle" and "closed").
    pub(super) fn check_absent(&self, id: u32, kind: u8) -> Result<(), Fault> {
        if self.is_beyond_goaway(id) {
            return Ok(());
        }
        if self.is_idle(id) {
            return Err(Fault::protocol("a frame on an idle stream (RFC 9113 §5.1)"));
        }
        match self.streams.ending(id) {
            Ending::ResetByPeer => Err(Fault::Stream {
                stream: id,
                code: ErrorCode::STREAM_CLOSED,
                reason: "a frame after RST_STREAM (RFC 9113 §5.1)",
            }),
            Ending::Complete => Err(Fault::Connection {
                code: ErrorCode::STREAM_CLOSED,
                reason: "a frame on a closed stream (RFC 9113 §5.1)",
            }),
            // Our own streams were all opened, so this one ended long ago; the peer's may have been skipped. Trailers
            // belong to a request that we reset long ago: a client with a slow upload sends them when it ends.
            Ending::Forgotten
                if kind == kind::HEADERS
                    && self.is_of_peer(id)
                    && message::check_trailers(&self.fields).is_err() =>
            {
                Err(Fault::protocol("a new stream has a lower id than an earlier one (RFC 9113 §5.1.1)"))
            }
            Ending::Forgotten | Ending::ResetByUs => Ok(()),
        }
    }

    /// Whether the peer may begin streams with this id.
    pub(super) fn is_of_peer(&self, id: u32) -> bool {
        (id % 2 == 1) == (self.config.role == Role::Server)
    }

    pub(super) fn is_idle(&self, id: u32) -> bool {
        if self.is_of_peer(id) { id > self.highest_peer } else { id >= self.next_local }
    }

    /// Takes a stream out of the store when both sides have ended.
    pub(super) fn remove_if_closed(&mut self, key: Key) {
        if self.streams[key].is_closed() {
            self.remove(key, Ending::Complete);
        }
    }

    pub(super) fn remove(&mut self, key: Key, ending: Ending) {
        self.backlog.forget(&self.streams[key]);
        self.streams.remove(key, ending);
    }

    /// The next stream that was ended for being slow.
    fn next_evicted(&mut self) -> Option<Occurrence> {
        let stream = self.accounts.evicted.pop()?;
        let (code, initiator) = (ErrorCode::ENHANCE_YOUR_CALM, Initiator::Engine);
        Some(Occurrence::Reset { stream, code, initiator })
    }

    /// Answers a violation. The event for the role is returned, or follows at the next call of [`Connection::advance`].
    fn punish(&mut self, fault: Fault) -> Option<Occurrence> {
        match fault {
            Fault::Stream { stream, code, reason } if !self.is_idle(stream) => {
                if let Err(fault) = self.accounts.stream_error() {
                    return self.punish(fault);
                }
                self.put_reset(stream, code);
                self.pings.answered();
                let Some(key) = self.streams.find(stream) else {
                    self.streams.remember(stream, Ending::ResetByUs);
                    if self.config.role == Role::Server && code == ErrorCode::PROTOCOL_ERROR {
                        self.refused = Some(Refused::by_reset(self.refused, reason));
                    }
                    return None;
                };
                self.remove(key, Ending::ResetByUs);
                if self.config.role == Role::Client {
                    self.refused = Some(Refused::by_reset(self.refused, reason));
                }
                Some(Occurrence::Reset { stream, code, initiator: Initiator::Engine })
            }
            Fault::Excess(exceeded) => {
                self.exceed(exceeded, ErrorCode::ENHANCE_YOUR_CALM);
                None
            }
            // An idle stream cannot be reset (RFC 9113 §6.4).
            Fault::Stream { code, reason, .. } | Fault::Connection { code, reason } => {
                self.fail(Error::PeerMisbehaved { code, reason }, code, reason.as_bytes());
                None
            }
        }
    }
}

/// How many octets of a frame's payload must have arrived to process it: all of them, unless it is DATA. Padding is
/// removed from a whole frame only; it has at most 255 octets, and nobody pads long frames.
pub(super) fn least_payload(frame: FrameHeader) -> usize {
    let all = frame.length as usize;
    let in_pieces = frame.kind == kind::DATA && !frame.has(flag::PADDED) && all >= 2 * PIECE;
    if in_pieces { PIECE } else { all }
}

/// How much of a DATA frame the role does not hold, so that its credit is free at once: all of it, or the padding if it
/// releases by hand.
const fn free_at_once(header: FrameHeader, body: &Range<usize>, by_hand: bool) -> u32 {
    let held = if by_hand { body.end - body.start } else { 0 };
    header.length - held as u32
}
