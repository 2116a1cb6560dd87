//! `h2lab diagnose` against situations with planted causes, and healthy ones: which causes it names, as a matrix.
//!
//! What each situation draws at random follows from the seed. Results are kept by seed and build in
//! `target/verify/diagnose/`, so that a call that was ended is resumed by another one with the same seed; `score` counts what is kept.

pub mod fix;
mod situation;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{Item, item};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use situation::{Situation, all};

/// No situation takes as long: the budget of its diagnosis is below a minute.
const DEADLINE_S: &str = "240";

/// What a diagnosis found, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Found {
    /// The causes, the most important first.
    causes: Vec<String>,
    /// The first sentences of the answer.
    answer: Vec<String>,
    /// The values that were drawn.
    drawn: BTreeMap<String, String>,
    /// What `--fix` did, if it was asked for.
    #[serde(default)]
    fix: Option<fix::Fixed>,
}

/// The parts of a document that are read.
#[derive(Debug, Deserialize)]
struct Document {
    answer: Vec<String>,
    causes: Vec<Cause>,
    fix: Option<fix::Fixed>,
}

#[derive(Debug, Deserialize)]
struct Cause {
    id: String,
}

/// All situations, and the score of those that are kept.
pub fn items(seed: u64) -> Result<Vec<Item>> {
    let situations = all(include_str!("situations.toml"))?;
    let mut items: Vec<Item> = Vec::new();
    for (name, situation) in situations.clone() {
        let claim = format!("{}; {}", situation.is, situation.expected());
        items.push(item(name.clone(), claim, move |h2lab| {
            let found = kept_or_measured(h2lab, &name, &situation, seed)?;
            Ok(judged(&situation, &found))
        }));
    }
    let claim = "of all situations of this seed that were measured: the right cause is first in 95 %, no finding in a healthy one";
    items.push(item("score", claim, move |h2lab| score(&situations, &folder(h2lab, seed)?)));
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
    let found = measured(h2lab, name, situation, seed)?;
    fs::create_dir_all(&folder)?;
    fs::write(&path, serde_json::to_string_pretty(&found)?)?;
    Ok(found)
}

fn measured(h2lab: &H2lab, name: &str, situation: &Situation, seed: u64) -> Result<Found> {
    let drawn = situation.drawn(seed, name);
    let place = tempfile::Builder::new().prefix("h2lab-verify-").tempdir()?;
    for (file, text) in &situation.files {
        fs::write(place.path().join(file), situation::filled(text, &drawn)?)?;
    }
    if situation.certificate {
        crate::verify::nginx::make_certificate(place.path())?;
    }
    let program = h2lab.path().to_str().context("the path of h2lab is not text")?;
    let diagnose = situation::filled(&situation.diagnose, &drawn)?;
    let diagnose = format!("diagnose {diagnose} --json --quiet --seed {}", seed % 1_000 + 1);
    let words = match &situation.server {
        None => format!("{program} {diagnose}"),
        Some(server) => {
            let server = situation::filled(server, &drawn)?.replace("H2LAB", program);
            let link = situation::filled(&situation.link, &drawn)?;
            format!("{program} link {link} --server '{server}' --client '{program} {diagnose}'")
        }
    };
    let output = Command::new("timeout")
        .args(["--kill-after=10", DEADLINE_S, "sh", "-c", &words])
        .current_dir(place.path())
        .stdin(Stdio::null())
        .output()
        .context("cannot start `timeout` of coreutils")?;
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let Ok(document) = serde_json::from_str::<Document>(&stdout) else {
        bail!("`{words}` ended with {:?}: {}", output.status.code(), stderr.trim());
    };
    let causes = document.causes.into_iter().map(|cause| cause.id).collect();
    Ok(Found { causes, answer: document.answer, drawn, fix: document.fix })
}

/// Whether the planted causes are the first ones found.
fn is_right(situation: &Situation, found: &Found) -> bool {
    let planted = &situation.planted;
    if planted.is_empty() {
        return found.causes.is_empty();
    }
    let first: Vec<&String> = found.causes.iter().take(planted.len()).collect();
    planted.iter().all(|cause| first.iter().any(|found| cause.split('|').any(|one| one == found.as_str())))
}

fn judged(situation: &Situation, found: &Found) -> ItemOutcome {
    let mut outcome = ItemOutcome::default();
    let drawn: Vec<String> = found.drawn.iter().map(|(name, value)| format!("{name}={value}")).collect();
    outcome.note(drawn.join(" "));
    for sentence in &found.answer {
        outcome.note(sentence);
    }
    let causes = if found.causes.is_empty() { "none".to_owned() } else { found.causes.join(" ") };
    outcome.check(is_right(situation, found), format!("{}; found {causes}", situation.expected()));
    outcome
}

/// The matrix of what was planted and what was found first.
fn score(situations: &BTreeMap<String, Situation>, folder: &Path) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut matrix: BTreeMap<(String, String), u32> = BTreeMap::new();
    let (mut planted, mut right, mut healthy, mut false_ones) = (0_u32, 0_u32, 0_u32, 0_u32);
    for (name, situation) in situations {
        let Ok(text) = fs::read_to_string(folder.join(format!("{name}.json"))) else { continue };
        let found: Found = serde_json::from_str(&text)?;
        let is_right = is_right(situation, &found);
        if situation.planted.is_empty() {
            healthy += 1;
            false_ones += u32::from(!is_right);
        } else {
            planted += 1;
            right += u32::from(is_right);
        }
        let named = |causes: &[String]| if causes.is_empty() { "none".to_owned() } else { causes.join("+") };
        let first = &found.causes[..found.causes.len().min(situation.planted.len().max(1))];
        *matrix.entry((named(&situation.planted), named(first))).or_default() += 1;
        if !is_right {
            outcome.note(format!("{name}: found {}", named(&found.causes)));
        }
    }
    ensure!(planted + healthy > 0, "no situation was measured with this build and seed");
    for ((planted, found), count) in matrix {
        outcome.note(format!("{planted:<24} found as {found:<24} {count}"));
    }
    let [low, high] = wilson(right, planted).map(|share| share * 100.0);
    outcome.check(
        f64::from(right) >= 0.95 * f64::from(planted),
        format!("right cause first: {right} of {planted} ({low:.0} to {high:.0} %)"),
    );
    outcome.check(false_ones == 0, format!("false findings: {false_ones} in {healthy} healthy situations"));
    Ok(outcome)
}

/// Wilson's interval of 95 % for a share.
fn wilson(hits: u32, trials: u32) -> [f64; 2] {
    const Z: f64 = 1.96;
    if trials == 0 {
        return [0.0, 1.0];
    }
    let (n, p) = (f64::from(trials), f64::from(hits) / f64::from(trials));
    let centre = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    [centre - half, centre + half].map(|end| (end / (1.0 + Z * Z / n)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(causes: &[&str]) -> Found {
        let causes = causes.iter().map(|cause| (*cause).to_owned()).collect();
        Found { causes, answer: Vec::new(), drawn: BTreeMap::new(), fix: None }
    }

    #[test]
    fn the_planted_causes_must_come_first_and_nothing_in_a_healthy_situation() {
        let situation = |planted: &[&str]| Situation {
            planted: planted.iter().map(|cause| (*cause).to_owned()).collect(),
            ..Situation::default()
        };
        let one = situation(&["LOSS101"]);
        assert!(is_right(&one, &found(&["LOSS101", "CONN101"])));
        assert!(!is_right(&one, &found(&["CONN101", "LOSS101"])) && !is_right(&one, &found(&[])));
        let two = situation(&["LOSS101", "CONN101|CONN105"]);
        assert!(is_right(&two, &found(&["CONN105", "LOSS101"])));
        assert!(!is_right(&two, &found(&["LOSS101", "FLOW101", "CONN101"])));
        assert!(is_right(&situation(&[]), &found(&[])) && !is_right(&situation(&[]), &found(&["LOSS101"])));
    }

    #[test]
    fn wilsons_interval_is_that_of_the_books() {
        let [low, high] = wilson(9, 10);
        assert!((low - 0.596).abs() < 0.001 && (high - 0.982).abs() < 0.001, "{low} {high}");
        let [low, high] = wilson(0, 0);
        assert!(low.abs() < 1e-9 && (high - 1.0).abs() < 1e-9, "nothing is known");
    }

    #[test]
    fn every_situation_is_well_formed_and_draws_what_it_names() {
        let mut situations = all(include_str!("situations.toml")).unwrap();
        situations.extend(all(fix::SITUATIONS).unwrap());
        for (name, situation) in &situations {
            let drawn = situation.drawn(7, name);
            for text in [&situation.diagnose, &situation.link].into_iter().chain(&situation.server) {
                situation::filled(text, &drawn).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            }
            for text in situation.files.values() {
                situation::filled(text, &drawn).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            }
            assert_ne!(drawn, situation.drawn(8, name), "{name}: nothing is drawn");
            assert_eq!(drawn, situation.drawn(7, name));
        }
        let healthy = situations.values().filter(|situation| situation.planted.is_empty()).count();
        assert!(healthy >= 8, "{healthy}");
    }
}
