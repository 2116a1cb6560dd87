//! What was seen of a client in a test case.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{AnswerState, TestCase};
use crate::probe::EvidenceItem;
use h2lab_base::units::Time;
use h2lab_wire::h2::frame::flag;
use h2lab_wire::trace::detail::{Detail, DetailedFrame};
use h2lab_wire::trace::{Direction, FrameKind};

/// Frames of a connection that are kept; a client that sends more than this in one test case is graded by the first of them.
pub const KEPT: usize = 20_000;

/// A frame, as far as grading needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameNote {
    /// When.
    pub at: Time,
    /// Which way: up is the client's.
    pub direction: Direction,
    /// Its type.
    pub kind: FrameKind,
    /// Its flags.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// Bytes of its payload.
    pub length: u32,
    /// WINDOW_UPDATE: the increment. RST_STREAM, GOAWAY: the code.
    pub value: u32,
    /// GOAWAY: the last stream.
    pub last_stream: Option<u32>,
    /// SETTINGS: identifiers and values.
    pub settings: Vec<(u16, u32)>,
}

impl FrameNote {
    /// The note of a frame that was read.
    pub fn of(detailed: &DetailedFrame) -> Self {
        let event = &detailed.event;
        let (mut last_stream, mut settings) = (None, Vec::new());
        match &detailed.detail {
            Detail::GoAway { last_stream_id, .. } => last_stream = Some(*last_stream_id),
            Detail::Settings { settings: all, .. } => {
                settings = all.iter().map(|setting| (setting.id, setting.value)).collect();
            }
            _ => {}
        }
        Self {
            at: event.at,
            direction: event.direction,
            kind: event.kind,
            flags: event.flags,
            stream: event.stream.0,
            length: event.length,
            value: event.value,
            last_stream,
            settings,
        }
    }

    /// Whether it acknowledges SETTINGS or a PING.
    pub const fn is_ack(&self) -> bool {
        self.flags & flag::ACK != 0
    }

    /// Whether the client sent it.
    pub fn is_up(&self) -> bool {
        self.direction == Direction::Up
    }
}

/// A request that reached the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSeen {
    /// When its head came.
    pub at: Time,
    /// Its stream.
    pub stream: u32,
    /// Method and path.
    pub line: String,
    /// Its fate, as the server sees it: the client may still have discarded what was sent.
    pub fate: AnswerState,
}

/// One connection of the client.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConnectionSeen {
    /// When it was accepted.
    pub opened_at: Time,
    /// `h2`, `http/1.1`; `None` if it never sent anything.
    pub protocol: Option<&'static str>,
    /// Its frames in their order.
    pub frames: Vec<FrameNote>,
    /// Its requests in their order.
    pub requests: Vec<RequestSeen>,
    /// The violation by the client for which our engine ended it.
    pub error: Option<String>,
    /// The client's product: the `user-agent` of its first request.
    pub user_agent: Option<String>,
    /// Whether the client's socket has `TCP_NODELAY` set; `None` if unknown.
    pub no_delay: Option<bool>,
    /// When the server fell silent on it.
    pub dark_since: Option<Time>,
    /// When a body stopped in its middle.
    pub stalled_since: Option<Time>,
    /// What crossed it, in readable form.
    pub items: Vec<EvidenceItem>,
}

impl ConnectionSeen {
    /// Since when the client has been waiting for bytes that never come.
    pub fn quiet_since(&self) -> Option<Time> {
        self.dark_since.or(self.stalled_since)
    }

    /// Frames that the client sent of this type, acknowledgements left out.
    pub fn sent(&self, kind: FrameKind) -> impl Iterator<Item = &FrameNote> {
        self.frames.iter().filter(move |frame| {
            let acks = matches!(kind, FrameKind::SETTINGS | FrameKind::PING) && frame.is_ack();
            frame.is_up() && frame.kind == kind && !acks
        })
    }

    /// Frames that the server sent of this type.
    pub fn received(&self, kind: FrameKind) -> impl Iterator<Item = &FrameNote> {
        self.frames.iter().filter(move |frame| !frame.is_up() && frame.kind == kind)
    }

    /// The client's first SETTINGS.
    pub fn settings(&self) -> Option<&[(u16, u32)]> {
        self.sent(FrameKind::SETTINGS).next().map(|frame| frame.settings.as_slice())
    }

    /// The value of a setting in the client's first SETTINGS.
    pub fn setting(&self, identifier: u16) -> Option<u32> {
        let all = self.settings()?;
        all.iter().rev().find(|(id, _)| *id == identifier).map(|(_, value)| *value)
    }

    /// Whether the client accepted the whole answer to a request. It did not if it reset the stream, or if it ended the
    /// connection by an error, unless it had sent a graceful GOAWAY after the answer and before the error.
    fn is_taken(&self, request: &RequestSeen) -> bool {
        let reset = self.sent(FrameKind::RST_STREAM).any(|frame| frame.stream == request.stream);
        request.fate == AnswerState::Answered && !reset && !self.gave_up_before(request.stream)
    }

    /// Whether the client ended the connection by an error before it had the whole answer on `stream`, as far as is known.
    fn gave_up_before(&self, stream: u32) -> bool {
        let goaway = |is_error: bool| {
            let is_it = |frame: &FrameNote| {
                frame.is_up() && frame.kind == FrameKind::GOAWAY && (frame.value != 0) == is_error
            };
            self.frames.iter().position(is_it)
        };
        let Some(error) = goaway(true) else { return false };
        let answered = self.frames.iter().position(|frame| {
            !frame.is_up()
                && frame.stream == stream
                && matches!(frame.kind, FrameKind::HEADERS | FrameKind::DATA)
                && frame.flags & flag::END_STREAM != 0
        });
        match (answered, goaway(false)) {
            (Some(answered), Some(goodbye)) => !(answered < goodbye && goodbye < error),
            _ => true,
        }
    }

    /// The most streams that the client had open at once, measured when it began a stream for which `counts` held.
    pub fn most_open(&self, mut counts: impl FnMut(&FrameNote) -> bool) -> usize {
        let (mut open, mut most) = (BTreeSet::new(), 0);
        for frame in &self.frames {
            let ends = frame.flags & flag::END_STREAM != 0;
            let is_counted = counts(frame);
            match (frame.is_up(), frame.kind) {
                (true, FrameKind::HEADERS) if frame.stream % 2 == 1 => {
                    open.insert(frame.stream);
                    if is_counted {
                        most = most.max(open.len());
                    }
                }
                (false, FrameKind::HEADERS | FrameKind::DATA) if ends => drop(open.remove(&frame.stream)),
                (_, FrameKind::RST_STREAM) => drop(open.remove(&frame.stream)),
                _ => {}
            }
        }
        most
    }

    /// The last stream that a GOAWAY of ours accepted in the end.
    pub fn last_stream(&self) -> Option<u32> {
        self.received(FrameKind::GOAWAY).filter_map(|frame| frame.last_stream).min()
    }

    /// Streams that the client began above that one.
    pub fn beyond_goaway(&self) -> usize {
        let Some(last) = self.last_stream() else { return 0 };
        let mut streams: Vec<u32> = self
            .sent(FrameKind::HEADERS)
            .map(|frame| frame.stream)
            .filter(|stream| stream % 2 == 1 && *stream > last)
            .collect();
        streams.sort_unstable();
        streams.dedup();
        streams.len()
    }
}

/// The run of one test case.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseRun {
    /// Which.
    pub test_case: TestCase,
    /// When the command was started.
    pub began: Time,
    /// Its exit code; `None` if a signal ended it, or we killed it at the timeout.
    pub exit: Option<i32>,
    /// It ran into the timeout.
    pub ran_out: bool,
    /// How long it ran.
    pub took: Duration,
    /// Its connections.
    pub connections: Vec<ConnectionSeen>,
    /// Each request of the command has a distinct line, so that a line that comes twice is a retry.
    pub by_line: bool,
    /// Its last output.
    pub said: String,
}

impl CaseRun {
    /// Requests with this fate.
    pub fn count(&self, fate: AnswerState) -> usize {
        let requests = self.connections.iter().flat_map(|connection| &connection.requests);
        requests.filter(|request| request.fate == fate).count()
    }

    /// Requests that were answered and whose answer the client accepted.
    pub fn answered(&self) -> usize {
        let taken = self
            .connections
            .iter()
            .flat_map(|connection| connection.requests.iter().filter(|request| connection.is_taken(request)));
        if self.by_line {
            return taken.map(|request| &request.line).collect::<BTreeSet<_>>().len();
        }
        taken.count()
    }

    /// How long the command kept running after `since`.
    pub fn went_on(&self, since: Time) -> Duration {
        (self.began + self.took).since(since)
    }

    /// The most streams that a connection had open at once.
    pub fn at_a_time(&self) -> usize {
        self.h2().map(|connection| connection.most_open(|_| true)).max().unwrap_or(0)
    }

    /// The connections over which requests came, or that spoke HTTP/2.
    pub fn h2(&self) -> impl Iterator<Item = &ConnectionSeen> {
        self.connections.iter().filter(|connection| connection.protocol == Some("h2"))
    }

    /// Connections that were dialled.
    pub const fn dials(&self) -> usize {
        self.connections.len()
    }

    /// Connections on which we sent GOAWAY, once for each however many frames it took.
    pub fn goaways(&self) -> usize {
        let says = |connection: &&ConnectionSeen| connection.received(FrameKind::GOAWAY).next().is_some();
        self.connections.iter().filter(says).count()
    }

    /// Whether the command ended well by itself.
    pub fn is_content(&self) -> bool {
        self.exit == Some(0)
    }

    /// `exit code 0 after 120 ms`.
    pub fn ending(&self) -> String {
        let took = h2lab_base::units::measured_time(self.took);
        match (self.exit, self.ran_out) {
            (_, true) => format!("it was still running after {took}, and was killed"),
            (Some(code), _) => format!("exit code {code} after {took}"),
            (None, _) => format!("a signal ended it after {took}"),
        }
    }
}
