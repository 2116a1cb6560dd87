//! An HTTP/2 connection frame by frame, without an engine between the probe and the wire: it sends the frames it is given, legal
//! or not, and keeps what came back.

use std::collections::BTreeMap;
use std::time::Duration;

use h2lab_base::text::{made_printable, printable};
use h2lab_base::units::Time;
use h2lab_model::probe::EvidenceItem;
use h2lab_model::probe::server::{FieldLines, Reaction};
use h2lab_model::workload::Protocol;
use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{FrameHeader, HEADER_LENGTH, PREFACE, flag, kind};
use h2lab_wire::h2::inspect::FieldBlocks;
use h2lab_wire::h2::raw::{field_block, frame};
use h2lab_wire::trace::Direction;

use super::raw_connection::{Put, RawConnection, ReadOutcome};
use super::{Prober, Result};
use crate::client::ConnectError;

/// The least `SETTINGS_MAX_FRAME_SIZE` (RFC 9113 §6.5.2), in bytes.
pub const LEAST_FRAME: usize = 16_384;
/// The same, in the type of windows.
const FRAME: i64 = 16_384;
/// The flow-control windows that a connection begins with (RFC 9113 §6.9.2), in bytes.
pub const FIRST_WINDOW: i64 = 65_535;
/// Bytes of a body that are kept.
const KEPT: usize = 4_096;
/// Bytes of a GOAWAY's debug data that are kept.
const DEBUG: usize = 256;
/// GOAWAYs that are kept.
const GOAWAYS: usize = 16;
/// `WINDOW_UPDATE`s of a stream that are kept.
const UPDATES: usize = 16_384;
/// Bytes of a field block that is put together.
const BLOCK: usize = 1 << 20;

/// The payload of SETTINGS.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    values.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect()
}

/// How a connection is begun.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Our SETTINGS.
    pub settings: Vec<(u16, u32)>,
    /// Credit for the connection beyond the 65,535 bytes that it begins with.
    pub credit: u32,
}

impl Default for Opening {
    /// No pushes, windows that nothing waits for.
    fn default() -> Self {
        Self { settings: vec![(2, 0), (4, 1 << 20)], credit: 16 << 20 }
    }
}

/// What a peer may expect of us.
#[derive(Debug, Clone, Copy)]
pub struct AutoReplies {
    /// SETTINGS and PING are acknowledged.
    pub acknowledges: bool,
    /// Credit is returned for what arrives.
    pub returns_credit: bool,
}

/// A stream of ours.
#[derive(Debug, Clone, Default)]
pub struct RawStream {
    /// The final status, if it came.
    pub status: Option<u16>,
    /// Fields of the final response.
    pub fields: FieldLines,
    /// The beginning of the body.
    pub body: Vec<u8>,
    /// Bytes of DATA frames.
    pub received: u64,
    /// Whether the peer has ended it.
    pub ended: bool,
    /// The code with which the peer reset it.
    pub reset: Option<ErrorCode>,
    /// Bytes that we may still send.
    pub window: i64,
    /// The most that this ever was.
    pub largest: i64,
    /// Credit that we were given, in the order in which it came; the first ones if there are many.
    pub updates: Vec<u32>,
}

impl RawStream {
    /// Whether nothing more will come.
    pub const fn is_over(&self) -> bool {
        self.ended || self.reset.is_some()
    }

    /// Whether it has an answer, or will have none.
    pub const fn is_settled(&self) -> bool {
        self.status.is_some() || self.is_over()
    }
}

/// A GOAWAY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedGoAway {
    /// The last stream that was or might be processed.
    pub last_stream: u32,
    /// Why.
    pub code: ErrorCode,
    /// The beginning of its debug data, as it may be shown.
    pub debug: String,
}

/// The connection.
#[derive(Debug)]
pub struct RawH2Client {
    /// What carries it.
    pub line: RawConnection,
    /// How we behave.
    pub auto_replies: AutoReplies,
    /// The peer's settings as it announced them.
    pub settings: BTreeMap<u16, u32>,
    /// Whether its SETTINGS have come.
    pub has_settings: bool,
    /// The streams that we have begun.
    pub streams: BTreeMap<u32, RawStream>,
    /// GOAWAYs that came.
    pub goaways: Vec<ReceivedGoAway>,
    /// PINGs of ours that were answered.
    pub pongs: u64,
    /// Bytes that we may still send on the connection.
    pub window: i64,
    /// The longest DATA frame that came.
    pub largest_data: u32,
    is_tls: bool,
    next: u32,
    decoder: FieldBlocks,
    /// A field block that CONTINUATION continues: its stream, its flags, whether it promises something, its bytes.
    block: Option<(u32, u8, bool, Vec<u8>)>,
    owed: u32,
}

impl RawH2Client {
    /// Dials the host, in clear with prior knowledge or over TLS with ALPN, and exchanges SETTINGS.
    pub fn open(prober: &mut Prober, protocol: Protocol, opening: &Opening) -> Result<Self> {
        let line = RawConnection::dial(prober, protocol)?;
        let mut client = Self::on(line, protocol.is_tls());
        client.greet(prober, opening)?;
        client.until(prober.soon(), prober, |client| client.has_settings)?;
        match client.line.over {
            _ if client.has_settings => Ok(client),
            None => Err(ConnectError::NoAnswer(prober.timeout).into()),
            Some(_) => Err(ConnectError::Closed("it ends before its SETTINGS".to_owned()).into()),
        }
    }

    /// On a connection that has been made HTTP/2 otherwise: by an upgrade, or through a tunnel. Nothing is sent yet.
    pub fn on(mut line: RawConnection, is_tls: bool) -> Self {
        line.transcript.reads_frames();
        // Frames may have arrived with the end of the previous protocol.
        let (at, early) = (line.received_at, std::mem::take(&mut line.incoming));
        line.transcript.record(at, Direction::Down, &early);
        line.incoming = early;
        Self {
            line,
            auto_replies: AutoReplies { acknowledges: true, returns_credit: true },
            settings: BTreeMap::new(),
            has_settings: false,
            streams: BTreeMap::new(),
            goaways: Vec::new(),
            pongs: 0,
            window: FIRST_WINDOW,
            largest_data: 0,
            is_tls,
            next: 1,
            decoder: FieldBlocks::default(),
            block: None,
            owed: 0,
        }
    }

    /// Sends preface and SETTINGS, and credit for the connection.
    pub fn greet(&mut self, prober: &mut Prober, opening: &Opening) -> Result<Put> {
        let mut bytes = [&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &settings(&opening.settings))].concat();
        if opening.credit > 0 {
            bytes.extend(frame(kind::WINDOW_UPDATE, 0, 0, &opening.credit.to_be_bytes()));
        }
        self.send(prober, &bytes)
    }

    /// The stream that the next request takes; [`RawH2Client::request`] takes it.
    pub fn next_stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        let window = i64::from(self.settings.get(&4).copied().unwrap_or(FIRST_WINDOW as u32));
        self.streams.insert(stream, RawStream { window, largest: window, ..RawStream::default() });
        stream
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, prober: &mut Prober, bytes: &[u8]) -> Result<Put> {
        if self.line.over.is_some() {
            return Ok(Put::Closed);
        }
        self.line.send(bytes, prober.soon(), prober)
    }

    /// The field block of a request for the host's path, with the host's further fields and `fields`.
    pub fn block(&self, prober: &Prober, method: &str, fields: &[(&str, &str)]) -> Vec<u8> {
        let scheme = if self.is_tls { "https" } else { "http" };
        let pseudo = [
            (":method", method),
            (":scheme", scheme),
            (":authority", prober.host.authority.as_str()),
            (":path", prober.host.path.as_str()),
        ];
        let own: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let further = prober.host.fields_beside(&own);
        let all = pseudo.into_iter().chain(further).chain(fields.iter().copied());
        field_block(all.map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    /// A field block in HEADERS and as many CONTINUATION as it takes.
    pub fn head(&self, stream: u32, block: &[u8], end_stream: bool) -> Vec<u8> {
        let mut pieces = block.chunks(LEAST_FRAME);
        let first = pieces.next().unwrap_or_default();
        let end = |rest: &std::slice::Chunks<'_, u8>| if rest.len() == 0 { flag::END_HEADERS } else { 0 };
        let flags = end(&pieces) | if end_stream { flag::END_STREAM } else { 0 };
        let mut bytes = frame(kind::HEADERS, flags, stream, first);
        while let Some(piece) = pieces.next() {
            bytes.extend(frame(kind::CONTINUATION, end(&pieces), stream, piece));
        }
        bytes
    }

    /// Begins a request for the host's path; its stream.
    pub fn request(
        &mut self,
        prober: &mut Prober,
        method: &str,
        fields: &[(&str, &str)],
        end_stream: bool,
    ) -> Result<u32> {
        prober.take_request()?;
        let stream = self.next_stream();
        let block = self.block(prober, method, fields);
        let bytes = self.head(stream, &block, end_stream);
        self.send(prober, &bytes)?;
        Ok(stream)
    }

    /// Asks for the host's path and waits for the answer.
    pub fn ask(&mut self, prober: &mut Prober, method: &str) -> Result<RawStream> {
        let stream = self.request(prober, method, &[], true)?;
        self.answer(prober, stream)
    }

    /// Waits until `stream` is over, or has sent as much as is read of a body.
    pub fn answer(&mut self, prober: &mut Prober, stream: u32) -> Result<RawStream> {
        let (until, most) = (prober.soon(), prober.most_read);
        let has_enough =
            |client: &Self| client.streams.get(&stream).is_some_and(|stream| stream.received >= most);
        self.until(until, prober, |client| {
            client.is_over(stream) || client.is_left(stream) || has_enough(client)
        })?;
        if has_enough(self) && !self.is_over(stream) {
            self.send(prober, &frame(kind::RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes()))?;
        }
        Ok(self.streams.get(&stream).cloned().unwrap_or_default())
    }

    /// Whether nothing more will come on `stream`.
    pub fn is_over(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_none_or(RawStream::is_over)
    }

    /// Whether `stream` has an answer, or will have none.
    pub fn is_settled(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_none_or(RawStream::is_settled)
    }

    /// Whether a GOAWAY says that `stream` is not processed, or that the connection is broken.
    fn is_left(&self, stream: u32) -> bool {
        let leaves =
            |goaway: &ReceivedGoAway| goaway.last_stream < stream || goaway.code != ErrorCode::NO_ERROR;
        self.goaways.last().is_some_and(leaves)
    }

    /// Sends `n` bytes of body as far as the windows allow, then the end of the stream; returns how many were sent.
    /// Stops early if no credit arrives in time, or if the answer arrives.
    pub fn body(&mut self, prober: &mut Prober, stream: u32, n: u64, ends: bool) -> Result<u64> {
        let filler = [b'a'; LEAST_FRAME];
        let mut sent = 0;
        while sent < n && !self.is_settled(stream) && self.line.over.is_none() {
            let room = self.room(stream).min(i64::try_from(n - sent).unwrap_or(i64::MAX));
            if room <= 0 {
                if !self.until(prober.soon(), prober, |client| {
                    client.room(stream) > 0 || client.is_settled(stream)
                })? {
                    break;
                }
                continue;
            }
            let taken = room.min(FRAME);
            let piece = taken as usize;
            let last = ends && sent + piece as u64 == n;
            let flags = if last { flag::END_STREAM } else { 0 };
            if self.send(prober, &frame(kind::DATA, flags, stream, &filler[..piece]))? != Put::All {
                break;
            }
            self.window -= taken;
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.window -= taken;
            }
            sent += piece as u64;
            self.pump(prober, Time::ZERO)?; // takes what arrives meanwhile, without waiting
        }
        Ok(sent)
    }

    /// Bytes that may be sent on `stream` now.
    fn room(&self, stream: u32) -> i64 {
        self.streams.get(&stream).map_or(0, |stream| stream.window).min(self.window)
    }

    /// Sends a PING; whether it is answered.
    pub fn ping(&mut self, prober: &mut Prober) -> Result<bool> {
        let before = self.pongs;
        self.send(prober, &frame(kind::PING, 0, 0, b"h2labpng"))?;
        self.until(prober.soon(), prober, |client| client.pongs > before)
    }

    /// Takes what arrives until `is_met` holds, the connection is over, or `until` is reached; returns whether `is_met`
    /// holds.
    pub fn until(
        &mut self,
        until: Time,
        prober: &mut Prober,
        is_met: impl Fn(&Self) -> bool,
    ) -> Result<bool> {
        loop {
            if is_met(self) {
                return Ok(true);
            }
            match self.pump(prober, until)? {
                ReadOutcome::Bytes => {}
                ReadOutcome::Silence | ReadOutcome::Eof | ReadOutcome::Broken => return Ok(is_met(self)),
            }
        }
    }

    /// Takes what arrives until `is_met` holds, the connection is over, or the host has sent nothing for `silence`: it
    /// may have megabytes to send before what is waited for. A host that never stops is given up after the time for one
    /// response.
    pub fn settle(
        &mut self,
        silence: Duration,
        prober: &mut Prober,
        is_met: impl Fn(&Self) -> bool,
    ) -> Result<bool> {
        let mut settling = Settling { silence, quiet_since: prober.now(), end: prober.soon() };
        loop {
            if self.until(settling.until(), prober, &is_met)? {
                return Ok(true);
            }
            let goes_on = settling.goes_on(self.line.received_at) && !prober.is_over(settling.end);
            if self.line.over.is_some() || !goes_on {
                return Ok(false);
            }
        }
    }

    /// Listens once until `until` and takes every frame that is whole.
    pub fn pump(&mut self, prober: &mut Prober, until: Time) -> Result<ReadOutcome> {
        let read = self.line.listen(until, prober)?;
        let mut bytes = std::mem::take(&mut self.line.incoming);
        let mut from = 0;
        let mut replies = Vec::new();
        while let Some(header) = bytes.get(from..from + HEADER_LENGTH) {
            let mut fixed = [0; HEADER_LENGTH];
            fixed.copy_from_slice(header);
            let header = FrameHeader::parse(&fixed);
            let end = from + HEADER_LENGTH + header.length as usize;
            let Some(payload) = bytes.get(from + HEADER_LENGTH..end) else { break };
            self.take(header, payload, &mut replies);
            from = end;
        }
        bytes.drain(..from);
        self.line.incoming = bytes;
        if !replies.is_empty() {
            self.send(prober, &replies)?;
        }
        Ok(read)
    }

    fn take(&mut self, header: FrameHeader, payload: &[u8], replies: &mut Vec<u8>) {
        match header.kind {
            kind::SETTINGS if !header.has(flag::ACK) => {
                self.take_settings(payload);
                if self.auto_replies.acknowledges {
                    replies.extend(frame(kind::SETTINGS, flag::ACK, 0, &[]));
                }
            }
            kind::PING if header.has(flag::ACK) => self.pongs += 1,
            kind::PING if self.auto_replies.acknowledges => {
                replies.extend(frame(kind::PING, flag::ACK, 0, payload));
            }
            kind::GOAWAY if payload.len() >= 8 => self.take_goaway(payload),
            kind::RST_STREAM => {
                if let Some(stream) = self.streams.get_mut(&header.stream) {
                    stream.reset = Some(ErrorCode(number(payload)));
                }
            }
            kind::WINDOW_UPDATE => self.take_credit(header.stream, number(payload) & 0x7fff_ffff),
            kind::DATA => self.take_data(header, payload, replies),
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => self.take_head(header, payload),
            _ => {}
        }
    }

    fn take_goaway(&mut self, payload: &[u8]) {
        let debug = &payload[8..payload.len().min(8 + DEBUG)];
        let cut = if payload.len() > 8 + DEBUG { " …" } else { "" };
        self.goaways.truncate(GOAWAYS - 1); // the first says how it began, the last how it ended
        self.goaways.push(ReceivedGoAway {
            last_stream: number(payload) & 0x7fff_ffff,
            code: ErrorCode(number(&payload[4..])),
            debug: printable(debug) + cut,
        });
    }

    fn take_settings(&mut self, payload: &[u8]) {
        for setting in payload.chunks_exact(6) {
            let id = u16::from_be_bytes([setting[0], setting[1]]);
            let value = number(&setting[2..]);
            if id == 4 {
                let before = i64::from(self.settings.get(&4).copied().unwrap_or(FIRST_WINDOW as u32));
                let change = i64::from(value) - before;
                self.streams.values_mut().for_each(|stream| stream.window += change);
            }
            self.settings.insert(id, value);
        }
        self.has_settings = true;
    }

    fn take_credit(&mut self, stream: u32, increment: u32) {
        if stream == 0 {
            self.window += i64::from(increment);
            return;
        }
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        stream.window += i64::from(increment);
        stream.largest = stream.largest.max(stream.window);
        if stream.updates.len() < UPDATES {
            stream.updates.push(increment);
        }
    }

    fn take_data(&mut self, header: FrameHeader, payload: &[u8], replies: &mut Vec<u8>) {
        self.largest_data = self.largest_data.max(header.length);
        // For a stream that is no longer kept, only the connection's credit is returned.
        let is_over = self.streams.get_mut(&header.stream).is_none_or(|stream| {
            stream.received += payload.len() as u64;
            let room = KEPT.saturating_sub(stream.body.len());
            stream.body.extend_from_slice(&payload[..payload.len().min(room)]);
            stream.ended |= header.has(flag::END_STREAM);
            stream.is_over()
        });
        if !self.auto_replies.returns_credit || header.length == 0 {
            return;
        }
        if !is_over {
            replies.extend(frame(kind::WINDOW_UPDATE, 0, header.stream, &header.length.to_be_bytes()));
        }
        self.owed += header.length;
        if self.owed >= 32_768 {
            replies.extend(frame(kind::WINDOW_UPDATE, 0, 0, &self.owed.to_be_bytes()));
            self.owed = 0;
        }
    }

    fn take_head(&mut self, header: FrameHeader, payload: &[u8]) {
        let mut payload = payload;
        let mut promises = false;
        if header.kind != kind::CONTINUATION {
            if header.has(flag::PADDED) && !payload.is_empty() {
                let padding = usize::from(payload[0]);
                payload = payload.get(1..payload.len().saturating_sub(padding)).unwrap_or_default();
            }
            if header.kind == kind::HEADERS && header.has(flag::PRIORITY) {
                payload = payload.get(5..).unwrap_or_default();
            }
            if header.kind == kind::PUSH_PROMISE {
                promises = true;
                payload = payload.get(4..).unwrap_or_default();
            }
        }
        let (stream, flags, promises, mut block) = match self.block.take() {
            Some(block) if header.kind == kind::CONTINUATION => block,
            _ => (header.stream, header.flags, promises, Vec::new()),
        };
        block.extend_from_slice(payload);
        if header.has(flag::END_HEADERS) {
            self.take_block(stream, flags, promises, &block);
        } else if block.len() <= BLOCK {
            self.block = Some((stream, flags, promises, block));
        }
    }

    fn take_block(&mut self, id: u32, flags: u8, promises: bool, block: &[u8]) {
        let text = |bytes: &[u8]| made_printable(&String::from_utf8_lossy(bytes)).into_owned();
        // What is promised is decoded for the sake of the table only.
        let fields: FieldLines = match self.decoder.decode(block) {
            Ok((fields, _)) => fields.iter().map(|field| (text(field.name), text(field.value))).collect(),
            Err(_) => Vec::new(),
        };
        let Some(stream) = self.streams.get_mut(&id).filter(|_| !promises) else { return };
        let status = fields.iter().find(|(name, _)| name == ":status");
        match status.and_then(|(_, status)| status.parse::<u16>().ok()) {
            Some(status) if status >= 200 => (stream.status, stream.fields) = (Some(status), fields),
            _ => {} // an interim response, or trailers
        }
        stream.ended |= flags & flag::END_STREAM != 0;
    }

    /// The outcome of each stream.
    pub fn reactions(&self) -> impl Iterator<Item = Reaction> + '_ {
        let of = |(id, stream): (&u32, &RawStream)| Reaction {
            stream: *id,
            reset: stream.reset,
            status: stream.status,
        };
        self.streams.iter().map(of)
    }

    /// The frames that show what happened to the connection: GOAWAY, resets, settings, the last of the others.
    pub fn items(&self) -> Vec<EvidenceItem> {
        self.line.transcript.items()
    }

    /// The last frames that end something, or `n` of any kind.
    pub fn ending(&self, n: usize) -> Vec<EvidenceItem> {
        self.line.transcript.last(n, |_| true)
    }

    /// What the peer said or did to end the connection, in words; `None` if it has not.
    pub fn ended(&self) -> Option<String> {
        let goaway = self.goaways.last().map(|goaway| {
            let debug =
                if goaway.debug.is_empty() { String::new() } else { format!(" \"{}\"", goaway.debug) };
            format!("GOAWAY {} last_stream_id {}{debug}", goaway.code, goaway.last_stream)
        });
        goaway.or_else(|| match self.line.over? {
            ReadOutcome::Eof => Some("it closed the connection".to_owned()),
            _ => Some("it aborted the connection".to_owned()),
        })
    }
}

/// A wait that is extended whenever something arrives.
#[derive(Debug)]
struct Settling {
    /// How long nothing must arrive before the host counts as silent.
    silence: Duration,
    /// When something last came, or it began.
    quiet_since: Time,
    /// The wait is never extended beyond this.
    end: Time,
}

impl Settling {
    /// How long to listen, if nothing comes.
    fn until(&self) -> Time {
        self.end.min(self.quiet_since + self.silence)
    }

    /// Whether the wait is extended when that time is over, if something last arrived at `received_at`.
    fn goes_on(&mut self, received_at: Time) -> bool {
        let was_silent = received_at <= self.quiet_since;
        self.quiet_since = received_at;
        !was_silent
    }
}

/// The first four octets as a number; 0 if there are fewer.
fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |four| u32::from_be_bytes(*four))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::{h2, prober};

    const SILENCE: Duration = Duration::from_millis(500);

    fn every_20_ms(times: u64) -> Vec<u64> {
        (0..times).map(|n| 20 * n).collect()
    }

    /// When a host is given up if it sends something at each of these times, in milliseconds, and has 3 s for a
    /// response.
    fn given_up_at(times: &[u64]) -> Time {
        let mut settling =
            Settling { silence: SILENCE, quiet_since: Time::ZERO, end: Time::from_millis(3_000) };
        loop {
            let until = settling.until();
            let came = times.iter().copied().map(Time::from_millis).filter(|at| *at <= until).max();
            if !settling.goes_on(came.unwrap_or_default()) || until >= settling.end {
                return until;
            }
        }
    }

    #[test]
    fn a_host_is_given_up_when_it_was_silent_for_long_enough_and_not_before() {
        assert_eq!(given_up_at(&[]), Time::from_millis(500));
        assert_eq!(given_up_at(&[1, 499]), Time::from_millis(999));
        assert_eq!(given_up_at(&[500, 1_000]), Time::from_millis(1_500));
        assert_eq!(given_up_at(&[501]), Time::from_millis(500), "too late");
        assert_eq!(given_up_at(&every_20_ms(60)), Time::from_millis(1_680));
    }

    #[test]
    fn a_host_that_never_stops_is_given_up_after_the_time_for_one_response() {
        assert_eq!(given_up_at(&every_20_ms(1_000)), Time::from_millis(3_000));
    }

    #[test]
    fn what_comes_behind_much_else_is_waited_for_and_nothing_else_is() {
        // Forty acknowledgements of PING, each behind what the client has read, then a GOAWAY or nothing.
        for has_goaway in [true, false] {
            let server = h2(move |peer, _| {
                for _ in 0..40 {
                    peer.send(&frame(kind::PING, flag::ACK, 0, &[7; 8]));
                    peer.until_read();
                }
                if has_goaway {
                    peer.goaway(0, ErrorCode::ENHANCE_YOUR_CALM.0);
                }
            });
            let mut prober = prober(server);
            let mut client = RawH2Client::open(&mut prober, Protocol::H2c, &Opening::default()).unwrap();
            client.request(&mut prober, "GET", &[], true).unwrap();
            let is_met = client.settle(SILENCE, &mut prober, |client| !client.goaways.is_empty()).unwrap();
            assert_eq!((is_met, client.pongs), (has_goaway, 40));
        }
    }

    #[test]
    fn settings_are_six_octets_each() {
        assert_eq!(settings(&[(4, 65_536)]), [0, 4, 0, 1, 0, 0]);
    }
}
