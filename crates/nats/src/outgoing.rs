//! Messages on their way out, of which a bounded number of bytes waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_nats::{Client, Subject};
use bytes::Bytes;
use tokio::sync::mpsc;

use crate::NatsError;

/// The most bytes that wait.
const MOST: usize = 64 << 20;
/// What one message takes beside its subject and payload.
const OVERHEAD: usize = 128;

/// One message.
struct Message {
    subject: Subject,
    payload: Bytes,
    bytes: usize,
}

/// The queue's end of whoever publishes.
#[derive(Clone)]
pub(crate) struct Outgoing {
    sender: mpsc::UnboundedSender<Message>,
    waiting: Arc<AtomicUsize>,
}

/// The queue's other end.
pub(crate) struct Queue {
    receiver: mpsc::UnboundedReceiver<Message>,
    waiting: Arc<AtomicUsize>,
}

/// An empty queue.
pub(crate) fn queue() -> (Outgoing, Queue) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Outgoing { sender, waiting: Arc::clone(&waiting) }, Queue { receiver, waiting })
}

impl Outgoing {
    /// Adds a message, if it fits; never waits.
    pub(crate) fn push(&self, subject: &str, payload: Vec<u8>) -> Result<(), NatsError> {
        let bytes = OVERHEAD + subject.len() + payload.len();
        let fits = |waiting: usize| waiting.checked_add(bytes).filter(|waiting| *waiting <= MOST);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| NatsError::Full)?;
        let message = Message { subject: Subject::from(subject), payload: payload.into(), bytes };
        self.sender.send(message).map_err(|_| NatsError::Gone)
    }
}

impl Queue {
    /// Hands messages to the connection, which takes no more while it is down, until either is gone.
    pub(crate) async fn run(mut self, client: Client) {
        while let Some(message) = self.receiver.recv().await {
            let result = client.publish(message.subject, message.payload).await;
            self.waiting.fetch_sub(message.bytes, Ordering::Relaxed);
            // Subjects and sizes were checked; unless the limit has shrunk since, the client has ended. A message
            // that is lost is what core NATS promises, so that only the end is one.
            if result.is_err_and(|error| error.kind() == async_nats::PublishErrorKind::Send) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let (outgoing, queue) = queue();
        let half = MOST / 2 - OVERHEAD - 1;
        assert!(outgoing.push("a", vec![0; half]).is_ok());
        assert!(matches!(outgoing.push("a", vec![0; half + 1]), Err(NatsError::Full)));
        assert!(outgoing.push("a", vec![0; half]).is_ok());
        assert!(matches!(outgoing.push("a", Vec::new()), Err(NatsError::Full)));
        drop(queue);
    }

    #[test]
    fn nothing_is_taken_when_nobody_sends_it() {
        let (outgoing, queue) = queue();
        drop(queue);
        assert!(matches!(outgoing.push("a", Vec::new()), Err(NatsError::Gone)));
    }
}
