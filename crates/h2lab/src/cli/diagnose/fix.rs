//! `--fix`: which setting is changed, and the copy of the configuration that has it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::experiment::{Again, Experiment, Outcome, Remedy};
use h2lab_base::text::made_printable_lines;
use h2lab_lab::sut::{self, OwnConfig};
use h2lab_model::Fix;
use h2lab_model::experiment::{Knob, ServerSetting};
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::{Cell, Change, Target};
use h2lab_model::settings::edit::{self, ConfigFile};
use h2lab_model::settings::{Peer, Role, Version};
use h2lab_report::Fixing;
use similar::TextDiff;

use super::plan::FIX_ROUNDS;
use crate::run::messages::Failure;

/// Where changed files are kept, in the run folder.
const FOLDER: &str = "fix";
/// The file of all of their differences.
const DIFF: &str = "fix.diff";
/// Lines around a change in a diff.
const CONTEXT: usize = 3;

/// A fix that is measured.
pub(super) struct Chosen {
    pub setting: ServerSetting,
    /// Whether the experiment had shown that it helps.
    pub is_confirmed: bool,
    pub again: Again,
}

/// The product and version of the server that was started for `cell`.
pub(super) fn peer(run: &RunRecord, cell: &Cell) -> Peer {
    let its = run.repetitions.iter().filter(|one| one.cell.index == cell.index);
    let version =
        its.filter_map(|one| one.server.as_ref()).find_map(|server| Version::parse(&server.version));
    Peer { version, ..Peer::started(cell.target.name()) }
}

/// The settings of the started server that would remove findings about `cell`, in the order of the findings. The first cause of each
/// is one that it shows.
pub(super) fn settings(
    run: &RunRecord,
    findings: &[Finding],
    cell: &Cell,
    own: Option<&OwnConfig>,
) -> Vec<ServerSetting> {
    if matches!(cell.target, Target::Url { .. }) || cell.sidecar.is_some() {
        return Vec::new();
    }
    let peer = peer(run, cell);
    let mut found: Vec<ServerSetting> = Vec::new();
    let of_cell = findings.iter().filter(|finding| finding.cell == cell.index && !finding.is_observation());
    for (finding, fix) in of_cell.flat_map(|finding| finding.fixes.iter().map(move |fix| (finding, fix))) {
        let is_its = peer.product.is_some_and(|product| product.name == fix.product);
        let Some(wish) = fix.wish.filter(|wish| is_its && wish.role == Role::Front) else { continue };
        let change = Change { knob: wish.knob, value: wish.value };
        let Some(words) = edit::words(&peer, &change) else { continue };
        if own.is_some_and(|own| edit::edited(&peer, &change, &own.files).is_err()) {
            continue;
        }
        match found.iter_mut().find(|one| one.change.knob == change.knob) {
            Some(one) => one.causes.push(finding.rule.clone()),
            None => found.push(ServerSetting { change, words, causes: vec![finding.rule.clone()] }),
        }
    }
    for setting in &mut found {
        let knob = Knob::Server(setting.clone());
        let of_cell = || findings.iter().filter(|finding| finding.cell == cell.index);
        setting.causes.sort_by_key(|id| {
            of_cell().any(|its| its.rule == *id && its.shown_instead(&knob, of_cell()).is_some())
        });
    }
    found
}

/// The fix of the best confirmed change; if there is none, of the settings whose change was not tried or not decided the one that
/// looks best: of those of which nothing is known, the first.
pub(super) fn choose(experiment: &Experiment, settings: &[ServerSetting]) -> Option<(ServerSetting, bool)> {
    let of = |knob: &Knob| match knob {
        Knob::Server(setting) => Some(setting.clone()),
        _ => None,
    };
    if let Some(setting) = experiment.confirmed().into_iter().find_map(|trial| of(&trial.knob)) {
        return Some((setting, true));
    }
    let open = settings.iter().filter_map(|setting| {
        let trial = experiment.trials.iter().find(|trial| of(&trial.knob).as_ref() == Some(setting));
        let looks = match trial.map(|trial| (&trial.outcome, trial.effect)) {
            Some((Outcome::Undecided, Some(effect))) => effect.ratio,
            // Nothing is known of its effect.
            None | Some((Outcome::Undecided | Outcome::Void(_), _)) => 1.0,
            Some(_) => return None,
        };
        Some((setting, looks))
    });
    let mut open: Vec<(&ServerSetting, f64)> = open.collect();
    open.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    open.first().map(|(setting, _)| ((*setting).clone(), false))
}

/// Why settings of the product of `peer` cannot be changed in these files: the value is as large already, or the
/// product does not have the setting.
fn refusals<'a>(peer: &Peer, offered: impl Iterator<Item = &'a Fix>, files: &[ConfigFile]) -> Vec<String> {
    let mut refusals: Vec<String> = Vec::new();
    for fix in offered.filter(|fix| peer.product.is_some_and(|product| product.name == fix.product)) {
        let why = match fix.wish.filter(|wish| wish.role == Role::Front) {
            _ if !fix.has_setting() => Some(fix.why.clone()),
            Some(wish) => edit::edited(peer, &Change { knob: wish.knob, value: wish.value }, files).err(),
            None => None,
        };
        refusals.extend(why.filter(|why| !refusals.contains(why)));
    }
    refusals
}

/// The text for findings without a setting.
const NONE: &str = "no setting was found that would help";

/// The rules that found something about `cell`, each once.
fn rules_of<'a>(findings: impl IntoIterator<Item = &'a Finding>, cell: &Cell) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for finding in findings.into_iter().filter(|finding| finding.cell == cell.index) {
        if !found.contains(&finding.rule.as_str()) {
            found.push(&finding.rule);
        }
    }
    found
}

/// Why nothing is changed where HTTP/2 is no slower, whatever was found about `cell`.
fn healthy(findings: &[Finding], cell: &Cell) -> String {
    let of = |of_failures: bool| {
        rules_of(findings.iter().filter(move |finding| finding.of_failures == of_failures), cell)
    };
    let [of_times, of_failures] = [false, true].map(of);
    let none = "HTTP/2 is no slower than the other protocol here";
    if of_times.is_empty() && of_failures.is_empty() {
        return format!("{none}, so there is nothing to fix");
    }
    let observed = of_times.first().map(|first| {
        let found = of_times.join(", ");
        format!("; what was observed ({found}) makes none (`h2lab explain {first}` says what can be changed)")
    });
    let failing = of_failures.first().map(|first| {
        let found = of_failures.join(", ");
        format!("; what makes requests fail ({found}) is not measured by that (see `h2lab explain {first}`)")
    });
    let [observed, failing] = [observed, failing].map(Option::unwrap_or_default);
    format!("{none}, and a fix is measured by what it closes of such a difference{observed}{failing}")
}

/// What is reported where nothing is changed.
pub(super) fn not_made(
    experiment: &Experiment,
    run: &RunRecord,
    findings: &[Finding],
    cell: &Cell,
    own: Option<&OwnConfig>,
) -> Fixing {
    let of_cell = findings.iter().filter(|finding| finding.cell == cell.index && !finding.is_observation());
    let fixes = of_cell.flat_map(|finding| &finding.fixes);
    let refusals = own.map_or_else(Vec::new, |own| refusals(&peer(run, cell), fixes, &own.files));
    let left: Vec<&Fix> = findings
        .iter()
        .filter(|finding| finding.cell == cell.index)
        // A change that was without effect here is no advice.
        .flat_map(|finding| experiment.fixes_left(finding))
        .filter(|fix| fix.has_setting())
        .collect();
    let lines: Vec<String> = left.iter().map(|fix| format!("{}: {}", fix.product, fix.setting)).collect();
    // The client of `--again` is as that of the run, unless flags say otherwise.
    let is_of_client = |fix: &&Fix| fix.wish.is_some_and(|wish| wish.role == Role::Client);
    let flags = if left.iter().any(is_of_client) { ", with the flags of the client's changes" } else { "" };
    let is_none = lines.is_empty();
    let lines = if is_none { NONE.to_owned() } else { lines.join(", ") };
    Fixing::Not(match &cell.target {
        Target::Url { .. } if is_none => format!("h2lab changes nothing on live servers, and {NONE}"),
        Target::Url { .. } => format!(
            "h2lab changes nothing on live servers; to change by yourself: {lines}; then measure again by `h2lab diagnose --again latest`{flags}"
        ),
        _ if experiment.is_healthy() => healthy(findings, cell),
        _ if rules_of(findings, cell).is_empty() => {
            "nothing was found that a setting of this server could change".to_owned()
        }
        Target::Origin | Target::Sut { .. } => {
            let refusals: String = refusals.into_iter().flat_map(|why| ["; ".to_owned(), why]).collect();
            let by_hand = if is_none { String::new() } else { format!("; to change by yourself: {lines}") };
            format!(
                "for what was found ({}) there is no setting of this server that h2lab can change, or its change was tried without \
                 effect{refusals}{by_hand}",
                rules_of(findings, cell).join(", ")
            )
        }
    })
}

/// Writes the changed files into the run folder, and says what the fix did.
pub(super) fn made(
    chosen: &Chosen,
    run: &RunRecord,
    cell: &Cell,
    own: Option<&OwnConfig>,
    folder: &Path,
) -> Result<Fixing> {
    let before = match own {
        Some(own) => own.files.clone(),
        None => {
            let sut = sut::find(cell.target.name()).map_err(Failure::from)?;
            sut::ours(sut, cell.max_requests_per_connection).map_err(Failure::from)?
        }
    };
    let Chosen { setting, is_confirmed, again } = chosen;
    let after = edit::edited(&peer(run, cell), &setting.change, &before).map_err(anyhow::Error::msg)?;
    let place = folder.join(FOLDER);
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let (mut diff, mut files) = (String::new(), Vec::new());
    for (before, after) in before.iter().zip(&after).filter(|(before, after)| before != after) {
        diff += &unified(before, after);
        let name = Path::new(&after.path).file_name().unwrap_or_default();
        let path = place.join(name);
        // Two files of one name in different folders.
        let path = if files.contains(&path.display().to_string()) {
            place.join(format!("{}-{}", files.len(), name.to_string_lossy()))
        } else {
            path
        };
        fs::write(&path, &after.text).with_context(|| format!("cannot write {}", path.display()))?;
        files.push(path.display().to_string());
    }
    fs::write(place.join(DIFF), &diff).context("cannot write fix.diff")?;
    Ok(Fixing::Made {
        words: setting.words.clone(),
        cause: setting.causes.first().map(|id| (id.clone(), *is_confirmed)),
        remedy: decided(run, again),
        diff: printable(&diff),
        files,
    })
}

/// What a fix did, if all of its rounds were measured.
fn decided(run: &RunRecord, again: &Again) -> Option<Box<Remedy>> {
    let is_whole = |remedy: &Remedy| !run.interrupted && remedy.rounds >= FIX_ROUNDS;
    Remedy::of(run, again).filter(is_whole).map(Box::new)
}

/// What the fix of an earlier run did; its diff and files are in that run's folder.
pub(super) fn kept(
    again: &Again,
    setting: &ServerSetting,
    experiment: &Experiment,
    run: &RunRecord,
    folder: &Path,
) -> Fixing {
    let place = folder.join(FOLDER);
    let diff = fs::read_to_string(place.join(DIFF)).unwrap_or_default();
    let mut files: Vec<String> = fs::read_dir(&place).map_or_else(
        |_| Vec::new(),
        |entries| entries.flatten().map(|entry| entry.path().display().to_string()).collect(),
    );
    files.retain(|file| !file.ends_with(DIFF));
    files.sort();
    let is_it = |knob: &Knob| matches!(knob, Knob::Server(other) if other.change == setting.change);
    let is_confirmed = experiment.confirmed().iter().any(|trial| is_it(&trial.knob));
    Fixing::Made {
        words: setting.words.clone(),
        cause: setting.causes.first().map(|id| (id.clone(), is_confirmed)),
        remedy: decided(run, again),
        diff: printable(&diff),
        files,
    }
}

/// Escapes what is not printable, except tabs: they are harmless, and a diff needs them.
fn printable(diff: &str) -> String {
    diff.split('\t').map(made_printable_lines).collect::<Vec<_>>().join("\t")
}

/// The unified diff of a file, as `patch` takes it.
fn unified(before: &ConfigFile, after: &ConfigFile) -> String {
    TextDiff::from_lines(&before.text, &after.text)
        .unified_diff()
        .context_radius(CONTEXT)
        .header(&before.path, &after.path)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::settings::{self, Wish, advise};

    #[test]
    fn a_setting_that_cannot_be_changed_is_said_with_why() {
        let peer = |field| Peer::of_field(field);
        let fix = |peer: &Peer, knob| advise(peer, Wish { knob, role: Role::Front, value: Some(128) });
        let nginx = peer("nginx/1.22.1");
        let streams = fix(&nginx, settings::Knob::MaxConcurrentStreams);
        let why = |text| refusals(&nginx, [&streams, &streams].into_iter(), &[ConfigFile::main("a", text)]);
        let large = "http { http2_max_concurrent_streams 128; }";
        assert_eq!(why(large), ["the configuration has http2_max_concurrent_streams as large already"]);
        assert!(why("http {}").is_empty());
        let haproxy = peer("HAProxy/2.6.12");
        let quota = fix(&haproxy, settings::Knob::H2Requests);
        let none = refusals(&haproxy, [&quota, &streams].into_iter(), &[ConfigFile::main("a", "global")]);
        assert!(none.len() == 1 && none[0].starts_with("HAProxy 2.6.12 has no setting for"), "{none:?}");
    }

    #[test]
    fn the_cause_of_a_fix_is_the_one_that_its_change_shows_whichever_costs_more() {
        use h2lab_model::record::testing;
        use h2lab_model::workload::Protocol;

        let target = Target::Sut { name: "nginx".to_owned() };
        let cell = Cell { target, ..testing::cell(1, 0, Protocol::H2c, 1, 0.0) };
        let run = testing::run(Vec::new());
        let wish = Wish { knob: settings::Knob::MaxConcurrentStreams, role: Role::Front, value: Some(128) };
        let finding = |rule: &str| {
            let fixes = vec![advise(&peer(&run, &cell), wish)];
            Finding { rule: rule.to_owned(), cell: 1, fixes, ..Finding::default() }
        };
        let causes = |rules: &[&str]| {
            let findings: Vec<Finding> = rules.iter().copied().map(finding).collect();
            let settings = super::settings(&run, &findings, &cell, None);
            settings.into_iter().map(|setting| setting.causes).collect::<Vec<_>>()
        };
        assert_eq!(causes(&["CONN102", "MUX101"]), [["MUX101", "CONN102"]]);
        assert_eq!(causes(&["CONN102"]), [["CONN102"]], "nothing else is found");
    }

    #[test]
    fn without_a_confirmed_change_the_fix_is_the_open_one_that_looks_best() {
        use h2lab_analysis::experiment::{Effect, Trial};

        let setting = |knob| {
            let change = Change { knob, value: Some(128) };
            ServerSetting { change, words: "x".to_owned(), causes: vec!["MUX101".to_owned()] }
        };
        let settings = [settings::Knob::MaxConcurrentStreams, settings::Knob::ConnectionWindow].map(setting);
        let chosen = |tried: [Option<(Outcome, f64)>; 2]| {
            let trial = |(setting, tried): (&ServerSetting, Option<(Outcome, f64)>)| {
                let (outcome, ratio) = tried?;
                let effect = Some(Effect { ratio, low: 0.1, high: 9.0, before: 1.0, after: ratio });
                let knob = Knob::Server(setting.clone());
                Some(Trial { knob, cell: 2, rounds: 1, effect, outcome, closes: None })
            };
            let trials = settings.iter().zip(tried).filter_map(trial).collect();
            let experiment = Experiment { trials, ..Experiment::unmeasured() };
            let chosen = choose(&experiment, &settings);
            chosen.map(|(chosen, is_confirmed)| (chosen == settings[0], is_confirmed))
        };
        let open = |ratio| Some((Outcome::Undecided, ratio));
        let (first, second) = (Some((true, false)), Some((false, false)));
        assert_eq!(chosen([open(0.67), open(2.0)]), second);
        assert_eq!(chosen([open(2.1), open(2.0)]), first);
        assert_eq!(chosen([open(0.67), None]), second, "of the other nothing is known");
        assert_eq!(chosen([open(1.2), None]), first);
        assert_eq!(chosen([None, None]), first);
        let void = Some((Outcome::Void("no response".to_owned()), 3.0));
        assert_eq!(chosen([None, void]), first, "an unsound effect says nothing");
        assert_eq!(chosen([Some((Outcome::Refuted, 1.1)), open(0.9)]), second);
        assert_eq!(chosen([Some((Outcome::Refuted, 1.1)), Some((Outcome::Worse, 0.5))]), None);
        assert_eq!(chosen([open(3.0), Some((Outcome::Confirmed, 1.5))]), Some((false, true)));
    }

    #[test]
    fn where_http2_is_no_slower_it_is_said_why_nothing_was_made_of_what_was_found() {
        use h2lab_model::record::testing;
        use h2lab_model::workload::Protocol;

        let cell = testing::cell(1, 0, Protocol::H2c, 1, 0.0);
        let finding = |rule: &str, cell| Finding { rule: rule.to_owned(), cell, ..Finding::default() };
        let other = finding("LOSS101", 0);
        assert!(healthy(std::slice::from_ref(&other), &cell).ends_with("so there is nothing to fix"));
        let found = [other, finding("PROXY101", 1), finding("HOST106", 1), finding("PROXY101", 1)];
        let why = healthy(&found, &cell);
        assert!(why.contains("observed (PROXY101, HOST106) makes none") && !why.contains("LOSS101"), "{why}");
        assert!(why.contains("`h2lab explain PROXY101`") && !why.contains("requests fail"), "{why}");
        let failing = Finding { of_failures: true, ..finding("CONN103", 1) };
        let both = [finding("HOST106", 1), failing.clone()];
        let why = healthy(&both, &cell);
        assert!(why.contains("observed (HOST106) makes none"), "{why}");
        assert!(why.contains("; what makes requests fail (CONN103) is not measured by that"), "{why}");
        let why = healthy(&[failing], &cell);
        assert!(why.contains("(CONN103)") && !why.contains("nothing to fix"), "{why}");
        assert!(!why.contains("makes none"), "{why}");
    }

    #[test]
    fn where_no_setting_can_be_changed_it_is_said_of_what_was_found_and_what_the_reader_can_change() {
        use h2lab_model::record::testing;
        use h2lab_model::workload::Protocol;

        let target = Target::Sut { name: "nginx".to_owned() };
        let cell = Cell { target, ..testing::cell(1, 0, Protocol::H2c, 1, 0.0) };
        let said = |findings: &[Finding]| match not_made(
            &Experiment::unmeasured(),
            &testing::run(Vec::new()),
            findings,
            &cell,
            None,
        ) {
            Fixing::Not(why) => why,
            Fixing::Made { .. } => panic!("there is nothing to change"),
        };
        let finding = |fixes: Vec<Fix>| {
            let rule = "PROXY101".to_owned();
            Finding { rule, cell: 1, fixes, ..Finding::default() }
        };
        assert_eq!(said(&[]), "nothing was found that a setting of this server could change");
        let without = said(&[finding(Vec::new())]);
        assert!(without.starts_with("for what was found (PROXY101) there is no setting"), "{without}");
        assert!(!without.contains("by yourself") && !without.contains(NONE), "{without}");
        let with = said(&[finding(vec![Fix::new("nginx", "keepalive 32;", "why")])]);
        assert!(with.ends_with("; to change by yourself: nginx: keepalive 32;"), "{with}");
    }

    #[test]
    fn of_a_live_server_the_lines_to_change_are_those_that_were_not_tried_without_effect() {
        use h2lab_analysis::experiment::Trial;
        use h2lab_model::record::testing;
        use h2lab_model::workload::Protocol;

        let target = Target::Url { url: "http://a/".to_owned() };
        let cell = Cell { target, ..testing::cell(1, 0, Protocol::H2c, 1, 0.0) };
        let finding = |rule: &str, fixes: Vec<Fix>| {
            let rule = rule.to_owned();
            Finding { rule, cell: 1, fixes, ..Finding::default() }
        };
        let fix = |setting: &str| Fix::new("nginx", setting, "why");
        let wish = Wish { knob: settings::Knob::UpstreamConnections, role: Role::Client, value: None };
        let connections = Fix { wish: Some(wish), ..Fix::new("client", "connections = 4", "why") };
        let findings = [
            finding("LOSS101", vec![connections, fix("listen 443 quic")]),
            finding("CONN101", vec![fix("keepalive_requests 9")]),
        ];
        let said = |outcome| {
            let knob = Knob::Connections(4);
            let trial = Trial { knob, cell: 2, rounds: 2, effect: None, outcome, closes: None };
            let experiment = Experiment { trials: vec![trial], ..Experiment::unmeasured() };
            match not_made(&experiment, &testing::run(Vec::new()), &findings, &cell, None) {
                Fixing::Not(why) => why,
                Fixing::Made { .. } => panic!("nothing is changed on a live server"),
            }
        };
        let open = said(Outcome::Undecided);
        let not_tried = "nginx: listen 443 quic, nginx: keepalive_requests 9;";
        assert!(open.contains(&format!(": client: connections = 4, {not_tried}")), "{open}");
        assert!(open.ends_with("--again latest`, with the flags of the client's changes"), "{open}");
        for outcome in [Outcome::Refuted, Outcome::Worse] {
            let left = said(outcome);
            assert!(left.contains(&format!("to change by yourself: {not_tried}")), "{left}");
            assert!(left.ends_with("--again latest`"), "{left}");
        }
    }

    fn diff(before: &str, after: &str) -> String {
        let file = |text: &str| ConfigFile::main("a.conf", text);
        unified(&file(before), &file(after))
    }

    #[test]
    fn a_diff_has_the_changed_lines_with_three_around_them() {
        let lines: Vec<String> = (1..=20).map(|n| format!("line {n}")).collect();
        let before = lines.join("\n") + "\n";
        let after = before.replace("line 5\n", "line five\n").replace("line 18", "line 18\nmore");
        let expected = "--- a.conf\n+++ a.conf\n@@ -2,7 +2,7 @@\n line 2\n line 3\n line 4\n-line 5\n+line five\n line 6\n line \
                        7\n line 8\n@@ -16,5 +16,6 @@\n line 16\n line 17\n line 18\n+more\n line 19\n line 20\n";
        assert_eq!(diff(&before, &after), expected);
    }

    #[test]
    fn an_added_first_line_and_neighbouring_changes_are_one_part_each() {
        assert_eq!(diff("b\n", "a\nb\n"), "--- a.conf\n+++ a.conf\n@@ -1 +1,2 @@\n+a\n b\n");
        assert_eq!(diff("", "a\n"), "--- a.conf\n+++ a.conf\n@@ -0,0 +1 @@\n+a\n");
        let near = diff("1\n2\n3\n4\n5\n", "one\n2\n3\n4\nfive\n");
        assert_eq!(near.matches("@@ -").count(), 1, "{near}");
    }
}
