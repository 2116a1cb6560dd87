//! What goes wrong with the connection, as the log has it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use h2lab_nats::{Event, Nats, PARTS};

use super::super::log;
use super::REMIND;

/// Different troubles that are remembered.
const MOST_TROUBLES: usize = 16;

/// Logs what happens to the connection from now on; the flag is set when it is there again.
pub(super) fn follow_events(nats: &Nats) -> Arc<AtomicBool> {
    let is_back = Arc::new(AtomicBool::new(false));
    let (back, mut troubles) = (Arc::clone(&is_back), Troubles::default());
    nats.on_event(move |event| match event {
        Event::Connected => {
            back.store(true, Ordering::Relaxed);
            log::line("connected again");
        }
        Event::Disconnected => {
            log::line("disconnected from NATS; what is under way goes on, and the server is dialled again");
        }
        Event::SlowConsumer { subject } => {
            troubles.note(&format!("messages at {subject} were lost: this machine is too busy to read them"));
        }
        // To clean up is a driver's right: what an agent may not delete goes when it is 7 days old.
        Event::Denied { subject } if is_right_of_drivers(&subject) => {}
        Event::Denied { subject } => troubles.note(&format!(
            "NATS does not permit this agent the subject {subject}; docs/agents.md has the permissions that it needs"
        )),
        Event::Error { text } => troubles.note(&format!("NATS: {text}")),
    });
    is_back
}

/// Whether only drivers need the right to this subject: to read and to delete parts.
fn is_right_of_drivers(subject: &str) -> bool {
    subject.starts_with("$JS.API.") && subject.ends_with(&format!(".OBJ_{PARTS}"))
}

/// What goes wrong over and over: each is logged once a minute.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// The latest, and when they were logged.
    logged: VecDeque<(String, Instant)>,
}

impl Troubles {
    /// Logs a trouble, unless the same one was logged within the minute.
    pub(super) fn note(&mut self, trouble: &str) {
        if self.is_new(trouble, Instant::now()) {
            log::line(trouble);
        }
    }

    fn is_new(&mut self, trouble: &str, now: Instant) -> bool {
        self.logged.retain(|(_, at)| now.saturating_duration_since(*at) < REMIND);
        if self.logged.iter().any(|(known, _)| known == trouble) {
            return false;
        }
        self.logged.truncate(MOST_TROUBLES - 1);
        self.logged.push_front((trouble.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_trouble_that_repeats_is_logged_once_a_minute_and_others_beside_it() {
        let (mut troubles, begin) = (Troubles::default(), Instant::now());
        let mut is_new = |trouble: &str, after: Duration| troubles.is_new(trouble, begin + after);
        assert!(is_new("a", Duration::ZERO) && is_new("b", Duration::ZERO));
        let just_before = REMIND.saturating_sub(Duration::from_nanos(1));
        assert!(!is_new("a", just_before) && !is_new("b", just_before));
        assert!(is_new("a", REMIND));
        for n in 0..MOST_TROUBLES {
            assert!(is_new(&n.to_string(), REMIND));
        }
        assert!(is_new("a", REMIND), "no more are remembered");
    }

    #[test]
    fn a_right_that_only_drivers_have_is_not_asked_for() {
        for call in ["STREAM.PURGE", "STREAM.MSG.GET", "STREAM.MSG.DELETE", "DIRECT.GET"] {
            assert!(is_right_of_drivers(&format!("$JS.API.{call}.OBJ_{PARTS}")), "{call}");
        }
        for needed in [
            "$JS.API.STREAM.MSG.GET.KV_H2LAB_RUNS",
            "$JS.API.CONSUMER.MSG.NEXT.H2LAB_CELLS.r-0",
            "$O.H2LAB_PARTS.C.x",
        ] {
            assert!(!is_right_of_drivers(needed), "{needed}");
        }
    }
}
