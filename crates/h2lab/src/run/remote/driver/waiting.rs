//! Units that nobody measures, since all agents that can are busy with others, or away: the user is told why once, and once
//! more when the run goes on.

use std::collections::BTreeSet;
use std::time::Instant;

use h2lab_base::counts::plural;
use h2lab_base::units::format_duration;
use h2lab_model::fleet::AgentName;
use h2lab_model::fleet::queue::run_title;

use super::super::RemoteObserver;
use super::{AgentContact, Driver, SILENT};

/// What an agent does for this run.
#[derive(Debug, PartialEq, Eq)]
enum AgentActivity {
    /// It measures a unit of it.
    Measures,
    /// Nothing, and it may take a unit at any time.
    IsFree,
    /// Nothing as long as this is so, in words.
    Cannot(String),
}

impl AgentContact {
    /// What the agent does, `now`, for the run with this title.
    fn doing(&self, title: &str, now: Instant) -> AgentActivity {
        if now.saturating_duration_since(self.at) >= SILENT {
            return AgentActivity::Cannot(format!("has not answered for {}", format_duration(SILENT)));
        }
        match &self.busy {
            None => AgentActivity::IsFree,
            Some(with) if with.starts_with(title) => AgentActivity::Measures,
            Some(with) => AgentActivity::Cannot(format!("is busy with {with}")),
        }
    }
}

/// Whether the user knows that units wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    is_told: bool,
}

impl Waiting {
    /// What the user is to be told, if anything: `waits` says what is waited for, and `measuring` names the agents that
    /// measure now. One that is free does not measure yet.
    fn news(&mut self, waits: Option<String>, measuring: &[&str]) -> Option<String> {
        match waits {
            Some(waits) if !self.is_told => {
                self.is_told = true;
                Some(waits)
            }
            None if self.is_told && !measuring.is_empty() => {
                self.is_told = false;
                Some(format!("agents measure again: {}", measuring.join(", ")))
            }
            Some(_) | None => None,
        }
    }
}

impl Driver<'_> {
    /// Tells the user that units wait, and for what, or that they do no longer. Follows what agents have answered last.
    pub(super) fn tell_waiting(&mut self, now: Instant, observer: &mut dyn RemoteObserver) {
        let title = run_title(&self.id());
        let doing = |heard: &AgentContact| heard.doing(&title, now);
        let measuring = self.agents.iter().filter_map(|(name, heard)| {
            let is_measuring = doing(heard) == AgentActivity::Measures;
            is_measuring.then(|| name.as_str())
        });
        let measuring: Vec<&str> = measuring.collect();
        let hindrance = |name: &String| {
            // An agent that did not answer at the start is not asked.
            let heard = name.parse().ok().and_then(|name: AgentName| self.agents.get(&name));
            match heard.map(doing) {
                None => Some(format!("{name} did not answer at the start")),
                Some(AgentActivity::Cannot(why)) => Some(format!("{name} {why}")),
                Some(AgentActivity::Measures | AgentActivity::IsFree) => None,
            }
        };
        let (mut count, mut reasons) = (0_u64, BTreeSet::new());
        for job in self.queue.open() {
            let able = self.queue.agents_in(self.given[job]);
            let all: Option<Vec<String>> = able.iter().map(hindrance).collect();
            if let Some(hindrances) = all {
                count += 1;
                reasons.extend(hindrances);
                reasons.extend(self.queue.jobs[job].lacks.iter().cloned());
            }
        }
        let waits = (count > 0).then(|| {
            let all = plural(self.queue.jobs.len() as u64, "unit");
            let reasons: Vec<String> = reasons.into_iter().collect();
            format!("waiting with {count} of {all}: {}", reasons.join("; "))
        });
        if let Some(words) = self.waiting.news(waits, &measuring) {
            observer.waits(&words);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_agent_measures_for_this_run_or_is_free_or_busy_with_others_or_away() {
        let at = Instant::now();
        let doing = |busy: Option<&str>, after: Duration| {
            let heard = AgentContact { at, is_told: false, busy: busy.map(str::to_owned) };
            heard.doing("run 0a1b2c3d", at + after)
        };
        let soon = Duration::ZERO;
        assert_eq!(doing(None, soon), AgentActivity::IsFree);
        assert_eq!(doing(Some("run 0a1b2c3d of ann at desk, 3 s"), soon), AgentActivity::Measures);
        let other = "run ffffffff of ann at desk, 3 s";
        assert_eq!(doing(Some(other), soon), AgentActivity::Cannot(format!("is busy with {other}")));
        assert_eq!(doing(None, SILENT.saturating_sub(Duration::from_nanos(1))), AgentActivity::IsFree);
        assert_eq!(doing(None, SILENT), AgentActivity::Cannot("has not answered for 20s".to_owned()));
    }

    #[test]
    fn it_is_told_once_that_units_wait_and_once_that_the_run_goes_on() {
        let mut waiting = Waiting::default();
        let waits = || Some("waiting".to_owned());
        assert_eq!(waiting.news(None, &["a"]), None, "nothing has waited");
        assert_eq!(waiting.news(waits(), &[]), waits());
        assert_eq!(waiting.news(waits(), &[]), None, "it is known");
        assert_eq!(waiting.news(None, &[]), None, "an agent is free, and has no unit yet");
        let goes_on = waiting.news(None, &["a", "b"]);
        assert_eq!(goes_on.as_deref(), Some("agents measure again: a, b"));
        assert_eq!(waiting.news(None, &["a"]), None);
        assert_eq!(waiting.news(waits(), &["a"]), waits(), "other units wait");
    }
}
