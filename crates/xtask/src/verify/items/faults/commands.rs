//! Every command against one hostile server: what it is told, what it may end with, and what it may claim.

use std::path::Path;
use std::process::Command as Program;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::servers::{Answers, Server};
use super::{DEADLINE, Ended, Ending, judge};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::Started;

/// Runs side by side: they wait for most of their time.
const AT_ONCE: usize = 4;
/// How long a hostile server may take to listen.
const START: Duration = Duration::from_secs(60);
/// What is sent to it, in bytes: more than any window that is not asked for.
const UPLOAD: usize = 300_000;
/// Exit code of a measurement that the tool does not trust: on a busy machine it may be that of any.
const INVALID: i32 = 5;

/// What a run says that it achieved.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Claims {
    /// Requests or files that succeeded.
    succeeded: u64,
    /// All of them.
    all: u64,
    /// Verdicts that two equal cells differ.
    differences: usize,
}

/// A command of h2lab, as it is run here.
struct Command {
    name: &'static str,
    /// Its words; the timeout, `-k`, the protocol and the URL follow.
    words: &'static str,
    /// What its document claims; `None` where that is not what it must have.
    claims: fn(&Value) -> Option<Claims>,
}

/// What is run.
const COMMANDS: [Command; 8] = [
    Command {
        name: "load",
        words: "load --json --quiet --no-store -c2 -n6 --connect-timeout=5s",
        claims: |document| {
            let of = |name: &str| document["requests"][name].as_u64();
            let (sent, succeeded) = (of("sent")?, of("succeeded")?);
            let is_complete = sent == succeeded + of("failed")? + of("unfinished")?;
            is_complete.then_some(Claims { succeeded, all: sent, differences: 0 })
        },
    },
    Command {
        name: "compare",
        words: "compare --json --out=run -c1 -q20 -z1s --repetitions=1 --warmup=0ms --drain=20s",
        claims: |document| {
            let cells = document["cells"].as_array()?;
            let sum =
                |name: &str| cells.iter().map(|cell| cell["requests"][name].as_u64()).sum::<Option<u64>>();
            let claims = |verdict: &&Value| {
                let word = verdict["verdict"].as_str().unwrap_or_default();
                matches!(word, "faster" | "slower")
            };
            let differences = document["verdicts"].as_array()?.iter().filter(claims).count();
            Some(Claims { succeeded: sum("succeeded")?, all: sum("sent")?, differences })
        },
    },
    Command { name: "trace", words: "trace --json -n3", claims: |document| answered(document, "requests") },
    Command { name: "timeline", words: "timeline --json", claims: |document| answered(document, "runs") },
    Command { name: "bulk get", words: "bulk get --json -o got", claims: files },
    Command { name: "bulk get -c2", words: "bulk get --json -o got -c2 --part=64k", claims: files },
    Command { name: "bulk put", words: "bulk put --json sent", claims: files },
    Command {
        name: "probe",
        words: "probe --json --idle=1s --max-time=20s",
        claims: |document| document["checks"].as_array().map(|_| Claims::default()),
    },
];

fn answered(document: &Value, all: &str) -> Option<Claims> {
    let (succeeded, all) = (document["answered"].as_u64()?, document[all].as_u64()?);
    Some(Claims { succeeded, all, differences: 0 })
}

fn files(document: &Value) -> Option<Claims> {
    let of = |name: &str| document["files"][name].as_u64();
    let succeeded = of("complete")?;
    Some(Claims { succeeded, all: succeeded + of("partial")? + of("failed")?, differences: 0 })
}

/// Those of a server's row: for the command as it is run, or for all its forms.
fn own_codes<'a>(command: &str, server: &'a Server) -> Option<&'a Vec<i32>> {
    let of = |name: &str| server.codes.get(name);
    of(command).or_else(|| of(command.trim_end_matches(" -c2")))
}

/// The exit codes that a command may end with where a server answers so.
fn codes(command: &str, server: &Server) -> Vec<i32> {
    const DONE: i32 = 0;
    const NO_SUCCESS: i32 = 1;
    const UNREACHABLE: i32 = 3;
    let wants_file = command.starts_with("bulk");
    let mut codes = own_codes(command, server).cloned().unwrap_or_else(|| match (server.answers, command) {
        // What it found out about the server is its result, if that spoke at all.
        (Answers::None, "probe") => vec![DONE, UNREACHABLE],
        (Answers::None, _) => vec![UNREACHABLE],
        (Answers::All, _) | (Answers::Some, "load" | "probe") => vec![DONE],
        // In one of the protocols there may have been none.
        (Answers::Some, "compare") => vec![DONE, NO_SUCCESS, UNREACHABLE],
        (Answers::Some, _) => vec![DONE, UNREACHABLE],
        (Answers::Refused | Answers::Redirect, _) if wants_file => vec![NO_SUCCESS],
        (Answers::Refused, "load" | "compare") => vec![NO_SUCCESS],
        // A status is an answer to who only watches.
        (Answers::Refused | Answers::Redirect, _) => vec![DONE],
    });
    if codes.contains(&DONE) && matches!(command, "load" | "compare") {
        codes.push(INVALID);
    }
    codes
}

/// One run: a command, and what the server speaks.
struct Meeting<'a> {
    server: &'a Server,
    name: &'a str,
    speech: &'a str,
    command: &'a Command,
    seed: u64,
}

/// How one run went.
struct Met {
    row: String,
    holds: bool,
}

/// Lets every command meet the server called `name`, over all that it speaks.
pub fn meet(h2lab: &H2lab, name: &str, server: &Server, seed: u64) -> Result<ItemOutcome> {
    let hostile = h2lab.example("hostile")?;
    let meeting =
        |speech| COMMANDS.iter().map(move |command| Meeting { server, name, speech, command, seed });
    let meetings: Vec<Meeting<'_>> = server.speaks.iter().flat_map(|speech| meeting(speech)).collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < meetings.len()) {
            let met = meetings[index].hold(h2lab, &hostile);
            if let Ok(mut results) = results.lock() {
                results.push((index, met));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().map_err(|_| anyhow::anyhow!("a run panicked"))?;
    results.sort_by_key(|(index, _)| *index);
    let mut outcome = ItemOutcome::default();
    if let Some(because) = &server.because {
        outcome.note(format!("other exit codes: {because}"));
    }
    for (index, met) in results {
        match met {
            Ok(met) => outcome.check(met.holds, met.row),
            Err(error) => outcome.check(false, format!("{}: {error:#}", meetings[index].title())),
        }
    }
    Ok(outcome)
}

/// The line of a server that listens.
#[derive(Debug, Deserialize)]
struct Listening {
    port: u16,
    drew: Vec<u64>,
}

impl Meeting<'_> {
    fn title(&self) -> String {
        format!("{:<4} {:<12}", self.speech, self.command.name)
    }

    fn hold(&self, h2lab: &H2lab, hostile: &Path) -> Result<Met> {
        let folder = tempfile::tempdir()?;
        let mut program = Program::new(hostile);
        program.args([self.name, "--speak", self.speech, "--seed", &self.seed.to_string()]);
        let mut server = Started::begin(&mut program, folder.path(), "server")?;
        let listens = server.until(START, |server| server.stdout().contains('\n'))?;
        ensure!(listens, "the server does not listen: {}", server.stderr());
        let listening: Listening = serde_json::from_str(&server.stdout())?;
        fs::write(folder.path().join("sent"), vec![b'x'; UPLOAD])?;
        let ended = self.run(h2lab, folder.path(), listening.port)?;
        let allowed = codes(self.command.name, self.server);
        let wrong = judge(&ended, &allowed)
            .and_then(|()| self.judge_claims(&ended))
            .and_then(|()| self.judge_file(&ended, folder.path()))
            .err();
        let row = format!("{} {}, {:.1} s", self.title(), ended.ending, ended.took.as_secs_f64());
        Ok(match wrong {
            None => Met { row, holds: true },
            Some(wrong) => {
                let (drew, words) = (listening.drew, ended.last_words());
                Met { row: format!("{row}: {wrong:#} (drew {drew:?}; {words})"), holds: false }
            }
        })
    }

    fn run(&self, h2lab: &H2lab, folder: &Path, port: u16) -> Result<Ended> {
        let scheme = if matches!(self.speech, "h1" | "h2c") { "http" } else { "https" };
        let url = format!("{scheme}://127.0.0.1:{port}/file");
        // Against itself, so that there is a verdict.
        let protocols = match self.command.name {
            "compare" => format!("--proto={0},{0}", self.speech),
            "probe" => String::new(),
            _ => format!("--proto={}", self.speech),
        };
        // A body without end must not fill the machine's disk: 131,072 blocks of 512 bytes.
        let mut program = Program::new("sh");
        program.args(["-c", "ulimit -f 131072; exec \"$0\" \"$@\""]).arg(h2lab.path());
        // What nobody will answer need not be waited for; what a busy machine answers late must be.
        let timeout = if self.server.answers == Answers::None { "--timeout=1s" } else { "--timeout=10s" };
        program.args(self.command.words.split(' ')).args([timeout, "-k"]);
        program.args(Some(protocols).filter(|flag| !flag.is_empty())).arg(url);
        Started::begin(&mut program, folder, "h2lab")?.end(DEADLINE)
    }

    /// Whether what the run claims is what the server did.
    fn judge_claims(&self, ended: &Ended) -> Result<()> {
        if ended.stdout.is_empty() && ended.ending != Ending::Code(0) {
            return Ok(());
        }
        let document: Value = serde_json::from_str(&ended.stdout).context("stdout is no JSON document")?;
        let claims = (self.command.claims)(&document).context("the document does not add up")?;
        // Of two equal cells that were measured one in twenty may be claimed to differ; of two that were not, none.
        let is_measured = self.server.answers != Answers::None;
        ensure!(is_measured || claims.differences == 0, "a verdict from requests that nobody answered");
        let wants_file = self.command.name.starts_with("bulk");
        let none = format!("it counts {} of {} as successes", claims.succeeded, claims.all);
        let is_other = own_codes(self.command.name, self.server).is_some();
        match self.server.answers {
            Answers::None => ensure!(claims.succeeded == 0 || is_other, none),
            Answers::Refused => {
                // A status is an answer to who only watches.
                let watches = matches!(self.command.name, "trace" | "timeline");
                ensure!(claims.succeeded == 0 || watches, none);
            }
            Answers::Redirect if wants_file => ensure!(claims.succeeded == 0, none),
            Answers::All | Answers::Redirect if !is_other => ensure!(claims.succeeded == claims.all, none),
            Answers::All | Answers::Some | Answers::Redirect => {}
        }
        ensure!(!wants_file || (claims.succeeded == claims.all) == (ended.ending == Ending::Code(0)), none);
        Ok(())
    }

    /// Whether a file has its name only if all of it arrived, in one version.
    fn judge_file(&self, ended: &Ended, folder: &Path) -> Result<()> {
        if !self.command.name.starts_with("bulk get") {
            return Ok(());
        }
        let got = folder.join("got");
        if ended.ending != Ending::Code(0) {
            ensure!(!got.exists(), "a file that did not arrive has its name");
            return Ok(());
        }
        let got = fs::read(got).context("no file has arrived")?;
        if !self.name.starts_with("file") || got.len() < size_of::<u64>() {
            return Ok(());
        }
        // As the program's file.rs makes it: a version and an index in each eight bytes.
        let (words, _) = got.as_chunks::<8>();
        let version = u64::from_be_bytes(words[0]);
        for (index, word) in words.iter().enumerate() {
            let expected = version + index as u64;
            ensure!(u64::from_be_bytes(*word) == expected, "byte {} is of another version", 8 * index);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(ending: Ending, stdout: &str) -> Ended {
        Ended { ending, took: Duration::ZERO, stdout: stdout.to_owned(), stderr: String::new() }
    }

    fn server(answers: Answers) -> Server {
        Server { is: String::new(), speaks: Vec::new(), answers, codes: [].into(), because: None }
    }

    #[test]
    fn a_success_that_a_server_never_gave_is_a_false_claim() {
        let load = &COMMANDS[0];
        let document = |succeeded| {
            format!(
                r#"{{"requests":{{"sent":6,"succeeded":{succeeded},"failed":{},"unfinished":0}}}}"#,
                6 - succeeded
            )
        };
        let holds = |answers, succeeded: u64| {
            let server = server(answers);
            let meeting = Meeting { server: &server, name: "x", speech: "h1", command: load, seed: 1 };
            meeting.judge_claims(&ended(Ending::Code(0), &document(succeeded))).is_ok()
        };
        assert!(holds(Answers::None, 0) && !holds(Answers::None, 1));
        assert!(holds(Answers::All, 6) && !holds(Answers::All, 5));
        assert!(holds(Answers::Some, 3) && holds(Answers::Refused, 0) && !holds(Answers::Refused, 6));
    }

    #[test]
    fn the_codes_follow_from_what_a_server_answers_unless_its_row_has_others() {
        assert_eq!(codes("load", &server(Answers::None)), [3]);
        assert_eq!(codes("load", &server(Answers::All)), [0, INVALID]);
        assert_eq!(codes("bulk get -c2", &server(Answers::Redirect)), [1]);
        assert_eq!(codes("load", &server(Answers::Refused)), [1]);
        assert_eq!(codes("trace", &server(Answers::Refused)), [0]);
        let mut other = server(Answers::All);
        other.codes.insert("bulk get".to_owned(), vec![1]);
        assert_eq!((codes("bulk get -c2", &other), codes("trace", &other)), (vec![1], vec![0]));
        other.codes.insert("bulk get -c2".to_owned(), vec![3]);
        assert_eq!((codes("bulk get -c2", &other), codes("bulk get", &other)), (vec![3], vec![1]));
    }
}
