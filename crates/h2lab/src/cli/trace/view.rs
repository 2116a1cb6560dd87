//! Shows what happens on the connections, live, for people or for scripts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use h2lab_base::counts::plural;
use h2lab_base::units::Time;
use h2lab_model::record::ConnectionRecord;
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::detail::{DetailedFrame, Reader, Secrets};
use h2lab_wire::trace::{Crossing, Dialect, Direction, FrameKind};

use super::super::quotable;
use super::ShowArgs;
use super::document::{FrameDocument, TraceDocument, TracedConnection};
use super::lines::LineFormatter;
use super::selection::{FrameSelection, Shown};
use crate::terminal::Terminal;
use h2lab_roles::client::{Watch, WatchEvent};
use h2lab_roles::load::LoadResult;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceFormat {
    /// For people.
    Text,
    /// One document at the end.
    Json,
    /// A line for each frame.
    JsonLines,
}

/// Frames of a document, which is held in memory until its end: some hundred megabytes at most. `--help` states the number.
const DOCUMENT_FRAMES: usize = 100_000;

/// The view of a trace. It observes connections through [`Watch`].
#[derive(Debug)]
pub struct TraceView {
    inner: Mutex<Inner>,
}

struct Inner {
    url: String,
    protocol: Protocol,
    format: TraceFormat,
    /// What is not shown.
    hidden: Secrets,
    lines: LineFormatter,
    selection: FrameSelection<FrameDocument>,
    readers: BTreeMap<u32, Reader>,
    connections: BTreeMap<u32, TracedConnection>,
    /// Connections whose end has not been reported.
    open: BTreeSet<u32>,
    /// Whether the server has sent SETTINGS: then it speaks HTTP/2.
    speaks_http2: bool,
    /// Connections on which something has arrived.
    heard: BTreeSet<u32>,
    /// Connections on which that was the text of another protocol, whose bytes are not frames; and its first line.
    foreign: BTreeSet<u32>,
    banner: Option<String>,
    /// Shown so far; only for the document.
    frames: Vec<FrameDocument>,
    left_out: u64,
    /// Frames for which the document had no room.
    not_kept: u64,
    out: BufWriter<io::Stdout>,
    /// When the last thing was seen.
    latest: Time,
    /// Why nothing can be written any more.
    broken: Option<io::Error>,
    /// Set when nothing more needs to be read.
    stop: Arc<AtomicBool>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("url", &self.url).field("format", &self.format).finish_non_exhaustive()
    }
}

impl TraceView {
    /// A view on stdout. It sets `stop` when stdout's reader is gone.
    pub fn new(url: &str, args: &ShowArgs, hidden: Secrets, stop: Arc<AtomicBool>) -> Self {
        let terminal = Terminal::stdout();
        let inner = Inner {
            url: hidden.hide_in_url(url).into_owned(),
            protocol: Protocol::H1,
            format: args.format(),
            hidden,
            lines: LineFormatter::new(args.verbose, terminal),
            selection: FrameSelection::new(&args.only, args.elision(terminal.is_watched)),
            readers: BTreeMap::new(),
            connections: BTreeMap::new(),
            open: BTreeSet::new(),
            speaks_http2: false,
            heard: BTreeSet::new(),
            foreign: BTreeSet::new(),
            banner: None,
            frames: Vec::new(),
            left_out: 0,
            not_kept: 0,
            out: BufWriter::new(io::stdout()),
            latest: Time::ZERO,
            broken: None,
            stop,
        };
        Self { inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections in `protocol` follow; what an attempt in another protocol showed is not part of the document.
    pub fn begin(&self, protocol: Protocol) {
        let mut inner = self.inner();
        inner.protocol = protocol;
        inner.readers.clear();
        inner.connections.clear();
        inner.open.clear();
        inner.heard.clear();
        inner.foreign.clear();
        inner.frames.clear();
        (inner.left_out, inner.not_kept) = (0, 0);
    }

    /// Whether the server has shown that it speaks HTTP/2.
    pub fn has_met_http2(&self) -> bool {
        self.inner().speaks_http2
    }

    /// The first line that a server sends which does not speak HTTP, such as `SSH-2.0-OpenSSH_9.2`.
    pub fn banner(&self) -> Option<String> {
        self.inner().banner.clone()
    }

    /// Whether our output's reader is gone.
    pub fn has_no_reader(&self) -> bool {
        self.inner().broken.is_some()
    }

    /// Shows what is left, after all requests.
    pub fn finish(&self, result: &LoadResult, interrupted: bool) -> io::Result<()> {
        let mut inner = self.inner();
        for record in &result.connections {
            if inner.open.contains(&record.index) {
                inner.closed(record);
            }
        }
        inner.flush_selection();
        let summary = LineFormatter::summary(result, inner.protocol, interrupted);
        inner.note(&summary);
        inner.end(Some(result), interrupted)
    }

    /// Shows what there is, after an attempt without a result.
    pub fn abandon(&self, interrupted: bool) -> io::Result<()> {
        let mut inner = self.inner();
        inner.flush_selection();
        inner.end(None, interrupted)
    }
}

impl Watch for TraceView {
    fn see(&self, at: Time, watch_event: WatchEvent<'_>) {
        let mut inner = self.inner();
        inner.latest = inner.latest.max(at);
        match watch_event {
            WatchEvent::Dialling { connection, address } => {
                let entry = TracedConnection::dialled(connection, address.to_string(), at);
                inner.connections.insert(connection, entry);
                inner.open.insert(connection);
                let line = LineFormatter::dialling(connection, address, inner.protocol, at);
                inner.announce(line);
            }
            WatchEvent::Connected { record } => {
                inner.update(record);
                let line = LineFormatter::connected(record);
                inner.announce(line);
            }
            WatchEvent::Ready { record, tls } => {
                inner.update(record);
                if let Some(tls) = tls {
                    let line = LineFormatter::tls(record, inner.protocol, &tls);
                    inner.announce(line);
                    if let Some(entry) = inner.connections.get_mut(&record.index) {
                        entry.tls = Some(tls.into());
                    }
                }
            }
            WatchEvent::Crossing { connection, direction, crossing } => {
                inner.crossing(at, connection, direction, crossing);
            }
            WatchEvent::Closed { record } => inner.closed(record),
        }
        inner.flush();
    }
}

impl Inner {
    fn update(&mut self, record: &ConnectionRecord) {
        if let Some(entry) = self.connections.get_mut(&record.index) {
            entry.update(record, self.protocol);
        }
    }

    fn crossing(&mut self, at: Time, connection: u32, direction: Direction, crossing: Crossing<'_>) {
        if direction == Direction::Down && self.is_foreign(connection, crossing) {
            return;
        }
        let dialect = Dialect::of(self.protocol.is_multiplexed(), self.protocol.is_quic());
        let reader = self.readers.entry(connection).or_insert_with(|| Reader::new(dialect, connection));
        let mut detailed = Vec::new();
        reader.cross(at, direction, crossing, &mut |one| detailed.push(one));
        self.write_out(detailed);
    }

    /// Whether the server's bytes are not HTTP of any version, by the first bytes of the connection.
    fn is_foreign(&mut self, connection: u32, crossing: Crossing<'_>) -> bool {
        if let Crossing::Bytes { stream: None, bytes, .. } = crossing
            && self.heard.insert(connection)
            && let Some(banner) = banner(bytes)
        {
            let line = format!("connection {connection} is not HTTP: got \"{banner}\"");
            self.announce(line);
            self.foreign.insert(connection);
            self.banner = Some(banner);
        }
        self.foreign.contains(&connection)
    }

    fn write_out(&mut self, detailed: Vec<DetailedFrame>) {
        let mut shown = Vec::new();
        for mut one in detailed {
            self.hidden.hide_in_frame(&mut one.detail);
            let kind = one.event.kind;
            self.speaks_http2 |= kind == FrameKind::SETTINGS && one.event.direction == Direction::Down;
            let frame = FrameDocument::of(one, self.protocol);
            self.selection.frame(kind, frame.stream, || frame, &mut |what| shown.push(what));
        }
        self.show(shown);
    }

    /// A connection has ended, or all is done while it is open.
    fn closed(&mut self, record: &ConnectionRecord) {
        let mut detailed = Vec::new();
        if let Some(mut reader) = self.readers.remove(&record.index) {
            reader.end(&mut |one| detailed.push(one));
        }
        self.write_out(detailed);
        self.update(record);
        self.open.remove(&record.index);
        let line = LineFormatter::closed(record, self.protocol, self.latest);
        self.announce(line);
    }

    /// Writes a line that is not a frame, after the frames that came before it.
    fn announce(&mut self, line: String) {
        let mut shown = Vec::new();
        self.selection.note(line, &mut |what| shown.push(what));
        self.show(shown);
    }

    fn flush_selection(&mut self) {
        let mut shown = Vec::new();
        self.selection.flush(&mut |what| shown.push(what));
        self.show(shown);
    }

    fn show(&mut self, shown: Vec<Shown<FrameDocument>>) {
        for what in shown {
            match (what, self.format) {
                (Shown::Gap(gap), format) => {
                    self.left_out += gap.frames;
                    if format == TraceFormat::Text {
                        let line = self.lines.gap(gap);
                        self.write(&line);
                    }
                }
                (Shown::Note(line), _) => self.note(&line),
                (Shown::Frame(frame), TraceFormat::Text) => {
                    let lines = self.lines.frame(&frame);
                    self.write(&lines);
                }
                (Shown::Frame(frame), TraceFormat::Json) if self.frames.len() < DOCUMENT_FRAMES => {
                    self.frames.push(frame);
                }
                (Shown::Frame(_), TraceFormat::Json) => self.not_kept += 1,
                (Shown::Frame(frame), TraceFormat::JsonLines) => {
                    let line = serde_json::to_string(&frame).unwrap_or_default();
                    self.write(&line);
                }
            }
        }
    }

    /// A line for people only.
    fn note(&mut self, line: &str) {
        if self.format == TraceFormat::Text {
            let line = self.lines.folded(line);
            self.write(&line);
        }
    }

    fn write(&mut self, line: &str) {
        let line = if self.format == TraceFormat::Text { self.lines.printable(line) } else { line.into() };
        if self.broken.is_none()
            && let Err(error) = writeln!(self.out, "{line}")
        {
            self.give_up(error);
        }
    }

    fn flush(&mut self) {
        if self.broken.is_none()
            && let Err(error) = self.out.flush()
        {
            self.give_up(error);
        }
    }

    fn give_up(&mut self, error: io::Error) {
        self.broken = Some(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The document, if it is wanted, and what went wrong in writing.
    fn end(&mut self, result: Option<&LoadResult>, interrupted: bool) -> io::Result<()> {
        if self.format == TraceFormat::Json {
            let samples = || result.iter().flat_map(|result| &result.samples);
            if self.not_kept > 0 {
                let frames = self.not_kept;
                let frames = plural(frames, "frame");
                say!("{frames} beyond {DOCUMENT_FRAMES} not in the document; --jsonl has all");
            }
            let document = TraceDocument {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                url: self.url.clone(),
                protocol: self.protocol,
                requests: samples().count() as u64,
                answered: samples().filter(|sample| sample.outcome.is_complete()).count() as u64,
                interrupted,
                paused_ms: result.map_or(0.0, |result| result.generator.paused_ns as f64 / 1e6),
                connections: std::mem::take(&mut self.connections).into_values().collect(),
                frames: std::mem::take(&mut self.frames),
                frames_left_out: self.left_out + self.not_kept,
            };
            let text = serde_json::to_string_pretty(&document)?;
            self.write(&text);
        }
        self.flush();
        self.broken.take().map_or(Ok(()), Err)
    }
}

/// Characters of a banner that are shown.
const BANNER: usize = 60;

/// The first line of a text that cannot be the beginning of HTTP. Frames of HTTP/2 and records of TLS do not begin with
/// text.
fn banner(bytes: &[u8]) -> Option<String> {
    let line = bytes.split(|byte| b"\r\n".contains(byte)).next().unwrap_or_default();
    let is_text = line.len() >= 4 && line[..4].iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    (is_text && !line.starts_with(b"HTTP/")).then(|| {
        let text: String = String::from_utf8_lossy(line).chars().take(BANNER).collect();
        quotable(&text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_http_is_told_from_frames_and_from_http() {
        assert_eq!(banner(b"SSH-2.0-OpenSSH_9.2\r\nmore").as_deref(), Some("SSH-2.0-OpenSSH_9.2"));
        assert_eq!(banner(b"220 mail ESMTP\x1b[2J").as_deref(), Some("220 mail ESMTP\\u{1b}[2J"));
        for http in
            [&b"HTTP/1.0 400 Bad\r\n"[..], b"\0\0\x12\x04\0\0\0\0\0", b"\x15\x03\x01\0\x02\x02\x28", b""]
        {
            assert_eq!(banner(http), None, "{http:?}");
        }
    }
}
