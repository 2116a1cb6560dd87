//! Which agents could not measure a unit, and which are to measure it next.

use std::collections::BTreeMap;

use h2lab_model::fleet::AgentName;

/// A unit that could not be measured so often, or of whose parts so many could not be used, is given up, unless all of that
/// was one of several agents.
const MOST_FAILURES: u32 = 3;

/// How often each agent has failed at a unit.
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
        let all = self.by.values().fold(0_u32, |all, count| all.saturating_add(*count));
        if all >= MOST_FAILURES && (able.len() == 1 || self.by.len() > 1) {
            return None;
        }
        if let [only] = able {
            return Some(vec![only.clone()]);
        }
        let has_failed = |name: &str| self.by.keys().any(|failed| failed.as_str() == name);
        let others: Vec<String> = able.iter().filter(|name| !has_failed(name.as_str())).cloned().collect();
        (!others.is_empty()).then_some(others)
    }
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

    #[test]
    fn one_agent_alone_does_not_use_up_a_unit_that_others_can_measure() {
        assert_eq!(after(&["a"; 9], &["a", "b"]), vec![Some(names(&["b"])); 9]);
    }
}
