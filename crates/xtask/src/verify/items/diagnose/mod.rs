//! `h2lab diagnose` against situations with planted causes, and healthy ones: which causes it names, as a matrix.
//!
//! What each situation draws at random follows from the seed. Results are kept by seed and build in
//! `target/verify/diagnose/`, so that a call that was ended is resumed by another one with the same seed; `score` counts what is kept.

pub mod fix;
mod measured;
pub mod record;
mod score;
mod situation;
pub mod staged;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Item, item};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use situation::{Situation, all};

/// What a diagnosis found, as it is kept.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Found {
    /// The causes, the most important first.
    causes: Vec<String>,
    /// Findings that are no causes of a difference between protocols, likewise: observations of where the time goes.
    observed: Vec<String>,
    /// The first sentences of the answer.
    answer: Vec<String>,
    /// The values that were drawn.
    drawn: BTreeMap<String, String>,
    /// The server that h2lab started, with its version.
    #[serde(default)]
    server: Option<String>,
    /// What experiments compare: `p95`, `requests/s`.
    #[serde(default)]
    metric: Option<String>,
    /// The change that `--fix` makes, or else one that takes the planted cause away, if one was tried.
    change: Option<Change>,
    /// The effect of really taking it away, with its interval; only beside a change that was confirmed.
    removed: Option<[f64; 3]>,
    /// Whether h2lab says that it could not measure.
    #[serde(default)]
    unsound: bool,
    /// What `--fix` did, if it was asked for.
    #[serde(default)]
    fix: Option<fix::Fixed>,
}

/// What was changed in an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Change {
    /// The setting, in words.
    what: String,
    is_confirmed: bool,
    /// How many times better it was, with its interval.
    effect: [f64; 3],
}

impl Found {
    /// All of it in one order.
    fn all(&self) -> Vec<String> {
        self.causes.iter().chain(&self.observed).cloned().collect()
    }
}

/// All situations, or those of `--ci`, and the score of those that are kept. Of a whole run, in which nothing is left out, the score
/// demands some of each kind.
pub fn items(seed: u64, is_ci: bool, is_whole: bool) -> Result<Vec<Item>> {
    let mut situations = all()?;
    situations.retain(|_, situation| situation.ci || !is_ci);
    let mut items: Vec<Item> = Vec::new();
    for (name, situation) in situations.clone() {
        let claim = format!("{}; {}", situation.is, situation.expected());
        items.push(item(name.clone(), claim, move |h2lab| {
            let found = kept_or_measured(h2lab, &name, &situation, seed)?;
            Ok(judged(&situation, &found))
        }));
    }
    let claim = "of all situations of this seed that were measured: the right cause is first in 95 %, no finding in a healthy one, \
                 and the experiment has the effect of really taking the cause away";
    items.push(item("score", claim, move |h2lab| score::score(&situations, &folder(h2lab, seed)?, is_whole)));
    Ok(items)
}

/// Where the results of a seed are, for one build: those of another one say nothing of it.
fn folder(h2lab: &H2lab, seed: u64) -> Result<PathBuf> {
    let built = fs::metadata(h2lab.path())?.modified()?.duration_since(UNIX_EPOCH)?.as_secs();
    Ok(Path::new("target/verify/diagnose").join(format!("{seed}-{built}")))
}

/// The result of an earlier call with the same seed, else that of a measurement.
fn kept_or_measured(h2lab: &H2lab, name: &str, situation: &Situation, seed: u64) -> Result<Found> {
    let folder = folder(h2lab, seed)?;
    let path = folder.join(format!("{name}.json"));
    if let Ok(text) = fs::read_to_string(&path) {
        return serde_json::from_str(&text).with_context(|| format!("in {}", path.display()));
    }
    let found = measured::measured(h2lab, name, situation, seed)?;
    fs::create_dir_all(&folder)?;
    fs::write(&path, serde_json::to_string_pretty(&found)?)?;
    Ok(found)
}

/// Whether the planted cause is the first one found, or two are among those found and one of them is the first; nothing in a healthy
/// situation, also where h2lab says that it could not measure. What a planted cause brings with it does not count.
fn is_right(situation: &Situation, found: &Found) -> bool {
    let planted = &situation.planted;
    if planted.is_empty() {
        return found.causes.is_empty();
    }
    let mut all = found.all();
    all.retain(|id| !situation.also.contains(id));
    let is = |cause: &str, id: &String| cause.split('|').any(|one| one == id);
    let is_planted = |id: &String| planted.iter().any(|cause| is(cause, id));
    all.first().is_some_and(is_planted) && planted.iter().all(|cause| all.iter().any(|id| is(cause, id)))
}

/// `2.89 × (1.83–5.44)`.
fn effect_words([ratio, low, high]: [f64; 3]) -> String {
    format!("{ratio:.2} × ({low:.2}–{high:.2})")
}

fn judged(situation: &Situation, found: &Found) -> ItemOutcome {
    let mut outcome = ItemOutcome::default();
    let drawn: Vec<String> = found.drawn.iter().map(|(name, value)| format!("{name}={value}")).collect();
    outcome.note(drawn.join(" "));
    for sentence in &found.answer {
        outcome.note(sentence);
    }
    let all = found.all();
    let causes = if all.is_empty() { "none".to_owned() } else { all.join(" ") };
    if let Some(change) = &found.change {
        outcome.note(format!("effect of {}: {}", change.what, effect_words(change.effect)));
    }
    if found.unsound {
        outcome.note("no verdict: h2lab says that it could not measure here");
    }
    if let Some(removed) = found.removed {
        outcome.note(format!("effect of really taking the cause away: {}", effect_words(removed)));
    }
    outcome.check(is_right(situation, found), format!("{}; found {causes}", situation.expected()));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(causes: &[&str]) -> Found {
        Found { causes: causes.iter().map(|cause| (*cause).to_owned()).collect(), ..Found::default() }
    }

    fn situation(planted: &[&str]) -> Situation {
        Situation {
            planted: planted.iter().map(|cause| (*cause).to_owned()).collect(),
            ..Situation::default()
        }
    }

    #[test]
    fn the_planted_causes_must_come_first_and_nothing_in_a_healthy_situation() {
        let one = situation(&["LOSS101"]);
        assert!(is_right(&one, &found(&["LOSS101", "CONN101"])));
        assert!(!is_right(&one, &found(&["CONN101", "LOSS101"])) && !is_right(&one, &found(&[])));
        let two = situation(&["LOSS101", "CONN101|CONN105"]);
        assert!(is_right(&two, &found(&["CONN105", "LOSS101"])));
        assert!(is_right(&two, &found(&["LOSS101", "FLOW101", "CONN101"])), "both are among them");
        assert!(!is_right(&two, &found(&["FLOW101", "LOSS101", "CONN101"])), "one of them must be first");
        assert!(!is_right(&two, &found(&["LOSS101"])));
        assert!(is_right(&situation(&[]), &found(&[])) && !is_right(&situation(&[]), &found(&["LOSS101"])));
    }

    #[test]
    fn observations_follow_causes_and_are_none_and_what_a_cause_brings_with_it_does_not_count() {
        let observed = |causes: &[&str]| Found { observed: vec!["HOST106".to_owned()], ..found(causes) };
        assert!(is_right(&situation(&["HOST106"]), &observed(&[])));
        assert!(!is_right(&situation(&["HOST106"]), &observed(&["LOSS101"])));
        assert!(is_right(&situation(&[]), &observed(&[])));
        let bringing = Situation { also: vec!["MUX101".to_owned()], ..situation(&["CONN102"]) };
        assert!(is_right(&bringing, &found(&["MUX101", "CONN102"])));
        assert!(!is_right(&bringing, &found(&["MUX101"])));
    }

    #[test]
    fn a_healthy_situation_that_could_not_be_measured_says_nothing_wrong() {
        let unsound = |causes: &[&str]| Found { unsound: true, ..found(causes) };
        assert!(is_right(&situation(&[]), &unsound(&[])));
        assert!(!is_right(&situation(&[]), &unsound(&["LOSS101"])));
    }

    #[test]
    fn every_situation_is_well_formed_and_draws_what_it_names() {
        let mut situations = all().unwrap();
        situations.extend(situation::of_file(fix::SITUATIONS).unwrap());
        for (name, situation) in &situations {
            let drawn = situation.drawn(7, name);
            for id in situation.planted.iter().chain(&situation.also).flat_map(|cause| cause.split('|')) {
                assert!(id.len() > 5 && id.is_ascii(), "{name}: {id}");
            }
            for value in situation.removed.keys() {
                assert!(
                    drawn.contains_key(value) && situation.server.is_some(),
                    "{name}: {value} is not drawn"
                );
            }
            assert!(situation.is_removable() || !situation.of_difference, "{name}: of what?");
            for text in [&situation.diagnose, &situation.link, &situation.machine]
                .into_iter()
                .chain(&situation.server)
            {
                situation::filled(text, &drawn).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            }
            for text in situation.files.values() {
                situation::filled(text, &drawn).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            }
            assert_ne!(drawn, situation.drawn(8, name), "{name}: nothing is drawn");
            assert_eq!(drawn, situation.drawn(7, name));
        }
    }

    #[test]
    fn there_are_enough_of_each_kind() {
        let situations = all().unwrap();
        let count = |is: fn(usize) -> bool| {
            situations.values().filter(|situation| is(situation.planted.len())).count()
        };
        let kinds =
            [count(|planted| planted == 0), count(|planted| planted == 1), count(|planted| planted > 1)];
        assert!(kinds[0] >= 18 && kinds[1] >= 50 && kinds[2] >= 10, "{kinds:?}");
        let planted: std::collections::BTreeSet<&str> = situations
            .values()
            .flat_map(|situation| &situation.planted)
            .flat_map(|cause| cause.split('|'))
            .collect();
        assert!(planted.len() >= 39, "{planted:?}");
        let removable = situations.values().filter(|situation| situation.is_removable()).count();
        assert!(removable >= 30, "{removable}");
        // At 40 s each, with a build, they take 10 minutes at most.
        let ci = situations.values().filter(|situation| situation.ci).count();
        assert!((8..=12).contains(&ci), "{ci}");
    }
}
