//! What people type who come from another tool, or leave the command out: what it is here. A flag that means the same as one of
//! ours is an alias beside it; the others are refused with ours named. Where tools disagree about a letter, curl's meaning wins,
//! then h2load's.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args, Command};
use h2lab_base::secrets::without_url_secrets;

use super::capture::CaptureArgs;
use super::client::ClientArgs;
use super::flags::written;
use super::impair::LinkArgs;
use super::policy::PolicyArgs;
use super::reach::{self, ReachArgs};
use super::servers::ServerArgs;

/// Flags of other tools that no flag of ours is called like, and what is written here instead. Those with one hyphen and more than
/// one letter are Go's (vegeta, fortio, hey); clap would take them for several letters, and `-duration` for a body.
const FOREIGN: &[(&[&str], &str)] = &[
    (&["-qps", "-rps"], "use -q RATE"),
    (&["-body", "-payload-file"], "use -d @FILE"),
    (&["-payload", "--body", "--payload", "--data-ascii", "--data-urlencode"], "use -d TEXT"),
    (&["-payload-size"], "use --body-bytes SIZE"),
    (&["-method", "--method"], "use -X METHOD"),
    (&["-I", "--head"], "use -X HEAD"),
    (&["-targets", "--targets", "--input-file", "--timing-script-file"], "use --urls FILE"),
    (&["-i", "--include"], "use `h2lab trace` to see header fields; h2load's -i FILE is --urls FILE"),
    (&["-workers", "-max-workers", "--workers", "--clients"], "use -c N for connections, -m N for streams"),
    (&["-max-connections"], "use -c N"),
    (&["-cpus", "--cpus"], "use -t N"),
    (&["-h2"], "use --http2"),
    (&["-http1.0"], "HTTP/1.0 is not supported; use --http1.1"),
    (&["-host"], "use -H 'Host: NAME'"),
    (&["-A", "--user-agent"], "use -H 'user-agent: NAME'"),
    (&["-e", "--referer"], "use -H 'referer: URL'"),
    (
        &["-T", "--upload-file"],
        "use -d @FILE, or `h2lab bulk put`; hey's is -H 'content-type: TYPE', h2load's -z TIME",
    ),
    (&["--connection-active-timeout"], "use -z TIME"),
    (&["-N", "--connection-inactivity-timeout", "--max-time", "--request-timeout"], "use --timeout TIME"),
    (
        &["-F", "--form", "-G", "--get"],
        "forms are not supported; use -d TEXT or -d @FILE, or put the query in the URL",
    ),
    (
        &["-x", "--proxy", "-proxy"],
        "no proxy is used; --connect-to HOST:PORT:HOST2:PORT2 dials another server",
    ),
    (
        &["-L", "--location", "-redirects", "-disable-redirects", "--redirect", "--disable-redirects"],
        "redirects are never followed; wrk2's -L: percentiles are always reported",
    ),
    (
        &["-U", "--u_latency"],
        "response times count from when a request was due; those from when it was sent are reported, too",
    ),
    (&["--latency-correction"], "with -q RATE response times always count from when a request was due"),
    (&["--script"], "scripts are not run; --template, --urls FILE and `URL weight=N` vary requests"),
    (&["-p", "--no-tls-proto"], "h2load's is --proto h2c or --proto h1; oha's -p N is -m N"),
    (&["--npn-list", "--alpn-list", "--http-version"], "use --proto NAME"),
    (&["-r", "--rate-period"], "new connections have no rate here; use -q RATE for requests per second"),
    (&["--rps"], "h2load's is per connection; use -q RATE, requests per second in total"),
    (&["-B", "--base-uri"], "write whole URLs"),
    (&["--max-concurrent-streams"], "use -m N"),
    (&["--window-bits"], "use -w BITS"),
    (&["--connection-window-bits"], "use -W BITS"),
    (&["-keepalive", "-disable-keepalive", "--disable-keepalive"], "use --reconnect-every 1"),
    (&["-disable-compression", "--compressed"], "use -H 'accept-encoding: gzip' to ask for compression"),
    (&["--log-file"], "use --dump FILE.csv"),
    (&["-j"], "use --json"),
    (&["--report"], "use --html FILE, or -o FILE of that ending"),
    (&["-name"], "a run has a folder instead: --out DIR"),
    (&["--no-tui"], "use --no-live"),
    (&["-v", "--verbose"], "use `h2lab trace`, which shows every frame"),
    (&["-S", "--show-error"], "errors are always shown"),
    (&["--fail"], "use --fail-if 'errors > 0'"),
];

/// What is written here instead of `flag`.
fn instead(flag: &str) -> Option<&'static str> {
    FOREIGN.iter().find(|(flags, _)| flags.contains(&flag)).map(|(_, here)| *here)
}

/// Refuses flags with one hyphen that have the name of a long one, ours or another tool's.
pub fn refuse_go_flags(command: &Command, args: &[OsString]) -> Result<(), clap::Error> {
    let words = args.iter().map(|arg| arg.to_string_lossy()).take_while(|word| word != "--");
    for word in words {
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

/// What a word that may be another tool's long flag would be here, taken letter by letter: help, or a body.
fn glued(name: &str) -> Option<String> {
    let is_word = name.len() > 2 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    match name.split_at_checked(1)? {
        ("h", _) if is_word => Some("there is no such flag; `--help-all` lists those there are".to_owned()),
        ("d", body) if is_word => Some(format!("there is no such flag; a body is -d {body}, with a space")),
        _ => None,
    }
}

/// `error` with what to type instead, if we know.
pub fn explained(error: clap::Error, command: &Command, args: &[OsString]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.split([' ', '=']).next().unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    let told = match error.kind() {
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument if is_without_command(command, args) => {
            url_among(args).map(|url| missing_command(&url))
        }
        ErrorKind::UnknownArgument => {
            let flag = text(ContextKind::InvalidArg);
            let here = || instead(&flag).map(|here| format!("{flag}: {here}"));
            let there = || other_command(command, args, &flag);
            let is_load = matches!(own(command, args).get_name(), "load" | "compare" | "run");
            if is_load { here().or_else(there) } else { there().or_else(here) }
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let (flag, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
            meant_otherwise(&flag, &value).map(|here| format!("{flag} {value}: {here}"))
        }
        _ => None,
    };
    told.map_or(error, |told| refusal(&told))
}

fn refusal(told: &str) -> clap::Error {
    clap::Error::raw(ErrorKind::UnknownArgument, format!("{told}\n"))
}

/// A value that makes sense as that of the same letter in another tool.
fn meant_otherwise(flag: &str, value: &str) -> Option<&'static str> {
    let is_time = super::values::duration(value).is_ok();
    let is_method = value.bytes().all(|byte| byte.is_ascii_uppercase());
    match flag {
        "--streams" if is_method => Some("a method? use -X METHOD; -m is streams per connection"),
        "--streams" if is_time => Some("a time? use --timeout TIME; -m is streams per connection"),
        "--threads" if is_time => {
            Some("a time? use -z TIME for the run, --timeout TIME for a request; -t is threads")
        }
        "--max-frame-size" if value.contains(':') => {
            Some("curl's -f is --fail-if 'errors > 0'; -f is the largest frame")
        }
        "--stream-window" if value.contains('%') => Some("use --json; -w is the window of a stream"),
        "--duration" if value.contains(['.', '/']) => {
            Some("a file? use -d @FILE for a body; -D and -z are the time of the run")
        }
        _ => None,
    }
}

/// The command of `args`, or ours if they name none.
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

/// The first word that is a URL.
fn url_among(args: &[OsString]) -> Option<String> {
    let mut words = args.iter().skip(1).map(|arg| reach::with_scheme(&arg.to_string_lossy()));
    let url = words.find(|word| word.starts_with("http://") || word.starts_with("https://"))?;
    Some(without_url_secrets(&url).into_owned())
}

/// What can be done with a URL.
fn missing_command(url: &str) -> String {
    // As a shell takes it for one word.
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

/// That a flag belongs to other commands of ours, and why not to this one.
fn other_command(command: &Command, args: &[OsString], flag: &str) -> Option<String> {
    let own = own(command, args);
    let name = flag.trim_start_matches('-');
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

/// What flags are about that not every command has.
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
mod tests {
    use std::ffi::OsString;

    use super::super::parse;

    /// What is said of a command line that is refused.
    fn told(line: &str) -> String {
        let words = ["h2lab"].into_iter().chain(line.split(' ')).map(OsString::from);
        parse(&words.collect::<Vec<_>>()).map_or_else(|error| error.to_string(), |_| "taken".to_owned())
    }

    #[test]
    fn a_word_with_one_hyphen_is_neither_a_body_nor_a_question_for_help() {
        assert!(told("load -debug http://h/").contains("-debug: there is no such flag"));
        assert!(told("load -halfclose http://h/").contains("-halfclose: there is no such flag"));
        for body in ["-d debug", "-d{}", "-d@file", "-da=b"] {
            assert_eq!(told(&format!("load {body} http://h/")), "taken");
        }
    }

    #[test]
    fn flags_of_other_tools_that_mean_the_same_are_taken() {
        for line in [
            "load -t2 -c10 -R 100 -D 1s --latency http://a/",
            "load --h1 -D 10 http://a/",
            "load --qps 50 http://a/",
            "load --warm-up-time 5 --silent http://a/",
            "load -s -z 10 a:8080",
            "load --data-binary @f http://a/",
            "load --data-raw 1s http://a/",
            "compare -R 50,100 -D 10,20s --h1 -s localhost:8080/x",
            "run s.toml --qps 50 -z 10",
            "bulk get -D 5 --discard -s http://a/x",
            "probe a:80 --timeout 2",
        ] {
            assert_eq!(told(line), "taken", "{line}");
        }
    }

    #[test]
    fn flags_of_other_tools_that_mean_something_else_are_refused_with_ours_named() {
        for (line, ours) in [
            ("load -t2 -c10 -d1s http://a/", "a duration? use -z"),
            ("load -d 10 http://a/", "--data-raw"),
            ("load -m GET http://a/", "-X METHOD"),
            ("load -t 10s http://a/", "-z TIME"),
            ("load -D body.json http://a/", "-d @FILE"),
            ("load -f http://a/", "--fail-if"),
            ("load -duration=5s http://a/", "-z/--duration"),
            ("load -rate 50 http://a/", "-q/--rate"),
            ("load -qps 100 http://a/", "-q RATE"),
            ("load -data x http://a/", "-d/--data"),
            ("load -disable-keepalive http://a/", "--reconnect-every 1"),
            ("load -h2 http://a/", "--http2"),
            ("load -http2 http://a/", "--http2"),
            ("load -targets t.txt", "--urls FILE"),
            ("load -p h2c http://a/", "--proto h2c"),
            ("load --rps=5 http://a/", "-q RATE"),
            ("load -L http://a/", "redirects are never followed"),
            ("load -A x http://a/", "-H 'user-agent: NAME'"),
            ("load -i urls.txt http://a/", "--urls FILE"),
            ("load --max-concurrent-streams 5 http://a/", "-m N"),
            ("load -v http://a/", "h2lab trace"),
            ("compare -duration=5s http://a/", "-z/--duration"),
            ("bulk get -q http://a/x", "-s or --quiet"),
        ] {
            let told = told(line);
            assert!(told.starts_with("error: ") && told.contains(ours), "{line}: {told}");
            assert!(!told.contains("similar"), "{line}: {told}");
        }
    }

    #[test]
    fn a_url_alone_is_answered_with_what_can_be_done_with_it() {
        for line in
            ["http://a/x", "-t2 -c10 http://a/x", "https://a/ --http2", "localhost:8080", "-k http://a/x"]
        {
            let told = told(line);
            for command in ["h2lab compare http", "h2lab load http", "h2lab probe http", "h2lab trace http"] {
                assert!(told.contains(command), "{line}: {told}");
            }
        }
        assert!(told("http://me:hunter2@a/").contains("***") && told("loda").contains("load"));
    }

    #[test]
    fn a_flag_of_another_command_is_refused_with_the_reason() {
        for command in ["trace http://a/", "timeline http://a/", "bulk get http://a/x", "probe http://a/"] {
            for (flag, why) in [
                ("--connect-timeout=1s", "its --timeout covers connecting, too"),
                ("--loss=1%", "it has no emulated link"),
                ("--delay=1ms", "it has no emulated link"),
                ("--topology=direct", "it starts no servers behind a link"),
                ("--causes", "it has no emulated link to capture"),
                ("--dial-policy=stampede", "it keeps no pool of connections"),
            ] {
                let told = told(&format!("{command} {flag}"));
                let name = flag.split('=').next().unwrap();
                assert!(told.contains(name) && told.contains(why), "{command} {flag}: {told}");
                assert!(told.contains("`h2lab compare`"), "{command} {flag}: {told}");
            }
        }
        let told = told("origin --loss=1%");
        let owners = "it is a flag of `h2lab compare`, `h2lab run`, `h2lab link`";
        assert!(told.contains(owners), "{told}");
    }
}
