//! What happened in one exchange, and when.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who did it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResetSender {
    /// The client of this connection.
    Client,
    /// The server.
    Server,
}

/// An interim response (RFC 9110 §15.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterimResponse {
    /// 100 to 199.
    pub status: u16,
    /// When its head was complete.
    pub ms: f64,
    /// How many resources its Link fields name.
    pub links: u32,
}

/// A stream that was reset: RST_STREAM, or what corresponds to it in QUIC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reset {
    /// Who reset it.
    pub by: ResetSender,
    /// The code's name in RFC 9113 §7 or RFC 9114 §8.1, or its number.
    pub error_code: String,
    /// When.
    pub ms: f64,
}

/// A request and its answer, asked for or pushed. Times are in milliseconds since the client began to connect; `None` is what
/// never happened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaterfallStream {
    /// The stream as it is numbered on the wire; in HTTP/1.1 the first request's is 1, the next one's 3.
    pub id: u32,
    /// The path that was asked for, or promised.
    pub path: String,
    /// Whether the server pushed it.
    pub pushed: bool,
    /// When its promise had come, if it was pushed (RFC 9113 §6.6).
    pub promise_ms: Option<f64>,
    /// When it was asked for.
    pub request_ms: Option<f64>,
    /// Interim responses, in their order.
    pub interim: Vec<InterimResponse>,
    /// The status of the response.
    pub status: Option<u16>,
    /// How many resources the Link fields of the response name.
    pub links: u32,
    /// When the head of the response was complete.
    pub headers_ms: Option<f64>,
    /// When its body began to come.
    pub first_data_ms: Option<f64>,
    /// When the last piece of its body had come.
    pub last_data_ms: Option<f64>,
    /// When its trailers had come, if it has any.
    pub trailers_ms: Option<f64>,
    /// When it was complete.
    pub end_ms: Option<f64>,
    /// Bytes of body.
    pub bytes: u64,
    /// Whether an interim response ended the stream, which nothing may end but the response (RFC 9113 §8.1).
    pub ended_by_interim: bool,
    /// How it was reset, if it was.
    pub reset: Option<Reset>,
}

impl WaterfallStream {
    /// Whether no more frames are expected on it.
    pub const fn is_over(&self) -> bool {
        self.end_ms.is_some() || self.reset.is_some()
    }

    /// The first interim response with this status.
    pub fn first_interim(&self, status: u16) -> Option<&InterimResponse> {
        self.interim.iter().find(|interim| interim.status == status)
    }
}

/// How the connection was established, in milliseconds since the client began to connect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connecting {
    /// When TCP or QUIC was established.
    pub connected_ms: Option<f64>,
    /// When TLS was established, if there is TLS over TCP.
    pub tls_ms: Option<f64>,
    /// When the server's SETTINGS had come.
    pub settings_ms: Option<f64>,
}

/// All that happened in one exchange.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waterfall {
    /// How its connection was established.
    pub connect: Connecting,
    /// Its streams, in the order in which they began.
    pub streams: Vec<WaterfallStream>,
    /// Streams that are not among them: the first 1,000 are kept.
    #[serde(default)]
    pub left_off: u32,
    /// Whether the client of the connection disabled push: `SETTINGS_ENABLE_PUSH` = 0, or HTTP/1.1.
    pub refuses_push: bool,
    /// Why it is incomplete, if it is.
    pub failed: Option<String>,
    /// Whether that is because the client's timeout expired.
    #[serde(default)]
    pub timed_out: bool,
    /// For how many milliseconds the client did not run although it had to: what came meanwhile came earlier than
    /// recorded.
    #[serde(default)]
    pub paused_ms: f64,
}

impl Waterfall {
    /// The stream of the request for `path`; without one, of the first request.
    pub fn asked(&self, path: Option<&str>) -> Option<&WaterfallStream> {
        let mut asked = self.streams.iter().filter(|stream| !stream.pushed);
        match path {
            Some(path) => asked.find(|stream| stream.path == path),
            None => asked.next(),
        }
    }

    /// The streams that were pushed.
    pub fn pushed(&self) -> impl Iterator<Item = &WaterfallStream> {
        self.streams.iter().filter(|stream| stream.pushed)
    }

    /// Pushed responses that were promised, but neither complete nor reset.
    pub fn unfinished_pushes(&self) -> usize {
        self.pushed().filter(|stream| !stream.is_over()).count()
    }

    /// When the first promise had come.
    pub fn first_promise_ms(&self) -> Option<f64> {
        self.pushed().filter_map(|stream| stream.promise_ms).reduce(f64::min)
    }
}
