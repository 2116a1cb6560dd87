//! The connection as other crates see it.

use std::future::{Future, ready};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions};
use futures_util::StreamExt as _;
use h2lab_base::text::PeerText;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::events::Shared;
use crate::link::{Link, denied};
use crate::runtime::Runtime;
use crate::{Cells, Event, NatsError, Parts, Reports, Runs, ServerOptions, outgoing, tokens};

/// How long an operation may take that is not given a time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// How long [`Nats::server`] waits for a round trip.
const ROUND_TRIP_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two attempts to connect for the first time.
const PAUSE: Duration = Duration::from_millis(250);

/// A connection to a NATS server; clones share it. It ends when the last clone is
/// dropped, and with it what was published and not flushed.
#[derive(Clone)]
pub struct Nats {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    runtime: Runtime,
    /// Whether a task sets the server up again after each further connection.
    is_set_up_again: AtomicBool,
}

/// What a server says in its INFO message.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    /// Its name.
    pub name: PeerText,
    /// Its version, such as `2.9.10`.
    pub version: PeerText,
    /// The most bytes of one message.
    pub max_payload: usize,
    /// Whether JetStream is on there.
    pub has_jetstream: bool,
    /// From here to the server and back; `None` if that took longer than 2 s.
    pub round_trip: Option<Duration>,
}

/// A subscription, which ends when this is dropped.
pub struct Subscription {
    task: AbortHandle,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // With the task goes its subscriber, which unsubscribes.
        self.task.abort();
    }
}

impl Nats {
    /// Connects. The first connection is waited for at most [`ServerOptions::timeout`]: a server that starts
    /// meanwhile is found. When the connection ends later, it is made again, for ever, and subscriptions with it.
    pub fn connect(options: &ServerOptions) -> Result<Self, NatsError> {
        options.check()?;
        let shared = Arc::new(Shared::new(options.inbox(), options.shown()));
        let listener = Arc::clone(&shared);
        let connect_options = options.connect_options()?.event_callback(move |event| {
            listener.take(&event);
            ready(())
        });
        let runtime = Runtime::start().map_err(|error| NatsError::Other {
            what: "a thread".into(),
            reason: error.to_string().as_str().into(),
        })?;
        let (servers, shown, patience) = (options.servers.clone(), options.shown(), options.timeout);
        let client =
            runtime.wait(async move { first_connection(connect_options, servers, shown, patience).await })?;
        let (outgoing, queue) = outgoing::queue();
        runtime.spawn(queue.run(client.clone()));
        let link = Link { client, shared, outgoing };
        let nats = Self { inner: Arc::new(Inner { link, runtime, is_set_up_again: AtomicBool::new(false) }) };
        nats.receive_echoes()?;
        Ok(nats)
    }

    /// Subscribes to where round trips come back.
    fn receive_echoes(&self) -> Result<(), NatsError> {
        self.wait("to a subscription", DEADLINE, |link| async move {
            let subject = link.client.new_inbox();
            let (registered, mut subscriber) = link.subscribe(&subject).await?;
            link.shared.set_echo(&subject);
            let shared = Arc::clone(&link.shared);
            tokio::spawn(async move {
                let _registered = registered;
                while let Some(message) = subscriber.next().await {
                    shared.end_echo(&message.payload);
                }
            });
            Ok(())
        })
    }

    /// `f` gets what happens to the connection from now on, on the connection's thread: it must not block, and must
    /// not hold a [`Nats`], which would then never end.
    pub fn on_event(&self, mut f: impl FnMut(Event) + Send + 'static) {
        self.inner.link.shared.listen(Box::new(move |event: &Event| f(event.clone())));
    }

    /// Whether the connection is up.
    pub fn is_connected(&self) -> bool {
        self.inner.link.client.connection_state() == State::Connected
    }

    /// Sends a message, sometime: this never waits. It may be lost when the connection ends. While the connection is
    /// down, at most 64 MiB wait; then this is [`NatsError::Full`].
    pub fn publish(&self, subject: &str, payload: Vec<u8>) -> Result<(), NatsError> {
        tokens::subject(subject, false)?;
        if payload.len() > self.max_payload() {
            return Err(self.inner.link.too_large(subject, payload.len()));
        }
        self.inner.link.outgoing.push(subject, payload)
    }

    /// Calls `deliver` with each message to `subject`, which may have wildcards. It runs on the connection's thread
    /// and must not block, and must not hold a [`Nats`], which would then never end: give it a channel. What the
    /// server does not permit is [`NatsError::Denied`].
    pub fn subscribe(
        &self,
        subject: &str,
        mut deliver: impl FnMut(&str, &[u8]) + Send + 'static,
    ) -> Result<Subscription, NatsError> {
        tokens::subject(subject, true)?;
        let subject = subject.to_owned();
        let task = self.wait(&format!("to a subscription to `{subject}`"), DEADLINE, |link| async move {
            link.connected().await?;
            let mut denials = link.shared.denials.subscribe();
            let (registered, mut subscriber) = link.subscribe(&subject).await?;
            // The server answers a subscription only if it refuses it: then before it answers what follows.
            tokio::select! {
                biased;
                () = denied(&mut denials, false, &subject) => return Err(NatsError::denied(&subject)),
                trip = link.round_trip() => { trip?; }
            }
            let task = tokio::spawn(async move {
                let _registered = registered;
                while let Some(message) = subscriber.next().await {
                    deliver(&message.subject, &message.payload);
                }
            });
            Ok(task.abort_handle())
        })?;
        Ok(Subscription { task })
    }

    /// Waits until the server has taken everything published before, at most `timeout`. What was under way when the
    /// connection ended meanwhile is lost nevertheless.
    pub fn flush(&self, timeout: Duration) -> Result<(), NatsError> {
        self.round_trip(timeout).map(drop)
    }

    fn round_trip(&self, timeout: Duration) -> Result<Duration, NatsError> {
        self.wait("to a round trip to the server", timeout, |link| async move { link.round_trip().await })
    }

    /// The most bytes of one message that the server takes.
    pub fn max_payload(&self) -> usize {
        self.inner.link.client.max_payload()
    }

    /// What the server tells of itself.
    pub fn server(&self) -> ServerFacts {
        let info = self.inner.link.client.server_info();
        ServerFacts {
            name: info.server_name.as_str().into(),
            version: info.version.as_str().into(),
            max_payload: self.max_payload(),
            has_jetstream: info.jetstream,
            round_trip: self.round_trip(ROUND_TRIP_TIMEOUT).ok(),
        }
    }

    /// Creates the streams, the bucket and the object store, if they are absent. Only drivers need this, and its
    /// permissions: `$JS.API.STREAM.INFO.*` and `$JS.API.STREAM.CREATE.*`. What an administrator created, with limits
    /// of his own, is taken as it is, if it can serve. From then on this is done again after each further connection: the
    /// server may come back without what it stored, and agents may not create streams.
    pub fn setup(&self) -> Result<(), NatsError> {
        let connection = self.inner.link.shared.state.borrow().connections;
        for (stream, config) in crate::streams::configs() {
            let what = format!("to a request to create the stream {stream}");
            self.wait(&what, DEADLINE, |link| async move { link.set_up(stream, &config).await })?;
        }
        if !self.inner.is_set_up_again.swap(true, Ordering::Relaxed) {
            self.inner.runtime.spawn(set_up_again(self.inner.link.clone(), connection));
        }
        Ok(())
    }

    /// The parts: files in the object store.
    pub fn parts(&self) -> Parts {
        Parts::new(self.clone())
    }

    /// The queue of units.
    pub fn cells(&self) -> Cells {
        Cells::new(self.clone())
    }

    /// The reports of units.
    pub fn reports(&self) -> Reports {
        Reports::new(self.clone())
    }

    /// The open runs.
    pub fn runs(&self) -> Runs {
        Runs::new(self.clone())
    }

    /// Deletes all messages of a stream whose subject is as `filter` says. There may be hundreds, and older servers delete
    /// them one by one: each step is waited for at most 10 s.
    pub(crate) fn purge(&self, stream: &'static str, filter: &str) -> Result<(), NatsError> {
        let mut from = Some(1);
        while let Some(first) = from {
            let filter = filter.to_owned();
            let step = |link: Link| async move { link.purge_step(stream, &filter, first).await };
            from = self.wait("to a purge", DEADLINE, step)?;
        }
        Ok(())
    }

    /// A name that nobody can guess.
    pub(crate) fn unpredictable(&self) -> String {
        let inbox = self.inner.link.client.new_inbox();
        inbox.rsplit('.').next().unwrap_or_default().to_owned()
    }

    /// Runs an operation on the connection's thread and waits for it, at most until the deadline. `what` follows "did
    /// not answer".
    pub(crate) fn wait<T, F>(
        &self,
        what: &str,
        deadline: Duration,
        operation: impl FnOnce(Link) -> F,
    ) -> Result<T, NatsError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, NatsError>> + Send + 'static,
    {
        let link = self.inner.link.clone();
        let shared = Arc::clone(&link.shared);
        let what = what.to_owned();
        let future = operation(link);
        self.inner.runtime.wait(async move {
            match timeout(deadline, future).await {
                Ok(result) => result,
                Err(_) if shared.state.borrow().is_connected => {
                    Err(NatsError::Timeout { what, after: deadline })
                }
                Err(_) => Err(NatsError::Unreachable {
                    servers: shared.servers.clone(),
                    reason: "disconnected, and not connected again yet".into(),
                }),
            }
        })
    }
}

/// Sets the server up after each further connection than this one: see [`Nats::setup`]. An error is not reported here: whoever
/// needs the stream gets one.
async fn set_up_again(link: Link, mut connection: u64) {
    let mut states = link.shared.state.subscribe();
    loop {
        let is_back = states.wait_for(|state| state.is_connected && state.connections != connection).await;
        let Ok(state) = is_back.map(|state| *state) else { return };
        connection = state.connections;
        for (stream, config) in crate::streams::configs() {
            let _: Result<_, _> = timeout(DEADLINE, link.set_up(stream, &config)).await;
        }
    }
}

/// Tries until there is a connection, or a reason that does not pass.
async fn first_connection(
    options: ConnectOptions,
    servers: Vec<String>,
    shown: String,
    patience: Duration,
) -> Result<Client, NatsError> {
    let mut reason = PeerText::from("no answer");
    let attempts = async {
        loop {
            let error = match options.clone().connect(servers.clone()).await {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            reason = in_words(&error);
            if let Some(error) = lasting(&error, &shown) {
                return Err(error);
            }
            sleep(PAUSE).await;
        }
    };
    let result = timeout(patience, attempts).await;
    result.unwrap_or_else(|_| Err(NatsError::Unreachable { servers: shown, reason }))
}

/// The reason that another attempt would fail, too.
fn lasting(error: &ConnectError, servers: &str) -> Option<NatsError> {
    let servers = servers.to_owned();
    let reason = in_words(error);
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            Some(NatsError::Refused { servers, reason })
        }
        ConnectErrorKind::Tls => Some(NatsError::Tls { servers, reason }),
        ConnectErrorKind::ServerParse => {
            Some(NatsError::invalid(&servers, "it must be nats://host:port or tls://host:port"))
        }
        ConnectErrorKind::Io if is_of_tls(error) => Some(NatsError::Tls { servers, reason }),
        // Such as `User Authentication Expired` and `Account Authentication Expired`.
        ConnectErrorKind::Io if reason.to_lowercase().contains("authentication") => {
            Some(NatsError::Refused { servers, reason })
        }
        ConnectErrorKind::Io
        | ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::MaxReconnects => None,
    }
}

/// Whether it was TLS that failed: async-nats tells of it as of any other error of a socket.
fn is_of_tls(error: &ConnectError) -> bool {
    of_tls(error).is_some()
}

/// The error of the socket, if it was that.
fn of_socket(error: &ConnectError) -> Option<&io::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// The error of TLS, if it was that.
fn of_tls(error: &ConnectError) -> Option<&async_nats::rustls::Error> {
    of_socket(error)?.get_ref()?.downcast_ref()
}

/// Why an attempt has failed: what happens most, in words that say what to do.
fn in_words(error: &ConnectError) -> PeerText {
    // A server in clear answers a handshake with a line of text.
    if matches!(of_tls(error), Some(async_nats::rustls::Error::InvalidMessage(_))) {
        return "the server offers no TLS here: give nats://, or enable TLS at the server".into();
    }
    if of_socket(error).is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        return "nothing listens there (connection refused)".into();
    }
    // The server's own words say the kind of the error once more.
    let (words, kind) = (error.to_string(), error.kind().to_string());
    let own = words.strip_prefix(&kind).and_then(|rest| rest.strip_prefix(": "));
    let own = own.map(|own| own.strip_prefix("nats: ").unwrap_or(own));
    own.filter(|own| own.to_lowercase().contains(&kind)).unwrap_or(&words).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pass_is_told_from_what_does() {
        let of = |kind, text: &str| lasting(&ConnectError::with_source(kind, text.to_owned()), "nats://a");
        assert!(matches!(of(ConnectErrorKind::AuthorizationViolation, ""), Some(NatsError::Refused { .. })));
        let expired = of(ConnectErrorKind::Io, "nats: User Authentication Expired");
        assert!(matches!(expired, Some(NatsError::Refused { .. })));
        for passing in [ConnectErrorKind::Io, ConnectErrorKind::Dns, ConnectErrorKind::TimedOut] {
            assert!(of(passing, "connection refused").is_none(), "{passing}");
        }
    }

    #[test]
    fn an_error_of_tls_is_told_from_another_of_the_socket() {
        let of = |error| lasting(&ConnectError::with_source(ConnectErrorKind::Io, error), "tls://a");
        let tls = async_nats::rustls::Error::DecryptError;
        let error = of(io::Error::new(io::ErrorKind::InvalidData, tls));
        assert!(matches!(error, Some(NatsError::Tls { .. })));
        assert!(of(io::Error::from(io::ErrorKind::ConnectionRefused)).is_none());
    }

    #[test]
    fn what_happens_most_is_said_in_words() {
        let of = |error| in_words(&ConnectError::with_source(ConnectErrorKind::Io, error)).to_string();
        let refused = of(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(refused.contains("nothing listens there"), "{refused}");
        let clear =
            async_nats::rustls::Error::InvalidMessage(async_nats::rustls::InvalidMessage::InvalidContentType);
        let clear = of(io::Error::new(io::ErrorKind::InvalidData, clear));
        assert!(clear.contains("no TLS here"), "{clear}");
        let violation = "nats: authorization violation".to_owned();
        let twice = ConnectError::with_source(ConnectErrorKind::AuthorizationViolation, violation);
        assert_eq!(in_words(&twice).to_string(), "authorization violation");
        let other = of(io::Error::other("what else"));
        assert!(other.contains("what else"), "{other}");
    }
}
