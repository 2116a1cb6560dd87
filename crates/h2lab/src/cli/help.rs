//! The end of a subcommand's long help: examples and exit codes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

use super::compare;

/// The exit codes. The same for every subcommand, so that scripts can rely on them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    a --fail-if condition is true, a check failed, no response was a success,
       or a measured server ended
  2    usage or scenario error, or a missing input file
  3    no response: target unreachable, or not in the requested protocol; or
       nothing to compare
  4    this machine lacks a program (see `h2lab doctor`), or a permission such as
       to write a file
  5    measurement invalid, whatever --fail-if says
  130  interrupted (results kept)
If several apply, the first of these counts: 4, 130, 3, 2, 1 (no response was a
success, or a server ended), 5, 1 (a condition or check).";

/// Examples, each with what it does, and the exit codes.
pub fn after(examples: &[(&str, &str)]) -> String {
    after_with(examples, EXIT_CODES)
}

/// The same for a command whose exit codes are fewer, or mean something else.
pub fn after_with(examples: &[(&str, &str)], exit_codes: &str) -> String {
    let mut text = "Examples:\n".to_owned();
    for (command, what) in examples {
        let _ = writeln!(text, "  {command}\n      {what}");
    }
    format!("{text}\n{exit_codes}")
}

/// Commands that have too many flags for anyone to read them all, each with its most important flags: clap's ids, in
/// the order of the help.
const FIRST: [(&str, &[&str]); 3] = [
    (
        "compare",
        &[
            "loss",
            "delay",
            "bandwidth",
            "origin",
            "protocols",
            "connections",
            "rate",
            "measure",
            "fail_if",
            "files",
        ],
    ),
    (
        "run",
        &[
            "quick",
            "loss",
            "delay",
            "origin",
            "protocols",
            "connections",
            "rate",
            "measure",
            "fail_if",
            "files",
        ],
    ),
    (
        "load",
        &[
            "connections",
            "streams",
            "requests",
            "duration",
            "rate",
            "protocols",
            "headers",
            "data",
            "fail_if",
            "files",
        ],
    ),
];

/// Shows every flag, in groups.
const ALL: &str = "--help-all";

/// `args` with the usual flag of help in place of [`ALL`], and whether that was there.
pub fn asked_for_all(args: &[OsString]) -> (Vec<OsString>, bool) {
    let is_all = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == ALL);
    let plain = |arg: &OsString| if arg == ALL { "--help".into() } else { arg.clone() };
    (if is_all { args.iter().map(plain).collect() } else { args.to_vec() }, is_all)
}

/// `command` with only the important flags in the help of the subcommands of [`FIRST`].
pub fn shortened(command: Command) -> Command {
    command.mut_subcommands(|subcommand| {
        match FIRST.iter().find(|(name, _)| subcommand.get_name() == *name) {
            Some((_, first)) => shortened_to(subcommand, first),
            None => subcommand,
        }
    })
}

fn shortened_to(subcommand: Command, first: &[&str]) -> Command {
    let number = subcommand.get_arguments().filter(|arg| !arg.is_hide_set()).count();
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print this help");
    // This action never runs: `asked_for_all` handles the flag first.
    let all = Arg::new("help_all").long(&ALL[2..]).action(ArgAction::HelpLong);
    let all = all.help(format!("Print all {number} flags, in groups"));
    let ending = ending(&subcommand);
    let values = if subcommand.get_name() == "compare" { compare::defaults() } else { BTreeMap::new() };
    subcommand
        .mut_args(|arg| shown_if_first(with_default(arg, &values), first))
        .disable_help_flag(true)
        .args([help, all].map(|arg| arg.help_heading(HEADING).display_order(first.len() + 1)))
        .after_help(ending)
}

/// `arg` with the default from `values`, since the flag itself has none.
fn with_default(arg: Arg, values: &BTreeMap<&str, String>) -> Arg {
    match (values.get(arg.get_id().as_str()), arg.get_help()) {
        (Some(value), Some(help)) => {
            let help = format!("{help} [default: {value}]");
            arg.help(help)
        }
        _ => arg,
    }
}

/// The description and the ending of the long help, for the end of the short help.
fn ending(command: &Command) -> String {
    let text =
        |styled: Option<&clap::builder::StyledStr>| styled.map(ToString::to_string).unwrap_or_default();
    let long = text(command.get_long_about());
    let (_, long) = long.split_once('\n').unwrap_or_default();
    format!("{}\n\n{}", long.trim_start(), text(command.get_after_long_help()))
}

const HEADING: &str = "Most used flags";

/// Flags in `first` come first, in its order; others are only in the help of [`ALL`].
fn shown_if_first(arg: Arg, first: &[&str]) -> Arg {
    match first.iter().position(|id| arg.get_id() == id) {
        _ if arg.is_positional() => arg,
        Some(place) => arg.help_heading(HEADING).display_order(place + 1),
        None => arg.hide_short_help(true),
    }
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;

    #[test]
    fn the_help_of_commands_with_many_flags_has_ten_and_says_how_to_see_all() {
        let (whole, short) = (command(), shortened(command()));
        let names = |command: &Command| {
            command.get_subcommands().map(|one| one.get_name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&whole), names(&short), "in their order");
        for (name, first) in FIRST {
            let of = |command: &Command, is_long: bool| {
                let mut subcommand = command.find_subcommand(name).unwrap().clone();
                let text = if is_long { subcommand.render_long_help() } else { subcommand.render_help() };
                text.to_string()
            };
            let flags = |text: &str| {
                let begins = |line: &&str| {
                    line.trim_start().starts_with('-') && line.len() - line.trim_start().len() < 8
                };
                text.lines().filter(begins).count()
            };
            let (all, few) = (of(&whole, true), of(&short, false));
            assert_eq!(flags(&few), first.len() + 2, "{few}");
            assert!(few.contains(ALL) && few.contains("Examples:") && !all.contains(ALL), "{few}");
            assert_eq!(few.contains("[default: 3%,0%]"), name == "compare", "{few}");
            assert!(flags(&all) > 4 * flags(&few) && all.contains("Client:"), "{all}");
        }
    }

    #[test]
    fn all_flags_are_asked_for_by_a_flag_of_its_own() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(asked_for_all(&words("h2lab load --help-all")), (words("h2lab load --help"), true));
        assert_eq!(asked_for_all(&words("h2lab load -h")), (words("h2lab load -h"), false));
    }
}
