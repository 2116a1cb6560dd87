//! The command line: one file per subcommand, the only place that formats for people.

mod agent;
#[cfg(feature = "nats")]
mod agents;
mod asking;
mod bulk;
mod capture;
mod cells;
mod client;
mod compare;
mod diagnose;
mod diff;
mod discover;
mod doctor;
mod documents;
mod engine;
mod exit;
mod explain;
mod files;
mod flags;
mod foreign;
mod gen_docs;
mod help;
mod impair;
mod internal;
mod limits;
mod link;
mod listen;
mod load;
#[cfg(feature = "nats")]
mod nats;
mod needs;
mod origin;
mod output;
mod policy;
mod probe;
mod progress;
mod protocols;
mod reach;
mod report;
mod requests;
mod resume;
mod rights;
mod run;
mod runs;
mod scenarios;
mod servers;
mod sidecar;
mod signals;
mod timeline;
mod tls;
mod trace;
mod values;
mod work;

use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{FromArgMatches as _, Parser, Subcommand};
use h2lab_base::secrets;
use h2lab_base::text::made_printable_lines;
use h2lab_model::scenario::resume::MASK;

use crate::run::messages::with_causes;
use crate::terminal::Terminal;
pub use exit::Exit;

/// Is HTTP/2 faster or slower than HTTP/1.1 here, why, and which setting fixes it - proved by an experiment.
#[derive(Debug, Parser)]
#[command(
    name = "h2lab",
    version,
    max_term_width = HELP,
    disable_help_subcommand = true,
    after_help = help::EXIT_CODES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// A subcommand is described at its arguments: a doc comment here would replace all of that in the help.
#[derive(Debug, Subcommand)]
enum Command {
    Compare(Box<compare::CompareArgs>),
    Diagnose(Box<diagnose::DiagnoseArgs>),
    Load(Box<load::LoadArgs>),
    Bulk(Box<bulk::BulkArgs>),
    Agent(Box<agent::AgentArgs>),
    #[cfg(feature = "nats")]
    Agents(Box<agents::AgentsArgs>),
    Run(Box<run::RunArgs>),
    Link(Box<link::LinkCommandArgs>),
    Report(report::ReportArgs),
    Diff(diff::DiffArgs),
    Runs(runs::RunsArgs),
    Trace(Box<trace::TraceArgs>),
    Timeline(Box<timeline::TimelineArgs>),
    Probe(Box<probe::ProbeArgs>),
    Explain(explain::ExplainArgs),
    Origin(Box<origin::OriginArgs>),
    Sidecar(sidecar::SidecarArgs),
    Doctor(doctor::DoctorArgs),
    Gen(gen_docs::GenArgs),
    /// (internal) one repetition inside namespaces
    #[command(name = "__lab", hide = true)]
    Lab,
    /// (internal) whether this kernel takes the sysctls of a plan
    #[command(name = "__sysctls", hide = true)]
    Sysctls,
    /// (internal) the generator of one repetition
    #[command(name = "__load", hide = true)]
    Generator,
    /// (internal) bytes over TCP to any client
    #[command(name = "__tcp", hide = true)]
    Tcp {
        /// Where to listen
        address: SocketAddr,
        /// Congestion control of accepted connections
        #[arg(long)]
        congestion: Option<String>,
    },
    /// (internal) one request over HTTP/2
    #[command(name = "__get", hide = true)]
    Get {
        /// What to get
        url: String,
    },
}

/// Columns of the help, at most.
const HELP: usize = 110;
/// The same where none are known: in a pipe, where a pager or a person with 80 columns may read.
const PIPED: usize = 80;

/// The command line of this process as reports have it: without secrets.
static COMMAND_LINE: OnceLock<Vec<String>> = OnceLock::new();

/// What a page says about how it was made.
fn command_line() -> &'static [String] {
    COMMAND_LINE.get().map_or(&[], Vec::as_slice)
}

/// Runs the program; `args` begin with its name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match parse(&args) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            refuse(&error);
            return ExitCode::from(Exit::Usage as u8);
        }
        Err(page) => return end(print_page(&page).map(|()| 0)),
    };
    if let Err(error) = signals::ignore_file_size_limit() {
        return end(Err(error));
    }
    let command_line = without_secrets(args.iter().map(|arg| arg.to_string_lossy().into_owned()));
    let command_line = COMMAND_LINE.get_or_init(|| command_line).clone();
    let result = match cli.command {
        Command::Compare(args) => compare::main(&args, command_line),
        Command::Diagnose(args) => diagnose::main(&args, command_line),
        Command::Load(args) => load::main(&args, command_line),
        Command::Bulk(args) => bulk::main(&args, command_line),
        Command::Agent(args) => agent::main(&args),
        #[cfg(feature = "nats")]
        Command::Agents(args) => agents::main(&args),
        Command::Run(args) => run::main(&args, command_line),
        Command::Link(args) => return end(link::main(&args)),
        Command::Report(args) => report::main(&args),
        Command::Diff(args) => diff::main(&args),
        Command::Runs(args) => runs::main(&args),
        Command::Trace(args) => trace::main(&args),
        Command::Timeline(args) => timeline::main(&args),
        Command::Probe(args) => probe::main(&args),
        Command::Explain(args) => explain::main(&args),
        Command::Origin(args) => origin::main(&args),
        Command::Sidecar(args) => sidecar::main(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Gen(args) => gen_docs::main(&args),
        Command::Lab => internal::lab(),
        Command::Sysctls => internal::sysctls(),
        Command::Generator => internal::load(),
        Command::Tcp { address, congestion } => internal::tcp(address, congestion.as_deref()),
        Command::Get { url } => internal::get(&url),
    };
    end(result.map(|exit| exit as u8))
}

/// Reads the command line. What belongs to another command, or to another tool, is refused with what is typed here instead.
fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let (args, is_whole) = help::asked_for_all(args);
    let mut command = if is_whole { command() } else { help::shortened(command()) };
    command = command.term_width(Terminal::stdout().columns.unwrap_or(PIPED).min(HELP));
    foreign::refuse_others(&command, &args)?;
    let args = foreign::with_negative_values(&command, &args);
    let parsed = command.try_get_matches_from_mut(&args);
    match parsed {
        Ok(matches) => Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command)),
        Err(error) => Err(foreign::explained(error, &command, &args)),
    }
}

/// Ends the program as a subcommand has ended.
fn end(result: anyhow::Result<u8>) -> ExitCode {
    let code = match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say("error", &with_causes(&error));
            ExitCode::from(exit::exit_of(&error) as u8)
        }
    };
    crate::stderr::flush();
    code
}

/// Prints a line on stderr that may quote what came from elsewhere (arguments, files, peers): printable, and without secrets of
/// URLs.
fn say(kind: &str, what: &dyn fmt::Display) {
    say!("{kind}: {}", quotable(&what.to_string()));
}

/// The same for something to note.
fn note(what: &dyn fmt::Display) {
    say("note", what);
}

fn quotable(text: &str) -> String {
    made_printable_lines(&secrets::without_secrets(text))
}

/// Prints why clap refuses the command line. It quotes arguments.
fn refuse(error: &clap::Error) {
    let (text, terminal) = (error.render().to_string(), Terminal::stderr());
    let (quotable, is_plain) = (quotable(&text), text.is_ascii() || terminal.unicode);
    let folded = terminal.wrapped(&quotable);
    if folded != text || !is_plain {
        crate::stderr::write(format_args!("{}\n", folded.trim_end_matches('\n')));
    } else {
        // Printing fails only if the stream is closed.
        let _ = error.print();
    }
}

/// Prints what was asked for instead of a command: help, or the version.
fn print_page(page: &clap::Error) -> anyhow::Result<()> {
    if Terminal::stdout().unicode {
        // Stdout keeps what follows the last line break.
        Ok(output::printed(page.print().and_then(|()| std::io::stdout().flush()))?)
    } else {
        output::show(&page.render().to_string())
    }
}

/// Flags whose values may be secrets: the long ones, and the letters of the short ones.
const SECRET: ([&str; 8], [char; 5]) = (
    ["header", "data", "data-binary", "data-raw", "user", "cookie", "oauth2-bearer", "token"],
    ['H', 'd', 'u', 'a', 'b'],
);

/// The flag that keeps the values of queries in URLs.
const SECRETS: &str = "--secrets";
/// The flag whose value is a command of the user's, which may have secrets of its own.
const RUN: &str = "--run";

/// The command line for reports: what may be a secret is left out, in every spelling.
fn without_secrets(words: impl Iterator<Item = String>) -> Vec<String> {
    let words: Vec<String> = words.collect();
    let are_kept = words.iter().any(|word| word == SECRETS);
    let mut kept: Vec<String> = Vec::new();
    let mut is_secret = false;
    for word in words {
        if std::mem::take(&mut is_secret) {
            kept.push(MASK.to_owned());
            continue;
        }
        let is_command = kept.last().is_some_and(|last| last == RUN)
            || word.strip_prefix(RUN).is_some_and(|rest| rest.starts_with('='));
        if is_command {
            kept.push(secrets::without_command_secrets(&word));
            continue;
        }
        match secret_behind(&word) {
            Some(end) if end < word.len() => kept.push(format!("{}{MASK}", &word[..end])),
            flag => {
                is_secret = flag.is_some();
                let shown = if are_kept { word } else { secrets::without_secrets(&word).into_owned() };
                kept.push(shown);
            }
        }
    }
    kept
}

/// Where in `word` a flag ends whose value may be a secret; at its end, if the value is the next word.
fn secret_behind(word: &str) -> Option<usize> {
    if let Some(long) = word.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or_default();
        let is_empty = long.len() == name.len() + "=".len();
        let end = word.len().min("--".len() + name.len() + "=".len());
        return (SECRET.0.contains(&name) && !is_empty).then_some(end);
    }
    // Flags without a value may precede it: `-kH`.
    let letters = word.strip_prefix('-')?.trim_start_matches(['k', 'v', 's', '4', '6']);
    letters.starts_with(SECRET.1).then_some(word.len() - letters.len() + 1)
}

/// Whether the reader of our output went away (`h2lab … | head`): no error of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // Pipes to our own children break with a context around the error; that is an error.
    let is_bare = error.chain().count() == 1;
    is_bare
        && error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

/// The whole command line as clap sees it, for man pages and completions.
fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_of_reports() {
        let words = "h2lab trace -H Authorization:x --header=a:b -Ha:b -d secret --data=s -kH a:b -vkda --data=a= --header= -z 3s --delay 1ms";
        let kept = without_secrets(words.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(
            kept,
            "h2lab trace -H (not kept) --header=(not kept) -H(not kept) -d (not kept) --data=(not kept) \
             -kH (not kept) -vkd(not kept) --data=(not kept) --header= -z 3s --delay 1ms"
        );
        let words = "h2lab bulk serve --token secret --token=secret --token-file path";
        let kept = without_secrets(words.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(kept, "h2lab bulk serve --token (not kept) --token=(not kept) --token-file path");
        let words = "h2lab load -u me:x -ame:x --cookie=a=b -b a=b --oauth2-bearer token http://a/";
        let kept = without_secrets(words.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(
            kept,
            "h2lab load -u (not kept) -a(not kept) --cookie=(not kept) -b (not kept) --oauth2-bearer (not kept) \
             http://a/"
        );
        let words = "h2lab load http://me:x@a/?t=x --proxy=http://a/p?x -o r.html";
        let kept = without_secrets(words.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(kept, "h2lab load http://***@a/?t=*** --proxy=http://a/p?*** -o r.html");
        let command = "curl -H 'Cookie: a=x' {url}?t=x";
        let joined = format!("--run={command}");
        let words = ["h2lab", "diagnose", "--run", command, &joined];
        let kept = without_secrets(words.into_iter().map(str::to_owned));
        assert_eq!(kept[3], "curl -H 'Cookie: ***' {url}?t=***");
        assert_eq!(kept[4], format!("--run={}", kept[3]));
        let words = "h2lab load --secrets http://a/?t=x -H a:b";
        let kept = without_secrets(words.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(kept, "h2lab load --secrets http://a/?t=x -H (not kept)");
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_a_line_a_longer_text_and_an_ending_with_examples_and_exit_codes() {
        for subcommand in command().get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            let name = subcommand.get_name();
            let text = |styled: Option<&clap::builder::StyledStr>| {
                styled.unwrap_or_else(|| panic!("{name} has none")).to_string()
            };
            let (short, long) = (text(subcommand.get_about()), text(subcommand.get_long_about()));
            assert!(!short.contains('\n') && short.len() < 90, "{name}: {short}");
            assert!(long.starts_with(&short) && long.len() > short.len() + 60, "{name}: {long}");
            let ending = text(subcommand.get_after_long_help());
            assert!(ending.contains(&format!("  h2lab {name}")), "{name}: {ending}");
            // The sidecar measures nothing: its codes are fewer.
            let codes = if name == "sidecar" { sidecar::EXIT_CODES } else { help::EXIT_CODES };
            assert!(ending.ends_with(codes), "{name}: {ending}");
        }
    }

    #[test]
    fn every_example_parses() {
        for subcommand in command().get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            let ending = subcommand.get_after_long_help().unwrap().to_string();
            for example in ending.lines().filter_map(|line| line.strip_prefix("  h2lab ")) {
                // What a shell would do with quotes and redirections.
                let mut words = vec!["h2lab".to_owned()];
                for (k, part) in example.split('\'').enumerate() {
                    match k % 2 {
                        0 => words.extend(
                            part.split_whitespace().take_while(|word| *word != ">").map(str::to_owned),
                        ),
                        _ => words.push(part.to_owned()),
                    }
                }
                if let Err(error) = Cli::try_parse_from(&words) {
                    panic!("{example}: {error}");
                }
            }
        }
    }
}
