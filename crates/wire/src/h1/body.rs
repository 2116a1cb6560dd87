//! Bodies: content-length, chunked and until-close (RFC 9112 §6 and §7), decoded and encoded.

use super::buffer::Output;
use crate::queue::Payload;

/// Bytes of one chunk's extensions that we skip. No real peer sends them; without a bound a peer could send them
/// without end.
const MAX_EXTENSION: u16 = 4_096;
/// Digits of one chunk's size, zeros in front of it included: some servers write it with a fixed width.
const MAX_DIGITS: u8 = 64;

/// What the front of the input holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes of chunk framing to skip first.
    pub(crate) skip: usize,
    /// Body bytes after them; 0 if the input has none yet.
    pub(crate) data: usize,
    /// What comes after them.
    pub(crate) then: Then,
}

/// What comes after a [`Piece`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// More of the body.
    More,
    /// The trailer section of a chunked body, up to and including its empty line.
    Trailers,
    /// Nothing: the body is complete.
    End,
}

/// Decodes the framing of a received body. It holds its state in the framing, never body bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decoder {
    /// This many bytes are still to come.
    Length(u64),
    /// Chunks.
    Chunked(Chunk),
    /// All bytes until the connection ends.
    UntilClose,
}

/// Where a chunked body is in its framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In the hexadecimal size.
    Size {
        /// As read so far.
        size: u64,
        /// Digits read so far.
        digits: u8,
    },
    /// In blanks after the size. Before an extension they are legal (RFC 9112 §7.1.1); before the end of the line old
    /// servers pad the size with them, which `HAProxy` and nginx allow, too.
    Blanks {
        /// The chunk's size.
        size: u64,
        /// Bytes skipped so far.
        skipped: u16,
    },
    /// In the extensions, which are skipped.
    Extension {
        /// The chunk's size.
        size: u64,
        /// Bytes skipped so far.
        skipped: u16,
    },
    /// After the CR of the size line.
    SizeEnd {
        /// The chunk's size.
        size: u64,
    },
    /// In the data.
    Data {
        /// Bytes still to come.
        left: u64,
    },
    /// After the data, before its CR.
    DataCr,
    /// After the data and its CR.
    DataLf,
    /// After the last chunk.
    Trailers,
}

impl Decoder {
    /// A chunked body.
    pub(crate) const fn chunked() -> Self {
        Self::Chunked(Chunk::Size { size: 0, digits: 0 })
    }

    /// What is still to come of the body, or of its chunk; 0 if that is not known.
    pub(crate) const fn left(&self) -> u64 {
        match self {
            Self::Length(left) | Self::Chunked(Chunk::Data { left }) => *left,
            Self::Chunked(_) | Self::UntilClose => 0,
        }
    }

    /// Takes the next piece off the front of `input`, which need not be whole. The error says what is wrong with the
    /// framing.
    pub(crate) fn decode(&mut self, input: &[u8]) -> Result<Piece, &'static str> {
        match self {
            Self::Length(left) => {
                let data = take(left, input.len());
                Ok(Piece { skip: 0, data, then: if *left == 0 { Then::End } else { Then::More } })
            }
            Self::UntilClose => Ok(Piece { skip: 0, data: input.len(), then: Then::More }),
            Self::Chunked(chunk) => chunk.decode(input),
        }
    }
}

/// Takes at most `available` bytes off what is `left`.
fn take(left: &mut u64, available: usize) -> usize {
    let data = usize::try_from(*left).unwrap_or(usize::MAX).min(available);
    *left -= data as u64;
    data
}

impl Chunk {
    /// Skips framing until there is data, or the trailer section, or no more input.
    fn decode(&mut self, input: &[u8]) -> Result<Piece, &'static str> {
        let mut skip = 0;
        loop {
            match self {
                Self::Trailers => return Ok(Piece { skip, data: 0, then: Then::Trailers }),
                Self::Data { left } if skip < input.len() => {
                    let data = take(left, input.len() - skip);
                    if *left == 0 {
                        *self = Self::DataCr;
                    }
                    return Ok(Piece { skip, data, then: Then::More });
                }
                _ => {}
            }
            let Some(&byte) = input.get(skip) else { return Ok(Piece { skip, data: 0, then: Then::More }) };
            *self = self.step(byte)?;
            skip += 1;
        }
    }

    /// One byte of framing.
    fn step(&self, byte: u8) -> Result<Self, &'static str> {
        Ok(match (self, byte) {
            (Self::Size { size, digits }, byte) if byte.is_ascii_hexdigit() => {
                if *digits == MAX_DIGITS {
                    return Err("a chunk's size has more than 64 digits");
                }
                if size >> 60 != 0 {
                    return Err("a chunk's size is above 16 hexadecimal digits");
                }
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                Self::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Self::Size { digits: 0, .. }, _) => return Err("a chunk's size is not a hexadecimal number"),
            (Self::Size { size, .. } | Self::Blanks { size, .. } | Self::Extension { size, .. }, b'\r') => {
                Self::SizeEnd { size: *size }
            }
            (Self::Size { size, .. }, b';') => Self::Extension { size: *size, skipped: 0 },
            (Self::Size { size, .. }, b' ' | b'\t') => Self::Blanks { size: *size, skipped: 1 },
            (Self::Blanks { size, skipped }, b' ' | b'\t') if *skipped < MAX_EXTENSION => {
                Self::Blanks { size: *size, skipped: skipped + 1 }
            }
            (Self::Blanks { size, skipped }, b';') => Self::Extension { size: *size, skipped: *skipped },
            (Self::Size { .. } | Self::Blanks { .. }, _) => {
                return Err("a chunk's size is not a hexadecimal number");
            }
            (Self::Extension { .. }, b'\n') => return Err("a chunk's size line does not end with CRLF"),
            (Self::Extension { skipped: MAX_EXTENSION, .. }, _) => {
                return Err("a chunk's extensions are too long");
            }
            (Self::Extension { size, skipped }, _) => Self::Extension { size: *size, skipped: skipped + 1 },
            (Self::SizeEnd { size: 0 }, b'\n') => Self::Trailers,
            (Self::SizeEnd { size }, b'\n') => Self::Data { left: *size },
            (Self::SizeEnd { .. }, _) => return Err("a chunk's size line does not end with CRLF"),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Size { size: 0, digits: 0 },
            (Self::DataCr | Self::DataLf, _) => return Err("a chunk's data does not end with CRLF"),
            (Self::Data { .. } | Self::Trailers, _) => {
                return Err("chunk framing in a message without it");
            }
        })
    }
}

/// Frames a body that we send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoder {
    /// The message has no body on the wire, whatever the role has: an answer to HEAD, 204, 304.
    Discard,
    /// This many announced bytes are still to come.
    Length(u64),
    Chunked,
    UntilClose,
}

impl Encoder {
    /// Queues body bytes. The error is a misuse by the role.
    pub(super) fn push(&mut self, output: &mut Output, data: Payload<'_>) -> Result<(), &'static str> {
        match self {
            Self::Discard => {}
            _ if data.is_empty() => {} // an empty chunk would end the body
            Self::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or("a body longer than its content-length")?;
                output.push_payload(data);
            }
            Self::Chunked => {
                output.push_hex(data.len() as u64);
                output.push(b"\r\n");
                output.push_payload(data);
                output.push(b"\r\n");
            }
            Self::UntilClose => output.push_payload(data),
        }
        Ok(())
    }

    /// Ends the body; a chunked one stays open for its trailer section and final empty line.
    pub(super) fn finish(&self, output: &mut Output) -> Result<(), &'static str> {
        match self {
            Self::Length(1..) => return Err("a body shorter than its content-length"),
            Self::Chunked => output.push(b"0\r\n"),
            Self::Discard | Self::Length(0) | Self::UntilClose => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `input`, offered in pieces of at most `step` bytes; the body, and what was left for the trailers.
    fn decode(mut decoder: Decoder, input: &[u8], step: usize) -> Result<(Vec<u8>, usize), &'static str> {
        let (mut body, mut at) = (Vec::new(), 0);
        while at < input.len() {
            let end = input.len().min(at.saturating_add(step));
            let piece = decoder.decode(&input[at..end])?;
            body.extend_from_slice(&input[at + piece.skip..at + piece.skip + piece.data]);
            at += piece.skip + piece.data;
            if piece.then != Then::More {
                break;
            }
        }
        Ok((body, input.len() - at))
    }

    #[test]
    fn chunks_decode_alike_however_they_are_cut() {
        for wire in [
            &b"4\r\nWiki\r\n05;name=\"value\"\r\npedia\r\n0\r\n\r\n"[..],
            // Blanks around separators and after a size; zeros before one.
            b"4 \t; name = value\r\nWiki\r\n00000000000000000005  \r\npedia\r\n000\t;a\r\n\r\n",
        ] {
            for step in 1..=wire.len() {
                assert_eq!(decode(Decoder::chunked(), wire, step), Ok((b"Wikipedia".to_vec(), 2)), "{step}");
            }
        }
    }

    #[test]
    fn a_body_of_known_length_ends_there_and_leaves_the_next_message_alone() {
        let (body, left) = decode(Decoder::Length(4), b"WikiGET /", 3).unwrap();
        assert_eq!((&body[..], left), (&b"Wiki"[..], 5));
    }

    #[test]
    fn every_fault_of_chunk_framing_has_its_own_words() {
        for (wire, reason) in [
            (&b"g\r\n"[..], "a chunk's size is not a hexadecimal number"),
            (b"\r\n", "a chunk's size is not a hexadecimal number"),
            (b"4 x\r\n", "a chunk's size is not a hexadecimal number"),
            (b" 4\r\n", "a chunk's size is not a hexadecimal number"),
            (b"4 4\r\n", "a chunk's size is not a hexadecimal number"),
            (b"4 \n", "a chunk's size is not a hexadecimal number"),
            (b"4\n", "a chunk's size is not a hexadecimal number"),
            (b"-4\r\n", "a chunk's size is not a hexadecimal number"),
            (b"4\rx", "a chunk's size line does not end with CRLF"),
            (b"4;a=b\nWiki", "a chunk's size line does not end with CRLF"),
            (b"4\r\nWikipedia", "a chunk's data does not end with CRLF"),
            (b"4\r\nWiki\n", "a chunk's data does not end with CRLF"),
            (b"10000000000000000\r\n", "a chunk's size is above 16 hexadecimal digits"),
        ] {
            assert_eq!(decode(Decoder::chunked(), wire, usize::MAX), Err(reason), "{}", wire.escape_ascii());
        }
    }

    #[test]
    fn sixteen_digits_are_a_size_and_extensions_have_a_bound() {
        assert!(decode(Decoder::chunked(), b"ffffffffffffffff\r\nx", usize::MAX).is_ok());
        let line =
            |extension: usize| [b"4;".to_vec(), vec![b'x'; extension], b"\r\nWiki\r\n".to_vec()].concat();
        assert!(decode(Decoder::chunked(), &line(usize::from(MAX_EXTENSION)), usize::MAX).is_ok());
        let too_long = decode(Decoder::chunked(), &line(usize::from(MAX_EXTENSION) + 1), usize::MAX);
        assert_eq!(too_long, Err("a chunk's extensions are too long"));
        let blanks = |n: usize| [b"4".to_vec(), vec![b' '; n], b"\r\nWiki\r\n".to_vec()].concat();
        assert!(decode(Decoder::chunked(), &blanks(usize::from(MAX_EXTENSION)), usize::MAX).is_ok());
        assert!(decode(Decoder::chunked(), &blanks(usize::from(MAX_EXTENSION) + 1), usize::MAX).is_err());
        let zeros = |n: usize| [vec![b'0'; n], b"4\r\nWiki\r\n".to_vec()].concat();
        assert!(decode(Decoder::chunked(), &zeros(usize::from(MAX_DIGITS) - 1), usize::MAX).is_ok());
        let padded = decode(Decoder::chunked(), &zeros(usize::from(MAX_DIGITS)), usize::MAX);
        assert_eq!(padded, Err("a chunk's size has more than 64 digits"));
    }

    #[test]
    fn an_encoder_keeps_the_role_to_the_length_that_it_announced() {
        let mut output = Output::default();
        let mut encoder = Encoder::Length(4);
        assert!(encoder.push(&mut output, Payload::Copied(b"Wik")).is_ok());
        assert_eq!(encoder.finish(&mut output), Err("a body shorter than its content-length"));
        assert_eq!(
            encoder.push(&mut output, Payload::Copied(b"ip")),
            Err("a body longer than its content-length")
        );
        assert!(encoder.push(&mut output, Payload::Copied(b"i")).is_ok());
        assert!(encoder.finish(&mut output).is_ok());
        assert_eq!(output.pending(), b"Wiki");
    }
}
