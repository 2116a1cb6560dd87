//! A few situations on whatever machine runs `cargo xtask test`: whether `diagnose` names what is planted, and nothing where nothing is.
//!
//! Whether h2lab can measure depends on the machine, and no test may depend on that: what it could not measure is told and fails
//! nothing, and a situation is wrong only if two looks at it are, with values drawn for each. The second is for what lies at the
//! machine or at an odd draw: how often a draw is wrong is counted by `verify diagnose`.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::measured::once;
use super::record::product;
use super::situation::{Situation, all};
use super::{Found, is_right};
use crate::verify::binary::H2lab;
use crate::{needs, process};

/// Of those of `--ci`: a server's limit, a window and a limit of streams, and a healthy server. They take less than three minutes.
const SITUATIONS: [&str; 4] = ["conn101-nginx", "flow101-origin", "mux101-origin", "healthy-nginx"];

/// That the generator or the server has no CPU time left. On a slow machine, with a binary that is not optimised, that is true and
/// takes the place of the planted cause.
const OF_THE_MACHINE: [&str; 2] = ["HOST102", "HOST105"];

/// What a look at a situation shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Look {
    Right,
    /// h2lab says that it could not measure, or that the machine is the limit.
    Unmeasured,
    /// What was found, or why it could not be staged.
    Wrong(String),
}

impl Look {
    fn of(situation: &Situation, found: Result<Found>) -> Self {
        let found = match found {
            Ok(found) => found,
            Err(error) => return Self::Wrong(format!("{error:#}")),
        };
        // A cause that is named where there is none is wrong in any case.
        let is_machine = |id: &String| OF_THE_MACHINE.contains(&id.as_str());
        let invents = situation.planted.is_empty() && !found.causes.iter().all(is_machine);
        if found.unsound && !invents {
            return Self::Unmeasured;
        }
        if is_right(situation, &found) {
            return Self::Right;
        }
        let all = found.all();
        if !invents && all.iter().any(is_machine) {
            return Self::Unmeasured;
        }
        let causes = if all.is_empty() { "none".to_owned() } else { all.join(" ") };
        Self::Wrong(format!("{}; found {causes}", situation.expected()))
    }
}

/// A second look unless the first is right: wrong is what is wrong in both. `look` is told how many there were before.
fn twice(mut look: impl FnMut(u64) -> Look) -> Look {
    let first = look(0);
    if first == Look::Right {
        return first;
    }
    match (first, look(1)) {
        (_, Look::Right) => Look::Right,
        (Look::Wrong(first), Look::Wrong(second)) => Look::Wrong(format!("{first}; again: {second}")),
        _ => Look::Unmeasured,
    }
}

/// Stages them with the binary of the tests, and says on stderr what was seen; returns whether fewer than two were wrong:
/// one may be due to a machine on which everything takes many times as long.
pub fn run() -> Result<bool> {
    // The tests were built before, and with them what they drive.
    let h2lab = H2lab::at(process::target().join("debug/h2lab"));
    let situations = all()?;
    let skip = std::env::var(needs::SKIP_VARIABLE).unwrap_or_default();
    let is_skipped = |name: &str| skip.split(',').any(|skipped| skipped.trim() == product(name));
    let seed = seed();
    let mut wrong = 0;
    for name in SITUATIONS.into_iter().filter(|name| !is_skipped(name)) {
        let situation = situations.get(name).with_context(|| format!("there is no situation `{name}`"))?;
        // What taking the cause away does is not asked here.
        let staged = Situation { again: String::new(), removed: BTreeMap::new(), ..situation.clone() };
        let says = match twice(|nth| Look::of(&staged, once(&h2lab, name, &staged, seed + nth))) {
            Look::Right => "right".to_owned(),
            Look::Unmeasured => "this machine is too slow or too busy, so that nothing is shown".to_owned(),
            Look::Wrong(what) => {
                wrong += 1;
                let again = format!("cargo xtask verify diagnose --profile dev --seed {seed} --only {name}");
                format!("WRONG: {what}; `{again}` stages it again")
            }
        };
        eprintln!("xtask: {name} ({}): {says}", situation.is);
    }
    Ok(wrong < 2)
}

/// The same for all runs at a commit, so that what fails can be repeated; that of the day where git knows no commit.
fn seed() -> u64 {
    let git = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(process::workspace()).output();
    let head = git.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let of_commit = head.get(..8).and_then(|begin| u64::from_str_radix(begin, 16).ok());
    let day = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    of_commit.unwrap_or_else(day)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn the_situations_are_of_those_for_ci() {
        let all = all().unwrap();
        assert!(SITUATIONS.iter().all(|name| all[*name].ci));
    }

    #[test]
    fn what_was_not_measured_is_neither_right_nor_wrong_and_a_cause_of_nothing_is_wrong() {
        let situation = |planted: &[&str]| Situation {
            planted: planted.iter().map(|cause| (*cause).to_owned()).collect(),
            ..Situation::default()
        };
        let look = |planted: &[&str], causes: &[&str], unsound: bool| {
            let causes = causes.iter().map(|cause| (*cause).to_owned()).collect();
            Look::of(&situation(planted), Ok(Found { causes, unsound, ..Found::default() }))
        };
        assert_eq!(look(&["LOSS101"], &["LOSS101"], false), Look::Right);
        assert_eq!(look(&[], &[], false), Look::Right);
        assert_eq!(look(&["LOSS101"], &["CONN101"], true), Look::Unmeasured);
        assert_eq!(look(&[], &[], true), Look::Unmeasured);
        let wrong = |planted: &str, found: &str| Look::Wrong(format!("{planted}; found {found}"));
        assert_eq!(look(&["LOSS101"], &["CONN101"], false), wrong("planted LOSS101", "CONN101"));
        assert_eq!(look(&["LOSS101"], &[], false), wrong("planted LOSS101", "none"));
        assert_eq!(look(&[], &["LOSS101"], true), wrong("healthy", "LOSS101"));
        // The machine is the limit.
        assert_eq!(look(&["LOSS101"], &["HOST102"], false), Look::Unmeasured);
        assert_eq!(look(&["LOSS101"], &["LOSS101", "HOST105"], false), Look::Right);
        assert_eq!(look(&[], &["HOST105"], false), Look::Unmeasured);
        assert_eq!(look(&[], &["HOST105", "LOSS101"], false), wrong("healthy", "HOST105 LOSS101"));
        assert_eq!(look(&["LOSS101"], &["HOST106"], false), wrong("planted LOSS101", "HOST106"));
        let unstaged = Look::of(&situation(&[]), Err(anyhow!("no namespaces")));
        assert_eq!(unstaged, Look::Wrong("no namespaces".to_owned()));
    }

    #[test]
    fn only_what_is_wrong_twice_is_wrong() {
        let wrong = || Look::Wrong("x".to_owned());
        let of = |looks: &[Look]| {
            let mut rest = looks.iter().cloned();
            let seen = twice(|_| rest.next().unwrap());
            assert_eq!(rest.next(), None, "a look too few");
            seen
        };
        assert_eq!(of(&[Look::Right]), Look::Right);
        assert_eq!(of(&[wrong(), Look::Right]), Look::Right);
        assert_eq!(of(&[Look::Unmeasured, Look::Right]), Look::Right);
        assert_eq!(of(&[wrong(), Look::Unmeasured]), Look::Unmeasured);
        assert_eq!(of(&[Look::Unmeasured, wrong()]), Look::Unmeasured);
        assert_eq!(of(&[Look::Unmeasured, Look::Unmeasured]), Look::Unmeasured);
        assert_eq!(of(&[wrong(), wrong()]), Look::Wrong("x; again: x".to_owned()));
    }
}
