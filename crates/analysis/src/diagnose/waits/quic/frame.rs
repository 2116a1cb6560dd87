//! Frames of QUIC (RFC 9000 §19), as far as the attribution needs them.

use std::ops::RangeInclusive;

use h2lab_wire::h3::inspect::integer;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// This many zeros.
    Padding(usize),
    /// The packets that have arrived, the highest first.
    Ack(Vec<RangeInclusive<u64>>),
    Crypto {
        offset: u64,
        bytes: &'a [u8],
    },
    /// Bytes of a stream, or only its end.
    Stream {
        stream: u64,
        offset: u64,
        length: u64,
        ends: bool,
    },
    /// Its sender sends nothing more on the stream; bytes before `length` may never arrive.
    Reset {
        stream: u64,
        length: u64,
    },
    /// Credit, in bytes since the beginning of all streams (`None`) or of one stream.
    Credit {
        stream: Option<u64>,
        limit: u64,
    },
    Other,
}

/// Takes the next frame from a packet; `None` if it is unknown or incomplete, so that what follows it cannot be read.
pub(super) fn next<'a>(rest: &mut &'a [u8]) -> Option<Frame<'a>> {
    let kind = number(rest)?;
    Some(match kind {
        0x00 => {
            let zeros = rest.iter().take_while(|byte| **byte == 0).count();
            *rest = &rest[zeros..];
            Frame::Padding(1 + zeros)
        }
        0x02 | 0x03 => {
            let ranges = acknowledged(rest)?;
            numbers(rest, if kind == 0x03 { 3 } else { 0 })?;
            Frame::Ack(ranges)
        }
        0x04 => {
            let stream = number(rest)?;
            number(rest)?;
            Frame::Reset { stream, length: number(rest)? }
        }
        0x06 => {
            let offset = number(rest)?;
            Frame::Crypto { offset, bytes: bytes(rest)? }
        }
        0x08..=0x0f => {
            let stream = number(rest)?;
            let offset = if kind & 0x04 == 0 { 0 } else { number(rest)? };
            let data = if kind & 0x02 == 0 { std::mem::take(rest) } else { bytes(rest)? };
            Frame::Stream { stream, offset, length: data.len() as u64, ends: kind & 0x01 != 0 }
        }
        0x10 => Frame::Credit { stream: None, limit: number(rest)? },
        0x11 => Frame::Credit { stream: Some(number(rest)?), limit: number(rest)? },
        _ => {
            skip(kind, rest)?;
            Frame::Other
        }
    })
}

/// Frames that do not matter here.
fn skip(kind: u64, rest: &mut &[u8]) -> Option<()> {
    match kind {
        // PING, HANDSHAKE_DONE; IMMEDIATE_ACK of the extension for acknowledgement frequency, as some libraries send it.
        0x01 | 0x1e | 0x1f => Some(()),
        // STOP_SENDING, STREAM_DATA_BLOCKED
        0x05 | 0x15 => numbers(rest, 2),
        // NEW_TOKEN, DATAGRAM (RFC 9221) with a length
        0x07 | 0x31 => bytes(rest).map(drop),
        // MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID
        0x12..=0x14 | 0x16 | 0x17 | 0x19 => numbers(rest, 1),
        // NEW_CONNECTION_ID
        0x18 => {
            numbers(rest, 2)?;
            let (length, id) = rest.split_first()?;
            *rest = id.get(usize::from(*length) + 16..)?;
            Some(())
        }
        // PATH_CHALLENGE, PATH_RESPONSE
        0x1a | 0x1b => {
            *rest = rest.get(8..)?;
            Some(())
        }
        // CONNECTION_CLOSE
        0x1c | 0x1d => {
            numbers(rest, if kind == 0x1c { 2 } else { 1 })?;
            bytes(rest).map(drop)
        }
        // DATAGRAM to the end
        0x30 => {
            *rest = &[];
            Some(())
        }
        // ACK_FREQUENCY
        0xaf => numbers(rest, 4),
        _ => None,
    }
}

/// The ranges of an ACK (RFC 9000 §19.3.1).
fn acknowledged(rest: &mut &[u8]) -> Option<Vec<RangeInclusive<u64>>> {
    let mut last = number(rest)?;
    number(rest)?;
    let more = number(rest)?;
    let mut first = last.checked_sub(number(rest)?)?;
    let mut ranges = vec![first..=last];
    for _ in 0..more {
        last = first.checked_sub(number(rest)?.checked_add(2)?)?;
        first = last.checked_sub(number(rest)?)?;
        ranges.push(first..=last);
    }
    Some(ranges)
}

/// Reads a variable-length integer (RFC 9000 §16).
pub(super) fn number(rest: &mut &[u8]) -> Option<u64> {
    let (value, behind) = integer(rest)?;
    *rest = behind;
    Some(value)
}

fn numbers(rest: &mut &[u8], count: usize) -> Option<()> {
    (0..count).try_for_each(|_| number(rest).map(drop))
}

/// Reads bytes that are preceded by their length.
pub(super) fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest)?).ok()?;
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(mut bytes: &[u8]) -> (Vec<Frame<'_>>, bool) {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let Some(frame) = next(&mut bytes) else { return (frames, false) };
            frames.push(frame);
        }
        (frames, true)
    }

    #[test]
    fn streams_have_their_place_and_the_last_one_may_go_to_the_end_of_the_packet() {
        let stream = |offset, length, ends| Frame::Stream { stream: 4, offset, length, ends };
        let all = [0x0f, 4, 7, 2, 1, 1, 0, 0, 0x0a, 4, 1, 9, 0x0d, 4, 3, 1, 1, 1];
        let expected = [stream(7, 2, true), Frame::Padding(2), stream(0, 1, false), stream(3, 3, true)];
        assert_eq!(frames(&all), (expected.to_vec(), true));
    }

    #[test]
    fn acknowledged_ranges_count_down_over_their_gaps() {
        // The largest is 10, and the first range has two more packets; then a gap of one packet and a range of two;
        // then ECN counts.
        let ack = [0x03, 10, 5, 1, 2, 0, 1, 1, 2, 3, 0x01];
        assert_eq!(frames(&ack), (vec![Frame::Ack(vec![8..=10, 5..=6]), Frame::Other], true));
        assert_eq!(frames(&[0x02, 1, 0, 0, 2]), (vec![], false), "before packet 0");
        assert_eq!(frames(&[0x02, 3, 0, 1, 1, 1, 0]), (vec![], false), "a gap to before packet 0");
    }

    #[test]
    fn frames_that_do_not_matter_hide_none_behind_them() {
        let others: [&[u8]; 12] = [
            &[0x05, 4, 1],
            &[0x07, 2, 1, 1],
            &[0x12, 9],
            &[0x14, 9],
            &[0x15, 4, 9],
            &[0x19, 1],
            &[0x1a, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x1c, 1, 2, 1, 0x41],
            &[0x1d, 1, 0],
            &[0x18, 1, 0, 2, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x40, 0xaf, 1, 1, 1, 1],
            &[0x1e],
        ];
        let credit = Frame::Credit { stream: Some(4), limit: 9 };
        for other in others {
            let all = [other, &[0x11, 4, 9]].concat();
            assert_eq!(frames(&all), (vec![Frame::Other, credit.clone()], true), "{other:02x?}");
            assert!(!frames(&other[..other.len() - 1]).1 || other.len() == 1, "{other:02x?}");
        }
        assert!(!frames(&[0x21, 0]).1, "an unknown one");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            frames(&bytes);
        }
    }
}
