//! The score of all situations of a seed: how often the planted cause is found first, and what was found instead.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::record::Row;
use super::{Found, effect_words, is_right};
use crate::verify::items::diagnose::situation::Situation;
use crate::verify::outcome::ItemOutcome;

/// So many of the planted causes must be found first.
const RIGHT: f64 = 0.95;
/// In so many cases the interval of an experiment must overlap that of really taking the cause away.
const OVERLAPS: f64 = 0.9;

/// Hits among trials.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    hits: u32,
    trials: u32,
}

impl Share {
    fn count(&mut self, is_hit: bool) {
        self.trials += 1;
        self.hits += u32::from(is_hit);
    }

    fn is_at_least(self, share: f64) -> bool {
        f64::from(self.hits) >= share * f64::from(self.trials)
    }

    /// `19 of 24 (60 to 91 %)`.
    fn words(self) -> String {
        let [low, high] = self.wilson().map(|share| share * 100.0);
        format!("{} of {} ({low:.0} to {high:.0} %)", self.hits, self.trials)
    }

    /// Wilson's interval of 95 %.
    fn wilson(self) -> [f64; 2] {
        const Z: f64 = 1.96;
        if self.trials == 0 {
            return [0.0, 1.0];
        }
        let n = f64::from(self.trials);
        let p = f64::from(self.hits) / n;
        let centre = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        [centre - half, centre + half].map(|end| (end / (1.0 + Z * Z / n)).clamp(0.0, 1.0))
    }
}

/// What is counted.
#[derive(Debug, Default)]
struct Score {
    one: Share,
    two: Share,
    healthy_with_findings: Share,
    overlapping: Share,
    /// How often each planted cause was found as which.
    matrix: BTreeMap<(String, String), u32>,
    /// A row of Markdown for each situation.
    table: String,
}

impl Score {
    fn add(&mut self, name: &str, situation: &Situation, found: &Found) {
        let is_right = is_right(situation, found);
        match situation.planted.len() {
            0 => self.healthy_with_findings.count(!is_right),
            1 => self.one.count(is_right),
            _ => self.two.count(is_right),
        }
        // Observations are no findings about a healthy server.
        let all = if situation.planted.is_empty() { found.causes.clone() } else { found.all() };
        let first = &all[..all.len().min(situation.planted.len().max(1))];
        let planted = named(&situation.planted, "healthy");
        let nothing = if found.unsound { "no verdict" } else { "none" };
        *self.matrix.entry((planted.clone(), named(first, nothing))).or_default() += 1;
        let of = |effect: Option<[f64; 3]>| effect.map(effect_words).unwrap_or_default();
        let changed = found.change.as_ref().map(|change| change.effect);
        let drawn: Vec<String> = found.drawn.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = writeln!(
            self.table,
            "| {name} | {} | {planted} | {} | {} | {} | {} |",
            drawn.join(" "),
            named(&all, nothing),
            if is_right { "yes" } else { "no" },
            of(changed),
            of(found.removed)
        );
        // A change that is not known to help takes nothing away.
        let confirmed = found.change.as_ref().filter(|change| change.is_confirmed);
        if let Some((change, removed)) = confirmed.zip(found.removed) {
            self.overlapping.count(overlap(change.effect, removed));
        }
    }
}

/// Causes in a line.
fn named(causes: &[String], none: &str) -> String {
    if causes.is_empty() { none.to_owned() } else { causes.join(" ") }
}

/// Whether the intervals of two effects have a value in common.
fn overlap([_, low, high]: [f64; 3], [_, of_low, of_high]: [f64; 3]) -> bool {
    low <= of_high && of_low <= high
}

/// The score of what is kept in `folder`, with the matrix of what was planted and what was found first; a table of all in its
/// `table.md`.
pub fn score(situations: &BTreeMap<String, Situation>, folder: &Path) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut score = Score::default();
    let mut record = String::new();
    for (name, situation) in situations {
        let Ok(text) = fs::read_to_string(folder.join(format!("{name}.json"))) else { continue };
        let found: Found = serde_json::from_str(&text)?;
        score.add(name, situation, &found);
        let _ = writeln!(record, "{}", serde_json::to_string(&Row::new(name, situation, &found))?);
        if !is_right(situation, &found) {
            let expected = situation.expected();
            outcome.note(format!("{name}: {expected}; found {}", named(&found.all(), "none")));
        }
    }
    ensure!(!score.matrix.is_empty(), "no situation was measured with this build and seed");
    for ((planted, found), count) in &score.matrix {
        outcome.note(format!("{planted:<24} found as {found:<24} {count}"));
    }
    let head = "| situation | drawn | planted | found | right | experiment | really removed |\n|---|---|---|---|---|---|---|\n";
    let path = folder.join("table.md");
    fs::write(&path, format!("{head}{}", score.table))?;
    outcome.note(format!("all of them: {}", path.display()));
    let path = folder.join("record.jsonl");
    fs::write(&path, record)?;
    outcome.note(format!("for `cargo xtask confirmed`: {}", path.display()));
    let both = Share { hits: score.one.hits + score.two.hits, trials: score.one.trials + score.two.trials };
    outcome.note(format!("of one planted cause: {}; of two: {}", score.one.words(), score.two.words()));
    outcome.check(both.is_at_least(RIGHT), format!("right cause first: {}", both.words()));
    let wrong = score.healthy_with_findings;
    outcome.check(wrong.hits == 0, format!("findings in healthy situations: {}", wrong.words()));
    outcome.check(
        score.overlapping.is_at_least(OVERLAPS),
        format!(
            "the effects of the experiment and of really taking the cause away overlap: {}",
            score.overlapping.words()
        ),
    );
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::*;

    #[test]
    fn wilsons_interval_is_that_of_the_books() {
        let [low, high] = Share { hits: 9, trials: 10 }.wilson();
        assert!((low - 0.596).abs() < 0.001 && (high - 0.982).abs() < 0.001, "{low} {high}");
        let [low, high] = Share::default().wilson();
        assert!(low.abs() < 1e-9 && (high - 1.0).abs() < 1e-9, "nothing is known");
        assert!(Share { hits: 19, trials: 20 }.is_at_least(RIGHT));
        assert!(!Share { hits: 18, trials: 20 }.is_at_least(RIGHT));
    }

    #[test]
    fn effects_overlap_where_their_intervals_do() {
        assert!(overlap([2.0, 1.5, 3.0], [4.0, 3.0, 5.0]) && overlap([4.0, 3.0, 5.0], [2.0, 1.5, 3.0]));
        assert!(!overlap([2.0, 1.5, 2.9], [4.0, 3.0, 5.0]) && !overlap([4.0, 3.0, 5.0], [2.0, 1.5, 2.9]));
        assert!(overlap([2.0, 1.0, 9.0], [4.0, 3.0, 5.0]), "one lies in the other");
    }

    #[test]
    fn only_changes_that_were_confirmed_are_compared() {
        let effect = [2.0, 1.5, 3.0];
        let counted = |is_confirmed| {
            let change = Some(Change { what: "x".to_owned(), is_confirmed, effect });
            let mut score = Score::default();
            score.add(
                "x",
                &Situation::default(),
                &Found { change, removed: Some(effect), ..Found::default() },
            );
            (score.overlapping.hits, score.overlapping.trials)
        };
        assert_eq!([false, true].map(counted), [(0, 0), (1, 1)]);
    }

    fn observed() -> Found {
        Found { observed: vec!["HOST106".to_owned()], ..Found::default() }
    }

    #[test]
    fn what_is_kept_is_counted_by_kind_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let situation = |planted: &[&str]| Situation {
            planted: planted.iter().map(|cause| (*cause).to_owned()).collect(),
            ..Situation::default()
        };
        let situations = BTreeMap::from([
            ("one".to_owned(), situation(&["LOSS101"])),
            ("two".to_owned(), situation(&["LOSS101", "CONN101"])),
            ("well".to_owned(), situation(&[])),
            ("unmeasured".to_owned(), situation(&[])),
        ]);
        let keep = |name: &str, causes: &[&str], effects: Option<[[f64; 3]; 2]>| {
            let causes = causes.iter().map(|cause| (*cause).to_owned()).collect();
            let change =
                effects.map(|[effect, _]| Change { what: "x".to_owned(), is_confirmed: true, effect });
            let removed = effects.map(|[_, removed]| removed);
            let found = Found { causes, change, removed, ..Found::default() };
            let text = serde_json::to_string(&found).unwrap();
            fs::write(folder.path().join(format!("{name}.json")), text).unwrap();
        };
        assert!(score(&situations, folder.path()).is_err(), "nothing was measured");
        keep("one", &["LOSS101"], Some([[2.0, 1.5, 3.0], [2.5, 2.0, 3.0]]));
        keep("two", &["CONN101", "LOSS101"], None);
        fs::write(folder.path().join("well.json"), serde_json::to_string(&observed()).unwrap()).unwrap();
        let outcome = score(&situations, folder.path()).unwrap();
        assert!(outcome.holds(), "{:?}", outcome.figures());
        let table = fs::read_to_string(folder.path().join("table.md")).unwrap();
        assert!(
            table.contains("| one |  | LOSS101 | LOSS101 | yes | 2.00 × (1.50–3.00) | 2.50 × (2.00–3.00) |"),
            "{table}"
        );
        keep("well", &["LOSS101"], None);
        assert!(!score(&situations, folder.path()).unwrap().holds(), "a finding in a healthy one");
        keep("well", &[], None);
        keep("two", &["LOSS101"], None);
        assert!(!score(&situations, folder.path()).unwrap().holds(), "one of two right is below 95 %");
    }
}
