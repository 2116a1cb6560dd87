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
    /// Of those that h2lab could measure.
    healthy_with_findings: Share,
    /// Healthy situations that h2lab could not measure, and in which it named no cause: they show nothing either way.
    without_verdict: u32,
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
            0 if is_right && found.unsound => self.without_verdict += 1,
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

    fn judge(&self, outcome: &mut ItemOutcome, is_whole: bool) {
        let Self { one, two, healthy_with_findings: wrong, overlapping, .. } = *self;
        outcome.note(format!("of one planted cause: {}; of two: {}", one.words(), two.words()));
        let both = Share { hits: one.hits + two.hits, trials: one.trials + two.trials };
        for (kind, share) in [("one", one), ("two", two)].into_iter().filter(|(_, share)| share.trials == 0) {
            judge(outcome, is_whole, share, true, &format!("situations with {kind} planted"));
        }
        judge(outcome, is_whole, both, both.is_at_least(RIGHT), "right cause first");
        judge(outcome, is_whole, wrong, wrong.hits == 0, "findings in healthy situations");
        if self.without_verdict > 0 {
            outcome
                .note(format!("healthy situations without a verdict, not counted: {}", self.without_verdict));
        }
        let what = "the effects of the experiment and of really taking the cause away overlap";
        judge(outcome, is_whole, overlapping, overlapping.is_at_least(OVERLAPS), what);
    }
}

/// Causes in a line.
fn named(causes: &[String], none: &str) -> String {
    if causes.is_empty() { none.to_owned() } else { causes.join(" ") }
}

/// Whether the intervals of two effects have a value in common.
pub(super) fn overlap([_, low, high]: [f64; 3], [_, of_low, of_high]: [f64; 3]) -> bool {
    low <= of_high && of_low <= high
}

/// Checks a share, of which a whole run must have trials; a part of one may leave a kind out.
fn judge(outcome: &mut ItemOutcome, is_whole: bool, share: Share, holds: bool, what: &str) {
    match share.trials {
        0 if is_whole => outcome.check(false, format!("{what}: nothing was measured")),
        0 => outcome.note(format!("{what}: not measured")),
        _ => outcome.check(holds, format!("{what}: {}", share.words())),
    }
}

/// The score of what is kept in `folder`, with the matrix of what was planted and what was found first; a table of all in its
/// `table.md`. Of a whole run, in which nothing was left out with `--only`, every kind of situation must have been measured.
pub fn score(situations: &BTreeMap<String, Situation>, folder: &Path, is_whole: bool) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut score = Score::default();
    let mut record = String::new();
    let mut measured = 0_u32;
    for (name, situation) in situations {
        let Ok(text) = fs::read_to_string(folder.join(format!("{name}.json"))) else { continue };
        let found: Found = serde_json::from_str(&text)?;
        measured += 1;
        score.add(name, situation, &found);
        let _ = writeln!(record, "{}", serde_json::to_string(&Row::new(name, situation, &found))?);
        if !is_right(situation, &found) {
            let expected = situation.expected();
            outcome.note(format!("{name}: {expected}; found {}", named(&found.all(), "none")));
        }
    }
    ensure!(measured > 0, "no situation was measured with this build and seed");
    outcome.note(format!("measured: {measured} of {}", situations.len()));
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
    score.judge(&mut outcome, is_whole);
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

    fn situation(planted: &[&str]) -> Situation {
        Situation {
            planted: planted.iter().map(|cause| (*cause).to_owned()).collect(),
            ..Situation::default()
        }
    }

    fn found(causes: &[&str]) -> Found {
        Found { causes: causes.iter().map(|cause| (*cause).to_owned()).collect(), ..Found::default() }
    }

    /// What the experiment shows, and what really taking the cause away does.
    fn with_effects(found: Found, [effect, removed]: [[f64; 3]; 2]) -> Found {
        let change = Some(Change { what: "x".to_owned(), is_confirmed: true, effect });
        Found { change, removed: Some(removed), ..found }
    }

    fn keep(folder: &Path, name: &str, found: &Found) {
        fs::write(folder.join(format!("{name}.json")), serde_json::to_string(found).unwrap()).unwrap();
    }

    fn figures(outcome: &ItemOutcome) -> String {
        outcome.figures().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    /// One of each kind, and one more.
    fn situations() -> BTreeMap<String, Situation> {
        BTreeMap::from([
            ("one".to_owned(), situation(&["LOSS101"])),
            ("two".to_owned(), situation(&["LOSS101", "CONN101"])),
            ("well".to_owned(), situation(&[])),
            ("unmeasured".to_owned(), situation(&[])),
        ])
    }

    const EFFECTS: [[f64; 3]; 2] = [[2.0, 1.5, 3.0], [2.5, 2.0, 3.0]];

    #[test]
    fn what_is_kept_is_counted_by_kind_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let (place, situations) = (folder.path(), situations());
        let score = || score(&situations, place, true);
        assert!(score().is_err(), "nothing was measured");
        keep(place, "one", &with_effects(found(&["LOSS101"]), EFFECTS));
        keep(place, "two", &found(&["CONN101", "LOSS101"]));
        keep(place, "well", &observed());
        let outcome = score().unwrap();
        assert!(outcome.holds(), "{:?}", outcome.figures());
        assert!(figures(&outcome).contains("measured: 3 of 4"), "{}", figures(&outcome));
        let table = fs::read_to_string(place.join("table.md")).unwrap();
        assert!(
            table.contains("| one |  | LOSS101 | LOSS101 | yes | 2.00 × (1.50–3.00) | 2.50 × (2.00–3.00) |"),
            "{table}"
        );
        keep(place, "well", &found(&["LOSS101"]));
        assert!(!score().unwrap().holds(), "a finding in a healthy one");
        keep(place, "well", &found(&[]));
        keep(place, "two", &found(&["LOSS101"]));
        assert!(!score().unwrap().holds(), "one of two right is below 95 %");
    }

    #[test]
    fn a_whole_run_fails_without_one_of_the_kinds_and_a_part_of_one_says_which_it_lacks() {
        let all = [
            ("one", with_effects(found(&["LOSS101"]), EFFECTS), "situations with one planted"),
            ("two", found(&["CONN101", "LOSS101"]), "situations with two planted"),
            ("well", found(&[]), "findings in healthy situations"),
        ];
        for (left_out, _, what) in &all {
            let folder = tempfile::tempdir().unwrap();
            for (name, found, _) in all.iter().filter(|(name, ..)| name != left_out) {
                keep(folder.path(), name, found);
            }
            let says = figures(&score(&situations(), folder.path(), true).unwrap());
            assert!(says.contains(&format!("FAIL {what}: nothing was measured")), "{says}");
            let part = score(&situations(), folder.path(), false).unwrap();
            let says = figures(&part);
            assert!(part.holds() && says.contains(&format!("     {what}: not measured")), "{says}");
        }
        let folder = tempfile::tempdir().unwrap();
        for (name, found, _) in &all {
            keep(folder.path(), name, &Found { removed: None, ..found.clone() });
        }
        let [whole, part] = [true, false].map(|whole| score(&situations(), folder.path(), whole).unwrap());
        assert!(!whole.holds() && part.holds(), "nothing was really taken away: {}", figures(&whole));
    }

    #[test]
    fn a_healthy_situation_without_a_verdict_does_not_count_and_one_with_a_cause_does() {
        let unsound = |causes: &[&str]| Found { unsound: true, ..found(causes) };
        let counted = |found: &Found| {
            let mut score = Score::default();
            score.add("x", &situation(&[]), found);
            (score.healthy_with_findings.hits, score.healthy_with_findings.trials, score.without_verdict)
        };
        assert_eq!(counted(&unsound(&[])), (0, 0, 1));
        assert_eq!(counted(&unsound(&["LOSS101"])), (1, 1, 0));
        assert_eq!(counted(&found(&[])), (0, 1, 0));
    }
}
