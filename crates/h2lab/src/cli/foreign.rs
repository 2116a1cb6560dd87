//! Command lines of people who are used to another tool, or who omit the command: what to type here instead. A flag
//! that means the same as one of ours is an alias of it; the others are refused, and the message names ours. If tools
//! disagree about a letter, curl's meaning wins, then h2load's.

mod table;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, Command};
use h2lab_base::secrets::{HIDDEN, without_url_secrets};

use super::capture::CaptureArgs;
use super::client::ClientArgs;
use super::flags::written;
use super::impair::LinkArgs;
use super::policy::PolicyArgs;
use super::reach::{self, ReachArgs};
use super::servers::ServerArgs;
use super::values::{duration, is_number};
use table::FOREIGN;

/// What to type here instead of `flag`.
fn instead(flag: &str) -> Option<&'static str> {
    FOREIGN.iter().find(|(flags, _)| flags.contains(&flag)).map(|(_, here)| *here)
}

/// `args` with each value that begins with a minus and a digit joined to its flag: otherwise clap reads it as a flag,
/// and does not say which value is expected.
pub fn with_negative_values(command: &Command, args: &[OsString]) -> Vec<OsString> {
    let own = own(command, args);
    let mut joined: Vec<OsString> = Vec::with_capacity(args.len());
    let mut is_flag = true;
    for arg in args {
        let word = arg.to_string_lossy();
        let is_negative = word
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'));
        match joined
            .last_mut()
            .filter(|last| is_flag && is_negative && takes_value(own, &last.to_string_lossy()))
        {
            Some(last) => {
                last.push("=");
                last.push(arg);
            }
            None => joined.push(arg.clone()),
        }
        is_flag &= word != "--";
    }
    joined
}

/// Whether a word is a flag whose value must follow as the next word.
fn takes_value(own: &Command, word: &str) -> bool {
    let is_it = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => is_called(arg, long),
        None => word.strip_prefix('-').is_some_and(|letter| is_short(arg, letter)),
    };
    let needs_one = |arg: &Arg| {
        arg.get_action().takes_values() && arg.get_num_args().is_none_or(|number| number.min_values() > 0)
    };
    own.get_arguments().find(is_it).is_some_and(needs_one)
}

/// Whether `letter` is a short name of this flag.
fn is_short(arg: &Arg, letter: &str) -> bool {
    let mut letters = letter.chars();
    let (Some(letter), None) = (letters.next(), letters.next()) else { return false };
    arg.get_short() == Some(letter) || arg.get_all_short_aliases().is_some_and(|all| all.contains(&letter))
}

/// Refuses flags with one hyphen that have the name of a long one, ours or another tool's, and a time after `-s`, which
/// means silence here.
pub fn refuse_others(command: &Command, args: &[OsString]) -> Result<(), clap::Error> {
    let words: Vec<_> =
        args.iter().map(|arg| arg.to_string_lossy()).take_while(|word| word != "--").collect();
    for (word, next) in words.iter().zip(words.iter().skip(1).map(Some).chain([None])) {
        if let Some(next) = next.filter(|next| word == "-s" && duration(next).is_ok()) {
            return Err(refusal(&format!("-s {next}: a time? use --timeout TIME; -s is for no progress")));
        }
        let flag = word.split('=').next().unwrap_or_default();
        let name = flag.strip_prefix('-').filter(|name| name.len() > 1 && !name.starts_with('-'));
        let Some(name) = name else { continue };
        let long = own(command, args).get_arguments().find(|arg| is_called(arg, name)).map(written);
        let here = instead(flag).map(str::to_owned).or_else(|| long.map(|long| format!("use {long}")));
        if let Some(here) = here.or_else(|| glued(name)) {
            return Err(refusal(&format!("{flag}: {here}")));
        }
    }
    Ok(())
}

/// What clap would read a word as, which may be another tool's long flag, letter by letter: help, or a body.
fn glued(name: &str) -> Option<String> {
    match name.split_at_checked(1)? {
        ("h" | "l", _) if is_word(name) => {
            Some("there is no such flag; `--help-all` lists those there are".to_owned())
        }
        ("d", body) if is_word(name) => {
            Some(format!("there is no such flag; a body is -d {body}, with a space"))
        }
        _ => None,
    }
}

/// Whether this is a word rather than a letter and its value.
fn is_word(name: &str) -> bool {
    name.len() > 2 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// The word that clap read as a letter and this value.
fn taken_apart(args: &[OsString], value: &str) -> Option<String> {
    let words = args.iter().map(|arg| arg.to_string_lossy()).take_while(|word| word != "--");
    let name = |word: &str| word.strip_prefix('-').filter(|name| is_word(name)).map(str::to_owned);
    let name = words.filter_map(|word| name(&word)).find(|name| name[1..] == *value)?;
    Some(format!("-{name}: there is no such flag, and -{} {value} is not possible", &name[..1]))
}

/// A note if more threads than CPUs were asked for: in other tools, such a value of `-t` is a time.
pub fn doubtful_threads(threads: u32, cpus: usize) -> Option<String> {
    (usize::try_from(threads).is_ok_and(|threads| threads > cpus)).then(|| {
        format!(
            "-t {threads} is threads, on {cpus} CPU{}; ab's -t {threads} is -z {threads}s, hey's and oha's --timeout {threads}s",
            if cpus == 1 { "" } else { "s" }
        )
    })
}

/// `error` with what to type instead, if that is known.
pub fn explained(mut error: clap::Error, command: &Command, args: &[OsString]) -> clap::Error {
    keep_shown(&mut error, own(command, args));
    hide_login(&mut error);
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.split([' ', '=']).next().unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    let told = match error.kind() {
        // Clap suggests a command for a mistyped one. The name of a host may resemble a command, too.
        ErrorKind::InvalidSubcommand
            if error.get(ContextKind::SuggestedSubcommand).is_some()
                && url_of(&text(ContextKind::InvalidSubcommand)).is_none() =>
        {
            None
        }
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument if is_without_command(command, args) => {
            args.iter()
                .skip(1)
                .find_map(|arg| url_of(&arg.to_string_lossy()))
                .map(|url| missing_command(&url))
        }
        ErrorKind::UnknownArgument => {
            if let Some(told) = value_read_as_flag(own(command, args), args) {
                return refusal(&told);
            }
            let flag = text(ContextKind::InvalidArg);
            let here = || instead(&flag).map(|here| format!("{flag}: {here}"));
            let there = || other_command(command, args, &flag);
            let is_load = matches!(own(command, args).get_name(), "load" | "compare" | "run");
            let told = if is_load { here().or_else(there) } else { there().or_else(here) };
            // Clap suggests another flag, or says how to pass the word as a value, which nobody meant.
            let has_proposal = error.get(ContextKind::SuggestedArg).is_some() || !flag.starts_with('-');
            let absent = || format!("{flag}: there is no such flag; `--help` lists those there are");
            told.or_else(|| (!has_proposal).then(absent))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let (flag, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
            let here = meant_otherwise(&flag, &value).map(|here| format!("{flag} {value}: {here}"));
            here.or_else(|| taken_apart(args, &value))
        }
        _ => None,
    };
    told.map_or(error, |told| refusal(&told))
}

/// What to type where a word that begins with `-` follows a flag that needs a value: clap reads it as a flag.
fn value_read_as_flag(own: &Command, args: &[OsString]) -> Option<String> {
    let words: Vec<_> =
        args.iter().map(|arg| arg.to_string_lossy()).take_while(|word| word != "--").collect();
    let (flag, value) = words
        .iter()
        .zip(words.iter().skip(1))
        .find(|(flag, value)| takes_value(own, flag) && value.len() > 1 && value.starts_with('-'))?;
    let mut word = format!("{flag}={value}");
    if !word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.,:/=@%+".contains(c)) {
        word = format!("'{}'", word.replace('\'', r"'\''"));
    }
    Some(format!("{flag}: a value is needed, and {value} is read as a flag; as a value it is {word}"))
}

/// Removes from clap's suggestions the commands and flags that the help of `own` does not show: users should not call
/// them.
fn keep_shown(error: &mut clap::Error, own: &Command) {
    let is_shown = |name: &String| own.find_subcommand(name).is_some_and(|inner| !inner.is_hide_set());
    let proposed = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names,
        Some(ContextValue::String(name)) => vec![name],
        _ => Vec::new(),
    };
    let shown: Vec<String> = proposed.into_iter().filter(is_shown).collect();
    if !shown.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(shown));
    }
    let is_hidden = |flag: &str| {
        let long = flag.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default();
        own.get_arguments().any(|arg| is_called(arg, long) && arg.is_hide_set())
    };
    if matches!(error.get(ContextKind::SuggestedArg), Some(ContextValue::String(flag)) if is_hidden(flag)) {
        error.remove(ContextKind::SuggestedArg);
    }
}

/// Hides a server of `--nats` that has something before an `@`: a password, or the end of one that has a comma.
fn hide_login(error: &mut clap::Error) {
    let is = |kind, test: fn(&str) -> bool| matches!(error.get(kind), Some(ContextValue::String(text)) if test(text));
    if is(ContextKind::InvalidArg, |flag| flag.starts_with("--nats "))
        && is(ContextKind::InvalidValue, |value| value.contains('@'))
    {
        error.insert(ContextKind::InvalidValue, ContextValue::String(HIDDEN.to_owned()));
    }
}

fn refusal(told: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::UnknownArgument, format!("{told}\n"))
}

/// What to type instead of a value that would make sense for the same letter in another tool.
fn meant_otherwise(flag: &str, value: &str) -> Option<&'static str> {
    // A bare number is one that is out of range.
    let is_time = duration(value).is_ok() && !is_number(value);
    let is_method = value.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_url = value.contains("://");
    let is_file = value.contains(['.', '/']) && !is_url && value.starts_with(|c: char| !c.is_ascii_digit());
    match flag {
        "--streams" if is_method => Some("a method? use -X METHOD; -m is streams per connection"),
        "--streams" if is_time => Some("a time? use --timeout TIME; -m is streams per connection"),
        "--threads" if is_time => {
            Some("a time? use -z TIME for the run, --timeout TIME for a request; -t is threads")
        }
        "--rate" if is_url => Some("a URL? -q takes a rate; for no progress use -s"),
        "--connections" if is_file => Some("a file? -c is connections; cookies are sent by -b NAME=VALUE"),
        "--max-frame-size" if is_url => Some("curl's -f is --fail-if 'errors > 0'; -f is the largest frame"),
        "--max-frame-size" if value.starts_with("TLS") || value.starts_with("SSL") => {
            Some("versions of TLS cannot be chosen; -f is the largest frame")
        }
        "--max-frame-size" if is_file => Some("a file? use -d @FILE for a body; -f is the largest frame"),
        "--stream-window" if value.contains('%') => Some("use --json; -w is the window of a stream"),
        "--stream-window" if is_url => Some("ab's -w is --html FILE; -w is the window of a stream"),
        "--duration" if is_file || is_url => {
            Some("a file? use -d @FILE for a body; -D and -z are the time of the run")
        }
        _ => None,
    }
}

/// The subcommand that `args` name, or `command` itself if they name none.
fn own<'a>(command: &'a Command, args: &[OsString]) -> &'a Command {
    let mut own = command;
    for arg in args.iter().skip(1) {
        match own.find_subcommand(arg) {
            Some(inner) => own = inner,
            None => break,
        }
    }
    own
}

fn is_without_command(command: &Command, args: &[OsString]) -> bool {
    own(command, args).get_name() == command.get_name()
}

/// The URL in a word, without what may be a secret.
fn url_of(word: &str) -> Option<String> {
    let url = reach::with_scheme(word);
    let is_url = url.starts_with("http://") || url.starts_with("https://");
    is_url.then(|| without_url_secrets(&url).into_owned())
}

/// What can be done with a URL.
fn missing_command(url: &str) -> String {
    // A shell reads this as one word.
    let is_plain = url.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":/.-_~%,@".contains(&byte));
    let url = &if is_plain { url.to_owned() } else { format!("'{url}'") };
    format!(
        "{url} needs a command before it:\n\n  \
         h2lab compare {url}\n      is HTTP/2 faster or slower than HTTP/1.1 there?\n  \
         h2lab load {url}\n      load it, as wrk, hey and h2load do\n  \
         h2lab probe {url}\n      which protocols does it speak, and where are its limits?\n  \
         h2lab trace {url}\n      every frame of a request\n  \
         h2lab timeline {url}\n      when is each part of a response announced, and when does it arrive?"
    )
}

/// The note that a flag belongs to other commands of ours, and why not to this one.
fn other_command(command: &Command, args: &[OsString], flag: &str) -> Option<String> {
    let own = own(command, args);
    let name = flag.trim_start_matches('-');
    let is_own =
        |arg: &&Arg| flag.starts_with("--") && arg.get_short().is_some_and(|short| short.to_string() == name);
    if let Some(arg) = own.get_arguments().filter(|arg| !arg.is_hide_set()).find(is_own) {
        return Some(format!("{flag} is written {}", written(arg)));
    }
    let has = |arg: &&Arg| {
        let is_short = || arg.get_short().is_some_and(|short| short.to_string() == name);
        if flag.starts_with("--") { is_called(arg, name) } else { is_short() }
    };
    let all = commands(command, "h2lab");
    let mut owners = all.iter().filter_map(|(path, other)| {
        let arg = other.get_arguments().filter(|arg| !arg.is_hide_set()).find(has)?;
        Some((path.as_str(), arg))
    });
    let (first, arg) = owners.next()?;
    let others: Vec<&str> = std::iter::once(first).chain(owners.map(|(path, _)| path)).collect();
    let path = all.iter().find(|(_, other)| std::ptr::eq(*other, own)).map_or("h2lab", |(path, _)| path);
    let owners = others.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    let has_timeout = own.get_arguments().any(|arg| arg.get_id() == "timeout");
    let why = match arg.get_id().as_str() {
        "connect_timeout" if has_timeout => Some("its --timeout covers connecting, too"),
        id => why(id),
    };
    let why = why.map_or(String::new(), |why| format!("{why}; "));
    let quiet = if flag == "-q" { "; for no progress use -s or --quiet" } else { "" };
    Some(format!("{} is not for `{path}`: {why}it is a flag of {owners}{quiet}", written(arg)))
}

/// Every command that people call, with its path.
fn commands<'a>(command: &'a Command, path: &str) -> Vec<(String, &'a Command)> {
    let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    shown
        .flat_map(|inner| {
            let path = format!("{path} {}", inner.get_name());
            let below = commands(inner, &path);
            std::iter::once((path, inner)).chain(below)
        })
        .collect()
}

/// The reason why a command does not have a flag that other commands have.
fn why(id: &str) -> Option<&'static str> {
    fn has<T: Args>(id: &str) -> bool {
        T::augment_args(Command::new("flags")).get_arguments().any(|arg| arg.get_id() == id)
    }
    match id {
        "rate" => Some("it sends no load"),
        _ if has::<LinkArgs>(id) => Some("it has no emulated link"),
        _ if has::<ServerArgs>(id) => Some("it starts no servers behind a link"),
        _ if has::<CaptureArgs>(id) => Some("it has no emulated link to capture"),
        _ if has::<PolicyArgs>(id) => Some("it keeps no pool of connections"),
        _ if has::<ClientArgs>(id) || has::<ReachArgs>(id) => Some("it makes no requests"),
        _ => None,
    }
}

fn is_called(arg: &Arg, long: &str) -> bool {
    arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
}

#[cfg(test)]
mod tests;
