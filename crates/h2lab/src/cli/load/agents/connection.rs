//! What the user is told of the connection to NATS while a load runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use h2lab_nats::{Event, Nats};

use super::super::super::note;

/// Tells the user when the connection is lost and when it is there again, until this is dropped: that it is closed in the end is
/// no loss.
pub(super) struct ConnectionNotes(Arc<AtomicBool>);

impl ConnectionNotes {
    pub(super) fn of(nats: &Nats) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let (ended, mut is_lost) = (Arc::clone(&is_over), false);
        nats.on_event(move |event| {
            if let Some(words) = words(&event, &mut is_lost).filter(|_| !ended.load(Ordering::Relaxed)) {
                note(&words);
            }
        });
        Self(is_over)
    }
}

impl Drop for ConnectionNotes {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is said of an event; `is_lost` is whether the connection is down.
fn words(event: &Event, is_lost: &mut bool) -> Option<&'static str> {
    match (event, *is_lost) {
        (Event::Disconnected, false) => {
            *is_lost = true;
            Some("disconnected from NATS; the load goes on, and the server is dialled again")
        }
        (Event::Connected, true) => {
            *is_lost = false;
            Some("connected to NATS again")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_told_once_and_so_is_its_return() {
        let mut is_lost = false;
        let mut of = |event| words(&event, &mut is_lost);
        assert_eq!(of(Event::Connected), None, "the first connection is no return");
        assert!(of(Event::Disconnected).is_some_and(|words| words.starts_with("disconnected from NATS")));
        assert_eq!(of(Event::Disconnected), None, "each attempt that fails is no further loss");
        assert_eq!(of(Event::Connected), Some("connected to NATS again"));
        assert_eq!(of(Event::Error { text: "what else".into() }), None);
    }
}
