//! From nothing to the first load by three agents, as docs/agents.md has it: its five commands, as they stand.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::doing;
use super::fleet::DEADLINE;
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::{Ending, Started};

const PAGE: &str = "docs/agents.md";
const SECTION: &str = "First load by three agents";
/// So many commands are promised.
const COMMANDS: usize = 5;
/// How often a command is tried that finds nobody yet: a user types slower than a script does.
const TRIES: u32 = 20;
/// What the script says before it tries a command again.
const AGAIN: &str = "tried again after exit";

/// The commands of the page, in a network and a folder of their own.
pub fn first_load(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let page = fs::read_to_string(process::workspace().join(PAGE)).context(PAGE)?;
    let commands = commands(&page).with_context(|| format!("{PAGE} has no section `{SECTION}`"))?;
    outcome
        .check(commands.len() == COMMANDS, format!("{} commands: {}", commands.len(), commands.join(" ⏎ ")));
    let folder = tempfile::tempdir()?;
    let (programs, work) = (folder.path().join("bin"), folder.path().join("work"));
    fs::create_dir(&programs)?;
    fs::create_dir(&work)?;
    symlink(h2lab.path(), programs.join("h2lab"))?;
    let nats = process::find("nats-server").context("nats-server is not installed")?;
    symlink(nats, programs.join("nats-server"))?;
    fs::write(work.join("page.sh"), script(&commands))?;
    doing("the commands of the page");
    let _leftovers = Leftovers::of(&commands);
    // All that is still in the background ends with the first process of this namespace.
    let mut command = Command::new("setpriv");
    command.args([
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    command.args(["sh", "page.sh"]).env("PATH", path_with(&programs)?);
    let ended = Started::begin(&mut command, &work, "page")?.end(DEADLINE)?;
    let is_done = ended.ending == Ending::Code(0);
    outcome.check(is_done, format!("{} after {:.1} s", ended.ending, ended.took.as_secs_f64()));
    let said = format!("{}\n{}", ended.stdout, ended.stderr);
    for again in said.lines().filter(|line| line.starts_with(AGAIN)) {
        outcome.note(again);
    }
    let started = said.lines().find(|line| line.contains("started within"));
    outcome.check(
        started.is_some(),
        format!("the load was made by agents: {}", started.unwrap_or("nothing of it").trim()),
    );
    for line in said.lines().filter(|line| !line.trim().is_empty()).take(if is_done { 0 } else { 60 }) {
        outcome.note(line);
    }
    Ok(outcome)
}

/// Files and folders that nats-server makes where its flags say; removed with the value, unless they were there before.
struct Leftovers(Vec<PathBuf>);

impl Leftovers {
    fn of(commands: &[String]) -> Self {
        let words: Vec<&str> = commands.iter().flat_map(|command| command.split_whitespace()).collect();
        let named = words
            .windows(2)
            .filter(|pair| matches!(pair[0], "-sd" | "-l"))
            .map(|pair| PathBuf::from(pair[1]));
        Self(named.filter(|path| path.is_absolute() && !path.exists()).collect())
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for path in &self.0 {
            // Which of both it is nobody knows before, and it may not have come to it.
            let _ = fs::remove_dir_all(path);
            let _ = fs::remove_file(path);
        }
    }
}

/// `PATH` with a folder before all others.
fn path_with(first: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [first.to_owned()].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(folders).context("a folder of PATH has a colon")
}

/// The commands in the section's blocks of sh, each on a line, without comments. `None` if there is no such section.
fn commands(page: &str) -> Option<Vec<String>> {
    let is_heading = |line: &&str| line.starts_with('#') && line.trim_start_matches('#').trim() == SECTION;
    let joined = page.replace("\\\n", " ");
    let mut lines = joined.lines();
    lines.find(is_heading)?;
    let (mut found, mut is_code) = (Vec::new(), false);
    for line in lines {
        if line.starts_with("```") {
            is_code = line.trim_end() == "```sh";
        } else if !is_code && line.starts_with('#') {
            break;
        } else if is_code && !line.trim().is_empty() && !line.trim_start().starts_with('#') {
            let line = line.strip_prefix("$ ").unwrap_or(line).trim();
            found.push(line.split_once(" # ").map_or(line, |(command, _)| command.trim_end()).to_owned());
        }
    }
    Some(found)
}

/// Whether a command runs until it is ended, and has a terminal of its own or is put into the background.
fn is_service(command: &str) -> bool {
    let services = ["nats-server", "h2lab origin", "h2lab agent "];
    command.trim_end().ends_with('&') || services.iter().any(|service| command.starts_with(service))
}

/// All commands in one script: services in the background, and others again while they find nobody.
fn script(commands: &[String]) -> String {
    let mut script = String::from("ip link set lo up\n");
    for command in commands {
        if is_service(command) {
            let own = command.trim_end().trim_end_matches('&');
            let _ = writeln!(script, "{own} &");
        } else {
            let _ = writeln!(
                script,
                "tries=0; until {command}; do code=$?; tries=$((tries+1)); test $tries -lt {TRIES} || exit $code; \
                 echo \"{AGAIN} $code\"; sleep 1; done"
            );
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Agents\n```sh\nh2lab agents\n```\n## First load by three agents\n\nText.\n\n```sh\nnats-server -js &\n\
                        # a comment\nh2lab agent --nats localhost \\\n  --name a   # in another terminal\n```\n```toml\nx = 1\n```\n\
                        ```sh\n$ h2lab load http://127.0.0.1/\n```\n## Next\n```sh\nh2lab runs\n```\n";

    #[test]
    fn commands_are_those_of_the_section_alone() {
        let expected =
            ["nats-server -js &", "h2lab agent --nats localhost    --name a", "h2lab load http://127.0.0.1/"];
        assert_eq!(commands(TEXT).unwrap(), expected);
        assert_eq!(commands("# Agents\n"), None);
    }

    #[test]
    fn what_nats_server_writes_elsewhere_is_known() {
        let commands = ["nats-server -js -sd /no-such-folder-of-h2lab -l log &".to_owned()];
        assert_eq!(Leftovers::of(&commands).0, [PathBuf::from("/no-such-folder-of-h2lab")]);
    }

    #[test]
    fn services_run_beside_the_commands_and_the_script_is_one_of_sh() {
        assert!(is_service("nats-server -js") && is_service("for n in 1; do x & done &"));
        assert!(!is_service("h2lab agents --nats x") && !is_service("h2lab load http://a/"));
        let script = script(&commands(TEXT).unwrap());
        assert!(Command::new("sh").args(["-n", "-c", &script]).status().unwrap().success(), "{script}");
    }
}
