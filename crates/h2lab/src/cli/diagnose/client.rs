//! `h2lab diagnose --run COMMAND`: the user's client against our origin, behind the emulated link; what its connections show.
//!
//! The client's end of the link is captured, with the secrets of every TLS connection from our origin, and is read like
//! any other capture. What findings name at our end is then changed, and the client is run again.

mod doubts;
mod server;
mod trials;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use h2lab_analysis::diagnose::client::{self, Client};
use h2lab_analysis::diagnose::passive::Captured;
use h2lab_base::counts::plural;
use h2lab_base::secrets::without_command_secrets;
use h2lab_base::text::made_printable;
use h2lab_base::units::{Time, format_duration};
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::Axis;
use h2lab_model::workload::Protocol;
use h2lab_net::clock::Clock;
use h2lab_net::scratch::ScratchFolder;

use self::server::{CLEAR_PORT, Made, Runs, TLS_PORT};
use self::trials::Tried;
use super::super::Exit;
use super::super::exit::Usage;
use super::super::output::Concluded;
use super::super::values::duration;
use super::{DiagnoseArgs, capture};
use crate::run::commands::{SERVER, exit_code};
use crate::run::messages::{Failure, FailureKind};

/// URLs in `{urls}`, as `probe client` has them.
const URLS: usize = 12;
/// How long the command may run, unless the user says otherwise.
const LIMIT: Duration = Duration::from_secs(60);
/// How many lines of a command's output are shown.
const LAST_LINES: usize = 5;
/// They are taken from this many last bytes, which hold a trace of calls; each is cut to `LINE` characters.
const LAST_BYTES: usize = 64 << 10;
const LINE: usize = 160;
/// A shell's exit codes for a command that is not there, and for one that may not be executed.
const MISSING: [u8; 2] = [127, 126];

/// A client that is to be run.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ClientRunArgs {
    /// Run this client's command against h2lab's own server, and report what its connections show
    ///
    /// A shell runs it. If a finding names something at the server's end or in the network, it is run again, several times, with that
    /// changed and without, until the --budget is spent: a command that must not be repeated needs --budget 0s.
    ///
    /// `{url}` is the server's URL, `{urls}` are 12 of them, `{ca}` is the file of the authority of --tls. It sees your files, and no
    /// network but the emulated link: 12.5 ms each way and no loss unless --delay, --loss and the like say otherwise. Without --tls
    /// the server speaks HTTP/2 by prior knowledge, and HTTP/1.1. It gets the limits of yours by -w and -W (windows of uploads), -m,
    /// --max-requests-per-connection and --no-tls-resumption. Its paths: `h2lab origin --help`.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["what", "via", "again", "config", "fix"])]
    run: Option<String>,
    /// Serve the client of --run over TLS: h2 and http/1.1 by ALPN
    #[arg(long, requires = "run")]
    tls: bool,
    /// Maximum time of the command of --run [default: 60s]
    #[arg(long, value_name = "TIME", requires = "run", value_parser = duration)]
    time_limit: Option<Duration>,
}

impl ClientRunArgs {
    /// The command, if there is one; it must name the server.
    pub(super) fn command(&self) -> Result<Option<&str>, Usage> {
        let Some(words) = self.run.as_deref() else { return Ok(None) };
        if !["{url}", "{urls}"].iter().any(|place| words.contains(place)) {
            let why = "--run: the command has neither {url} nor {urls}, where the server's URL goes";
            return Err(Usage(why.to_owned()));
        }
        if words.contains("{ca}") && !self.tls {
            return Err(Usage("{ca} is the authority of --tls, which is not given".to_owned()));
        }
        Ok(Some(words))
    }

    /// Whether there is a command.
    pub(super) const fn is_given(&self) -> bool {
        self.run.is_some()
    }

    /// Whether `--tls` was given, which has no effect without `--run`.
    pub(super) const fn is_tls(&self) -> bool {
        self.tls
    }

    /// What the server prefers.
    const fn protocol(&self) -> Protocol {
        if self.tls { Protocol::H2 } else { Protocol::H2c }
    }

    /// The command with its placeholders filled.
    fn filled(&self, words: &str, ca: &Path) -> String {
        let (scheme, port) = if self.tls { ("https", TLS_PORT) } else { ("http", CLEAR_PORT) };
        let base = format!("{scheme}://{SERVER}:{port}");
        let urls: Vec<String> = (1..=URLS).map(|n| format!("{base}/?{n}")).collect();
        words
            .replace("{urls}", &shell_words(&urls))
            .replace("{url}", &format!("{base}/"))
            .replace("{ca}", &ca.to_string_lossy())
    }

    fn limit(&self) -> Duration {
        self.time_limit.unwrap_or(LIMIT)
    }
}

/// Refuses several values of a flag: our end has one.
fn single<T: Clone>(flag: &str, values: Option<&Axis<T>>) -> Result<(), Usage> {
    match values {
        Some(values) if values.varies() => {
            Err(Usage(format!("{flag}: with --run each flag takes one value")))
        }
        _ => Ok(()),
    }
}

fn shell_words(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

impl DiagnoseArgs {
    /// Refuses flags for what the user's client decides itself, and flags that have no meaning here.
    fn refuse_for_client(&self) -> Result<()> {
        if self.out.is_some() {
            let why = "--out is for a run folder, and --run keeps none: -o FILE writes the report";
            return Err(Usage(why.to_owned()).into());
        }
        if self.reach.tls.no_tls_resumption && !self.client.tls {
            return Err(Usage("--no-tls-resumption is for the server of --tls".to_owned()).into());
        }
        if self.fail_on.is_some() && self.budget().is_zero() {
            let why = "--fail-on needs an experiment, and --budget 0s allows none";
            return Err(Usage(why.to_owned()).into());
        }
        let (work, servers) = (&self.cells.work, &self.cells.servers);
        single("-m", work.streams.as_ref())?;
        single("--seed", work.seed.as_ref())?;
        single("--max-requests-per-connection", servers.max_requests_per_connection.as_ref())?;
        // What is taken are settings of the server.
        let own = "is for requests of h2lab, and with --run your client makes them";
        self.cells.work.refuse(&["seed", "streams"], own)?;
        self.cells.client.refuse(&["stream_window", "connection_window"], own)?;
        self.cells.policy.refuse(&[], own)?;
        self.reach.refuse(&["no_tls_resumption"], own)?;
        let server = "has no effect with --run: the server is h2lab's own, behind the emulated link";
        self.cells.servers.refuse(&["max_requests_per_connection"], server)?;
        Ok(self.cells.capture.refuse(&[], "has no effect with --run: `h2lab link --pcap` keeps packets")?)
    }

    /// Runs the client, tries what can be changed at our end, and reports what its connections show.
    pub(super) fn run_client(&self, words: &str, command_line: Vec<String>) -> Result<Exit> {
        self.refuse_for_client()?;
        let clock = Clock::start();
        let shown = made_printable(&without_command_secrets(words)).into_owned();
        let folder = ScratchFolder::create("h2lab-client").context("cannot make a temporary folder")?;
        let said = folder.path().join("said");
        let ours = self.our_end()?;
        let mut runs = Runs::prepare(self, words, folder.path(), &said)?;
        if !self.quiet {
            let limit = format_duration(self.client.limit());
            say!("the client is run, for {limit} at most: {shown}");
        }
        // This process is the lab from here on.
        let Made { done, captured, damage, doubts } = runs.make(&ours)?;
        let said = last_lines(&fs::read(&said).unwrap_or_default());
        let (ran_out, is_interrupted) = (done.ran_out, done.is_interrupted);
        let limit = self.client.limit();
        let is_untrusting = self.client.tls && !words.contains("{ca}");
        let ending = Ending { client: done.client, ran_out, is_interrupted, limit, said, is_untrusting };
        if captured.records.is_empty() {
            let place = folder.path().parent().unwrap_or(folder.path());
            let unkept = done.captured.as_ref().and_then(|captured| captured.unkept(place));
            return Err(unkept.unwrap_or_else(|| ending.failure(&captured)).into());
        }
        let mut notes: Vec<String> = ending.note().into_iter().chain(damage).collect();
        notes.extend(done.captured.iter().flat_map(|captured| captured.doubts(false)));
        notes.extend(captured.notes.iter().map(ToString::to_string));
        let unread = capture::unread(&captured);
        let mut run: RunRecord = capture::run(format!("client {shown}"), captured, command_line);
        run.seed = ours.seed;
        let in_clear = if self.client.tls { client::clear_at_tls } else { client::clear_http1 };
        notes.extend(in_clear(&run.repetitions));
        let (took, cpu, asked_for) = (done.took, done.client_cpu, self.asked_for());
        let client = Client { command: words, took, cpu, doubts: &doubts, asked_for: &asked_for };
        let tried = if ran_out || is_interrupted {
            Tried::default()
        } else {
            let findings = Concluded::of_client(&run, Vec::new(), &client).report().findings.to_vec();
            self.try_changes(&mut runs, &ours, (&run, &findings), took, clock)
        };
        run.interrupted = is_interrupted || tried.is_interrupted;
        notes.extend(tried.note);
        let concluded = Concluded::of_client(&run, notes, &client);
        let exit = match &tried.experiment {
            Some(experiment) => {
                let took = Some(clock.now().since(Time::ZERO));
                self.conclude_trials(&concluded, unread, experiment, took)?
            }
            None => self.conclude_client(&concluded, unread)?,
        };
        Ok(match doubts.is_empty() {
            _ if run.interrupted => Exit::Interrupted,
            true => exit,
            false => Exit::Invalid,
        })
    }
}

/// What the command did, beside its connections.
#[derive(Debug)]
struct Ending {
    client: ExitStatus,
    ran_out: bool,
    /// Whether the user interrupted us, so that it was killed.
    is_interrupted: bool,
    limit: Duration,
    /// The last lines of its output.
    said: Vec<String>,
    /// The server's certificate was issued by an authority that the command was not given.
    is_untrusting: bool,
}

impl Ending {
    /// How it ended, in words; `None` if it ended well.
    fn words(&self) -> Option<String> {
        if self.is_interrupted {
            return Some("it was killed, since the run was interrupted".to_owned());
        }
        if self.ran_out {
            let limit = format_duration(self.limit);
            return Some(format!("it was killed after {limit} (--time-limit), when it still ran"));
        }
        (!self.client.success()).then(|| format!("it ended with {}", self.client))
    }

    /// The note beside the findings; `None` for a command that ended well.
    fn note(&self) -> Option<String> {
        let words = self.words()?;
        let said = if self.said.is_empty() {
            String::new()
        } else {
            format!("; it said: {}", self.said.join(" / "))
        };
        Some(format!("the client: {words}{said}"))
    }

    /// Why there is nothing to report.
    fn failure(&self, captured: &Captured) -> Failure {
        let is_missing = MISSING.contains(&exit_code(self.client)) && !self.ran_out;
        let kind = match (self.is_interrupted, is_missing) {
            (true, _) => FailureKind::Interrupted,
            (false, true) => FailureKind::Environment,
            (false, false) => FailureKind::Unreachable,
        };
        let from = match captured.connections {
            0 => "the client did not connect to the server".to_owned(),
            n => format!("no request of HTTP came from the client on {}", plural(n as u64, "connection")),
        };
        let lead = if self.is_interrupted { "interrupted: " } else { "" };
        let mut message = format!("{lead}--run: {from}");
        let ended = self.words().unwrap_or_else(|| "it ended without an error".to_owned());
        let _ = write!(message, "; {ended}");
        if self.is_untrusting && captured.connections > 0 {
            message += "; if it broke off the TLS handshake, it does not trust the server: {ca} in the command is the file of the \
                        authority (curl --cacert {ca})";
        }
        if !self.said.is_empty() {
            let _ = write!(message, "; its last lines:\n  {}", self.said.join("\n  "));
        }
        for note in &captured.notes {
            let _ = write!(message, "\n- {note}");
        }
        Failure { kind, message }
    }
}

/// The last lines of an output, printable.
fn last_lines(bytes: &[u8]) -> Vec<String> {
    let cut = bytes.len().saturating_sub(LAST_BYTES);
    // Of a line that is cut, what is left may be a credential without its name.
    let begin = match cut.checked_sub(1) {
        Some(before) => {
            let line = bytes[before..].iter().position(|byte| *byte == b'\n');
            line.map_or(bytes.len(), |at| cut + at)
        }
        None => 0,
    };
    let text = String::from_utf8_lossy(&bytes[begin..]).into_owned();
    let lines: Vec<String> = text
        .lines()
        // Of a line that is overwritten, such as progress, what a terminal shows at the end.
        .map(|line| line.trim_end().rsplit('\r').next().unwrap_or_default())
        .filter(|line| !is_of_trace(line))
        // A client that logs its requests prints their credentials.
        .map(|line| without_command_secrets(&line.replace('\t', "    ")))
        .map(|line| made_printable(&line).chars().take(LINE).collect::<String>())
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].to_vec()
}

/// Whether a line belongs to a trace of calls, as Java and JavaScript print it below an exception.
fn is_of_trace(line: &str) -> bool {
    let call = line.trim_start();
    let is_rest = call.starts_with("... ") && call.ends_with(" more");
    call.len() < line.len() && (call.starts_with("at ") || is_rest)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;
    use h2lab_analysis::diagnose::passive::Capture;
    use h2lab_link::LinkSpec;

    fn run(words: &str, tls: bool) -> ClientRunArgs {
        ClientRunArgs { run: Some(words.to_owned()), tls, time_limit: None }
    }

    #[test]
    fn places_in_the_command_are_filled() {
        let filled = |words: &str, tls| run(words, tls).filled(words, Path::new("/x/cert.pem"));
        let server = format!("{SERVER}:8080/");
        assert_eq!(filled("get '{url}' a", false), format!("get 'http://{server}' a"));
        let all = filled("{urls}", false);
        assert_eq!(
            (all.split(' ').count(), all.contains(&format!("'http://{server}?12'"))),
            (URLS, true),
            "{all}"
        );
        assert_eq!(filled("{url} {ca}", true), format!("https://{SERVER}:8443/ /x/cert.pem"));
    }

    #[test]
    fn a_command_names_the_server_and_an_authority_only_with_tls() {
        assert!(run("curl", false).command().is_err() && run("curl {url} {ca}", false).command().is_err());
        assert_eq!(run("curl {urls} {ca}", true).command().unwrap(), Some("curl {urls} {ca}"));
        assert_eq!(ClientRunArgs::default().command().unwrap(), None);
    }

    #[test]
    fn our_end_has_one_value_of_each_flag() {
        let refused = |text: &str| single("-m", Some(&text.parse::<Axis<u32>>().unwrap())).is_err();
        assert!(refused("3,9") && !refused("3"));
        assert!(single::<u32>("-m", None).is_ok());
    }

    #[test]
    fn of_an_output_the_last_lines_are_kept_printable() {
        assert!(last_lines(b"").is_empty());
        assert_eq!(last_lines(b"1\n2\n\n3\n4\r\n5\n6\x1b\xff"), ["2", "3", "4", "5", "6\\u{1b}\u{fffd}"]);
        assert_eq!(last_lines(&[b'x'; 9_999]), ["x".repeat(LINE)]);
        assert_eq!(last_lines(b"a\tb\n"), ["a    b"]);
        assert_eq!(last_lines(b"> cookie: a=s3cret\n> GET /?t=s3cret"), ["> cookie: ***", "> GET /?t=***"]);
        assert_eq!(last_lines(b"Speed\r\n\r 1 of 9\r 9 of 9\r\nfailed\n"), ["Speed", " 9 of 9", "failed"]);
    }

    #[test]
    fn of_a_line_whose_beginning_is_not_read_nothing_is_shown() {
        let output = |rest: usize| {
            let value = "x".repeat(rest - "\nfailed\n".len());
            format!("cookie: s3cret{value}\nfailed\n")
        };
        assert_eq!(last_lines(output(LAST_BYTES).as_bytes()), ["failed"]);
        let whole = output(LAST_BYTES - "cookie: s3cret".len());
        assert_eq!(last_lines(whole.as_bytes()), ["cookie: ***", "failed"]);
        assert_eq!(last_lines(format!("first\n{whole}").as_bytes()), ["cookie: ***", "failed"]);
    }

    #[test]
    fn of_an_exception_its_message_is_kept_and_not_the_calls() {
        let calls = "\tat java.base/java.lang.Thread.run(Thread.java:840)\n".repeat(200);
        let lines = ["Exception in thread \"main\" E: outer", "Caused by: E: GOAWAY received"];
        let java = format!("{}\n{calls}{}\n{calls}\t... 9 more\n", lines[0], lines[1]);
        assert_eq!(last_lines(java.as_bytes()), lines);
        let others = ["at last", "    atlas", "... 9 more"];
        assert_eq!(last_lines(others.join("\n").as_bytes()), others, "these are no calls");
    }

    #[test]
    fn only_a_missing_command_is_the_machines_fault() {
        let failure = |code: i32, ran_out, is_interrupted| {
            let client = ExitStatus::from_raw(code << 8);
            let ending = Ending {
                client,
                ran_out,
                is_interrupted,
                limit: LIMIT,
                said: Vec::new(),
                is_untrusting: false,
            };
            ending.failure(&Capture::of_run(LinkSpec::default()).finish(true))
        };
        let kind = |code: i32, ran_out| failure(code, ran_out, false).kind;
        assert_eq!([127, 126].map(|code| kind(code, false)), [FailureKind::Environment; 2]);
        assert_eq!([0, 1, 128].map(|code| kind(code, false)), [FailureKind::Unreachable; 3]);
        assert_eq!(kind(127, true), FailureKind::Unreachable);
        assert!(!failure(60, false, false).message.contains("{ca}"), "it has not connected");
        let interrupted = failure(0, false, true);
        assert_eq!(interrupted.kind, FailureKind::Interrupted);
        let lead =
            "interrupted: --run: the client did not connect to the server; it was killed, since the run";
        assert!(interrupted.message.starts_with(lead), "{interrupted}");
    }

    #[test]
    fn a_command_that_ended_well_needs_no_words() {
        let note = |code: i32, ran_out| {
            let ending = Ending {
                client: ExitStatus::from_raw(code << 8),
                ran_out,
                is_interrupted: false,
                limit: LIMIT,
                said: vec!["why".to_owned()],
                is_untrusting: false,
            };
            ending.note()
        };
        assert_eq!(note(0, false), None);
        assert_eq!(note(7, false).unwrap(), "the client: it ended with exit status: 7; it said: why");
        assert!(note(0, true).unwrap().contains("killed after"));
    }
}
