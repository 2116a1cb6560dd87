//! What came back to one question.

use std::time::Duration;

use crate::probe::EvidenceItem;
use h2lab_wire::ErrorCode;

/// Field lines, as text.
pub type Lines = Vec<(String, String)>;

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It is complete.
    Complete,
    /// The stream was reset by the server.
    Reset(ErrorCode),
    /// Our engine refused it: it breaks the protocol.
    Refused(String),
    /// The connection ended.
    Closed(String),
    /// Nothing more came in time.
    Silence,
    /// Its body is longer, or takes longer, than we read.
    Cut,
}

/// What came back. Times are since the request was sent.
#[derive(Debug, Clone)]
pub struct Answer {
    /// 1xx responses, with when they came.
    pub interim: Vec<(u16, Lines, Duration)>,
    /// The final status; 0 if none came.
    pub status: u16,
    /// Its fields.
    pub fields: Lines,
    /// The body as far as it is kept.
    pub body: Vec<u8>,
    /// Bytes of the body that came.
    pub body_bytes: u64,
    /// When its first piece came, and its last.
    pub pieces: Option<(Duration, Duration)>,
    /// Trailers.
    pub trailers: Lines,
    /// How it ended.
    pub ended: Ended,
    /// When its head came.
    pub head_at: Option<Duration>,
    /// When the first byte of the request's body went.
    pub body_sent_at: Option<Duration>,
    /// Settings of the server, by number.
    pub settings: Vec<(u16, u32)>,
    /// Paths that it promised to push.
    pub pushes: Vec<String>,
    /// What crossed the connection, in the words of `h2lab trace`; nothing of HTTP/3.
    pub items: Vec<EvidenceItem>,
}

impl Answer {
    /// Nothing has come yet.
    pub const fn none() -> Self {
        Self {
            interim: Vec::new(),
            status: 0,
            fields: Vec::new(),
            body: Vec::new(),
            body_bytes: 0,
            pieces: None,
            trailers: Vec::new(),
            ended: Ended::Silence,
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

    /// Whether a final response came, whole or as far as we read it.
    pub fn is_answered(&self) -> bool {
        self.status > 0 && matches!(self.ended, Ended::Complete | Ended::Cut)
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
            Ended::Complete | Ended::Cut => self.status.to_string(),
            Ended::Reset(code) => format!("the stream was reset ({code})"),
            Ended::Refused(why) => format!("the answer breaks the protocol: {why}"),
            Ended::Closed(why) => format!("the connection ended: {why}"),
            Ended::Silence if self.status > 0 => format!("{} and then silence", self.status),
            Ended::Silence => "silence".to_owned(),
        }
    }
}
