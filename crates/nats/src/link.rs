//! Requests over a connection that may end and come back meanwhile.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, HeaderMap, Message, Request, RequestErrorKind, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use h2lab_base::text::PeerText;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout};

use crate::NatsError;
use crate::events::{Denial, Shared};
use crate::outgoing::Outgoing;

/// How long one attempt of a request waits for its answer. Then it is made again: whoever answers may have lost it.
const ATTEMPT: Duration = Duration::from_secs(4);

/// What futures on the runtime need of a connection. It does not keep the runtime alive.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    pub(crate) outgoing: Outgoing,
}

/// How one attempt of a request ended.
pub(crate) enum Attempt {
    /// With an answer.
    Answer(Message),
    /// Nobody subscribes to the subject.
    Nobody,
    /// No answer in time.
    Silence,
    /// The connection was made anew: an answer will not come.
    Lost,
}

/// Forgets a subscription when it is dropped.
pub(crate) struct Registered {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.unsubscribed(self.number);
    }
}

impl Link {
    /// Waits until the connection is up; which one it is.
    pub(crate) async fn connected(&self) -> Result<u64, NatsError> {
        let mut states = self.shared.state.subscribe();
        let state = *states.wait_for(|state| state.is_connected).await.map_err(|_| NatsError::Gone)?;
        if state.is_inbox_denied {
            return Err(NatsError::denied(&format!("{}.>", self.shared.inbox)));
        }
        Ok(state.connections)
    }

    /// Waits for the connection after this one, or until it is known that no answer can come on this one.
    async fn lost(&self, connection: u64) {
        let mut states = self.shared.state.subscribe();
        let is_over =
            states.wait_for(|state| state.connections != connection || state.is_inbox_denied).await.is_err();
        if is_over {
            std::future::pending::<()>().await;
        }
    }

    /// Asks once, and waits at most `patience` for the answer.
    pub(crate) async fn attempt(
        &self,
        subject: &str,
        headers: Option<&HeaderMap>,
        payload: Bytes,
        patience: Duration,
    ) -> Result<Attempt, NatsError> {
        let bytes = payload.len();
        let connection = self.connected().await?;
        let mut denials = self.shared.denials.subscribe();
        let request = Request::new().payload(payload).timeout(Some(patience));
        let request = match headers {
            Some(headers) => request.headers(headers.clone()),
            None => request,
        };
        let answer = tokio::select! {
            biased;
            () = denied(&mut denials, true, subject) => return Err(NatsError::denied(subject)),
            answer = self.client.send_request(Subject::from(subject), request) => answer,
            () = self.lost(connection) => return Ok(Attempt::Lost),
        };
        match answer {
            Ok(message) => Ok(Attempt::Answer(message)),
            Err(error) => match error.kind() {
                RequestErrorKind::TimedOut => Ok(Attempt::Silence),
                RequestErrorKind::NoResponders => Ok(Attempt::Nobody),
                RequestErrorKind::MaxPayloadExceeded => Err(self.too_large(subject, bytes)),
                RequestErrorKind::InvalidSubject => {
                    Err(NatsError::invalid(subject, "it must be a subject: words with dots between"))
                }
                RequestErrorKind::Other => Err(NatsError::Gone),
            },
        }
    }

    /// Asks once for what a stream has, as [`Link::attempt`] does. JetStream delivers it under the subject that it is stored
    /// with, so that the client cannot find the request by the answer's subject: each has a subscription of its own.
    pub(crate) async fn pull(
        &self,
        subject: &str,
        payload: Bytes,
        patience: Duration,
    ) -> Result<Attempt, NatsError> {
        let connection = self.connected().await?;
        let mut denials = self.shared.denials.subscribe();
        let inbox = self.client.new_inbox();
        let (_registered, mut answers) = self.subscribe(&inbox).await?;
        let published = self.client.publish_with_reply(Subject::from(subject), Subject::from(inbox), payload);
        published.await.map_err(|_| NatsError::Gone)?;
        let answer = tokio::select! {
            biased;
            () = denied(&mut denials, true, subject) => return Err(NatsError::denied(subject)),
            answer = timeout(patience, answers.next()) => answer,
            () = self.lost(connection) => return Ok(Attempt::Lost),
        };
        Ok(match answer {
            Err(_) => Attempt::Silence,
            Ok(None) => return Err(NatsError::Gone),
            Ok(Some(message))
                if message.status == Some(StatusCode::NO_RESPONDERS) && message.description.is_none() =>
            {
                Attempt::Nobody
            }
            Ok(Some(message)) => Attempt::Answer(message),
        })
    }

    /// Asks until there is an answer; `None` if nobody subscribes to the subject.
    pub(crate) async fn request(
        &self,
        subject: &str,
        headers: Option<&HeaderMap>,
        payload: Bytes,
    ) -> Result<Option<Message>, NatsError> {
        loop {
            match self.attempt(subject, headers, payload.clone(), ATTEMPT).await? {
                Attempt::Answer(message) => return Ok(Some(message)),
                Attempt::Nobody => return Ok(None),
                Attempt::Silence | Attempt::Lost => {}
            }
        }
    }

    /// A payload of so many bytes is beyond what the server takes.
    pub(crate) fn too_large(&self, subject: &str, bytes: usize) -> NatsError {
        NatsError::TooLarge {
            what: PeerText::from(format!("a message to `{subject}`").as_str()),
            bytes: bytes as u64,
            most: self.client.max_payload() as u64,
        }
    }

    /// Subscribes. Only on the runtime's thread, where nothing comes between the two counts of subscriptions.
    pub(crate) async fn subscribe(&self, subject: &str) -> Result<(Registered, Subscriber), NatsError> {
        let registered =
            Registered { shared: Arc::clone(&self.shared), number: self.shared.subscribing(subject) };
        let subscriber = self.client.subscribe(Subject::from(subject)).await.map_err(|_| NatsError::Gone)?;
        Ok((registered, subscriber))
    }

    /// A message to ourselves behind everything published before, and how long it took. Where we may not publish to
    /// our own inbox, the refusal tells as well that the server has read everything before it.
    pub(crate) async fn round_trip(&self) -> Result<Duration, NatsError> {
        loop {
            let connection = self.connected().await?;
            let mut denials = self.shared.denials.subscribe();
            let (subject, number, back) = self.shared.begin_echo();
            let began = Instant::now();
            self.outgoing.push(&subject, number.to_le_bytes().to_vec())?;
            tokio::select! {
                biased;
                () = denied(&mut denials, true, &subject) => return Ok(began.elapsed()),
                // No error: the sender is kept until it has sent.
                _ = back => return Ok(began.elapsed()),
                () = self.lost(connection) => {}
            }
        }
    }
}

/// Waits until the server says that it does not permit this.
pub(crate) async fn denied(denials: &mut Receiver<Denial>, is_publish: bool, subject: &str) {
    loop {
        match denials.recv().await {
            Ok(denial) if denial.is_publish == is_publish && denial.subject == subject => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
