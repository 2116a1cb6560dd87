//! Frames (RFC 9113 §4.1, §6): the header, the typed payloads of all ten types, and how they are written.
//!
//! `Frame::parse` makes every check that needs only the frame itself: sizes, stream 0, padding. The engine checks what
//! depends on the state of a stream or connection.

use std::ops::Range;

use super::fault::Fault;
use crate::ErrorCode;

/// What a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame header.
pub const HEADER_LENGTH: usize = 9;
/// The highest stream id, setting of a window, or increment: 31 bits.
pub const MAX_31_BITS: u32 = 0x7fff_ffff;

/// Frame types (RFC 9113 §6).
pub mod kind {
    /// DATA.
    pub const DATA: u8 = 0;
    /// HEADERS.
    pub const HEADERS: u8 = 1;
    /// PRIORITY.
    pub const PRIORITY: u8 = 2;
    /// RST_STREAM.
    pub const RST_STREAM: u8 = 3;
    /// SETTINGS.
    pub const SETTINGS: u8 = 4;
    /// PUSH_PROMISE.
    pub const PUSH_PROMISE: u8 = 5;
    /// PING.
    pub const PING: u8 = 6;
    /// GOAWAY.
    pub const GOAWAY: u8 = 7;
    /// WINDOW_UPDATE.
    pub const WINDOW_UPDATE: u8 = 8;
    /// CONTINUATION.
    pub const CONTINUATION: u8 = 9;
    /// `PRIORITY_UPDATE` (RFC 9218 §7.1).
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Frame flags (RFC 9113 §6).
pub mod flag {
    /// DATA, HEADERS: the sender's last frame on the stream.
    pub const END_STREAM: u8 = 0x1;
    /// SETTINGS, PING: an acknowledgement.
    pub const ACK: u8 = 0x1;
    /// HEADERS, PUSH_PROMISE, CONTINUATION: the field block is complete.
    pub const END_HEADERS: u8 = 0x4;
    /// DATA, HEADERS, PUSH_PROMISE: the payload is padded.
    pub const PADDED: u8 = 0x8;
    /// HEADERS: the payload begins with five octets of (deprecated) priority.
    pub const PRIORITY: u8 = 0x20;
}

/// The nine octets before every payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Octets of payload, 24 bits.
    pub length: u32,
    /// The type, see [`kind`]; unknown types are kept.
    pub kind: u8,
    /// See [`flag`].
    pub flags: u8,
    /// 31 bits; the reserved bit is dropped (§4.1).
    pub stream: u32,
}

impl FrameHeader {
    /// Reads a header.
    pub fn parse(bytes: &[u8; HEADER_LENGTH]) -> Self {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & MAX_31_BITS,
        }
    }

    /// Writes a header; lengths above 24 bits are cut.
    pub fn encode(self) -> [u8; HEADER_LENGTH] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s0, s1, s2, s3]
    }

    /// Changes the stream of the frame at the start of `bytes`.
    pub(super) fn set_stream(bytes: &mut [u8], stream: u32) {
        bytes[HEADER_LENGTH - 4..HEADER_LENGTH].copy_from_slice(&stream.to_be_bytes());
    }

    /// Whether `flag` is set.
    pub const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A frame's payload, parsed. Ranges are relative to the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    Data { body: Range<usize>, end_stream: bool },
    Headers { fragment: Range<usize>, end_stream: bool, end_headers: bool, depends_on: Option<u32> },
    Priority { depends_on: u32 },
    Reset { code: ErrorCode },
    Settings,
    SettingsAck,
    PushPromise { promised: u32, fragment: Range<usize>, end_headers: bool },
    Ping { payload: [u8; 8] },
    PingAck { payload: [u8; 8] },
    GoAway { last_stream: u32, code: ErrorCode, debug: Range<usize> },
    WindowUpdate { increment: u32 },
    Continuation { end_headers: bool },
    PriorityUpdate { stream: u32, value: Range<usize> },
    Unknown,
}

impl Frame {
    /// Parses `payload`, which is as long as `header` says.
    #[inline]
    pub(super) fn parse(header: FrameHeader, payload: &[u8]) -> Result<Self, Fault> {
        check_stream(header)?;
        Ok(match header.kind {
            kind::DATA => {
                Self::Data { body: unpad(header, payload)?, end_stream: header.has(flag::END_STREAM) }
            }
            kind::HEADERS => headers(header, payload)?,
            kind::PRIORITY if payload.len() != 5 => {
                let (stream, code) = (header.stream, ErrorCode::FRAME_SIZE_ERROR);
                return Err(Fault::Stream {
                    stream,
                    code,
                    reason: "PRIORITY is not 5 octets long (RFC 9113 §6.3)",
                });
            }
            kind::PRIORITY => Self::Priority { depends_on: u31(payload) },
            kind::RST_STREAM if payload.len() != 4 => {
                return Err(Fault::frame_size("RST_STREAM is not 4 octets long (RFC 9113 §6.4)"));
            }
            kind::RST_STREAM => Self::Reset { code: ErrorCode(u32_at(payload, 0)) },
            kind::SETTINGS => settings(header, payload)?,
            kind::PUSH_PROMISE => push_promise(header, payload)?,
            kind::PING => match <[u8; 8]>::try_from(payload) {
                Ok(payload) if header.has(flag::ACK) => Self::PingAck { payload },
                Ok(payload) => Self::Ping { payload },
                Err(_) => return Err(Fault::frame_size("PING is not 8 octets long (RFC 9113 §6.7)")),
            },
            kind::GOAWAY if payload.len() < 8 => {
                return Err(Fault::frame_size("GOAWAY is shorter than 8 octets (RFC 9113 §6.8)"));
            }
            kind::GOAWAY => Self::GoAway {
                last_stream: u31(payload),
                code: ErrorCode(u32_at(payload, 4)),
                debug: 8..payload.len(),
            },
            kind::WINDOW_UPDATE => window_update(header, payload)?,
            kind::CONTINUATION => Self::Continuation { end_headers: header.has(flag::END_HEADERS) },
            kind::PRIORITY_UPDATE if payload.len() < 4 => {
                return Err(Fault::frame_size("PRIORITY_UPDATE is shorter than 4 octets (RFC 9218 §7.1)"));
            }
            kind::PRIORITY_UPDATE => Self::PriorityUpdate { stream: u31(payload), value: 4..payload.len() },
            _ => Self::Unknown,
        })
    }
}

/// Checks that stream 0 carries only frames of the connection, and other streams only theirs.
fn check_stream(header: FrameHeader) -> Result<(), Fault> {
    let on_connection = header.stream == 0;
    match header.kind {
        kind::SETTINGS | kind::PING | kind::GOAWAY if !on_connection => {
            Err(Fault::protocol("SETTINGS, PING or GOAWAY on a stream (RFC 9113 §6)"))
        }
        kind::PRIORITY_UPDATE if !on_connection => {
            Err(Fault::protocol("PRIORITY_UPDATE on a stream (RFC 9218 §7.1)"))
        }
        kind::DATA
        | kind::HEADERS
        | kind::PRIORITY
        | kind::RST_STREAM
        | kind::PUSH_PROMISE
        | kind::CONTINUATION
            if on_connection =>
        {
            Err(Fault::protocol("a frame that needs a stream is on stream 0 (RFC 9113 §6)"))
        }
        _ => Ok(()),
    }
}

/// The payload without its padding.
fn unpad(header: FrameHeader, payload: &[u8]) -> Result<Range<usize>, Fault> {
    if !header.has(flag::PADDED) {
        return Ok(0..payload.len());
    }
    let Some(&padding) = payload.first() else {
        return Err(Fault::frame_size("a padded frame has no room for the pad length (RFC 9113 §6.1)"));
    };
    match payload.len().checked_sub(usize::from(padding)) {
        Some(end) if end >= 1 => Ok(1..end),
        _ => Err(Fault::protocol("padding is as long as the payload or longer (RFC 9113 §6.1)")),
    }
}

fn headers(header: FrameHeader, payload: &[u8]) -> Result<Frame, Fault> {
    let mut fragment = unpad(header, payload)?;
    let mut depends_on = None;
    if header.has(flag::PRIORITY) {
        if fragment.len() < 5 {
            return Err(Fault::frame_size("HEADERS has no room for its priority (RFC 9113 §6.2)"));
        }
        depends_on = Some(u31(&payload[fragment.clone()]));
        fragment.start += 5;
    }
    let (end_stream, end_headers) = (header.has(flag::END_STREAM), header.has(flag::END_HEADERS));
    Ok(Frame::Headers { fragment, end_stream, end_headers, depends_on })
}

fn settings(header: FrameHeader, payload: &[u8]) -> Result<Frame, Fault> {
    match (header.has(flag::ACK), payload.len()) {
        (true, 0) => Ok(Frame::SettingsAck),
        (true, _) => Err(Fault::frame_size("a SETTINGS acknowledgement has a payload (RFC 9113 §6.5)")),
        (false, length) if length % 6 == 0 => Ok(Frame::Settings),
        (false, _) => Err(Fault::frame_size("the length of SETTINGS is not a multiple of 6 (RFC 9113 §6.5)")),
    }
}

fn push_promise(header: FrameHeader, payload: &[u8]) -> Result<Frame, Fault> {
    let mut fragment = unpad(header, payload)?;
    if fragment.len() < 4 {
        return Err(Fault::frame_size("PUSH_PROMISE has no room for the promised stream (RFC 9113 §6.6)"));
    }
    let promised = u31(&payload[fragment.clone()]);
    fragment.start += 4;
    Ok(Frame::PushPromise { promised, fragment, end_headers: header.has(flag::END_HEADERS) })
}

fn window_update(header: FrameHeader, payload: &[u8]) -> Result<Frame, Fault> {
    const ZERO: &str = "WINDOW_UPDATE by 0 (RFC 9113 §6.9)";
    if payload.len() != 4 {
        return Err(Fault::frame_size("WINDOW_UPDATE is not 4 octets long (RFC 9113 §6.9)"));
    }
    match u31(payload) {
        0 if header.stream == 0 => Err(Fault::protocol(ZERO)),
        0 => Err(Fault::malformed(header.stream, ZERO)),
        increment => Ok(Frame::WindowUpdate { increment }),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The first 31 bits after the reserved (or exclusive) one.
fn u31(bytes: &[u8]) -> u32 {
    u32_at(bytes, 0) & MAX_31_BITS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<Frame, Fault> {
        Frame::parse(FrameHeader { length: payload.len() as u32, kind, flags, stream }, payload)
    }

    fn code(result: Result<Frame, Fault>) -> ErrorCode {
        match result.unwrap_err() {
            Fault::Connection { code, .. } | Fault::Stream { code, .. } => code,
            Fault::Excess(exceeded) => panic!("{exceeded}"),
        }
    }

    #[test]
    fn a_header_survives_a_round_trip_without_its_reserved_bit() {
        let header = FrameHeader { length: 0x01_0203, kind: 8, flags: 0x25, stream: 0x7fff_ffff };
        let mut bytes = header.encode();
        assert_eq!(FrameHeader::parse(&bytes), header);
        bytes[5] |= 0x80;
        assert_eq!(FrameHeader::parse(&bytes), header);
    }

    #[test]
    fn padding_may_leave_nothing_but_not_less() {
        let whole = parse(kind::DATA, flag::PADDED, 1, &[2, 0, 0]).unwrap();
        assert_eq!(whole, Frame::Data { body: 1..1, end_stream: false });
        assert_eq!(code(parse(kind::DATA, flag::PADDED, 1, &[3, 0, 0])), ErrorCode::PROTOCOL_ERROR);
        assert_eq!(code(parse(kind::DATA, flag::PADDED, 1, &[])), ErrorCode::FRAME_SIZE_ERROR);
    }

    #[test]
    fn headers_with_padding_and_priority_leave_the_fragment() {
        let payload = [1, 0x80, 0, 0, 3, 16, 0x82, 0];
        let frame =
            parse(kind::HEADERS, flag::PADDED | flag::PRIORITY | flag::END_HEADERS, 5, &payload).unwrap();
        let expected =
            Frame::Headers { fragment: 6..7, end_stream: false, end_headers: true, depends_on: Some(3) };
        assert_eq!(frame, expected);
        assert_eq!(code(parse(kind::HEADERS, flag::PRIORITY, 5, &payload[..4])), ErrorCode::FRAME_SIZE_ERROR);
    }

    #[test]
    fn frames_on_the_wrong_stream_are_protocol_errors() {
        for kind in [
            kind::DATA,
            kind::HEADERS,
            kind::PRIORITY,
            kind::RST_STREAM,
            kind::PUSH_PROMISE,
            kind::CONTINUATION,
        ] {
            assert_eq!(code(parse(kind, 0, 0, &[0; 8])), ErrorCode::PROTOCOL_ERROR, "type {kind}");
        }
        for kind in [kind::SETTINGS, kind::PING, kind::GOAWAY] {
            assert_eq!(code(parse(kind, 0, 1, &[0; 8])), ErrorCode::PROTOCOL_ERROR, "type {kind}");
        }
        assert_eq!(parse(0xfe, 0, 0, &[]), Ok(Frame::Unknown));
    }

    #[test]
    fn fixed_sizes_are_enforced_on_both_sides() {
        for (kind, good) in [(kind::RST_STREAM, 4), (kind::WINDOW_UPDATE, 4), (kind::PRIORITY, 5)] {
            assert!(parse(kind, 0, 1, &[1; 8][..good]).is_ok());
            for bad in [good - 1, good + 1] {
                assert_eq!(
                    code(parse(kind, 0, 1, &[1; 8][..bad])),
                    ErrorCode::FRAME_SIZE_ERROR,
                    "type {kind}"
                );
            }
        }
        for (kind, good, bad) in
            [(kind::PING, 8, 7), (kind::PING, 8, 9), (kind::GOAWAY, 9, 7), (kind::SETTINGS, 6, 5)]
        {
            assert!(parse(kind, 0, 0, &[0; 12][..good]).is_ok());
            assert_eq!(code(parse(kind, 0, 0, &[0; 12][..bad])), ErrorCode::FRAME_SIZE_ERROR, "type {kind}");
        }
        assert_eq!(code(parse(kind::SETTINGS, flag::ACK, 0, &[0; 6])), ErrorCode::FRAME_SIZE_ERROR);
    }

    #[test]
    fn a_priority_update_names_its_stream_in_the_payload() {
        let update = parse(kind::PRIORITY_UPDATE, 0, 0, b"\x80\0\0\x05u=1").unwrap();
        assert_eq!(update, Frame::PriorityUpdate { stream: 5, value: 4..7 });
        assert_eq!(code(parse(kind::PRIORITY_UPDATE, 0, 5, &[0; 4])), ErrorCode::PROTOCOL_ERROR);
        assert_eq!(code(parse(kind::PRIORITY_UPDATE, 0, 0, &[0; 3])), ErrorCode::FRAME_SIZE_ERROR);
    }

    #[test]
    fn an_increment_of_zero_is_an_error_of_its_stream_or_of_the_connection() {
        assert!(matches!(
            parse(kind::WINDOW_UPDATE, 0, 3, &[0x80, 0, 0, 0]),
            Err(Fault::Stream { stream: 3, .. })
        ));
        assert!(matches!(parse(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), Err(Fault::Connection { .. })));
        assert_eq!(parse(kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]), Ok(Frame::WindowUpdate { increment: 1 }));
    }

    proptest! {
        #[test]
        fn random_frames_never_panic(kind: u8, flags: u8, stream in 0..=MAX_31_BITS, payload: Vec<u8>) {
            let _ = parse(kind, flags, stream, &payload);
        }
    }
}
