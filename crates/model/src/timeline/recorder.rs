//! Builds a waterfall from frames.

use super::waterfall::{Connecting, InterimResponse, Reset, ResetSender, Waterfall, WaterfallStream};
use h2lab_base::units::{Time, millis_f64};
use h2lab_wire::StreamId;
use h2lab_wire::trace::detail::{Detail, DetailedFrame, Head};
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};
use std::collections::{BTreeMap, BTreeSet};

/// Streams of one exchange that are kept; no server of interest pushes more.
const KEPT: usize = 1_000;

/// A field block that is continued by a CONTINUATION.
#[derive(Debug, Clone, Copy)]
struct Begun {
    stream: u32,
    promised: Option<u32>,
    ends_stream: bool,
}

/// A stream, and what is needed to detect its end.
#[derive(Debug, Clone)]
struct Open {
    /// The connection that it is on.
    connection: u32,
    /// HTTP/1.1: its response goes on until the connection ends (RFC 9112 §6.3).
    is_until_close: bool,
    stream: WaterfallStream,
}

impl Open {
    /// No more frames come: it ends with its last frame, if it was answered.
    fn close(&mut self) {
        let stream = &mut self.stream;
        if stream.status.is_some() && !stream.is_over() {
            stream.end_ms = stream.trailers_ms.or(stream.last_data_ms).or(stream.headers_ms);
        }
    }
}

/// Records the frames of an exchange. It may be over several connections, as behind a proxy.
#[derive(Debug, Default)]
pub struct Recorder {
    origin: Time,
    connect: Connecting,
    streams: Vec<Open>,
    /// Streams beyond the limit.
    left_off: u32,
    /// Field blocks that are under way.
    begun: BTreeMap<(u32, Direction), Begun>,
    /// Push is impossible, whatever SETTINGS allow.
    is_pushless: bool,
    /// Connections whose client disabled push.
    refusing: BTreeSet<u32>,
    /// The connection whose SETTINGS came last.
    latest: u32,
    /// HTTP/3: the numbers of streams on the wire are QUIC's.
    is_quic: bool,
}

impl Recorder {
    /// Times are counted from `origin`.
    pub fn new(origin: Time, is_quic: bool) -> Self {
        Self { origin, is_quic, ..Self::default() }
    }

    /// Another exchange begins: facts of connections are kept, their streams are not.
    pub fn restart(&mut self, origin: Time) {
        self.origin = origin;
        self.connect = Connecting::default();
        self.streams.clear();
        self.left_off = 0;
    }

    /// HTTP/1.1, which has no push.
    pub const fn refuse_push(&mut self) {
        self.is_pushless = true;
    }

    /// To the microsecond: the rest is noise.
    fn ms(&self, at: Time) -> f64 {
        (millis_f64(at.since(self.origin)) * 1e3).round() / 1e3
    }

    /// TCP is established, or QUIC.
    pub fn connected(&mut self, at: Time) {
        // The first connection is the one that is reported.
        self.connect.connected_ms = self.connect.connected_ms.or(Some(self.ms(at)));
    }

    /// TLS is established over TCP.
    pub fn secured(&mut self, at: Time) {
        self.connect.tls_ms = self.connect.tls_ms.or(Some(self.ms(at)));
    }

    /// A frame has crossed the socket.
    pub fn record(&mut self, detailed: &DetailedFrame) {
        let DetailedFrame { event, detail, .. } = detailed;
        let ms = self.ms(event.at);
        if !detailed.is_complete && event.kind != FrameKind::DATA {
            return; // it never arrived completely
        }
        match (event.kind, event.direction) {
            (FrameKind::SETTINGS, direction) => self.settings(event, direction, detail, ms),
            (FrameKind::HEADERS | FrameKind::PUSH_PROMISE | FrameKind::CONTINUATION, _) => {
                if let Detail::Head(head) = detail {
                    self.fields(event, head, ms);
                }
            }
            (FrameKind::DATA, Direction::Down) => self.data(detailed, ms),
            (FrameKind::RST_STREAM | FrameKind::RESET_STREAM, direction) => {
                if let (Some(stream), Detail::Reset { error_code }) = (self.stream(event), detail) {
                    let by =
                        if direction == Direction::Up { ResetSender::Client } else { ResetSender::Server };
                    // The first one counts; the second is the other side's response to it.
                    stream.reset.get_or_insert(Reset { by, error_code: error_code.clone(), ms });
                }
            }
            _ => {}
        }
    }

    /// A piece of a response's body, or, in HTTP/1.1, the trailer section after it.
    fn data(&mut self, detailed: &DetailedFrame, ms: f64) {
        let began = self.ms(detailed.payload_at);
        let Some(Open { stream, .. }) =
            self.find(detailed.event.connection, self.number(detailed.event.stream))
        else {
            return;
        };
        match &detailed.detail {
            // A frame without data ends a body and is not a piece of it.
            Detail::Data { data_bytes: 1.., .. } => {
                stream.first_data_ms.get_or_insert(began);
                stream.last_data_ms = Some(ms);
            }
            // A frame that was cut off had begun, but did not complete.
            Detail::CutOff { received: 1.. } => {
                stream.first_data_ms.get_or_insert(began);
            }
            Detail::Head(_) => stream.trailers_ms = Some(ms),
            _ => {}
        }
        stream.bytes += match detailed.detail {
            Detail::Data { data_bytes, .. } => u64::from(data_bytes),
            Detail::CutOff { received } => received,
            _ => 0,
        };
        if detailed.is_complete && detailed.event.ends_stream() {
            stream.end_ms = Some(ms);
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
            self.latest = event.connection;
            // A setting that a frame does not name keeps its value (RFC 9113 §6.5.3).
            match settings.iter().rev().find(|one| one.name == "ENABLE_PUSH").map(|one| one.value) {
                Some(0) => self.refusing.insert(event.connection),
                Some(_) => self.refusing.remove(&event.connection),
                None => false,
            };
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
                let promise = WaterfallStream {
                    id: promised,
                    path: path_of(head),
                    pushed: true,
                    promise_ms: Some(ms),
                    ..WaterfallStream::default()
                };
                self.begin(event.connection, promise);
            }
            (Direction::Up, None) => self.asked(event.connection, block, head, ms),
            (Direction::Down, None) => self.answered(event.connection, block, head, ms),
        }
    }

    fn asked(&mut self, connection: u32, block: Begun, head: &Head, ms: f64) {
        // Trailers of a request begin no stream.
        if self.find(connection, block.stream).is_none() {
            let asked = WaterfallStream {
                id: block.stream,
                path: path_of(head),
                request_ms: Some(ms),
                ..WaterfallStream::default()
            };
            self.begin(connection, asked);
        }
    }

    fn answered(&mut self, connection: u32, block: Begun, head: &Head, ms: f64) {
        let Some(Open { is_until_close, stream, .. }) = self.find(connection, block.stream) else { return };
        let links = links_of(head);
        match status_of(head) {
            Some(status @ 100..=199) => {
                stream.interim.push(InterimResponse { status, ms, links });
                stream.ended_by_interim |= block.ends_stream;
            }
            Some(status) => {
                stream.status = Some(status);
                stream.headers_ms = Some(ms);
                stream.links = links;
                *is_until_close = head.start_line.is_some()
                    && ["content-length", "transfer-encoding"].iter().all(|name| field(head, name).is_none());
            }
            None => stream.trailers_ms = Some(ms),
        }
        if block.ends_stream {
            stream.end_ms = Some(ms);
        }
    }

    fn begin(&mut self, connection: u32, stream: WaterfallStream) {
        if self.streams.len() < KEPT {
            self.streams.push(Open { connection, is_until_close: false, stream });
        } else {
            self.left_off += 1;
        }
    }

    /// The number of a stream on the wire.
    fn number(&self, stream: StreamId) -> u32 {
        if self.is_quic {
            let on_the_wire = h2lab_wire::h3::stream::QuicStreamId::of_request(stream).0;
            u32::try_from(on_the_wire).unwrap_or(u32::MAX)
        } else {
            stream.0
        }
    }

    fn stream(&mut self, event: &FrameEvent) -> Option<&mut WaterfallStream> {
        let number = self.number(event.stream);
        self.find(event.connection, number).map(|open| &mut open.stream)
    }

    /// The open stream with this number. A proxy reuses HTTP/1.1 connections, and so their numbers.
    fn find(&mut self, connection: u32, number: u32) -> Option<&mut Open> {
        self.streams.iter_mut().rev().find(|open| open.connection == connection && open.stream.id == number)
    }

    /// A connection has ended cleanly, which ends an until-close response of HTTP/1.1.
    pub fn closed(&mut self, connection: u32) {
        let its = self.streams.iter_mut().filter(|open| open.connection == connection && open.is_until_close);
        its.for_each(Open::close);
    }

    /// Whether all requested or promised responses are over.
    pub fn is_over(&self) -> bool {
        self.streams.iter().all(|open| open.stream.is_over())
    }

    /// Whether a response was promised and is still missing.
    pub fn awaits_push(&self) -> bool {
        self.streams.iter().any(|open| open.stream.pushed && !open.stream.is_over())
    }

    /// The client has all requested responses: one whose end was not seen (HTTP/1.1 without a length, or a separate FIN of QUIC)
    /// ends with its last frame. Pushed ones were not requested.
    pub fn complete(&mut self) {
        self.streams.iter_mut().filter(|open| !open.stream.pushed).for_each(Open::close);
    }

    /// The waterfall so far.
    pub fn waterfall(&self) -> Waterfall {
        Waterfall {
            connect: self.connect.clone(),
            streams: self.streams.iter().map(|open| open.stream.clone()).collect(),
            left_off: self.left_off,
            refuses_push: self.is_pushless || self.is_quic || self.refusing.contains(&self.latest),
            ..Waterfall::default()
        }
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
    use h2lab_wire::trace::Dialect;
    use h2lab_wire::trace::detail::Reader;

    /// The waterfall of HTTP/1.1 messages: milliseconds, direction, bytes.
    fn of_http1(messages: &[(u64, Direction, &str)]) -> Waterfall {
        let mut reader = Reader::new(Dialect::Http1, 0);
        let mut recorder = Recorder::new(Time::from_millis(100), false);
        for (ms, direction, bytes) in messages {
            let at = Time::from_millis(100 + ms);
            reader.feed(at, *direction, bytes.as_bytes(), &mut |detailed| recorder.record(&detailed));
        }
        recorder.complete();
        recorder.waterfall()
    }

    /// A frame of HTTP/2.
    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// A recorder fed with bytes of HTTP/2 connections: milliseconds, connection, direction, bytes.
    fn recorded(messages: &[(u64, u32, Direction, Vec<u8>)]) -> Recorder {
        let (mut recorder, mut readers) = (Recorder::default(), BTreeMap::new());
        for (ms, connection, direction, bytes) in messages {
            let reader =
                readers.entry(*connection).or_insert_with(|| Reader::new(Dialect::Http2, *connection));
            reader
                .feed(Time::from_millis(*ms), *direction, bytes, &mut |detailed| recorder.record(&detailed));
        }
        for mut reader in readers.into_values() {
            reader.end(&mut |detailed| recorder.record(&detailed));
        }
        recorder
    }

    /// `GET /` on stream 1, as static entries of HPACK (RFC 7541 appendix A); SETTINGS precede it.
    fn get() -> Vec<u8> {
        frame(1, 5, 1, &[0x82, 0x84, 0x86])
    }

    /// `:status 200`.
    const OK: [u8; 1] = [0x88];

    #[test]
    fn trailers_of_http_1_have_their_time_and_an_empty_end_of_chunks_is_no_data() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let seen = |end: &str| {
            let mut seen = of_http1(&[
                (1, Direction::Up, "GET / HTTP/1.1\r\nhost: h\r\n\r\n"),
                (5, Direction::Down, head),
                (7, Direction::Down, "3\r\nabc\r\n"),
                (9, Direction::Down, end),
            ]);
            let main = seen.streams.remove(0);
            assert_eq!((main.first_data_ms, main.last_data_ms, main.bytes), (Some(7.0), Some(7.0), 3));
            (main.trailers_ms, main.end_ms)
        };
        assert_eq!(seen("0\r\nx-sum: 1\r\n\r\n"), (Some(9.0), Some(9.0)));
        assert_eq!(seen("0\r\n\r\n"), (None, Some(9.0)));
    }

    #[test]
    fn the_first_data_is_there_with_the_first_byte_of_a_frame_and_the_last_with_its_end() {
        let data = frame(0, 0, 1, b"abcdef");
        let (begun, rest) = data.split_at(10);
        let mut messages = vec![
            (1, 0, Direction::Up, get()),
            (5, 0, Direction::Down, frame(1, 4, 1, &OK)),
            (6, 0, Direction::Down, begun[..9].to_vec()),
            (7, 0, Direction::Down, begun[9..].to_vec()),
        ];
        let cut = recorded(&messages).waterfall().streams.remove(0);
        assert_eq!((cut.first_data_ms, cut.last_data_ms, cut.bytes, cut.end_ms), (Some(7.0), None, 1, None));
        messages.push((40, 0, Direction::Down, rest.to_vec()));
        messages.push((50, 0, Direction::Down, frame(0, 1, 1, &[])));
        let main = recorded(&messages).waterfall().streams.remove(0);
        assert_eq!((main.first_data_ms, main.last_data_ms, main.end_ms), (Some(7.0), Some(40.0), Some(50.0)));
        assert_eq!(main.bytes, 6);
    }

    #[test]
    fn what_a_client_said_of_push_stays_until_it_says_otherwise() {
        let settings = |payload: &[u8]| frame(4, 0, 0, payload);
        let (refuse, allow, other) = ([0, 2, 0, 0, 0, 0], [0, 2, 0, 0, 0, 1], [0, 4, 0, 1, 0, 0]);
        let refuses = |said: &[(u32, &[u8])]| {
            let up =
                |(connection, payload): &(u32, &[u8])| (1, *connection, Direction::Up, settings(payload));
            recorded(&said.iter().map(up).collect::<Vec<_>>()).waterfall().refuses_push
        };
        assert!(refuses(&[(0, &refuse), (0, &other)]));
        assert!(!refuses(&[(0, &refuse), (0, &allow)]));
        assert!(!refuses(&[(0, &refuse), (1, &other)]), "another connection has settings of its own");
    }

    #[test]
    fn a_push_that_stalls_has_no_end_though_the_client_has_what_it_asked_for() {
        let promise = [&2_u32.to_be_bytes()[..], &[0x82, 0x84, 0x86]].concat();
        let mut recorder = recorded(&[
            (1, 0, Direction::Up, get()),
            (2, 0, Direction::Down, frame(5, 4, 1, &promise)),
            (3, 0, Direction::Down, [frame(1, 4, 1, &OK), frame(1, 4, 2, &OK)].concat()),
            (4, 0, Direction::Down, frame(0, 0, 2, b"half")),
        ]);
        assert!(recorder.awaits_push());
        recorder.complete();
        let seen = recorder.waterfall();
        assert_eq!(seen.streams[0].end_ms, Some(3.0), "its end may not have been seen as such");
        assert_eq!((seen.streams[1].pushed, seen.streams[1].end_ms), (true, None));
    }

    #[test]
    fn a_connection_that_ends_ends_only_a_response_that_says_no_other_end() {
        let seen = |head: &str| {
            let (mut recorder, mut reader) = (Recorder::default(), Reader::new(Dialect::Http1, 3));
            let request = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
            for (ms, direction, text) in
                [(1, Direction::Up, request), (2, Direction::Down, head), (3, Direction::Down, "abc")]
            {
                let at = Time::from_millis(ms);
                reader.feed(at, direction, text.as_bytes(), &mut |detailed| recorder.record(&detailed));
            }
            assert_eq!(recorder.waterfall().streams[0].end_ms, None, "it is under way");
            recorder.closed(4);
            assert!(!recorder.is_over(), "that was another connection");
            recorder.closed(3);
            recorder.waterfall().streams[0].end_ms
        };
        assert_eq!(seen("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"), Some(3.0));
        assert_eq!(seen("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), None);
        assert_eq!(seen("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n"), None);
    }

    #[test]
    fn streams_beyond_what_is_kept_are_counted() {
        let mut recorder = Recorder::default();
        for _ in 0..KEPT + 7 {
            recorder.begin(0, WaterfallStream::default());
        }
        let seen = recorder.waterfall();
        assert_eq!((seen.streams.len(), seen.left_off), (KEPT, 7));
        recorder.restart(Time::ZERO);
        assert_eq!(recorder.waterfall().left_off, 0);
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
            reader.feed(at, Direction::Up, request.as_bytes(), &mut |detailed| recorder.record(&detailed));
            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
            reader.feed(at, Direction::Down, answer, &mut |detailed| recorder.record(&detailed));
        };
        let (mut recorder, mut reader) = (Recorder::default(), Reader::new(Dialect::Http1, 3));
        exchange(&mut recorder, &mut reader, 1, "/a");
        recorder.restart(Time::from_millis(10));
        assert_eq!(recorder.waterfall().streams, []);
        exchange(&mut recorder, &mut reader, 14, "/b");
        let seen = recorder.waterfall();
        let detailed: Vec<_> = seen.streams.iter().map(|one| (one.path.as_str(), one.headers_ms)).collect();
        assert_eq!(detailed, [("/b", Some(4.0))]);
    }
}
