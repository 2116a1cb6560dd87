//! HTTP/1.1 messages out of a byte stream, mapped to frames of HTTP/2: a head is HEADERS, a piece of body is DATA.
//!
//! Unlike the engine this reader is tolerant and looks at as little as it can: line ends, the start line, and the two
//! fields that frame a body. A second full parse of every head would be a visible share of the generator's time.

use super::frame::{BareFrame, Direction, FrameEvent, FrameKind, Sink};
use crate::StreamId;
use crate::h1::body::{Decoder, Then};

/// Bytes of a line that are kept: enough for a status line's code and `content-length: 18446744073709551615`.
const KEPT: usize = 48;
/// Bytes of a head that is stored, at most: a tap takes no more memory than that in each direction.
const REMEMBERED: usize = 4_096;
/// END_HEADERS, which every head has.
const END_HEADERS: u8 = 0x4;

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    up: Messages,
    down: Messages,
    /// Which of the last 64 requests were HEAD, by bit: their responses have no body.
    head_requests: u64,
}

impl Exchanges {
    pub(super) fn feed(&mut self, direction: Direction, bytes: &[u8], sink: &mut impl Sink) {
        match direction {
            Direction::Up => {
                let head_requests = &mut self.head_requests;
                self.up.feed(bytes, sink, |n, head| {
                    let bit = 1 << (n % 64);
                    *head_requests = if head.bodiless { *head_requests | bit } else { *head_requests & !bit };
                    head.framed().map_or(After::Message, After::Body)
                });
            }
            Direction::Down => {
                let head_requests = self.head_requests;
                self.down.feed(bytes, sink, |n, head| match head.status {
                    100..=199 => After::Interim,
                    204 | 304 => After::Message,
                    _ if head_requests >> (n % 64) & 1 == 1 => After::Message,
                    _ if head.length == Some(0) && !head.chunked => After::Message,
                    _ => After::Body(head.framed().unwrap_or(Decoder::UntilClose)),
                });
            }
        }
    }
}

/// What follows a head.
enum After {
    /// Another head of the same exchange.
    Interim,
    /// A body.
    Body(Decoder),
    /// The next message.
    Message,
}

/// The parts of a head that matter here.
#[derive(Debug, Default, Clone, Copy)]
struct Head {
    /// Bytes so far.
    bytes: u32,
    /// Whether the start line is over.
    started: bool,
    /// The method is HEAD.
    bodiless: bool,
    status: u16,
    length: Option<u64>,
    chunked: bool,
}

impl Head {
    /// A complete line, as far as it was kept.
    fn line(&mut self, line: &[u8]) {
        if !self.started {
            self.started = true;
            self.bodiless = line.starts_with(b"HEAD ");
            let code = line.get(9..12).filter(|_| line.starts_with(b"HTTP/1."));
            self.status = code.and_then(number).map_or(0, |code| code as u16);
            return;
        }
        // The first letter of most lines excludes both fields.
        if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
            return;
        }
        if let Some(value) = field(line, b"content-length:") {
            self.length = number(value);
        } else if let Some(value) = field(line, b"transfer-encoding:") {
            self.chunked = value.eq_ignore_ascii_case(b"chunked");
        }
    }

    /// How the body is framed, if the head says so.
    fn framed(&self) -> Option<Decoder> {
        if self.chunked {
            return Some(Decoder::chunked());
        }
        self.length.filter(|length| *length > 0).map(Decoder::Length)
    }
}

/// The position of a direction.
#[derive(Debug)]
enum At {
    Head,
    Body(Decoder),
    /// In the trailer section: lines up to an empty one.
    Trailers,
    /// The framing was broken: all that follows counts as body.
    Lost,
}

/// One direction of a connection.
#[derive(Debug)]
struct Messages {
    at: At,
    head: Head,
    /// The beginning of a line whose end has not arrived yet.
    line: [u8; KEPT],
    /// Bytes of that line so far, which may exceed what is kept.
    line_length: usize,
    /// Messages completed.
    count: u32,
    /// The last head that came in one piece, and its contents: most heads equal the one before.
    last: (Vec<u8>, Head),
}

impl Default for Messages {
    fn default() -> Self {
        let last = (Vec::new(), Head::default());
        Self { at: At::Head, head: Head::default(), line: [0; KEPT], line_length: 0, count: 0, last }
    }
}

impl Messages {
    /// `after` decides what follows the head of message `n`.
    fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink, mut after: impl FnMut(u32, &Head) -> After) {
        while !bytes.is_empty() {
            let used = match &mut self.at {
                At::Head => {
                    let (used, over) = self.take_head(bytes);
                    sink.payload(&bytes[..used]);
                    if over {
                        self.end_head(sink, &mut after);
                    }
                    used
                }
                At::Trailers => {
                    let (used, over) = self.take_lines(bytes);
                    sink.payload(&bytes[..used]);
                    if over {
                        sink.frame(self.data(0, true));
                        self.next_message();
                    }
                    used
                }
                At::Body(_) | At::Lost => self.take_body(bytes, sink),
            };
            bytes = &bytes[used..];
        }
    }

    /// As [`Self::take_lines`] for a head, which is not parsed if it equals the last one.
    fn take_head(&mut self, bytes: &[u8]) -> (usize, bool) {
        let fresh = self.head.bytes == 0;
        let (last, said) = &self.last;
        if fresh && !last.is_empty() && bytes.starts_with(last) {
            self.head = *said;
            return (last.len(), true);
        }
        let (used, over) = self.take_lines(bytes);
        if fresh && over && used <= REMEMBERED {
            self.last.0.clear();
            self.last.0.extend_from_slice(&bytes[..used]);
            self.last.1 = self.head;
        }
        (used, over)
    }

    /// Takes lines up to and including the empty one that ends the section. Returns how many bytes that is, and whether
    /// the section is over.
    fn take_lines(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut taken = 0;
        while taken < bytes.len() {
            let (used, over) = self.take_line(&bytes[taken..]);
            taken += used;
            if over {
                return (taken, true);
            }
        }
        (taken, false)
    }

    /// Takes bytes up to a line end. Returns how many, and whether they complete the empty line that ends the section.
    #[inline]
    fn take_line(&mut self, bytes: &[u8]) -> (usize, bool) {
        let end = find_line_feed(bytes);
        let used = end.map_or(bytes.len(), |end| end + 1);
        self.head.bytes += used as u32;
        if end.is_some() && self.line_length == 0 {
            return (used, self.end_line(&bytes[..used.min(KEPT)]));
        }
        // The line is split between reads: gather the part of it that is kept.
        let kept = self.line_length.min(KEPT);
        let n = used.min(KEPT - kept);
        self.line[kept..kept + n].copy_from_slice(&bytes[..n]);
        self.line_length += used;
        if end.is_none() {
            return (used, false);
        }
        let line = self.line;
        let length = std::mem::take(&mut self.line_length).min(KEPT);
        (used, self.end_line(&line[..length]))
    }

    /// A line with its end, as far as it was kept. Returns whether it is the empty line that ends the section: one
    /// before the start line does not count.
    fn end_line(&mut self, line: &[u8]) -> bool {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return self.head.started || matches!(self.at, At::Trailers);
        }
        if matches!(self.at, At::Head) {
            self.head.line(line);
        }
        false
    }

    fn end_head(&mut self, sink: &mut impl Sink, after: &mut impl FnMut(u32, &Head) -> After) {
        let head = std::mem::take(&mut self.head);
        let next = after(self.count, &head);
        let end = if matches!(next, After::Message) { FrameEvent::END_STREAM } else { 0 };
        let (stream, kind) = (StreamId::of_request(self.count), FrameKind::HEADERS);
        sink.frame(BareFrame { stream, length: head.bytes, value: 0, kind, flags: END_HEADERS | end });
        match next {
            After::Interim => {}
            After::Body(decoder) => self.at = At::Body(decoder),
            After::Message => self.next_message(),
        }
    }

    fn take_body(&mut self, bytes: &[u8], sink: &mut impl Sink) -> usize {
        let piece = if let At::Body(decoder) = &mut self.at { decoder.decode(bytes).ok() } else { None };
        let Some(piece) = piece else {
            self.at = At::Lost;
            sink.frame(self.data(bytes.len(), false));
            return bytes.len();
        };
        let end = piece.then == Then::End;
        sink.framing(&bytes[..piece.skip]);
        if piece.data > 0 {
            sink.frame(self.data(piece.data, end));
        }
        match piece.then {
            Then::More => {}
            Then::Trailers => self.at = At::Trailers,
            Then::End => self.next_message(),
        }
        piece.skip + piece.data
    }

    fn data(&self, length: usize, end: bool) -> BareFrame {
        let flags = if end { FrameEvent::END_STREAM } else { 0 };
        let stream = StreamId::of_request(self.count);
        BareFrame { stream, length: length as u32, value: 0, kind: FrameKind::DATA, flags }
    }

    fn next_message(&mut self) {
        self.at = At::Head;
        self.head = Head::default();
        // Ids have 31 bits; no connection with that many requests is known.
        self.count = (self.count + 1) % (1 << 30);
    }
}

/// The value of a field line whose lower-case name, with its colon, is `name`.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

fn number(digits: &[u8]) -> Option<u64> {
    let step = |number: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    digits.iter().try_fold(0, step).filter(|_| !digits.is_empty())
}

/// The position of the first LF, looked for in eight bytes at a time: lines of a head are too short for a vector's
/// setup.
fn find_line_feed(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = bytes.as_chunks::<8>();
    for (n, word) in words.iter().enumerate() {
        let differs = u64::from_le_bytes(*word) ^ (ONES * u64::from(b'\n'));
        // The lowest set bit marks the first byte that is zero, as in every `strlen`.
        let zeros = differs.wrapping_sub(ONES) & !differs & HIGHS;
        if zeros != 0 {
            return Some(n * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    let before = words.len() * 8;
    rest.iter().position(|&byte| byte == b'\n').map(|at| before + at)
}

#[cfg(test)]
mod tests {
    use super::super::{Dialect, Tap};
    use super::*;
    use h2lab_base::units::Time;

    /// What a tap reports for `(direction, bytes)` in turn, each cut into pieces of `step` bytes; neighbouring pieces
    /// of a body are joined. `DATA[1]:5!` is five bytes that end the stream.
    fn tapped(step: usize, talk: &[(Direction, &str)]) -> String {
        let (mut tap, mut events) = (Tap::new(Dialect::Http1, 0), Vec::<FrameEvent>::new());
        for (direction, bytes) in talk {
            for piece in bytes.as_bytes().chunks(step) {
                tap.feed(Time::ZERO, *direction, piece, &mut |event| match events.last_mut() {
                    Some(last)
                        if last.kind == FrameKind::DATA
                            && event.kind == FrameKind::DATA
                            && (last.stream, last.direction) == (event.stream, event.direction) =>
                    {
                        last.length += event.length;
                        last.flags |= event.flags;
                    }
                    _ => events.push(event),
                });
            }
        }
        let show = |e: &FrameEvent| format!("{e}:{}{}", e.length, if e.ends_stream() { "!" } else { "" });
        events.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    const UP: Direction = Direction::Up;
    const DOWN: Direction = Direction::Down;

    #[test]
    fn messages_of_every_framing_are_parsed_alike_however_they_are_cut() {
        let talk = [
            (UP, "POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 5\r\n\r\nhello"),
            (DOWN, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:  3 \r\n\r\nabc"),
            (UP, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
            (
                DOWN,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nx-sum: 1\r\n\r\n",
            ),
            (UP, "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n"),
            (DOWN, "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"),
            (UP, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
            (DOWN, "HTTP/1.1 304 Not Modified\r\ncontent-length: 1000\r\n\r\n"),
            (UP, "GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
            (DOWN, "HTTP/1.0 200 OK\r\n\r\nuntil the end"),
        ];
        let expected = "HEADERS[1]:47 DATA[1]:5! HEADERS[1]:28 HEADERS[1]:40 DATA[1]:3! \
                        HEADERS[3]:27! HEADERS[3]:47 DATA[3]:5! \
                        HEADERS[5]:28! HEADERS[5]:41! HEADERS[7]:27! HEADERS[7]:51! \
                        HEADERS[9]:27! HEADERS[9]:19 DATA[9]:13";
        for step in (1..70).chain([usize::MAX]) {
            assert_eq!(tapped(step, &talk), expected, "in pieces of {step}");
        }
    }

    #[test]
    fn a_head_that_repeats_is_reported_as_if_it_were_the_first() {
        let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let answer = |digit: u8| {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {digit}\r\n\r\n{}", "x".repeat(digit.into()))
        };
        let answers = [3, 3, 0, 0, 3].map(answer);
        let talk: Vec<_> = answers.iter().flat_map(|answer| [(UP, get), (DOWN, answer.as_str())]).collect();
        let expected = "HEADERS[1]:27! HEADERS[1]:38 DATA[1]:3! HEADERS[3]:27! HEADERS[3]:38 DATA[3]:3! \
                        HEADERS[5]:27! HEADERS[5]:38! HEADERS[7]:27! HEADERS[7]:38! \
                        HEADERS[9]:27! HEADERS[9]:38 DATA[9]:3!";
        for step in (1..45).chain([usize::MAX]) {
            assert_eq!(tapped(step, &talk), expected, "in pieces of {step}");
        }
    }

    #[test]
    fn pipelined_requests_remember_which_of_them_were_head() {
        let talk = [
            (UP, "HEAD / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n"),
            (
                DOWN,
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab",
            ),
        ];
        let expected = "HEADERS[1]:28! HEADERS[3]:27! HEADERS[1]:38! HEADERS[3]:38 DATA[3]:2!";
        assert_eq!(tapped(usize::MAX, &talk), expected);
    }

    #[test]
    fn long_lines_and_bare_line_feeds_are_tolerated() {
        let long =
            format!("GET /{} HTTP/1.1\ncontent-length: 2\nx: {}\n\nab", "p".repeat(500), "v".repeat(500));
        for step in [1, 7, 47, 48, 49, usize::MAX] {
            assert!(tapped(step, &[(UP, &long)]).ends_with(" DATA[1]:2!"), "in pieces of {step}");
        }
    }

    #[test]
    fn broken_framing_is_counted_as_body_and_nothing_more() {
        let talk = [(DOWN, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc")];
        assert_eq!(tapped(usize::MAX, &talk), "HEADERS[1]:47 DATA[1]:7");
    }

    #[test]
    fn a_line_feed_is_found_wherever_it_stands() {
        for length in 0..70 {
            let mut bytes = vec![b'x'; length];
            assert_eq!(find_line_feed(&bytes), None);
            for at in (0..length).rev() {
                bytes[at] = b'\n';
                assert_eq!(find_line_feed(&bytes), Some(at), "{length}");
            }
        }
    }
}
