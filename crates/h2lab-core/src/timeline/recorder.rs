//! Makes a waterfall of frames.

use super::waterfall::{Connecting, Initiator, Interim, Reset, Stream, Waterfall};
use crate::trace::detail::{Detail, Head, Told};
use crate::trace::{Direction, FrameEvent, FrameKind};
use crate::units::{Time, millis_f64};
use crate::wire::StreamId;
use std::collections::BTreeMap;

/// Streams of one exchange that are kept; a server that pushes more of them is not a server that anybody looks at.
const KEPT: usize = 1_000;

/// A block of fields that goes on in a CONTINUATION.
#[derive(Debug, Clone, Copy)]
struct Begun {
    stream: u32,
    promised: Option<u32>,
    ends_stream: bool,
}

/// Listens to the frames of an exchange. It may be over several connections, as behind a proxy.
#[derive(Debug, Default)]
pub struct Recorder {
    origin: Time,
    connect: Connecting,
    /// With the connection that each is on.
    streams: Vec<(u32, Stream)>,
    /// Field blocks that are under way.
    begun: BTreeMap<(u32, Direction), Begun>,
    /// Whether the client of the connection that was heard last told its server not to push.
    refuses_push: bool,
    /// HTTP/3: the numbers of streams on the wire are QUIC's.
    is_quic: bool,
}

impl Recorder {
    /// Times are counted from `origin`.
    pub fn new(origin: Time, is_quic: bool) -> Self {
        Self { origin, is_quic, ..Self::default() }
    }

    /// Another exchange begins: what connections are like is remembered, their streams are not.
    pub fn restart(&mut self, origin: Time) {
        self.origin = origin;
        self.connect = Connecting::default();
        self.streams.clear();
    }

    /// HTTP/1.1, in which nothing can be pushed.
    pub const fn refuse_push(&mut self) {
        self.refuses_push = true;
    }

    /// To the microsecond: what is finer is noise.
    fn ms(&self, at: Time) -> f64 {
        (millis_f64(at.since(self.origin)) * 1e3).round() / 1e3
    }

    /// TCP is established, or QUIC.
    pub fn connected(&mut self, at: Time) {
        // The first connection is the one that is told of.
        self.connect.connected_ms = self.connect.connected_ms.or(Some(self.ms(at)));
    }

    /// TLS is established over TCP.
    pub fn secured(&mut self, at: Time) {
        self.connect.tls_ms = self.connect.tls_ms.or(Some(self.ms(at)));
    }

    /// A frame has crossed the socket.
    pub fn tell(&mut self, told: &Told) {
        let Told { event, detail, .. } = told;
        let ms = self.ms(event.at);
        match (event.kind, event.direction) {
            (FrameKind::SETTINGS, direction) => self.settings(event, direction, detail, ms),
            (FrameKind::HEADERS | FrameKind::PUSH_PROMISE | FrameKind::CONTINUATION, _) => {
                if let Detail::Head(head) = detail {
                    self.fields(event, head, ms);
                }
            }
            (FrameKind::DATA, Direction::Down) => {
                if let Some(stream) = self.stream(event) {
                    stream.first_data_ms = stream.first_data_ms.or(Some(ms));
                    stream.last_data_ms = Some(ms);
                    if let Detail::Data { data_bytes, .. } = detail {
                        stream.bytes += u64::from(*data_bytes);
                    }
                    if event.ends_stream() {
                        stream.end_ms = Some(ms);
                    }
                }
            }
            (FrameKind::RST_STREAM | FrameKind::RESET_STREAM, direction) => {
                if let (Some(stream), Detail::Reset { error_code }) = (self.stream(event), detail) {
                    let by = if direction == Direction::Up { Initiator::Client } else { Initiator::Server };
                    // The first word counts; what follows is the other side's assent.
                    stream.reset.get_or_insert(Reset { by, error_code: error_code.clone(), ms });
                }
            }
            _ => {}
        }
    }

    fn settings(&mut self, event: &FrameEvent, direction: Direction, detail: &Detail, ms: f64) {
        const ACK: u8 = 1;
        if event.flags & ACK != 0 && !self.is_quic {
            return;
        }
        if direction == Direction::Down {
            self.connect.settings_ms = self.connect.settings_ms.or(Some(ms));
        } else if let Detail::Settings { settings, .. } = detail {
            self.refuses_push =
                self.is_quic || settings.iter().any(|one| one.name == "ENABLE_PUSH" && one.value == 0);
        }
    }

    /// A field block, or a part of it.
    fn fields(&mut self, event: &FrameEvent, head: &Head, ms: f64) {
        const END_STREAM: u8 = FrameEvent::END_STREAM;
        let place = (event.connection, event.direction);
        let block = match self.begun.remove(&place) {
            Some(begun) if event.kind == FrameKind::CONTINUATION => begun,
            _ => Begun {
                stream: self.number(event.stream),
                promised: head.promised_stream,
                ends_stream: event.kind == FrameKind::HEADERS && event.flags & END_STREAM != 0,
            },
        };
        if head.continues {
            self.begun.insert(place, block);
            return;
        }
        match (event.direction, block.promised) {
            (_, Some(promised)) => {
                let promise = Stream {
                    id: promised,
                    path: path_of(head),
                    pushed: true,
                    promise_ms: Some(ms),
                    ..Stream::default()
                };
                self.begin(event.connection, promise);
            }
            (Direction::Up, None) => self.asked(event.connection, block, head, ms),
            (Direction::Down, None) => self.answered(event.connection, block, head, ms),
        }
    }

    fn asked(&mut self, connection: u32, block: Begun, head: &Head, ms: f64) {
        // The trailers of a request begin nothing.
        if self.find(connection, block.stream).is_none() {
            let asked =
                Stream { id: block.stream, path: path_of(head), request_ms: Some(ms), ..Stream::default() };
            self.begin(connection, asked);
        }
    }

    fn answered(&mut self, connection: u32, block: Begun, head: &Head, ms: f64) {
        let Some(stream) = self.find(connection, block.stream) else { return };
        let links = links_of(head);
        match status_of(head) {
            Some(status @ 100..=199) => {
                stream.interim.push(Interim { status, ms, links });
                stream.ended_by_interim |= block.ends_stream;
            }
            Some(status) => {
                stream.status = Some(status);
                stream.headers_ms = Some(ms);
                stream.links = links;
            }
            None => stream.trailers_ms = Some(ms),
        }
        if block.ends_stream {
            stream.end_ms = Some(ms);
        }
    }

    fn begin(&mut self, connection: u32, stream: Stream) {
        if self.streams.len() < KEPT {
            self.streams.push((connection, stream));
        }
    }

    /// The number of a stream as it stands on the wire.
    fn number(&self, stream: StreamId) -> u32 {
        if self.is_quic {
            let on_the_wire = crate::wire::h3::stream::QuicStreamId::of_request(stream).0;
            u32::try_from(on_the_wire).unwrap_or(u32::MAX)
        } else {
            stream.0
        }
    }

    fn stream(&mut self, event: &FrameEvent) -> Option<&mut Stream> {
        let number = self.number(event.stream);
        self.find(event.connection, number)
    }

    /// The stream that is under way with this number. HTTP/1.1 connections of a proxy are used again, and so are numbers.
    fn find(&mut self, connection: u32, number: u32) -> Option<&mut Stream> {
        let found = self.streams.iter_mut().rev().find(|(of, one)| *of == connection && one.id == number);
        found.map(|(_, stream)| stream)
    }

    /// Whether all that was asked for or promised is over.
    pub fn is_over(&self) -> bool {
        self.streams.iter().all(|(_, stream)| stream.is_over())
    }

    /// Whether a response was promised that is still to come.
    pub fn awaits_push(&self) -> bool {
        self.streams.iter().any(|(_, stream)| stream.pushed && !stream.is_over())
    }

    /// What is known by now. A response whose end was not seen as such (HTTP/1.1 without a length, or a FIN of QUIC by
    /// itself) ends with the last that was seen of it, if `is_whole`.
    pub fn waterfall(&self, is_whole: bool) -> Waterfall {
        let mut streams: Vec<Stream> = self.streams.iter().map(|(_, stream)| stream.clone()).collect();
        for stream in streams.iter_mut().filter(|stream| is_whole && !stream.is_over()) {
            let last = stream.trailers_ms.or(stream.last_data_ms).or(stream.headers_ms);
            stream.end_ms = last.filter(|_| stream.status.is_some());
        }
        Waterfall { connect: self.connect.clone(), streams, refuses_push: self.refuses_push, failed: None }
    }
}

fn field<'a>(head: &'a Head, name: &str) -> Option<&'a str> {
    head.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value.as_str())
}

/// `/path` of a request in any version of HTTP.
fn path_of(head: &Head) -> String {
    let of_line = || head.start_line.as_deref().and_then(|line| line.split(' ').nth(1));
    field(head, ":path").or_else(of_line).unwrap_or_default().to_owned()
}

/// The status of a response; `None` for trailers.
fn status_of(head: &Head) -> Option<u16> {
    let of_line = || head.start_line.as_deref().and_then(|line| line.split(' ').nth(1));
    field(head, ":status").or_else(of_line)?.parse().ok()
}

/// Links in all Link fields (RFC 8288 §3): each begins with a target in angle brackets.
fn links_of(head: &Head) -> u32 {
    let links = head.fields.iter().filter(|field| field.name.eq_ignore_ascii_case("link"));
    links.map(|field| field.value.matches('<').count() as u32).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Dialect;
    use crate::trace::detail::Reader;

    /// What a recorder makes of HTTP/1.1 messages: milliseconds, direction, bytes.
    fn of_http1(messages: &[(u64, Direction, &str)]) -> Waterfall {
        let mut reader = Reader::new(Dialect::Http1, 0);
        let mut recorder = Recorder::new(Time::from_millis(100), false);
        for (ms, direction, bytes) in messages {
            let at = Time::from_millis(100 + ms);
            reader.feed(at, *direction, bytes.as_bytes(), &mut |told| recorder.tell(&told));
        }
        recorder.waterfall(true)
    }

    #[test]
    fn every_interim_response_stands_before_the_response_with_its_links() {
        let seen = of_http1(&[
            (1, Direction::Up, "GET /page HTTP/1.1\r\nhost: h\r\n\r\n"),
            (2, Direction::Down, "HTTP/1.1 102 Processing\r\n\r\n"),
            (30, Direction::Down, "HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload, </b>\r\n\r\n"),
            (80, Direction::Down, "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc"),
            (90, Direction::Down, "def"),
        ]);
        let main = seen.asked(Some("/page")).unwrap();
        let interim: Vec<_> = main.interim.iter().map(|one| (one.status, one.ms as u32, one.links)).collect();
        assert_eq!(interim, [(102, 2, 0), (103, 30, 2)]);
        assert_eq!((main.status, main.headers_ms, main.first_data_ms), (Some(200), Some(80.0), Some(80.0)));
        assert_eq!((main.end_ms, main.bytes, main.ended_by_interim), (Some(90.0), 6, false));
    }

    #[test]
    fn a_response_up_to_the_end_of_its_connection_ends_with_what_came_last() {
        let seen = of_http1(&[
            (1, Direction::Up, "GET / HTTP/1.1\r\nhost: h\r\n\r\n"),
            (5, Direction::Down, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nab"),
            (9, Direction::Down, "cd"),
        ]);
        assert_eq!(seen.streams[0].end_ms, Some(9.0));
    }

    #[test]
    fn the_next_request_on_a_connection_is_a_stream_of_its_own() {
        let exchange = |recorder: &mut Recorder, reader: &mut Reader, ms: u64, path: &str| {
            let at = Time::from_millis(ms);
            let request = format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n");
            reader.feed(at, Direction::Up, request.as_bytes(), &mut |told| recorder.tell(&told));
            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
            reader.feed(at, Direction::Down, answer, &mut |told| recorder.tell(&told));
        };
        let (mut recorder, mut reader) = (Recorder::default(), Reader::new(Dialect::Http1, 3));
        exchange(&mut recorder, &mut reader, 1, "/a");
        recorder.restart(Time::from_millis(10));
        assert_eq!(recorder.waterfall(true).streams, []);
        exchange(&mut recorder, &mut reader, 14, "/b");
        let seen = recorder.waterfall(true);
        let told: Vec<_> = seen.streams.iter().map(|one| (one.path.as_str(), one.headers_ms)).collect();
        assert_eq!(told, [("/b", Some(4.0))]);
    }
}
