//! Before agents are given work that needs all of them: whether they are there, and free.

use std::time::{Duration, Instant};

use anyhow::Result;
use h2lab_base::units::format_duration;
use h2lab_model::fleet::{AgentCard, AgentName};
use h2lab_nats::Nats;

use super::who::{self, Present};
use crate::run::messages::{Failure, FailureKind};

/// How long an agent that is busy is waited for: one whose driver has just ended lets go of that in a moment.
const FREE_WITHIN: Duration = Duration::from_secs(5);

/// How long answers are waited for meanwhile, at a time.
const ANSWER: Duration = Duration::from_millis(250);

/// What needs the agents, in words.
#[derive(Debug, Clone, Copy)]
pub struct Purpose {
    /// The flags that name them.
    pub flags: &'static str,
    /// What was not begun if one is not there: `load`, `drive`.
    pub what: &'static str,
}

/// Asks the agents of these names who is there, and waits a few seconds for those that are busy, with one `note` that says so.
/// One that is not there, or stays busy, is an error: nothing was begun. Who answered the first question.
pub fn await_free(
    nats: &Nats,
    purpose: Purpose,
    names: &[AgentName],
    note: &mut dyn FnMut(&str),
) -> Result<Present> {
    let present = who::ask_for(nats, names)?;
    check_present(purpose, names, &present)?;
    let mut busy = busy(names, &present);
    if busy.is_empty() {
        return Ok(present);
    }
    let until = Instant::now() + FREE_WITHIN;
    let whom = in_words(&busy, " is busy with ");
    note(&format!("{whom}; waiting for that up to {}", format_duration(FREE_WITHIN)));
    while !busy.is_empty() {
        if Instant::now() >= until {
            return Err(still(purpose, &busy).into());
        }
        busy = after(busy, &who::ask(nats, ANSWER)?);
    }
    Ok(present)
}

fn card<'a>(present: &'a Present, name: &AgentName) -> Option<&'a AgentCard> {
    present.agents.iter().map(|seen| &seen.card).find(|card| card.name == *name)
}

/// Refuses names of which no agent has answered: they are probably mistyped.
fn check_present(purpose: Purpose, names: &[AgentName], present: &Present) -> Result<(), Failure> {
    let missing: Vec<String> =
        names.iter().filter(|name| card(present, name).is_none()).map(ToString::to_string).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let there: Vec<String> = present.agents.iter().map(|seen| seen.card.name.to_string()).collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    let doubts = present.doubts.iter().fold(String::new(), |text, doubt| text + "; " + doubt);
    let (flags, missing) = (purpose.flags, missing.join(", "));
    let message = format!("{flags}: {missing} did not answer (agents that answered: {there}){doubts}");
    Err(Failure { kind: FailureKind::Unreachable, message })
}

/// Those of these agents that are busy, each with whom.
fn busy(names: &[AgentName], present: &Present) -> Vec<(AgentName, String)> {
    names.iter().filter_map(|name| Some((name.clone(), card(present, name)?.busy.clone()?))).collect()
}

/// Those that are still busy. One that has not answered this time is not known to be free.
fn after(before: Vec<(AgentName, String)>, present: &Present) -> Vec<(AgentName, String)> {
    let with = |(name, with): (AgentName, String)| match card(present, &name) {
        Some(card) => card.busy.clone().map(|with| (name, with)),
        None => Some((name, with)),
    };
    before.into_iter().filter_map(with).collect()
}

/// Each agent, what it does, and with whom: `kek-1 is busy with ann at desk, 3 s; kek-2 …`.
fn in_words(busy: &[(AgentName, String)], does: &str) -> String {
    let words = busy.iter().map(|(name, with)| format!("{name}{does}{with}"));
    words.collect::<Vec<_>>().join("; ")
}

/// Why nothing was begun.
fn still(purpose: Purpose, busy: &[(AgentName, String)]) -> Failure {
    let (what, whom) = (purpose.what, in_words(busy, ": it is busy with "));
    let message = format!("the {what} was not begun: {whom}; `h2lab agents` shows when it is free");
    Failure { kind: FailureKind::Unreachable, message }
}

#[cfg(test)]
mod tests {
    use h2lab_model::fleet::testing::agent_card;

    use super::super::who::Seen;
    use super::*;

    const DRIVE: Purpose = Purpose { flags: "--clients, --servers", what: "drive" };

    /// What was answered by agents that are busy with somebody, or with nobody.
    fn present(agents: &[(&str, Option<&str>)]) -> Present {
        let seen = |(name, busy): &(&str, Option<&str>)| Seen {
            card: AgentCard { busy: busy.map(str::to_owned), ..agent_card(name) },
            clock: None,
        };
        Present {
            agents: agents.iter().map(seen).collect(),
            doubts: vec!["d: of another version".to_owned()],
        }
    }

    fn names(names: &[&str]) -> Vec<AgentName> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn an_agent_that_is_not_there_is_named_with_those_that_are() {
        let there = present(&[("a", None), ("b", Some("ann"))]);
        assert!(check_present(DRIVE, &names(&["a", "b"]), &there).is_ok());
        let refused = check_present(DRIVE, &names(&["a", "x", "d"]), &there).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Unreachable);
        assert_eq!(
            refused.message,
            "--clients, --servers: x, d did not answer (agents that answered: a, b); d: of another version"
        );
        let refused = check_present(DRIVE, &names(&["x"]), &Present::default()).unwrap_err();
        assert_eq!(refused.message, "--clients, --servers: x did not answer (agents that answered: none)");
    }

    #[test]
    fn only_who_answers_that_it_is_free_is_waited_for_no_more() {
        let named = names(&["a", "b", "c"]);
        let first =
            present(&[("a", Some("ann, 1 s")), ("b", Some("ann, 1 s")), ("c", None), ("d", Some("x"))]);
        let waited = busy(&named, &first);
        assert_eq!(in_words(&waited, " is busy with "), "a is busy with ann, 1 s; b is busy with ann, 1 s");
        let waited = after(waited, &present(&[("b", Some("ann, 2 s")), ("c", Some("ben, 0 s"))]));
        let refused = still(DRIVE, &waited);
        assert_eq!(refused.kind, FailureKind::Unreachable);
        assert_eq!(
            refused.message,
            "the drive was not begun: a: it is busy with ann, 1 s; b: it is busy with ann, 2 s; `h2lab agents` \
             shows when it is free"
        );
        assert!(after(waited, &present(&[("a", None), ("b", None)])).is_empty());
    }
}
