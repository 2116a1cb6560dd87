//! The lines that people read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use h2lab_base::counts::plural;
use h2lab_base::units::{Time, measured_time};
use h2lab_model::record::{CloseReason, ConnectionRecord, Outcome};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::Direction;
use h2lab_wire::trace::detail::{Detail, Head, dependency, plain};
use h2lab_wire::{ErrorCode, StreamId};

use super::document::{FrameDocument, millis, on_the_wire};
use super::selection::Gap;
use crate::terminal::Terminal;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::TlsFacts;
use h2lab_report::{hanging, wrap};
use h2lab_roles::load::LoadResult;

/// A pause of h2lab's own that is long enough to be reported, as in the verdict on a load.
const LONG_PAUSE_NS: u64 = 100_000_000;

/// Characters of header fields on one line, without `--verbose`, where the width is unknown.
const DETAIL_WIDTH: usize = 120;
/// The characters of them that are shown on the narrowest terminal: a status, a method and a path.
const LEAST_WIDTH: usize = 24;
/// GOAWAYs that the summary names one by one.
const GOAWAYS_NAMED: usize = 3;
/// Where details begin on the lines below a frame.
const INDENT: &str = "                     ";

/// How lines are written.
#[derive(Debug, Clone, Copy)]
pub struct LineFormatter {
    verbose: bool,
    terminal: Terminal,
}

impl LineFormatter {
    /// For what stdout can show.
    pub const fn new(verbose: bool, terminal: Terminal) -> Self {
        Self { verbose, terminal }
    }

    /// The line in the characters of the reader's locale.
    pub fn printable(self, line: &str) -> Cow<'_, str> {
        self.terminal.printable(line)
    }

    /// A line that is not a frame, wrapped and indented past its number if the width is limited: by a terminal, or by
    /// COLUMNS.
    pub fn folded(self, line: &str) -> String {
        let before = if line.starts_with(' ') { line.find("* ").map_or(0, |at| at + 2) } else { 0 };
        match self.terminal.columns {
            Some(columns) if line.chars().count() > columns => {
                hanging(&line[..before], &line[before..], self.terminal.style()).trim_end().to_owned()
            }
            _ => line.to_owned(),
        }
    }

    /// A connection is dialled.
    pub fn dialling(connection: u32, address: &Endpoint, protocol: Protocol, at: Time) -> String {
        line(at, connection, &format!("dialling {address} for {protocol}"))
    }

    /// TCP is established.
    pub fn connected(record: &ConnectionRecord) -> String {
        let took = record.connected_at.since(record.dialled_at).as_secs_f64() * 1e3;
        let text = format!("TCP established after {took:.3} ms, from port {}", record.local_port);
        line(record.connected_at, record.index, &text)
    }

    /// TLS is established, over TCP or inside of QUIC.
    pub fn tls(record: &ConnectionRecord, protocol: Protocol, tls: &TlsFacts) -> String {
        let alpn = tls.alpn.as_deref().unwrap_or("nothing");
        let (begun, what) = if protocol.is_quic() {
            (record.dialled_at, format!("QUIC with {}", tls.version))
        } else {
            (record.connected_at, tls.version.clone())
        };
        let took = record.ready_at.since(begun).as_secs_f64() * 1e3;
        let mut text = format!("{what} after {took:.3} ms");
        if protocol.is_quic() {
            let _ = write!(text, ", from UDP port {}", record.local_port);
        }
        if let Some(cipher) = &tls.cipher {
            let _ = write!(text, ", {cipher}");
        }
        let resumed = if tls.resumed == Some(true) { ", resumed" } else { "" };
        let _ = write!(text, ", ALPN {alpn}{resumed}");
        line(record.ready_at, record.index, &text)
    }

    /// A connection has ended, or all is done while it is open; the last of it was seen at `at`.
    pub fn closed(record: &ConnectionRecord, protocol: Protocol, at: Time) -> String {
        let mut text = match &record.closed {
            CloseReason::Cell => "open at the end".to_owned(),
            CloseReason::Server => "the server closed it".to_owned(),
            CloseReason::Local { why } => format!("we closed it: {why}"),
            CloseReason::Broken { why } | CloseReason::Reset { why } => format!("broken: {why}"),
            CloseReason::TimedOut { why } => format!("timed out: {why}"),
            CloseReason::NotEstablished { why } => format!("not established: {why}"),
        };
        if record.ready_at.happened() {
            let _ = write!(text, "; {}", plural(u64::from(record.requests), "request"));
            if record.requests > 0 {
                let last = on_the_wire(record.highest_stream, protocol);
                let _ = write!(text, ", the last on stream {last}");
            }
        }
        for goaway in &record.goaways {
            let code = ErrorCode(goaway.code);
            let last = on_the_wire(StreamId(goaway.last_stream), protocol);
            let _ = write!(text, "; GOAWAY {code} last_stream_id {last}");
        }
        line(at, record.index, &text)
    }

    /// Frames were left out.
    pub fn gap(self, gap: Gap) -> String {
        let dots = self.dots();
        let frames = plural(gap.frames, "frame");
        let streams = match gap.streams {
            Some((low, high)) if low < high => format!(" on streams {low} to {high}"),
            Some((stream, _)) => format!(" on stream {stream}"),
            None => String::new(),
        };
        format!("{:>10}  {dots} {frames}{streams} {dots}", "")
    }

    const fn dots(self) -> &'static str {
        if self.terminal.unicode { "…" } else { "..." }
    }

    /// A frame, and with `--verbose` all that is in it beneath.
    pub fn frame(self, frame: &FrameDocument) -> String {
        let arrow = match (frame.direction, self.terminal.unicode) {
            (Direction::Up, true) => "→",
            (Direction::Down, true) => "←",
            (Direction::Up, false) => ">",
            (Direction::Down, false) => "<",
        };
        let name = format!("{}[{}]", frame.kind, frame.stream);
        let (start, end) = if self.terminal.colour { (colour(&frame.kind), "\x1b[0m") } else { ("", "") };
        let head = format!(
            "{:>10.3}  #{} {arrow} {start}{name:<18}{end} {:>6}  ",
            frame.at_ms, frame.connection, frame.length
        );
        let width = head.chars().count() - start.len() - end.len();
        let columns = self.terminal.columns.unwrap_or(usize::MAX);
        let flags = frame.flags.join(" ");
        let flags_width = flags.len() + 2 * usize::from(!flags.is_empty());
        // A head is cut at the end of the line; if its first fields would not fit, it is on the line below.
        let has_room =
            !matches!(frame.detail, Detail::Head(_)) || columns >= width + flags_width + LEAST_WIDTH;
        let (detail, below) = self.detail(frame, flags_width + if has_room { width } else { INDENT.len() });
        let text = [flags, detail].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ");
        let (first, text) = if has_room && width + text.chars().count() <= columns {
            (head + &text, Vec::new())
        } else {
            (head, wrap(&text, columns.saturating_sub(INDENT.len())))
        };
        text.iter().chain(&below).fold(first.trim_end().to_owned(), |mut all, line| {
            let _ = write!(all, "\n{INDENT}{line}");
            all
        })
    }

    /// The text after the flags, and the lines beneath.
    fn detail(self, frame: &FrameDocument, before: usize) -> (String, Vec<String>) {
        match &frame.detail {
            Detail::Head(head) => self.head(head, before),
            Detail::Settings { settings, is_cut } => {
                let all: Vec<String> =
                    settings.iter().map(|one| format!("{}={}", one.name, one.value)).collect();
                let more = if *is_cut { "; more are not kept" } else { "" };
                if self.verbose { (more.to_owned(), all) } else { (all.join(", ") + more, Vec::new()) }
            }
            other => (plain(other, frame.length), Vec::new()),
        }
    }

    fn head(self, head: &Head, before: usize) -> (String, Vec<String>) {
        let mut words: Vec<String> = head.start_line.iter().cloned().collect();
        words.extend(head.promised_stream.map(|stream| format!("promises stream {stream}")));
        words.extend(head.priority.map(dependency));
        words.extend(head.padding.map(|padding| format!("padding {padding}")));
        words.extend(head.undecoded.as_ref().map(|why| format!("not decoded: {why}")));
        words.extend(head.continues.then(|| "continued in CONTINUATION".to_owned()));
        let colon = if head.start_line.is_some() { ":" } else { "" };
        let fields = head.fields.iter().map(|field| format!("{}{colon} {}", field.name, field.value));
        let cut = head.is_cut.then(|| "(more is not kept)".to_owned());
        if self.verbose {
            return (words.join("  "), fields.chain(cut).collect());
        }
        words.extend(fields);
        words.extend(cut);
        let room = self.terminal.columns.map_or(DETAIL_WIDTH, |columns| columns.saturating_sub(before));
        (self.shorten(&words.join("  "), room), Vec::new())
    }

    fn shorten(self, text: &str, room: usize) -> String {
        if text.chars().nth(room).is_none() {
            return text.to_owned();
        }
        let kept: String = text.chars().take(room.saturating_sub(1 + self.dots().chars().count())).collect();
        format!("{} {}", kept.trim_end(), self.dots())
    }

    /// `1,001 requests, 2 connections, GOAWAY NO_ERROR last_stream_id 1999 after 1,000 requests`
    pub fn summary(result: &LoadResult, protocol: Protocol, interrupted: bool) -> String {
        let mut parts = vec![
            plural(result.samples.len() as u64, "request"),
            plural(result.connections.len() as u64, "connection"),
        ];
        let goaways: Vec<String> = result
            .connections
            .iter()
            .flat_map(|record| {
                record.goaways.iter().map(|goaway| {
                    let after = plural(u64::from(record.requests), "request");
                    format!(
                        "GOAWAY {} last_stream_id {} after {after}",
                        ErrorCode(goaway.code),
                        on_the_wire(StreamId(goaway.last_stream), protocol)
                    )
                })
            })
            .collect();
        parts.extend(goaways.iter().take(GOAWAYS_NAMED).cloned());
        if let Some(more @ 1..) = goaways.len().checked_sub(GOAWAYS_NAMED) {
            parts.push(plural(more as u64, "more GOAWAY"));
        }
        let replays: u64 = result.samples.iter().map(|sample| u64::from(sample.replays)).sum();
        if replays > 0 {
            parts.push(format!("{replays} sent again"));
        }
        let mut outcomes: BTreeMap<Outcome, u64> = BTreeMap::new();
        for sample in result.samples.iter().filter(|sample| !sample.outcome.is_success()) {
            *outcomes.entry(sample.outcome.kind()).or_default() += 1;
        }
        parts.extend(outcomes.iter().map(|(outcome, n)| format!("{n} ended as `{outcome}`")));
        parts.extend(interrupted.then(|| "interrupted".to_owned()));
        let paused = Duration::from_millis(result.generator.paused_ns / 1_000_000);
        // A slow reader of our output makes us wait for tens of milliseconds.
        let is_long = result.generator.longest_pause_ns >= LONG_PAUSE_NS;
        parts.extend(is_long.then(|| {
            let time = measured_time(paused);
            format!("h2lab did not run for {time} (it, or its machine, was stopped): the times may not reflect the server")
        }));
        parts.join(", ")
    }
}

/// A line about a connection rather than a frame.
fn line(at: Time, connection: u32, text: &str) -> String {
    format!("{:>10.3}  #{connection} * {text}", millis(at).unwrap_or_default())
}

/// Colours of Okabe and Ito's palette, which colour-blind readers can distinguish; each type has its name beside it.
fn colour(kind: &str) -> &'static str {
    match kind {
        "HEADERS" | "PUSH_PROMISE" | "CONTINUATION" => "\x1b[38;5;74m", // sky blue
        "DATA" => "\x1b[38;5;36m",                                      // bluish green
        "SETTINGS" | "PING" => "\x1b[38;5;175m",                        // reddish purple
        "GOAWAY" | "RST_STREAM" | "RESET_STREAM" | "STOP_SENDING" => "\x1b[1;38;5;166m", // vermilion, bold
        _ => "\x1b[38;5;178m",                                          // orange
    }
}
