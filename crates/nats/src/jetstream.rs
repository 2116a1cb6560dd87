//! JetStream's requests, in JSON over ordinary messages.
//!
//! async-nats has its own; these name the very subject, so that a missing permission is told at once, and need no
//! information on a stream or a consumer, which an agent may not ask for.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use h2lab_base::text::PeerText;
use h2lab_base::units;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::NatsError;
use crate::link::Link;
use crate::streams;

/// Before a request is made again that failed for a reason that passes.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);
/// The first version whose account gets back what a purge with a filter deletes. Before, its limit would be reached by streams
/// that are empty.
const PURGES_WHOLE: (i64, i64, i64) = (2, 10, 0);
/// How a server says that a message to delete is not there: an earlier attempt, whose answer was lost, has deleted it.
const NO_MESSAGE: [&str; 3] = ["no message found", "deleted message", "EOF"];
/// After so many answers without a responder, JetStream counts as absent: a server that starts may need a moment.
const MOST_NO_RESPONDERS: u32 = 8;

/// An answer may be an error.
#[derive(Deserialize)]
struct Answer {
    error: Option<ApiError>,
}

/// What JetStream refuses, and why. The numbers are those of nats-server's `errors.json`.
#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

/// The answer to something stored.
#[derive(Deserialize)]
struct Stored {
    /// Anything else that answers has none: then it was not JetStream.
    #[serde(rename = "seq")]
    _sequence: u64,
}

/// The answer to a request for a message.
#[derive(Deserialize)]
struct Found {
    message: FoundMessage,
}

#[derive(Deserialize)]
struct FoundMessage {
    subject: String,
    seq: u64,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
}

/// The answer to a request for a stream's state.
#[derive(Deserialize)]
struct Info {
    config: Value,
    #[serde(default)]
    state: InfoState,
    /// Subjects in all, of which this answer may have a part.
    #[serde(default)]
    total: u64,
}

#[derive(Default, Deserialize)]
struct InfoState {
    #[serde(default)]
    subjects: Option<BTreeMap<String, u64>>,
}

/// The answer to a purge and the like.
#[derive(Deserialize)]
struct Done {
    success: bool,
}

/// A message of a stream.
pub(crate) struct StoredMessage {
    pub(crate) subject: String,
    pub(crate) sequence: u64,
    pub(crate) payload: Vec<u8>,
    /// It says that what was there was deleted: other clients of NATS leave such marks in a bucket.
    pub(crate) is_mark: bool,
}

impl ApiError {
    /// The error for the caller; `None` if it passes: a cluster elects a leader.
    fn lasting(&self, subject: &str) -> Option<NatsError> {
        let what = PeerText::from(subject);
        let reason = PeerText::from(self.description.as_str());
        Some(match self.err_code {
            // Incomplete, not active, no peers, not available, not led; a stream or consumer that is offline.
            10_004..=10_006 | 10_008 | 10_009 | 10_118 | 10_119 => return None,
            10_039 | 10_076 => NatsError::NoJetStream,
            // A consumer, a message, a stream.
            10_014 | 10_037 | 10_059 => {
                let what = format!("what `{subject}` asks for: {}", self.description);
                NatsError::Absent { what: what.as_str().into() }
            }
            // Of the account, of resources, of consumers, of streams, of memory, of the disk, of a message's size;
            // those that an account prescribes for a stream.
            10_002 | 10_023 | 10_026 | 10_027 | 10_028 | 10_047 | 10_054 | 10_113 | 10_120 | 10_122 => {
                NatsError::Quota { what, reason }
            }
            // Whatever keeps a stream from storing, such as `maximum bytes exceeded`.
            10_077 if ["maximum", "space"].iter().any(|word| self.description.contains(word)) => {
                NatsError::Quota { what, reason }
            }
            _ => NatsError::Other { what, reason },
        })
    }
}

impl Link {
    /// Asks JetStream, until it answers.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        headers: Option<&HeaderMap>,
        payload: Bytes,
    ) -> Result<T, NatsError> {
        let mut absences = 0;
        loop {
            match self.request(subject, headers, payload.clone()).await? {
                Some(message) => {
                    if let Some(answer) = read(subject, &message.payload)? {
                        return Ok(answer);
                    }
                }
                None => {
                    absences += 1;
                    self.believe(absences, subject)?;
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Fails when nobody has subscribed to the subject for so often that it will not pass.
    pub(crate) fn believe(&self, absences: u32, subject: &str) -> Result<(), NatsError> {
        let has_jetstream = self.client.server_info().jetstream;
        if absences < MOST_NO_RESPONDERS && has_jetstream {
            return Ok(());
        }
        if !has_jetstream || subject.starts_with("$JS.API.STREAM.") {
            return Err(NatsError::NoJetStream);
        }
        let what = format!(
            "stream or consumer for `{subject}`: a driver has to set up the server, or the run is over"
        );
        Err(NatsError::Absent { what: what.as_str().into() })
    }

    /// Asks JetStream with a document.
    pub(crate) async fn api<T: DeserializeOwned>(&self, subject: &str, body: &Value) -> Result<T, NatsError> {
        self.ask(subject, None, body.to_string().into()).await
    }

    /// Stores a message in the stream of its subject. With an `id`, a second one within the stream's window is not
    /// stored.
    pub(crate) async fn store(
        &self,
        subject: &str,
        id: Option<String>,
        payload: Bytes,
    ) -> Result<(), NatsError> {
        let headers = id.map(|id| header("Nats-Msg-Id", &id));
        let _stored: Stored = self.ask(subject, headers.as_ref(), payload).await?;
        Ok(())
    }

    /// Stores a message in place of all others of its subject.
    pub(crate) async fn replace(&self, subject: &str, payload: Bytes) -> Result<(), NatsError> {
        let headers = header("Nats-Rollup", "sub");
        let _stored: Stored = self.ask(subject, Some(&headers), payload).await?;
        Ok(())
    }

    /// The newest message of a subject.
    pub(crate) async fn last(&self, stream: &str, subject: &str) -> Result<Option<StoredMessage>, NatsError> {
        self.message(stream, &json!({ "last_by_subj": subject })).await
    }

    /// The first message from sequence number `from` whose subject is as `filter` says.
    pub(crate) async fn next(
        &self,
        stream: &str,
        filter: &str,
        from: u64,
    ) -> Result<Option<StoredMessage>, NatsError> {
        self.message(stream, &json!({ "seq": from.max(1), "next_by_subj": filter })).await
    }

    /// `None` if there is none, or no such stream yet.
    async fn message(&self, stream: &str, body: &Value) -> Result<Option<StoredMessage>, NatsError> {
        let subject = format!("$JS.API.STREAM.MSG.GET.{stream}");
        let message = match self.api::<Found>(&subject, body).await {
            Ok(found) => found.message,
            Err(NatsError::Absent { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = |text: &str| {
            units::from_base64(text).ok_or_else(|| NatsError::Corrupt {
                what: PeerText::from(message.subject.as_str()),
                reason: "the answer is not in base 64".into(),
            })
        };
        let (headers, payload) = (bytes(&message.hdrs)?, bytes(&message.data)?);
        let is_mark = h2lab_base::text::printable(&headers).contains("KV-Operation");
        Ok(Some(StoredMessage { subject: message.subject, sequence: message.seq, payload, is_mark }))
    }

    /// The next message like [`Link::next`], as bytes: for large ones. The stream must be there.
    pub(crate) async fn direct(
        &self,
        stream: &str,
        filter: &str,
        from: u64,
    ) -> Result<Option<(u64, Bytes)>, NatsError> {
        let subject = format!("$JS.API.DIRECT.GET.{stream}");
        let body = json!({ "seq": from.max(1), "next_by_subj": filter }).to_string();
        let mut absences = 0;
        let message = loop {
            if let Some(message) = self.request(&subject, None, body.clone().into()).await? {
                break message;
            }
            absences += 1;
            self.believe(absences, &subject)?;
            sleep(PAUSE).await;
        };
        let reason = match message.status.map(|status| status.as_u16()) {
            None => {
                let sequence = message.headers.as_ref().and_then(|headers| headers.get("Nats-Sequence"));
                match sequence.and_then(|sequence| sequence.as_str().parse().ok()) {
                    Some(sequence) => return Ok(Some((sequence, message.payload))),
                    None => PeerText::from("the answer has no sequence number"),
                }
            }
            Some(404) => return Ok(None),
            Some(_) => PeerText::from(message.description.as_deref().unwrap_or("no reason")),
        };
        Err(NatsError::Other { what: subject.as_str().into(), reason })
    }

    /// Deletes all messages of a stream whose subject is as `filter` says. Many may take longer than any deadline:
    /// [`crate::Nats::purge`] has one for each.
    pub(crate) async fn purge(&self, stream: &str, filter: &str) -> Result<(), NatsError> {
        let mut from = 1;
        while let Some(next) = self.purge_step(stream, filter, from).await? {
            from = next;
        }
        Ok(())
    }

    /// A step of [`Link::purge`]: deletes what it finds first from sequence number `from` on; where the next step begins,
    /// `None` if nothing is left. Newer servers need one step, older ones one for each message.
    pub(crate) async fn purge_step(
        &self,
        stream: &str,
        filter: &str,
        from: u64,
    ) -> Result<Option<u64>, NatsError> {
        let (major, minor, patch) = PURGES_WHOLE;
        if !self.client.is_server_compatible(major, minor, patch) {
            let Some(sequence) = self.sequence(stream, filter, from).await? else { return Ok(None) };
            let subject = format!("$JS.API.STREAM.MSG.DELETE.{stream}");
            let body = json!({ "seq": sequence, "no_erase": true });
            match self.done(&subject, &body).await {
                Ok(()) => return Ok(Some(sequence.saturating_add(1))),
                Err(NatsError::Other { reason, .. })
                    if NO_MESSAGE.iter().any(|words| reason.contains(words)) =>
                {
                    return Ok(Some(sequence.saturating_add(1)));
                }
                // Its administrator may have forbidden to delete single messages. What is purged counts for the account, but is gone.
                Err(NatsError::Other { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.done(&format!("$JS.API.STREAM.PURGE.{stream}"), &json!({ "filter": filter })).await?;
        Ok(None)
    }

    /// The sequence number of the message that [`Link::next`] gives. Those of parts come as bytes: there may be gigabytes, which
    /// would be read again in base 64.
    async fn sequence(&self, stream: &str, filter: &str, from: u64) -> Result<Option<u64>, NatsError> {
        if stream != streams::PARTS_STREAM {
            return Ok(self.next(stream, filter, from).await?.map(|message| message.sequence));
        }
        match self.direct(stream, filter, from).await {
            Ok(message) => Ok(message.map(|(sequence, _)| sequence)),
            // No such stream yet.
            Err(NatsError::Absent { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for something to be deleted. What is not there is deleted already.
    pub(crate) async fn done(&self, subject: &str, body: &Value) -> Result<(), NatsError> {
        match self.api::<Done>(subject, body).await {
            Ok(Done { success: true }) | Err(NatsError::Absent { .. }) => Ok(()),
            Ok(Done { success: false }) => {
                Err(NatsError::Other { what: subject.into(), reason: "it was not done".into() })
            }
            Err(error) => Err(error),
        }
    }

    /// The subjects of a stream's messages that are as `filter` says.
    pub(crate) async fn subjects(&self, stream: &str, filter: &str) -> Result<Vec<String>, NatsError> {
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        let mut subjects = Vec::new();
        loop {
            let body = json!({ "subjects_filter": filter, "offset": subjects.len() });
            let info: Info = match self.api(&subject, &body).await {
                Err(NatsError::Absent { .. }) => return Ok(subjects),
                info => info?,
            };
            let more = info.state.subjects.unwrap_or_default();
            let is_last = more.is_empty() || subjects.len() as u64 + more.len() as u64 >= info.total;
            subjects.extend(more.into_keys());
            if is_last {
                return Ok(subjects);
            }
        }
    }

    /// Creates a stream if it is absent; fails if the one that is there does not serve.
    pub(crate) async fn set_up(&self, stream: &str, config: &Value) -> Result<(), NatsError> {
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        match self.ask::<Info>(&subject, None, Bytes::new()).await {
            Ok(info) => match streams::mismatch(&info.config, config) {
                Some(reason) => {
                    let what = format!("the stream {stream}");
                    Err(NatsError::Other { what: what.as_str().into(), reason: reason.as_str().into() })
                }
                None => Ok(()),
            },
            Err(NatsError::Absent { .. }) => {
                let _created: Info = self.api(&format!("$JS.API.STREAM.CREATE.{stream}"), config).await?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// One header. Neither may have a line break: both are made here.
fn header(name: &str, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(name, value);
    headers
}

/// What an answer says; `None` if it is an error that passes.
fn read<T: DeserializeOwned>(subject: &str, payload: &[u8]) -> Result<Option<T>, NatsError> {
    let unreadable = |error: serde_json::Error| NatsError::Other {
        what: subject.into(),
        reason: format!("its answer cannot be read: {error}").as_str().into(),
    };
    let answer: Answer = serde_json::from_slice(payload).map_err(unreadable)?;
    match answer.error {
        Some(error) => error.lasting(subject).map_or(Ok(None), Err),
        None => serde_json::from_slice(payload).map(Some).map_err(unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u32, description: &str) -> Result<Option<Done>, NatsError> {
        let answer = json!({ "error": { "code": 503, "err_code": code, "description": description } });
        read("$JS.API.X", answer.to_string().as_bytes())
    }

    #[test]
    fn errors_are_told_apart_by_their_number() {
        assert!(matches!(error(10_076, ""), Err(NatsError::NoJetStream)));
        assert!(matches!(error(10_059, "stream not found"), Err(NatsError::Absent { .. })));
        assert!(matches!(error(10_047, "storage"), Err(NatsError::Quota { .. })));
        assert!(matches!(error(10_077, "maximum bytes exceeded"), Err(NatsError::Quota { .. })));
        assert!(matches!(error(10_077, "stream closed"), Err(NatsError::Other { .. })));
        assert!(matches!(error(10_058, "in use"), Err(NatsError::Other { .. })));
    }

    #[test]
    fn what_passes_is_no_error() {
        assert!(matches!(error(10_008, "cluster"), Ok(None)));
    }

    #[test]
    fn an_answer_that_is_no_json_or_another_document_is_an_error() {
        for bad in ["", "x", "{}", "[]", "{\"success\":1}"] {
            assert!(matches!(read::<Done>("s", bad.as_bytes()), Err(NatsError::Other { .. })), "{bad}");
        }
        assert!(matches!(read("s", b"{\"success\":true}"), Ok(Some(Done { success: true }))));
    }
}
