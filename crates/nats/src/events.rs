//! What happens to the connection by itself: it ends and comes back, a permission is missing, a subscriber is too slow.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_nats::ServerError;
use h2lab_base::text::PeerText;
use tokio::sync::{broadcast, oneshot, watch};

/// Denials that one waiting request may be behind.
const DENIALS: usize = 256;

/// What happened to the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It is up (again).
    Connected,
    /// It is down; it is dialled again until it is up.
    Disconnected,
    /// Messages to this subscription were lost, since what takes them is too slow.
    SlowConsumer {
        /// What was subscribed to.
        subject: PeerText,
    },
    /// The server does not permit a subject that was published or subscribed to.
    Denied {
        /// Which.
        subject: PeerText,
    },
    /// Anything else that the server or the connection says.
    Error {
        /// Its words.
        text: PeerText,
    },
}

/// What the server did not permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    /// Publishing, not subscribing.
    pub(crate) is_publish: bool,
    /// The subject as the server writes it.
    pub(crate) subject: String,
}

/// Whether the connection is up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// It is.
    pub(crate) is_connected: bool,
    /// Connections until now: what was asked on an earlier one gets no answer.
    pub(crate) connections: u64,
    /// The server does not let us subscribe to our own inbox: no request gets an answer.
    pub(crate) is_inbox_denied: bool,
}

type Listener = Box<dyn FnMut(&Event) + Send>;

/// What the runtime's tasks and the callers share.
pub(crate) struct Shared {
    /// See [`crate::ServerOptions::inbox`].
    pub(crate) inbox: String,
    /// The servers for messages.
    pub(crate) servers: String,
    /// Whether the connection is up.
    pub(crate) state: watch::Sender<State>,
    /// What the server did not permit.
    pub(crate) denials: broadcast::Sender<Denial>,
    listeners: Mutex<Vec<Listener>>,
    subscriptions: Mutex<Subscriptions>,
    echoes: Mutex<Echoes>,
}

/// Subjects by the numbers that async-nats gives its subscriptions, of which it tells nothing but in its events.
#[derive(Default)]
struct Subscriptions {
    made: u64,
    subjects: BTreeMap<u64, String>,
}

/// Round trips under way.
#[derive(Default)]
struct Echoes {
    made: u64,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    /// Where they come back.
    subject: String,
}

impl Shared {
    pub(crate) fn new(inbox: String, servers: String) -> Self {
        Self {
            inbox,
            servers,
            state: watch::Sender::new(State::default()),
            denials: broadcast::Sender::new(DENIALS),
            listeners: Mutex::default(),
            subscriptions: Mutex::default(),
            echoes: Mutex::default(),
        }
    }

    /// `listener` gets what happens from now on.
    pub(crate) fn listen(&self, listener: Listener) {
        locked(&self.listeners).push(listener);
    }

    /// Notes a subscription just before async-nats makes it; they are counted alike, from 1.
    pub(crate) fn subscribing(&self, subject: &str) -> u64 {
        let mut subscriptions = locked(&self.subscriptions);
        subscriptions.made += 1;
        let number = subscriptions.made;
        subscriptions.subjects.insert(number, subject.to_owned());
        number
    }

    /// Forgets a subscription that has ended.
    pub(crate) fn unsubscribed(&self, number: u64) {
        locked(&self.subscriptions).subjects.remove(&number);
    }

    /// Where round trips come back from now on.
    pub(crate) fn set_echo(&self, subject: &str) {
        subject.clone_into(&mut locked(&self.echoes).subject);
    }

    /// Begins a round trip: its subject, its number, and what resolves when it is back.
    pub(crate) fn begin_echo(&self) -> (String, u64, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let mut echoes = locked(&self.echoes);
        echoes.made += 1;
        let number = echoes.made;
        echoes.waiting.retain(|_, waiting| !waiting.is_closed());
        echoes.waiting.insert(number, sender);
        (echoes.subject.clone(), number, receiver)
    }

    /// A round trip is back.
    pub(crate) fn end_echo(&self, payload: &[u8]) {
        let number = <[u8; 8]>::try_from(payload).map(u64::from_le_bytes);
        let waiting = number.ok().and_then(|number| locked(&self.echoes).waiting.remove(&number));
        // An error means that nobody waits any more.
        let _: Option<Result<(), ()>> = waiting.map(|waiting| waiting.send(()));
    }

    /// Takes an event of async-nats. Called on the runtime's thread.
    pub(crate) fn take(&self, event: &async_nats::Event) {
        let event = match event {
            async_nats::Event::Connected => {
                self.state.send_modify(|state| {
                    *state = State {
                        is_connected: true,
                        connections: state.connections + 1,
                        is_inbox_denied: false,
                    };
                });
                Event::Connected
            }
            async_nats::Event::Disconnected | async_nats::Event::Closed => {
                self.state.send_modify(|state| state.is_connected = false);
                Event::Disconnected
            }
            async_nats::Event::SlowConsumer(number) => {
                let subject = locked(&self.subscriptions).subjects.get(number).cloned().unwrap_or_default();
                Event::SlowConsumer { subject: subject.as_str().into() }
            }
            async_nats::Event::ServerError(ServerError::Other(text)) => match denial(text) {
                Some(denial) => match self.denied(denial) {
                    Some(event) => event,
                    None => return,
                },
                None => Event::Error { text: text.as_str().into() },
            },
            other => Event::Error { text: other.to_string().as_str().into() },
        };
        self.tell(&event);
    }

    /// Tells whoever waits for what the server did not permit; `None` if nobody else need know.
    fn denied(&self, denial: Denial) -> Option<Event> {
        let is_inbox = denial.subject.strip_prefix(&self.inbox).is_some_and(|rest| rest.starts_with('.'));
        if is_inbox && !denial.is_publish {
            self.state.send_modify(|state| state.is_inbox_denied = true);
        }
        let event = Event::Denied { subject: denial.subject.as_str().into() };
        let is_echo = denial.is_publish && denial.subject == locked(&self.echoes).subject;
        // An error means that nobody waits.
        let _: Result<_, _> = self.denials.send(denial);
        (!is_echo).then_some(event)
    }

    /// The lock is not held meanwhile: a listener may add another.
    fn tell(&self, event: &Event) {
        let mut listeners = mem::take(&mut *locked(&self.listeners));
        for listener in &mut listeners {
            listener(event);
        }
        let mut added = locked(&self.listeners);
        listeners.append(&mut added);
        *added = listeners;
    }
}

/// Nothing behind these locks is left half changed by a panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The subject that an error of the server speaks of: `Permissions Violation for Publish to "a.b"`, or `… for
/// Subscription to "a.b" using queue "q"`.
fn denial(text: &str) -> Option<Denial> {
    let rest = text.trim_matches('\'').strip_prefix("Permissions Violation for ")?;
    let (what, rest) = rest.split_once(" to \"")?;
    let (subject, _) = rest.split_once('"')?;
    Some(Denial { is_publish: what == "Publish", subject: subject.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn shared() -> (Shared, Arc<Mutex<Vec<Event>>>) {
        let shared = Shared::new("_INBOX_a".to_owned(), "nats://a".to_owned());
        let seen = Arc::new(Mutex::<Vec<Event>>::default());
        let listener = Arc::clone(&seen);
        shared.listen(Box::new(move |event: &Event| locked(&listener).push(event.clone())));
        (shared, seen)
    }

    fn says(shared: &Shared, text: &str) {
        shared.take(&async_nats::Event::ServerError(ServerError::Other(text.to_owned())));
    }

    #[test]
    fn a_violation_names_its_subject() {
        let subject = |text| denial(text).map(|denial| (denial.is_publish, denial.subject));
        assert_eq!(subject("Permissions Violation for Publish to \"y.a\""), Some((true, "y.a".to_owned())));
        assert_eq!(
            subject("Permissions Violation for Subscription to \"y.*\" using queue \"q\""),
            Some((false, "y.*".to_owned()))
        );
        assert_eq!(subject("Permissions Violation"), None);
        assert_eq!(subject("maximum connections exceeded"), None);
    }

    #[test]
    fn a_missing_permission_for_the_inbox_lasts_until_the_next_connection() {
        let (shared, _) = shared();
        let is_denied = || shared.state.borrow().is_inbox_denied;
        says(&shared, "Permissions Violation for Subscription to \"_INBOX_ab.x.*\"");
        assert!(!is_denied());
        says(&shared, "Permissions Violation for Subscription to \"_INBOX_a.x.*\"");
        assert!(is_denied());
        shared.take(&async_nats::Event::Connected);
        assert!(!is_denied());
        assert_eq!(shared.state.borrow().connections, 1);
    }

    #[test]
    fn a_denied_round_trip_is_no_event_and_any_other_denial_is_one() {
        let (shared, seen) = shared();
        shared.set_echo("_INBOX_a.echo");
        let mut denials = shared.denials.subscribe();
        says(&shared, "Permissions Violation for Publish to \"_INBOX_a.echo\"");
        assert!(denials.try_recv().unwrap().is_publish);
        assert_eq!(locked(&seen).len(), 0);
        says(&shared, "Permissions Violation for Publish to \"x\"");
        assert_eq!(*locked(&seen), [Event::Denied { subject: "x".into() }]);
    }

    #[test]
    fn a_slow_subscription_is_named_by_its_subject() {
        let (shared, seen) = shared();
        assert_eq!((shared.subscribing("a"), shared.subscribing("b")), (1, 2));
        shared.take(&async_nats::Event::SlowConsumer(2));
        assert_eq!(*locked(&seen), [Event::SlowConsumer { subject: "b".into() }]);
        shared.unsubscribed(1);
        assert_eq!(shared.subscribing("c"), 3);
    }

    #[test]
    fn what_the_server_says_is_printable() {
        let (shared, seen) = shared();
        says(&shared, "\u{1b}[2J");
        let [Event::Error { text }] = &locked(&seen)[..] else { panic!("{seen:?}") };
        assert_eq!(&**text, "\\u{1b}[2J");
    }

    #[test]
    fn a_round_trip_ends_by_its_number_and_by_nothing_else() {
        let (shared, _) = shared();
        let (_, number, mut receiver) = shared.begin_echo();
        shared.end_echo(b"short");
        shared.end_echo(&(number + 1).to_le_bytes());
        assert!(receiver.try_recv().is_err());
        let (_, number, mut receiver) = shared.begin_echo();
        shared.end_echo(&number.to_le_bytes());
        assert!(receiver.try_recv().is_ok());
    }
}
