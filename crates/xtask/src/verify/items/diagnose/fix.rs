//! `h2lab diagnose --config FILE --fix` against configurations in which a cause is planted: what the fix closes of the difference.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::score::overlap;
use super::situation::{Situation, of_file};
use super::{Found, effect_words, kept_or_measured};
use crate::verify::items::{Item, item};
use crate::verify::outcome::ItemOutcome;

/// The situations: those of `situations.toml` with the setting that takes the cause away.
pub const SITUATIONS: &str = include_str!("fixes.toml");

/// The part of the difference that the interval of what is closed must lie above.
const LEAST_CLOSED: f64 = 0.5;

/// The part of the document that says what the fix did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fixed {
    says: Vec<String>,
    /// The setting as its product writes it: the name of the change in the experiment, too.
    pub setting: Option<String>,
    before: Option<[f64; 3]>,
    after: Option<[f64; 3]>,
    /// How many times better it makes HTTP/2 itself, with an interval.
    #[serde(default)]
    effect: Option<[f64; 3]>,
    closed: Option<[f64; 3]>,
    worse: Vec<String>,
    diff: Option<String>,
    #[serde(default)]
    doubt: Option<String>,
}

/// An item for each situation.
pub fn items(seed: u64) -> Result<Vec<Item>> {
    let items = of_file(SITUATIONS)?.into_iter().map(|(name, situation)| {
        let claim = format!(
            "{}; the fix is `{}`, closes more than half of the difference, and has the effect that the experiment stated",
            situation.is, situation.setting
        );
        item(name.clone(), claim, move |h2lab| {
            let found = kept_or_measured(h2lab, &name, &situation, seed)?;
            Ok(judged(&situation, &found))
        })
    });
    Ok(items.collect())
}

fn judged(situation: &Situation, found: &Found) -> ItemOutcome {
    let mut outcome = ItemOutcome::default();
    let drawn: Vec<String> = found.drawn.iter().map(|(name, value)| format!("{name}={value}")).collect();
    outcome.note(drawn.join(" "));
    let Some(fix) = &found.fix else {
        outcome.check(false, "the document says nothing of a fix");
        return outcome;
    };
    for sentence in &fix.says {
        outcome.note(sentence);
    }
    let setting = fix.setting.as_deref().unwrap_or("none");
    outcome.check(setting.contains(&situation.setting), format!("setting: {setting}"));
    let added = fix.diff.iter().flat_map(|diff| diff.lines()).filter(|line| line.starts_with('+')).count();
    outcome.check(added == 2, format!("one line of the configuration differs: {added} with its head"));
    let words = |of: Option<[f64; 3]>| {
        of.map_or("unknown".to_owned(), |[it, low, high]| format!("{it:.2} ({low:.2}-{high:.2})"))
    };
    // Where HTTP/1.1 is slow as well, the difference before is near 1, and a share of it says nothing: nothing may be left of it.
    let is_gone =
        fix.after.is_some_and(|[_, _, high]| high < 1.0) && fix.effect.is_some_and(|[_, low, _]| low > 1.0);
    outcome.check(
        is_gone || fix.closed.is_some_and(|[_, low, _]| low > LEAST_CLOSED),
        format!(
            "difference before {}, after {}; closed share {}",
            words(fix.before),
            words(fix.after),
            words(fix.closed)
        ),
    );
    match stated(found, fix) {
        Some([stated, made]) => outcome.check(
            overlap(stated, made),
            format!("effect of the fix {}, stated {}", effect_words(made), effect_words(stated)),
        ),
        None => outcome.note("the experiment stated no effect of this setting on the same figure"),
    }
    if let Some(doubt) = &fix.doubt {
        outcome.check(false, format!("not measured soundly: {doubt}"));
    }
    if !fix.worse.is_empty() {
        outcome.note(format!("worse: {}", fix.worse.join("; ")));
    }
    outcome
}

/// The effect of the fix as the experiment stated it, and as the rounds of the fix have it. `None` if the experiment did not confirm
/// it, or compared another figure: which one the fix compares, its sentence alone says (`…: p95 from 550 ms to 126 ms`).
fn stated(found: &Found, fix: &Fixed) -> Option<[[f64; 3]; 2]> {
    let change = found.change.as_ref().filter(|change| change.is_confirmed)?;
    let of_metric = format!(": {} from ", found.metric.as_ref()?);
    let is_same_figure = fix.says.iter().any(|one| one.contains(&of_metric));
    let is_same = is_same_figure && fix.setting.as_ref() == Some(&change.what);
    is_same.then_some([change.effect, fix.effect?])
}

#[cfg(test)]
mod tests {
    use super::super::Change;
    use super::*;

    fn found(closed: [f64; 3], setting: &str) -> Found {
        let fix = Fixed {
            says: Vec::new(),
            setting: Some(setting.to_owned()),
            before: Some([2.0, 1.5, 2.5]),
            after: Some([1.0, 0.9, 1.1]),
            effect: None,
            closed: Some(closed),
            worse: Vec::new(),
            diff: Some("--- a\n+++ a\n@@ -1,1 +1,1 @@\n-x 1\n+x 2\n".to_owned()),
            doubt: None,
        };
        Found { fix: Some(fix), ..Found::default() }
    }

    #[test]
    fn a_fix_must_be_the_right_one_and_close_more_than_half() {
        let situation = Situation { setting: "x".to_owned(), ..Situation::default() };
        assert!(judged(&situation, &found([0.9, 0.6, 1.2], "A: x 2")).holds());
        assert!(!judged(&situation, &found([0.9, 0.4, 1.4], "A: x 2")).holds());
        assert!(!judged(&situation, &found([0.9, 0.6, 1.2], "A: y 2")).holds());
        let quicker = |after: f64, effect: f64| {
            let mut found = found([4.2, 0.2, 8.2], "A: x 2");
            let fix = found.fix.as_mut().unwrap();
            (fix.after, fix.effect) = (Some([0.3, 0.1, after]), Some([2.4, effect, 7.8]));
            judged(&situation, &found).holds()
        };
        assert!(quicker(0.8, 2.2), "HTTP/2 is quicker than HTTP/1.1 with the fix, which is what helped");
        assert!(!quicker(1.1, 2.2) && !quicker(0.8, 0.9));
        assert!(!judged(&situation, &Found { fix: None, ..found([0.9, 0.6, 1.2], "x") }).holds());
    }

    #[test]
    fn the_effect_of_a_fix_must_overlap_the_one_that_the_experiment_stated_for_the_same_setting_and_figure() {
        let situation = Situation { setting: "x".to_owned(), ..Situation::default() };
        let holds = |what: &str, is_confirmed: bool, metric: &str, made: [f64; 3]| {
            let change = Change { what: what.to_owned(), is_confirmed, effect: [2.0, 1.5, 2.5] };
            let mut found = found([0.9, 0.6, 1.2], "A: x 2");
            let fix = found.fix.as_mut().unwrap();
            fix.effect = Some(made);
            fix.says = vec!["Fix A: x 2 (CONN101, confirmed): p95 from 90 ms to 40 ms, 2 ×.".to_owned()];
            let metric = Some(metric.to_owned());
            judged(&situation, &Found { change: Some(change), metric, ..found }).holds()
        };
        assert!(holds("A: x 2", true, "p95", [2.6, 2.5, 3.0]));
        assert!(!holds("A: x 2", true, "p95", [2.8, 2.6, 3.0]));
        assert!(!holds("A: x 2", true, "p95", [1.2, 1.1, 1.4]));
        // Nothing to compare with.
        assert!(holds("4 connections", true, "p95", [2.8, 2.6, 3.0]));
        assert!(holds("A: x 2", false, "p95", [2.8, 2.6, 3.0]));
        assert!(holds("A: x 2", true, "p99", [2.8, 2.6, 3.0]));
    }
}
