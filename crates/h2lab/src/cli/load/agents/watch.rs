//! What the user is told while agents make a load: how far they are together, who is lost or silent, and what is waited for.

use std::collections::BTreeSet;
use std::time::Duration;

use h2lab_base::counts::{noun_of, plural};
use h2lab_base::units::{Time, format_duration};
use h2lab_model::fleet::{LoadCoordinator, ShareProgress, Stage};
use h2lab_roles::load::LoadProgress;

use super::super::super::note;
use super::super::view::LoadView;
use super::few;

/// How often the sum is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// `Watch::update` is called ten times per second at least. One that has not for this long was stopped or suspended.
const STOPPED: Duration = Duration::from_secs(5);

/// How long a driver that was stopped reads what has come meanwhile before it calls anyone silent.
const CATCHING_UP: Duration = Duration::from_secs(2);

/// How long after the last request was due it is said which shares are waited for. Most are there sooner.
const STORED: Duration = Duration::from_secs(2);

/// Shows the sum of what agents report.
pub(super) struct Watch<'a> {
    view: &'a LoadView,
    /// What is done, to be said when it begins.
    sentence: String,
    /// What was said last.
    step: Step,
    shown_at: Time,
    is_quiet: bool,
    /// Agents that were said to be lost, by place.
    lost: BTreeSet<usize>,
    /// Agents that were said to be silent, and not to be there again, by place.
    silent: BTreeSet<usize>,
    /// What was said of the waiting for shares.
    waiting: Waiting,
    turns: Turns,
}

/// When this driver ran, by which it knows that it was stopped itself: then its agents were not silent.
#[derive(Debug, Default)]
struct Turns {
    /// The last time.
    ran_at: Option<Time>,
    /// When it ran again after it was stopped.
    continued_at: Option<Time>,
}

impl Turns {
    /// For how long the driver did not run before this turn, if it was stopped.
    fn stopped(&mut self, now: Time) -> Option<Duration> {
        let before = self.ran_at.replace(now)?;
        let time = Some(now.since(before)).filter(|time| *time >= STOPPED)?;
        self.continued_at = Some(now);
        Some(time)
    }

    /// Whether messages that came while it was stopped may still be unread.
    fn is_catching_up(&self, now: Time) -> bool {
        self.continued_at.is_some_and(|at| now.since(at) < CATCHING_UP)
    }
}

/// Why shares are waited for; each is said once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Waiting {
    /// The load goes on.
    No,
    /// No more requests are due, and some shares are still missing.
    AtTheEnd,
    /// The driver was interrupted.
    Interrupted,
}

/// What the user is told of the stages of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing yet.
    None,
    Comparing,
    Dialling,
    Loading,
}

impl<'a> Watch<'a> {
    pub(super) fn new(view: &'a LoadView, sentence: String, is_quiet: bool) -> Self {
        Self {
            view,
            sentence,
            step: Step::None,
            shown_at: Time::ZERO,
            is_quiet,
            lost: BTreeSet::new(),
            silent: BTreeSet::new(),
            waiting: Waiting::No,
            turns: Turns::default(),
        }
    }

    /// Called after each message; shows something when a stage begins, and then about as often as agents report.
    pub(super) fn update(&mut self, coordinator: &mut LoadCoordinator, now: Time) {
        let stopped = self.turns.stopped(now).filter(|_| !self.is_quiet);
        if let Some(time) = stopped {
            note(&did_not_run(time));
        }
        let step = match coordinator.stage() {
            Stage::Comparing(_) => Step::Comparing,
            Stage::Planning(_) => Step::Dialling,
            Stage::Running { .. } | Stage::Closing(_) => Step::Loading,
            Stage::Over => return,
        };
        if !self.is_quiet {
            self.say_who_is_lost(coordinator);
            if !self.turns.is_catching_up(now) {
                self.say_who_is_silent(coordinator, now);
            }
            self.say_who_is_waited_for(coordinator, now);
        }
        if self.step != step {
            self.step = step;
            self.view.announce(&self.words(coordinator));
        }
        if step == Step::Loading && now.since(self.shown_at) >= SHOWN_EVERY {
            self.shown_at = now;
            self.view.show(&shown_progress(coordinator.progress()));
        }
    }

    /// Says who is lost, once for each agent: the load goes on without its share.
    fn say_who_is_lost(&mut self, coordinator: &LoadCoordinator) {
        let without = if coordinator.is_interrupted() { "" } else { "; the others go on without its share" };
        for (_, name, why) in coordinator.lost().filter(|(place, ..)| self.lost.insert(*place)) {
            note(&format_args!("{name} is lost: {why}{without}"));
        }
    }

    /// Says who falls silent, and who reports again.
    fn say_who_is_silent(&mut self, coordinator: &LoadCoordinator, now: Time) {
        for (_, name, silence) in coordinator.silent(now).filter(|(place, ..)| self.silent.insert(*place)) {
            let whole = format_duration(Duration::from_secs(silence.as_secs()));
            note(&format_args!(
                "{name} has not reported for {whole}; its share is lost if it does not report again"
            ));
        }
        let silent: BTreeSet<usize> = coordinator.silent(now).map(|(place, ..)| place).collect();
        let back: Vec<usize> = self.silent.difference(&silent).copied().collect();
        for place in back {
            self.silent.remove(&place);
            // Who is lost was said to be so.
            if !self.lost.contains(&place)
                && let Some(name) = coordinator.job().agents.get(place)
            {
                note(&format_args!("{name} reports again"));
            }
        }
    }

    /// Says after the end of the load, and after an interruption, whose shares are waited for and how long that takes at most.
    fn say_who_is_waited_for(&mut self, coordinator: &LoadCoordinator, now: Time) {
        let Stage::Running { until, .. } = coordinator.stage() else { return };
        let waiting = match () {
            () if coordinator.is_interrupted() => Waiting::Interrupted,
            () if now >= coordinator.due_until() + STORED => Waiting::AtTheEnd,
            () => Waiting::No,
        };
        if waiting > self.waiting {
            self.waiting = waiting;
            let names: Vec<&str> = coordinator.waiting().map(|(_, name)| name).collect();
            note(&waited_for(waiting, &names, until.since(now)));
        }
    }

    fn words(&self, coordinator: &LoadCoordinator) -> String {
        let agents = plural(coordinator.job().agents.len() as u64, "agent");
        match self.step {
            Step::None => String::new(),
            Step::Comparing => format!("comparing clocks with {agents}"),
            Step::Dialling => format!("connections of {agents}"),
            Step::Loading => self.sentence.clone(),
        }
    }
}

/// What is said of a driver that was stopped for so long.
fn did_not_run(time: Duration) -> String {
    let whole = format_duration(Duration::from_secs(time.as_secs()));
    format!(
        "this driver did not run for {whole} (stopped or suspended); agents stop that miss it for a minute"
    )
}

/// That the shares of these agents are waited for, for so long at most; after an interruption also how to end that.
fn waited_for(waiting: Waiting, agents: &[&str], most: Duration) -> String {
    let most = format_duration(Duration::from_secs(most.as_secs()));
    let shares = noun_of(agents.len() as u64, "share");
    let words = format!("waiting up to {most} for the {shares} of {}", few(agents));
    match waiting {
        Waiting::Interrupted => {
            format!("stopping: {words}; a second Ctrl-C ends the load without results")
        }
        Waiting::No | Waiting::AtTheEnd => words,
    }
}

/// The sum of shares as a load of this process reports it. Of lost shares and of those that were cut off there are requests that
/// never ended: they are not in flight, so that they do not count as due.
pub(super) fn shown_progress(sum: ShareProgress) -> LoadProgress {
    LoadProgress {
        elapsed: sum.elapsed,
        total: sum.total,
        due: [sum.failed, sum.waiting, sum.in_flight].into_iter().fold(sum.succeeded, u64::saturating_add),
        succeeded: sum.succeeded,
        failed: sum.failed,
        waiting: sum.waiting,
        in_flight: sum.in_flight,
        connections: sum.connections,
        opened: sum.opened,
        recent: sum.recent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_has_the_sum_of_what_agents_report() {
        let sum = ShareProgress {
            elapsed: Duration::from_secs(1),
            due: 11,
            succeeded: 4,
            failed: 1,
            waiting: 1,
            in_flight: 3,
            connections: 3,
            ..ShareProgress::default()
        };
        let shown = shown_progress(sum);
        assert_eq!((shown.elapsed, shown.succeeded, shown.connections), (Duration::from_secs(1), 4, 3));
        assert_eq!((shown.in_flight, shown.due), (3, 9), "two never ended, and are not in flight");
    }

    #[test]
    fn a_driver_that_was_stopped_says_for_how_long_and_first_reads_what_came_meanwhile() {
        let mut turns = Turns::default();
        let mut at = Time::from_millis(90_000);
        assert_eq!(turns.stopped(at), None, "the first turn");
        at += STOPPED.saturating_sub(Duration::from_nanos(1));
        assert_eq!(turns.stopped(at), None);
        assert!(!turns.is_catching_up(at));
        at += Duration::from_secs(75);
        assert_eq!(turns.stopped(at), Some(Duration::from_secs(75)));
        let told = did_not_run(Duration::from_millis(75_400));
        assert!(told.starts_with("this driver did not run for 75s (stopped or suspended)"), "{told}");
        assert_eq!(turns.stopped(at), None, "it is told once");
        assert!(turns.is_catching_up(at + CATCHING_UP.saturating_sub(Duration::from_nanos(1))));
        assert!(!turns.is_catching_up(at + CATCHING_UP));
    }

    #[test]
    fn an_interruption_says_for_whom_and_for_how_long_it_is_waited() {
        assert_eq!(
            waited_for(Waiting::Interrupted, &["kek-1", "kek-3"], Duration::from_secs(30)),
            "stopping: waiting up to 30s for the shares of kek-1, kek-3; a second Ctrl-C ends the load without results"
        );
    }

    #[test]
    fn after_the_end_it_is_said_once_whose_share_is_missing_and_again_after_an_interruption() {
        let words = waited_for(Waiting::AtTheEnd, &["kek-2"], Duration::from_millis(33_400));
        assert_eq!(words, "waiting up to 33s for the share of kek-2");
        assert!(Waiting::No < Waiting::AtTheEnd && Waiting::AtTheEnd < Waiting::Interrupted);
    }
}
