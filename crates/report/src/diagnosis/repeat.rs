//! The command that repeats an experiment.

use h2lab_model::experiment::Knob;

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

impl Diagnosis<'_> {
    /// The command that repeats the experiment: the change with the largest effect alone, where a flag of `compare` makes it
    /// or undoes it, else all of this diagnosis.
    pub(crate) fn repeated(&self) -> String {
        let best = self.best().filter(|_| !self.repeat.is_empty());
        best.and_then(|best| changed(self.repeat, &best.knob)).unwrap_or_else(|| self.whole())
    }

    /// The command line of this diagnosis, without what is done with its results.
    fn whole(&self) -> String {
        let run = self.report.run;
        let given = run.command.iter().filter(|word| !SWITCHES.contains(&word.as_str())).cloned();
        repeated_line(&without_flags(&given.collect::<Vec<_>>(), &OF_RESULTS), Some(run.seed))
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
