//! The command that repeats an experiment.

use h2lab_model::experiment::Knob;
use h2lab_model::scenario::resume::MASK;

use super::Diagnosis;
use crate::format::{repeated_line, shell_line, without_flags};

/// The flags of changes that have two names.
const NAMES: [(&str, &str); 6] = [
    ("-c", "--connections"),
    ("-w", "--stream-window"),
    ("-W", "--connection-window"),
    ("-f", "--max-frame-size"),
    ("-m", "--streams"),
    ("--win-update-interval", "--window-update-bytes"),
];
/// A flag that may be given several times, each time for another sysctl; of one sysctl the last counts.
const REPEATABLE: &str = "--sysctl-client";
/// Flags with a value that say where results go, or when the command fails.
const OF_RESULTS: [&str; 4] = ["--fail-on", "-o", "--output", "--html"];
/// The same without a value.
const SWITCHES: [&str; 6] = ["--json", "--sarif", "--junit", "--quiet", "--silent", "-s"];
/// Flags whose value is the body of requests, which is not kept; `-d` may end a word of several flags.
const BODIES: [&str; 3] = ["--data", "--data-binary", "--data-raw"];

impl Diagnosis<'_> {
    /// The command that repeats the experiment: the change with the largest effect alone, where a flag of `compare` makes it
    /// or undoes it, else all of this diagnosis.
    pub(crate) fn repeated(&self) -> String {
        let best = self.best().filter(|_| !self.repeat.is_empty());
        best.and_then(|best| changed(&self.with_bodies(self.repeat), &best.knob))
            .unwrap_or_else(|| self.whole())
    }

    /// The command line of this diagnosis, without what is done with its results.
    fn whole(&self) -> String {
        let run = self.report.run;
        let given = run.command.iter().filter(|word| !SWITCHES.contains(&word.as_str())).cloned();
        let given = self.with_bodies(&given.collect::<Vec<_>>());
        repeated_line(&without_flags(&given, &OF_RESULTS), Some(run.seed))
    }

    /// A command with filler instead of a body that is not kept: as many bytes are the same work.
    fn with_bodies(&self, words: &[String]) -> Vec<String> {
        let its = self.report.run.repetitions.iter().find(|one| one.cell.index == self.subject);
        its.map_or_else(|| words.to_vec(), |its| with_filler(words, its.cell.work.body_length()))
    }
}

/// A command with a change: with its flags, and without those that it sets back; `None` where none of these is in it, since no flag
/// makes the change, or a scenario set what it sets back.
fn changed(words: &[String], knob: &Knob) -> Option<String> {
    let kept = without(words, knob.set_back());
    match knob.flags() {
        Some(flags) if flags.starts_with(REPEATABLE) => Some(format!("{} {flags}", shell_line(&kept))),
        Some(flags) => Some(format!("{} {flags}", shell_line(&without(&kept, &[&flags])))),
        None => (kept.len() < words.len()).then(|| shell_line(&kept)),
    }
}

/// A command in which filler of this many bytes replaces a body that is not kept.
fn with_filler(words: &[String], bytes: u64) -> Vec<String> {
    let mut filled: Vec<String> = Vec::new();
    for word in words {
        let is_apart = word == MASK;
        // The value is a word of its own, or the end of its flag's.
        let flag = if is_apart { filled.last().map(String::as_str) } else { word.strip_suffix(MASK) };
        let Some(others) = flag.and_then(before_body).map(str::to_owned) else {
            filled.push(word.clone());
            continue;
        };
        if is_apart {
            filled.pop();
        }
        filled.extend(Some(others).filter(|others| others.len() > 1));
        // An empty body makes the method POST, and no filler does not.
        let (flag, value) =
            if bytes == 0 { ("-d", String::new()) } else { ("--body-bytes", bytes.to_string()) };
        filled.extend([flag.to_owned(), value]);
    }
    filled
}

/// What precedes the flag of a body at the end of a word: `-k` of `-kd`, `-` of `-d`; `None` if no such flag ends it.
fn before_body(word: &str) -> Option<&str> {
    if BODIES.contains(&word.trim_end_matches('=')) {
        return Some("");
    }
    word.strip_suffix('d').filter(|rest| rest.starts_with('-') && !rest.starts_with("--"))
}

/// A command without these flags, under both of their names. Those that take a value have one behind them: `--keep-alive TIME`.
fn without(words: &[String], flags: &[&str]) -> Vec<String> {
    let (valued, switches): (Vec<&str>, Vec<&str>) =
        flags.iter().copied().partition(|flag| flag.contains(' '));
    let is_switch = |word: &String| word.split('=').next().is_some_and(|name| switches.contains(&name));
    let kept: Vec<String> = words.iter().filter(|word| !is_switch(word)).cloned().collect();
    let mut names: Vec<&str> = valued.iter().filter_map(|flag| flag.split(' ').next()).collect();
    for (one, other) in NAMES {
        if names.contains(&one) || names.contains(&other) {
            names.extend([one, other]);
        }
    }
    without_flags(&kept, &names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(line: &str, knob: &Knob) -> Option<String> {
        changed(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), knob)
    }

    #[test]
    fn a_change_that_takes_flags_back_is_repeated_without_them() {
        let given = "h2lab compare --keep-alive 1s --no-replay -c 4";
        let with = |knob: &Knob| with(given, knob);
        assert_eq!(with(&Knob::Replay).as_deref(), Some("h2lab compare --keep-alive 1s -c 4"));
        assert_eq!(with(&Knob::NoKeepAlive).as_deref(), Some("h2lab compare --no-replay -c 4"));
        assert_eq!(with(&Knob::NoPush), None, "a scenario sets it");
        assert_eq!(with(&Knob::LongQueue), None, "no flag sets it");
    }

    #[test]
    fn a_body_that_is_not_kept_is_repeated_as_filler_of_its_length_and_other_values_stay() {
        let filled = |line: &str, bytes| {
            let words: Vec<String> = line.split('|').map(str::to_owned).collect();
            shell_line(&with_filler(&words, bytes))
        };
        for given in ["-d|(not kept)", "-d(not kept)", "--data=(not kept)", "--data-raw|(not kept)"] {
            let line = format!("h2lab|compare|{given}|-c|4");
            assert_eq!(filled(&line, 70_000), "h2lab compare --body-bytes 70000 -c 4", "{given}");
            assert_eq!(filled(&line, 0), "h2lab compare -d '' -c 4", "{given}");
        }
        for given in ["-kd|(not kept)", "-kd(not kept)"] {
            assert_eq!(filled(given, 1), "-k --body-bytes 1", "{given}");
        }
        let others = "h2lab compare -H '(not kept)' --user '(not kept)' --cooldown 1s";
        assert_eq!(filled("h2lab|compare|-H|(not kept)|--user|(not kept)|--cooldown|1s", 9), others);
    }

    #[test]
    fn a_flag_replaces_its_other_name_and_what_the_change_sets_back() {
        let with = |line: &str, knob: &Knob| with(line, knob).unwrap();
        let windows = "h2lab compare --stream-window 64k -W 64k --auto-window=1M --window-budget 1M -f 32k";
        assert_eq!(with(windows, &Knob::LargeWindows), "h2lab compare -f 32k -w 16777216");
        let credit = "h2lab compare --win-update-interval 1k";
        assert_eq!(with(credit, &Knob::DefaultCredit), "h2lab compare");
        let other = "h2lab compare --sysctl-client net.core.somaxconn=9";
        let both = format!("{other} --sysctl-client net.ipv4.tcp_slow_start_after_idle=0");
        assert_eq!(with(other, &Knob::KeptCongestionWindow), both, "another sysctl stays");
        assert_eq!(with("h2lab compare -c 1", &Knob::QuickAcks), "h2lab compare -c 1 --quick-acks");
    }
}
