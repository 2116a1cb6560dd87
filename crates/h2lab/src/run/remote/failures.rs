//! Which agents could not measure a unit, which are to measure it next, and what is said of it.

use std::collections::{BTreeMap, BTreeSet};

use h2lab_model::fleet::AgentName;

/// A unit that could not be measured so often, or of whose parts so many could not be used, is given up, unless all of that
/// was one of several agents.
const MOST_FAILURES: u32 = 3;
/// Characters of a reason that was reported before.
const BEGINNING: usize = 60;
/// Cells that are named of those that failed for one reason.
const MOST_NAMED: usize = 10;

/// How often each agent has failed at a unit since this driver began. A resumed run starts to count anew, since its user may have
/// removed the cause.
#[derive(Debug, Clone, Default)]
pub(super) struct Failures {
    by: BTreeMap<AgentName, u32>,
}

impl Failures {
    /// Notes a failure of `agent`. Returns which of the agents that are `able` to measure the unit are to do it next: those that
    /// have not failed at it, or the only one. `None` if it is given up.
    pub fn note(&mut self, agent: &AgentName, able: &[String]) -> Option<Vec<String>> {
        let count = self.by.entry(agent.clone()).or_default();
        *count = count.saturating_add(1);
        if self.all() >= MOST_FAILURES && (able.len() == 1 || self.by.len() > 1) {
            return None;
        }
        if let [only] = able {
            return Some(vec![only.clone()]);
        }
        let has_failed = |name: &str| self.by.keys().any(|failed| failed.as_str() == name);
        let others: Vec<String> = able.iter().filter(|name| !has_failed(name.as_str())).cloned().collect();
        (!others.is_empty()).then_some(others)
    }

    /// Which attempt was the last one that failed, from 1 on, and how many there are at most if the agents `next`, of those
    /// that are `able`, try it after that.
    pub fn attempts(&self, able: &[String], next: &[String]) -> (u32, u32) {
        let failed = self.all();
        let more = MOST_FAILURES.saturating_sub(failed);
        let more = match (able.len(), next.len()) {
            (_, 0) => 0,
            (1, _) => more.max(1),
            // Each of several agents has one.
            (_, others) => more.min(others as u32).max(1),
        };
        (failed, failed.saturating_add(more))
    }

    /// The agents that have failed.
    pub fn agents(&self) -> String {
        self.by.keys().map(AgentName::as_str).collect::<Vec<_>>().join(", ")
    }

    fn all(&self) -> u32 {
        self.by.values().fold(0, |all, count| all.saturating_add(*count))
    }
}

/// The reasons that were reported: they may be long, and the same for many units.
#[derive(Debug, Default)]
pub(super) struct ReportedReasons(BTreeSet<String>);

impl ReportedReasons {
    /// A reason, or its beginning if it was reported before.
    pub fn brief(&mut self, why: &str) -> String {
        if self.0.insert(why.to_owned()) || why.chars().count() <= BEGINNING {
            return why.to_owned();
        }
        why.chars().take(BEGINNING - 1).chain(['…']).collect()
    }
}

/// Units that could not be measured, each by the words for its first cell and the reason: those of one reason together, in
/// the order in which the reasons first occur.
pub(super) fn grouped<'w>(failed: impl IntoIterator<Item = (String, &'w str)>) -> String {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for (cell, why) in failed {
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, cells)) => cells.push(cell),
            None => groups.push((why, vec![cell])),
        }
    }
    let words = |(why, mut cells): (&str, Vec<String>)| {
        let others = cells.len().saturating_sub(MOST_NAMED);
        cells.truncate(MOST_NAMED);
        let others = if others == 0 { String::new() } else { format!(" and {others} more") };
        format!("{}{others}: {why}", cells.join(", "))
    };
    groups.into_iter().map(words).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// What is to be done after each of these agents has failed in turn.
    fn after(failed: &[&str], able: &[&str]) -> Vec<Option<Vec<String>>> {
        let mut failures = Failures::default();
        failed.iter().map(|agent| failures.note(&agent.parse().unwrap(), &names(able))).collect()
    }

    #[test]
    fn the_only_agent_has_three_tries() {
        assert_eq!(after(&["a"; 3], &["a"]), [Some(names(&["a"])), Some(names(&["a"])), None]);
    }

    #[test]
    fn a_unit_goes_to_agents_that_have_not_failed_at_it_and_is_given_up_after_the_last() {
        assert_eq!(after(&["a", "b"], &["a", "b"]), [Some(names(&["b"])), None]);
        let next = after(&["a", "c", "b"], &["a", "b", "c", "d"]);
        assert_eq!(next, [Some(names(&["b", "c", "d"])), Some(names(&["b", "d"])), None]);
    }

    /// Which attempt each of these failures is, of how many.
    fn numbered(failed: &[&str], able: &[&str]) -> Vec<(u32, u32)> {
        let (mut failures, able) = (Failures::default(), names(able));
        let number = |agent: &&str| {
            let next = failures.note(&agent.parse().unwrap(), &able);
            failures.attempts(&able, next.as_deref().unwrap_or_default())
        };
        failed.iter().map(number).collect()
    }

    #[test]
    fn attempts_are_numbered_and_the_last_one_is_known_to_be_the_last() {
        assert_eq!(numbered(&["a"; 3], &["a"]), [(1, 3), (2, 3), (3, 3)]);
        assert_eq!(numbered(&["a", "b"], &["a", "b"]), [(1, 2), (2, 2)]);
        assert_eq!(numbered(&["a", "c", "b"], &["a", "b", "c", "d"]), [(1, 3), (2, 3), (3, 3)]);
        // One that measured for the run before it was resumed.
        assert_eq!(numbered(&["old", "a", "a"], &["a"]), [(1, 3), (2, 3), (3, 3)]);
        assert_eq!(numbered(&["a"; 4], &["a", "b"]), [(1, 2), (2, 3), (3, 4), (4, 5)]);
    }

    #[test]
    fn a_long_reason_is_told_once_in_full_and_then_by_its_beginning() {
        let mut told = ReportedReasons::default();
        let (short, long) = ("x".repeat(BEGINNING), "y".repeat(BEGINNING + 1));
        assert_eq!([told.brief(&short), told.brief(&short)], [short.clone(), short]);
        assert_eq!(told.brief(&long), long);
        assert_eq!(told.brief(&long), format!("{}…", "y".repeat(BEGINNING - 1)));
    }

    #[test]
    fn units_that_failed_for_one_reason_are_told_together() {
        let failed = |n: usize, why: &'static str| (0..n).map(move |k| (format!("{why}{k}"), why));
        assert_eq!(grouped(failed(1, "a")), "a0: a");
        assert_eq!(
            grouped(failed(2, "a").chain(failed(1, "b")).chain(failed(1, "a"))),
            "a0, a1, a0: a; b0: b"
        );
        assert!(grouped(failed(MOST_NAMED, "a")).ends_with("a8, a9: a"));
        assert!(grouped(failed(MOST_NAMED + 1, "a")).ends_with("a8, a9 and 1 more: a"));
    }

    #[test]
    fn one_agent_alone_does_not_use_up_a_unit_that_others_can_measure() {
        assert_eq!(after(&["a"; 9], &["a", "b"]), vec![Some(names(&["b"])); 9]);
    }
}
