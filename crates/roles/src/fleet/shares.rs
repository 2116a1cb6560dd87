//! An agent's share of a load: what does it is above this crate, since it stores what it measures in a run folder.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;

use h2lab_base::units::Time;
use h2lab_model::fleet::{LoadTask, PartReport, ShareProgress};

use super::event::AgentEvent;
use h2lab_net::clock::Clock;

/// Makes shares of loads.
pub trait Shares: fmt::Debug + Send + Sync {
    /// Begins to dial for a share, and returns at once; the work is done in threads of its own. It must call
    /// [`ShareEvents::planned`] when its connections are up, from then on send no request before [`Share::begin`], and in the end
    /// call [`ShareEvents::stored`] or [`ShareEvents::failed`], once. An error refuses the share in words.
    fn start(&self, task: LoadTask, events: ShareEvents) -> Result<Box<dyn Share>, String>;
}

/// A share under way. Dropping it ends it: its drop must return only when none of its threads runs.
pub trait Share: fmt::Debug + Send {
    /// The first request of the whole load is due at `at` of [`ShareEvents::clock`]; at once if that has passed.
    fn begin(&self, at: Time);

    /// Ends it early: what was measured until then is stored and reported all the same.
    fn stop(&self);
}

/// What a share reports to its agent, which passes it on to the driver. Reporting never waits.
#[derive(Debug, Clone)]
pub struct ShareEvents {
    own: Sender<AgentEvent>,
    clock: Clock,
}

impl ShareEvents {
    /// To the agent that receives at the other end of `own`, whose clock is `clock`.
    pub(super) const fn new(own: Sender<AgentEvent>, clock: Clock) -> Self {
        Self { own, clock }
    }

    /// The clock of the agent, by which its driver sets the common instant: all times of a share are by it.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Its connections are up.
    pub fn planned(&self) {
        self.send(ShareEvent::Planned);
    }

    /// How far it is. The agent sends the newest a few times per second, and adds up the response times of those between.
    pub fn progress(&self, progress: ShareProgress) {
        self.send(ShareEvent::Progress(Box::new(progress)));
    }

    /// It is over, and what it measured is stored.
    pub fn stored(&self, report: PartReport) {
        self.send(ShareEvent::Stored(Box::new(report)));
    }

    /// It failed as a whole; why, in words.
    pub fn failed(&self, why: String) {
        self.send(ShareEvent::Failed(why));
    }

    /// Fails only if the agent has ended, which drops the share.
    fn send(&self, event: ShareEvent) {
        let _ = self.own.send(AgentEvent::Share(event));
    }
}

/// Does `work`. A panic in it is an error in words: the driver is told what it would otherwise wait for.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        format!("a defect of h2lab has ended it: {}", text.unwrap_or("a panic without words"))
    })
}

/// What a share has reported.
#[derive(Debug)]
pub enum ShareEvent {
    /// See [`ShareEvents::planned`].
    Planned,
    /// See [`ShareEvents::progress`].
    Progress(Box<ShareProgress>),
    /// See [`ShareEvents::stored`].
    Stored(Box<PartReport>),
    /// See [`ShareEvents::failed`].
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_words() {
        assert_eq!(caught(|| 7), Ok(7));
        let words = |work: fn()| caught(work).unwrap_err();
        assert!(words(|| panic!("plain")).ends_with(": plain"));
        assert!(words(|| panic!("of {}", 7)).ends_with(": of 7"));
        assert!(words(|| std::panic::panic_any(7)).ends_with("without words"));
    }
}
