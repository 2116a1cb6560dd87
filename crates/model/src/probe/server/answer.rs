//! The answer to one request of the probe.

use std::time::Duration;

use crate::probe::EvidenceItem;
use h2lab_wire::ErrorCode;

/// Field lines, as text.
pub type FieldLines = Vec<(String, String)>;

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerEnd {
    /// It is complete.
    Complete,
    /// The stream was reset by the server.
    Reset(ErrorCode),
    /// Our engine refused it as a protocol violation.
    Refused(String),
    /// The connection ended.
    Closed(String),
    /// Timeout.
    Silence,
    /// Its body is longer, or takes longer, than the probe reads.
    Cut,
}

/// The answer. Times are since the request was sent.
#[derive(Debug, Clone)]
pub struct Answer {
    /// 1xx responses, with their times.
    pub interim: Vec<(u16, FieldLines, Duration)>,
    /// The final status; 0 if none arrived.
    pub status: u16,
    /// Its fields.
    pub fields: FieldLines,
    /// The body up to the limit that is kept.
    pub body: Vec<u8>,
    /// Bytes of the body received.
    pub body_bytes: u64,
    /// When its first piece arrived, and its last.
    pub pieces: Option<(Duration, Duration)>,
    /// Trailers.
    pub trailers: FieldLines,
    /// How it ended.
    pub ended: AnswerEnd,
    /// When its head arrived.
    pub head_at: Option<Duration>,
    /// When the first byte of the request's body was sent.
    pub body_sent_at: Option<Duration>,
    /// Settings of the server, by number.
    pub settings: Vec<(u16, u32)>,
    /// Paths that it promised to push.
    pub pushes: Vec<String>,
    /// The frames of the connection, as `h2lab trace` describes them; empty for HTTP/3.
    pub items: Vec<EvidenceItem>,
}

impl Answer {
    /// An empty answer.
    pub const fn none() -> Self {
        Self {
            interim: Vec::new(),
            status: 0,
            fields: Vec::new(),
            body: Vec::new(),
            body_bytes: 0,
            pieces: None,
            trailers: Vec::new(),
            ended: AnswerEnd::Silence,
            head_at: None,
            body_sent_at: None,
            settings: Vec::new(),
            pushes: Vec::new(),
            items: Vec::new(),
        }
    }

    /// The first field with this lower-case name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Whether a final response came, whole or cut by the probe.
    pub fn is_answered(&self) -> bool {
        self.status > 0 && matches!(self.ended, AnswerEnd::Complete | AnswerEnd::Cut)
    }

    /// The value of a setting.
    pub fn setting(&self, id: u16) -> Option<u32> {
        self.settings.iter().find(|(found, _)| *found == id).map(|(_, value)| *value)
    }

    /// From the first piece of its body to the last.
    pub fn spread(&self) -> Duration {
        self.pieces.map_or(Duration::ZERO, |(first, last)| last.saturating_sub(first))
    }

    /// How it ended, or with which status.
    pub fn outcome(&self) -> String {
        match &self.ended {
            AnswerEnd::Complete | AnswerEnd::Cut => self.status.to_string(),
            AnswerEnd::Reset(code) => format!("the stream was reset ({code})"),
            AnswerEnd::Refused(why) => format!("the response violates the protocol: {why}"),
            AnswerEnd::Closed(why) => format!("the connection ended: {why}"),
            AnswerEnd::Silence if self.status > 0 => format!("{}, then no response", self.status),
            AnswerEnd::Silence => "silence".to_owned(),
        }
    }
}
