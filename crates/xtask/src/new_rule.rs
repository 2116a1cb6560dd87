//! `cargo xtask new-rule ID name`: the folder of a cause with a rule that compiles and whose tests pass, and its places
//! in the lists. docs/adding-a-rule.md says what to write there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::process;

/// The causes, from the root of the workspace.
const CAUSES: &str = "crates/analysis/src/diagnose/causes";
/// The table that is generated from them.
const TABLE: &str = "docs/causes.md";

/// Arguments of `new-rule`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The letters of a family and a number that no cause has had: LOSS107; or the id of a cause that has a page only.
    id: String,
    /// The name in words with hyphens: lost-acknowledgements.
    name: String,
}

/// Writes the files, and the table of causes.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = process::workspace();
    let rule = NewRule::of(&arguments.id, &arguments.name)?;
    let folder = rule.add(&root.join(CAUSES))?;
    process::stream(&mut process::cargo(["fmt", "-p", "h2lab-analysis"]))?;
    let table = process::said(&mut process::cargo(["run", "--quiet", "-p", "h2lab", "--", "gen", "causes"]))?;
    fs::write(root.join(TABLE), table.trim_end().to_owned() + "\n").context(TABLE)?;
    println!("{}: write page.md, tests.rs, mod.rs in this order", folder.display());
    println!("{CAUSES}/{}.rs: summary, evidence, knob of {}", rule.family(), rule.id);
    println!("then: cargo test -p h2lab-analysis {}; cargo run -- gen causes > {TABLE}", rule.module());
    println!(
        "then: Knob::causes in crates/model/src/experiment.rs, a situation of verify: docs/adding-a-rule.md, steps 8 and 9"
    );
    Ok(ExitCode::SUCCESS)
}

/// What is to be added.
struct NewRule {
    /// In capitals.
    id: String,
    name: String,
}

impl NewRule {
    fn of(id: &str, name: &str) -> Result<Self> {
        let id = id.to_ascii_uppercase();
        let digits = id.trim_start_matches(|c: char| c.is_ascii_uppercase());
        let is_id =
            digits.len() == 3 && digits.parse::<u32>().is_ok_and(|number| number > 100) && digits != id;
        ensure!(is_id, "`{id}` is not the letters of a family and a number from 101");
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        ensure!(is_name, "`{name}` is not of small letters, digits and hyphens");
        Ok(Self { id, name: name.to_owned() })
    }

    /// The name of the file of its family.
    fn family(&self) -> String {
        self.id.trim_end_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase()
    }

    /// The name of its folder and module.
    fn module(&self) -> String {
        format!("{}_{}", self.id.to_ascii_lowercase(), self.name.replace('-', "_"))
    }

    /// The name of its type.
    fn type_name(&self) -> String {
        let words = self.name.split('-').filter(|word| !word.is_empty());
        words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
    }

    /// Adds it to the causes in this folder; returns its own.
    fn add(&self, causes: &Path) -> Result<PathBuf> {
        let folder = causes.join(self.module());
        let family = causes.join(format!("{}.rs", self.family()));
        let list = causes.join("mod.rs");
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("{}: is there such a family?", path.display()))
        };
        let (constants, lines) = (read(&family)?, read(&list)?);
        let is_known = constants.contains(&format!("const {}:", self.id));
        ensure!(
            !is_known || folder.join("page.md").exists(),
            "{} is taken by another name; ids are never used again",
            self.id
        );
        ensure!(!folder.join("mod.rs").exists(), "{} has a rule", self.id);
        fs::create_dir_all(&folder)?;
        if is_known {
            fs::write(&family, self.with_rule(&constants)?)?;
        } else {
            fs::write(folder.join("page.md"), self.page())?;
            fs::write(&family, with_import(&(constants + &self.constant())))?;
        }
        fs::write(folder.join("mod.rs"), self.code())?;
        fs::write(folder.join("tests.rs"), self.tests())?;
        let entry = format!("    &{}::{},", self.family(), self.id);
        let lines = with_line(&lines, &format!("mod {};", self.module()), "mod ");
        let lines =
            if is_known { lines } else { with_line(&lines, &entry, &format!("    &{}::", self.family())) };
        fs::write(&list, lines)?;
        Ok(folder)
    }

    fn status(&self) -> String {
        let (module, name) = (self.module(), self.type_name());
        format!("Status::Rule {{ status: RuleStatus::Preview, rule: &super::{module}::{name} }}")
    }

    /// The file of the family, in which the cause has a rule now.
    fn with_rule(&self, constants: &str) -> Result<String> {
        let from = constants.find(&format!("const {}:", self.id)).context("it is there")?;
        let begin = constants[from..].find("    status:").context("it has a status")? + from;
        let end = constants[begin..].find("    since:").context("and a version behind it")? + begin;
        let status = self.status();
        Ok(with_import(&format!("{}    status: {status},\n{}", &constants[..begin], &constants[end..])))
    }

    fn constant(&self) -> String {
        let Self { id, name } = self;
        let (module, status, version) = (self.module(), self.status(), env!("CARGO_PKG_VERSION"));
        format!(
            r#"
pub(super) const {id}: CauseMeta = CauseMeta {{
    id: "{id}",
    name: "{name}",
    summary: "To be written: what happens, in a line",
    status: {status},
    since: "{version}",
    page: include_str!("{module}/page.md"),
    checks: &[],
    waits: &[],
    limits: &[],
    supersedes: &[],
    knob: "to-be-named",
}};
"#
        )
    }

    fn code(&self) -> String {
        let name = self.type_name();
        format!(
            r"//! To be written: what this rule recognises, and from what.

#[cfg(test)]
mod tests;

use crate::diagnose::{{Case, Finding, Rule}};

/// The rule.
#[derive(Debug)]
pub(super) struct {name};

impl Rule for {name} {{
    fn check(&self, _case: &Case<'_>) -> Vec<Finding> {{
        Vec::new()
    }}
}}
"
        )
    }

    fn tests(&self) -> String {
        let id = &self.id;
        format!(
            r#"//! Both sides of every threshold.

use crate::diagnose::run;
use crate::diagnose::testing::Scene;
use h2lab_model::workload::Protocol;

#[test]
fn a_healthy_cell_has_no_finding() {{
    let scene = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125);
    assert!(run(&[scene.record()]).iter().all(|finding| finding.rule != "{id}"));
}}
"#
        )
    }

    fn page(&self) -> String {
        let (id, title) = (&self.id, self.name.replace('-', " "));
        let sections = [
            ("What it is", "To be written."),
            ("Why it is slower than HTTP/1.1", "To be written."),
            ("Evidence", "To be written: what must be seen, with thresholds; when the rule is silent."),
            ("Confirm", "To be written: the one knob, such as `h2lab compare -c 1,4`, and what must follow."),
            (
                "Fix",
                "- setting: `h2.stream-window.receive` front 1048576\n- client: what is no setting of a product",
            ),
            ("References", "- RFC 9113"),
        ];
        let sections = sections.map(|(heading, text)| format!("\n## {heading}\n\n{text}\n"));
        format!("# {id}: {title}\n{}", sections.concat())
    }
}

/// The file of a family, with the import that a rule's status needs.
fn with_import(constants: &str) -> String {
    const IMPORT: &str = "use crate::diagnose::RuleStatus;\n";
    if constants.contains("RuleStatus;") {
        return constants.to_owned();
    }
    constants.replacen(
        "use super::{CauseMeta, Status};\n",
        &format!("use super::{{CauseMeta, Status}};\n{IMPORT}"),
        1,
    )
}

/// The text with this line added among those that begin with `beginning`, in order.
fn with_line(text: &str, line: &str, beginning: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.iter().rposition(|other| other.starts_with(beginning));
    let bare = |line: &str| line.trim_end_matches([';', ',']).to_owned();
    let is_later = |other: &&str| other.starts_with(beginning) && bare(other) > bare(line);
    // An attribute belongs to the line below it.
    let later =
        lines.iter().position(is_later).map(|at| at - usize::from(at > 0 && lines[at - 1].starts_with("#[")));
    lines.insert(later.or(last.map(|last| last + 1)).unwrap_or(lines.len()), line);
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let real = process::workspace().join(CAUSES);
        for name in ["mod.rs", "loss.rs", "mux.rs"] {
            fs::copy(real.join(name), folder.path().join(name)).unwrap();
        }
        folder
    }

    fn text(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap()
    }

    #[test]
    fn a_new_cause_gets_a_folder_a_constant_and_places_in_the_lists() {
        let causes = causes();
        let folder = NewRule::of("loss199", "lost-acknowledgements").unwrap().add(causes.path()).unwrap();
        assert!(folder.ends_with("loss199_lost_acknowledgements"));
        assert!(text(&folder, "page.md").starts_with("# LOSS199: lost acknowledgements\n"));
        assert!((25..=60).contains(&text(&folder, "page.md").lines().count()));
        assert!(text(&folder, "mod.rs").contains("struct LostAcknowledgements;"));
        assert!(text(&folder, "tests.rs").contains("LOSS199"));
        assert!(text(causes.path(), "loss.rs").contains("pub(super) const LOSS199: CauseMeta"));
        let list = text(causes.path(), "mod.rs");
        let at = |what: &str| list.find(what).unwrap_or_else(|| panic!("{what}: {list}"));
        assert!(list.contains(";\nmod loss199_lost_acknowledgements;\n"), "it is below no attribute: {list}");
        assert!(at("mod loss101_") < at("mod loss199_") && at("mod loss199_") < at("mod meta;"), "{list}");
        assert!(
            at("&loss::LOSS101,") < at("&loss::LOSS199,") && at("&loss::LOSS199,") < at("&hpack::HPACK101,")
        );
    }

    #[test]
    fn a_cause_with_a_page_gets_a_rule_and_keeps_the_page() {
        let causes = causes();
        let page = causes.path().join("mux101_stream_limit");
        fs::create_dir(&page).unwrap();
        fs::write(page.join("page.md"), "kept").unwrap();
        let folder = NewRule::of("MUX101", "stream-limit").unwrap().add(causes.path()).unwrap();
        assert_eq!(text(&folder, "page.md"), "kept");
        let constants = text(causes.path(), "mux.rs");
        assert!(constants.contains("rule: &super::mux101_stream_limit::StreamLimit }"), "{constants}");
        assert_eq!(constants.matches("const MUX101:").count(), 1);
        assert_eq!(constants.matches("use crate::diagnose::RuleStatus;").count(), 1);
        assert_eq!(text(causes.path(), "mod.rs").matches("&mux::MUX101,").count(), 1);
    }

    #[test]
    fn a_line_goes_to_its_place_and_not_below_an_attribute() {
        let text = "mod a;\nmod b1;\n#[cfg(test)]\nmod tests;\n";
        assert_eq!(with_line(text, "mod b;", "mod "), "mod a;\nmod b;\nmod b1;\n#[cfg(test)]\nmod tests;\n");
        assert_eq!(with_line(text, "mod c;", "mod "), "mod a;\nmod b1;\nmod c;\n#[cfg(test)]\nmod tests;\n");
        assert_eq!(with_line(text, "mod z;", "mod "), text.to_owned() + "mod z;\n");
    }

    #[test]
    fn ids_that_are_taken_or_of_no_family_are_refused() {
        let causes = causes();
        for (id, name) in [("MUX101", "another-name"), ("WARP101", "a-name")] {
            assert!(NewRule::of(id, name).unwrap().add(causes.path()).is_err(), "{id} {name}");
        }
        for (id, name) in [("101", "a-name"), ("MUX99", "a-name"), ("MUX100", "a-name"), ("MUX201", "A name")]
        {
            assert!(NewRule::of(id, name).is_err(), "{id} {name}");
        }
    }
}
