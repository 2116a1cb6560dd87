//! The shipped scenarios: part of the program, so that `h2lab run NAME` works in any folder.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_base::spelling::distance;
use h2lab_model::scenario::{Estimate, Scenario};
use h2lab_model::timeline::study::TimelineStudy;
use h2lab_report::{TextStyle, hanging};

use super::exit::Usage;
use super::progress::about;

/// The scenarios by their file names in `scenarios/`, in the order of a list.
const SHIPPED: [(&str, &str); 12] = [
    ("compare", include_str!("../../../../scenarios/compare.toml")),
    ("h3", include_str!("../../../../scenarios/h3.toml")),
    ("sidecar-chaos", include_str!("../../../../scenarios/sidecar-chaos.toml")),
    ("sidecar-goaway", include_str!("../../../../scenarios/sidecar-goaway.toml")),
    ("bbr-vs-cubic", include_str!("../../../../scenarios/bbr-vs-cubic.toml")),
    ("burst-vs-random", include_str!("../../../../scenarios/burst-vs-random.toml")),
    ("connections-knob", include_str!("../../../../scenarios/connections-knob.toml")),
    ("keepalive-requests", include_str!("../../../../scenarios/keepalive-requests.toml")),
    ("keepalive-requests-envoy", include_str!("../../../../scenarios/keepalive-requests-envoy.toml")),
    ("frame-size", include_str!("../../../../scenarios/frame-size.toml")),
    ("long-fat-link", include_str!("../../../../scenarios/long-fat-link.toml")),
    ("early-push", include_str!("../../../../scenarios/early-push.toml")),
];

/// Whether a scenario of this name is shipped.
pub fn is_shipped(named: &Path) -> bool {
    SHIPPED.iter().any(|(name, _)| Path::new(name) == named)
}

/// The name of the shipped scenario that is spelled most like this word.
pub fn near(word: &str) -> &'static str {
    let apart = |name: &str| {
        // `sidecar` is a beginning of `sidecar-chaos`, and not far from `h3`.
        let is_part = !word.is_empty() && (name.contains(word) || word.contains(name));
        (!is_part, distance(&word.to_lowercase(), name))
    };
    SHIPPED.iter().map(|(name, _)| *name).min_by_key(|name| apart(name)).unwrap_or_default()
}

/// The scenario that `named` is: a file, or a shipped one.
pub fn text_of(named: &Path) -> Result<String, Usage> {
    let read = std::fs::read_to_string(named);
    let shipped = SHIPPED.iter().find(|(name, _)| Path::new(name) == named);
    match (read, shipped) {
        (Ok(text), _) => Ok(text),
        (Err(_), Some((_, text))) => Ok((*text).to_owned()),
        (Err(error), None) => Err(Usage(format!(
            "cannot read the scenario {}: {error}; `h2lab run --list` lists those that need no file",
            named.display()
        ))),
    }
}

/// A paragraph for each: its name, how long it takes, what it claims.
pub fn list(style: TextStyle) -> Result<String> {
    let mut out = String::new();
    for (name, text) in SHIPPED {
        let (takes, claim) = described(text).with_context(|| format!("the shipped scenario {name}"))?;
        out.push_str(&hanging("", &format!("{name}: {takes}"), style));
        out.push_str(&hanging("    ", &claim, style));
    }
    Ok(out)
}

/// How long it takes, whole and with `--quick`, and its claim.
fn described(text: &str) -> Result<(String, String)> {
    if TimelineStudy::is_asked_for(text) {
        let study = TimelineStudy::from_toml(text)?;
        let servers = study.timeline.servers.len();
        return Ok((format!("timelines of {servers} servers, about 90 s"), study.claim));
    }
    let scenario = Scenario::from_toml(text)?;
    let takes = |scenario: &Scenario| about(Estimate::new(&scenario.plan()).left(Duration::ZERO));
    let quick = takes(&scenario.quickened()?);
    Ok((format!("about {}, {quick} with --quick", takes(&scenario)), scenario.claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_of_scenarios_ships_and_is_listed_with_its_time() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
        let mut files = 0;
        let list = list(TextStyle::default()).unwrap();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert_eq!(text_of(Path::new(name)).unwrap(), std::fs::read_to_string(&path).unwrap(), "{name}");
            let line = list.lines().find(|line| line.starts_with(&format!("{name}: "))).unwrap();
            assert!(line.contains("about "), "{line}");
            files += 1;
        }
        assert_eq!(files, SHIPPED.len());
        assert!(list.contains("sidecar-chaos: about 3.") && list.contains(" min with --quick"), "{list}");
    }

    #[test]
    fn a_name_that_is_neither_a_file_nor_shipped_is_refused_with_where_to_look() {
        let error = text_of(Path::new("no-such")).unwrap_err().to_string();
        assert!(error.contains("no-such") && error.contains("h2lab run --list"), "{error}");
    }
}
