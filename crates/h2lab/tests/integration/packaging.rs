//! What ships beside the program: the shell steps of `packaging/` for the CI of others.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use crate::support::{Finished, binary, folder, run_program, workspace};

/// The shortest comparison, as a user of a template would write it.
const COMMAND: &str =
    "compare --quiet --proto h1,h2c -c 1 --loss 0% -q 200 -z 1s --repetitions 1 --drain 60s";

/// The shell steps of a workflow: what `run: |` or a list of `script:` has, without the indentation.
fn steps(yaml: &str) -> Vec<String> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut steps = Vec::new();
    let mut lines = yaml.lines().peekable();
    while let Some(line) = lines.next() {
        let (is_block, is_list) = (line.trim() == "run: |", line.trim() == "script:");
        if !is_block && !is_list {
            continue;
        }
        let mut step = Vec::new();
        while let Some(next) = lines.next_if(|next| indentation(next) > indentation(line)) {
            let next = next.trim_start_matches(' ');
            step.push(if is_list { unquoted(next.trim_start_matches("- ")) } else { next });
        }
        steps.push(step.join("\n"));
    }
    steps
}

/// A scalar without single quotes around it.
fn unquoted(scalar: &str) -> &str {
    scalar.strip_prefix('\'').and_then(|scalar| scalar.strip_suffix('\'')).unwrap_or(scalar)
}

/// A job: a folder in which h2lab is installed.
struct Job {
    folder: TempDir,
}

impl Job {
    fn new() -> Self {
        let job = Self { folder: folder() };
        fs::create_dir(job.path("bin")).expect("a temporary folder");
        symlink(binary(), job.path("bin/h2lab")).expect("a temporary folder");
        job
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn has(&self, name: &str) -> bool {
        fs::metadata(self.path(name)).is_ok_and(|file| file.len() > 0)
    }

    /// Runs shell steps one after the other, as a runner does: it stops at the first that fails.
    fn run(&self, yaml: &str, variables: &[(&str, &str)]) -> Finished {
        let steps = steps(&fs::read_to_string(workspace().join(yaml)).expect("it ships"));
        let path = std::env::var("PATH").unwrap_or_default();
        let own = format!("PATH={}:{path}", self.path("bin").display());
        let mut finished = None;
        for step in steps {
            let mut words = vec![own.clone()];
            words.extend(variables.iter().map(|(name, value)| format!("{name}={value}")));
            words.extend(["bash", "-e", "-o", "pipefail", "-c"].map(str::to_owned));
            words.push(step);
            let ended = run_program(Path::new("env"), self.folder.path(), &words);
            let has_failed = ended.code != Some(0);
            finished = Some(ended);
            if has_failed {
                break;
            }
        }
        finished.expect("it has steps")
    }

    fn action(&self, variables: &[(&str, &str)]) -> Finished {
        let action = workspace().join("packaging/action").display().to_string();
        let summary = self.path("step-summary.md").display().to_string();
        let mut all =
            vec![("GITHUB_ACTION_PATH", action.as_str()), ("GITHUB_STEP_SUMMARY", summary.as_str())];
        all.extend(variables);
        self.run("packaging/action/action.yml", &all)
    }
}

#[test]
fn the_action_measures_writes_a_summary_and_leaves_the_report() {
    let job = Job::new();
    job.action(&[("H2LAB_COMMAND", COMMAND), ("H2LAB_FAIL_IF", "errors > 1%\n")]).assert_measured();
    for name in ["h2lab-report/report.html", "h2lab-report/report.json", "step-summary.md"] {
        assert!(job.has(name), "{name}");
    }
    let summary = fs::read_to_string(job.path("step-summary.md")).expect("it was written");
    assert!(summary.contains("| h2c"), "{summary}");
}

#[test]
fn a_condition_that_fails_fails_the_job_and_the_report_is_kept() {
    let job = Job::new();
    let finished = job.action(&[("H2LAB_COMMAND", COMMAND), ("H2LAB_FAIL_IF", "throughput > 1")]);
    // 5: the machine was too busy for figures.
    assert!(matches!(finished.code, Some(1 | 5)), "{}", finished.transcript());
    assert!(job.has("h2lab-report/report.html") && job.has("step-summary.md"));
}

#[test]
fn a_condition_on_a_base_that_is_not_given_is_refused_before_anything_is_measured() {
    let job = Job::new();
    let finished = job.action(&[("H2LAB_COMMAND", COMMAND), ("H2LAB_FAIL_IF", "p99 > 1.1*base.p99")]);
    assert_eq!(finished.code, Some(2), "{}", finished.transcript());
    assert!(!job.has("h2lab-report/report.json"));
}

#[test]
fn a_run_is_compared_with_its_base_and_a_condition_on_the_base_fails_the_job() {
    let job = Job::new();
    job.action(&[("H2LAB_COMMAND", COMMAND)]).assert_measured();
    fs::rename(job.path("h2lab-report/report.json"), job.path("base.json")).expect("it was written");
    for (condition, code) in [("p50 < 0.001*base.p50", 0), ("p50 > 0.001*base.p50", 1)] {
        let finished = job.action(&[
            ("H2LAB_COMMAND", COMMAND),
            ("H2LAB_BASE", "base.json"),
            ("H2LAB_FAIL_IF", condition),
        ]);
        if finished.code != Some(5) {
            assert_eq!(finished.code, Some(code), "{condition}\n{}", finished.transcript());
        }
        assert!(job.has("h2lab-report/diff.md"), "{}", finished.transcript());
    }
}

#[test]
fn the_template_for_gitlab_measures_and_leaves_the_report() {
    let job = Job::new();
    let source = workspace().display().to_string();
    let finished = job.run(
        "packaging/gitlab/h2lab.yml",
        &[("H2LAB_SOURCE", &source), ("H2LAB_COMMAND", COMMAND), ("H2LAB_FOLDER", "h2lab-report")],
    );
    finished.assert_measured();
    assert!(job.has("h2lab-report/report.html") && job.has("h2lab-report/summary.md"));
}

#[test]
fn completions_are_installed_where_each_shell_looks_for_them() {
    for (shell, path) in [
        ("bash", ".local/share/bash-completion/completions/h2lab"),
        ("zsh", ".local/share/zsh/site-functions/_h2lab"),
        ("fish", ".config/fish/completions/h2lab.fish"),
    ] {
        let job = Job::new();
        let home = job.folder.path().display().to_string();
        let words = [
            "-u".to_owned(),
            "XDG_DATA_HOME".to_owned(),
            "-u".to_owned(),
            "XDG_CONFIG_HOME".to_owned(),
            format!("HOME={home}"),
            format!("SHELL=/usr/bin/{shell}"),
            job.path("bin/h2lab").display().to_string(),
        ];
        let words: Vec<String> =
            words.into_iter().chain(["gen", "completions", "--install"].map(str::to_owned)).collect();
        let finished = run_program(Path::new("env"), job.folder.path(), &words);
        assert_eq!(finished.code, Some(0), "{}", finished.transcript());
        assert!(job.has(path) && finished.stdout.contains(path), "{}", finished.transcript());
    }
}

#[test]
fn a_shipped_scenario_runs_by_its_name_in_any_folder_and_an_unknown_one_is_refused() {
    let short =
        ["run", "compare", "--proto=h1,h2c", "-c=1", "--loss=0%", "-q=200", "-z=1s", "--repetitions=1"];
    crate::support::h2lab(&short).assert_measured();
    let unknown = crate::support::h2lab(&["run", "no-such"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.transcript());
    assert!(unknown.stderr.contains("h2lab run --list"), "{}", unknown.transcript());
    let list = crate::support::h2lab(&["run", "--list"]);
    assert!(list.code == Some(0) && list.stdout.contains("sidecar-chaos: about "), "{}", list.transcript());
}
