//! The end of a subcommand's long help: examples and exit codes.

use std::fmt::Write;

/// The exit codes. The same for every subcommand, so that scripts can rely on them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    a --fail-if threshold or a check failed
  2    usage or scenario error
  3    target unreachable, or it does not speak what was asked
  4    this machine cannot (`h2lab doctor` says what is missing)
  5    measurement invalid
  130  interrupted (results kept)";

/// Examples, each with what it does, and the exit codes.
pub fn after(examples: &[(&str, &str)]) -> String {
    let mut text = "Examples:\n".to_owned();
    for (command, what) in examples {
        let _ = writeln!(text, "  {command}\n      {what}");
    }
    format!("{text}\n{EXIT_CODES}")
}
