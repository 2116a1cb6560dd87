//! What is done to processes while a command works: they are killed, stopped, interrupted, and started again.

use std::fs;
use std::path::Path;
use std::process::Command as Program;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{DEADLINE, Ended, Item, draw, item, judge};
use crate::generators::Origin;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::Started;

/// A comparison behind a link, long enough to be disturbed.
const COMPARE: &str =
    "compare --json --loss=0% --delay=5ms --proto=h1,h2c -c1 -q50 -z2s --repetitions=1 --drain=20s --out=run";
/// How long a process is stopped: no schedule of a busy machine amounts to it.
const STOP: Duration = Duration::from_secs(1);
/// The latest moment at which something happens, after what it happens to is at work.
const LATEST_MS: u64 = 1_500;
/// How long it may take until a process is at work.
const START: Duration = Duration::from_secs(60);

/// Whom it happens to.
#[derive(Debug, Clone, Copy)]
enum Victim {
    /// The command itself, once it handles signals.
    Itself,
    /// The first of its descendants with this word on its command line, once one of them has a connection.
    Below(&'static str),
    /// The origin that it asks.
    Origin,
}

/// What is done.
#[derive(Debug, Clone, Copy)]
enum Action {
    /// This signal.
    Signal(&'static str),
    /// SIGSTOP, and SIGCONT after [`STOP`].
    Stop,
}

/// One disturbance.
struct Disturbance {
    id: &'static str,
    is: &'static str,
    victim: Victim,
    action: Action,
    /// Commands, `URL` for the origin's, with the exit codes that are right.
    rows: &'static [(&'static str, &'static [i32])],
}

/// All of them. Where 0 is right 5 is too: a measurement that the machine was too busy for.
const DISTURBANCES: &[Disturbance] = &[
    Disturbance {
        id: "origin-killed",
        is: "the lab's origin is killed: measured again, no verdict from it",
        victim: Victim::Below("origin"),
        action: Action::Signal("KILL"),
        rows: &[(COMPARE, &[0, 5])],
    },
    Disturbance {
        id: "origin-stopped",
        is: "the lab's origin is stopped for a second: the same",
        victim: Victim::Below("origin"),
        action: Action::Stop,
        rows: &[(COMPARE, &[0, 5])],
    },
    Disturbance {
        id: "generator-killed",
        is: "the generator is killed: the same",
        victim: Victim::Below("__load"),
        action: Action::Signal("KILL"),
        rows: &[(COMPARE, &[0, 5])],
    },
    Disturbance {
        id: "generator-stopped",
        is: "the generator is stopped for a second: the same; a load that was stopped says so (5)",
        victim: Victim::Below("__load"),
        action: Action::Stop,
        rows: &[(COMPARE, &[0, 5])],
    },
    Disturbance {
        id: "pump-killed",
        is: "the process that pumps the link's packets is killed: the same",
        victim: Victim::Below("__lab"),
        action: Action::Signal("KILL"),
        rows: &[(COMPARE, &[0, 5])],
    },
    Disturbance {
        id: "pump-stopped",
        is: "the process that pumps the link's packets is stopped for a second: the same",
        victim: Victim::Below("__lab"),
        action: Action::Stop,
        rows: &[(COMPARE, &[0, 5])],
    },
    Disturbance {
        id: "load-stopped",
        is: "a load is stopped for a second: it says that it was (5), or was over",
        victim: Victim::Itself,
        action: Action::Stop,
        rows: &[
            ("load --json --quiet --no-store -c2 -z4s URL/delay/5", &[5]),
            ("load --json --quiet --no-store -c2 -q50 -z4s URL/delay/5", &[5]),
            ("bulk get --json --discard -z4s URL/bytes/1G", &[5]),
        ],
    },
    Disturbance {
        id: "server-killed",
        is: "the server is killed: a load says so (1, or was over), a file has no name",
        victim: Victim::Origin,
        action: Action::Signal("KILL"),
        rows: &[
            ("load --json --quiet --no-store -c4 -z4s URL/delay/5", &[0, 1, 5]),
            ("load --json --quiet --no-store --h2c -c2 -m8 -z4s URL/delay/5", &[0, 1, 5]),
            ("compare --json --proto=h1,h2c -c1 -q50 -z4s --repetitions=1 --out=run URL/", &[0, 1, 3, 5]),
            ("trace -n9 URL/delay/900", &[3]),
            ("timeline -n9 URL/delay/900", &[3]),
            ("bulk get --json --timeout=2s -o got URL/drip?bytes=100000000&ms=60000", &[3]),
            ("bulk get --json --timeout=2s --h2c -o got URL/drip?bytes=100000000&ms=60000", &[3]),
            ("bulk put --json --timeout=2s --memory=900G URL/echo", &[3]),
            ("probe --json --timeout=1s --idle=20s URL/", &[0, 3]),
        ],
    },
    Disturbance {
        id: "server-stopped",
        is: "the server is stopped for a second: all is counted, nothing hangs",
        victim: Victim::Origin,
        action: Action::Stop,
        rows: &[
            ("load --json --quiet --no-store -c4 -z4s URL/delay/5", &[0, 5]),
            ("load --json --quiet --no-store --h2c -c2 -m8 -z4s --timeout=300ms URL/delay/5", &[0, 5]),
            ("bulk get --json --timeout=9s -o got URL/bytes/3G", &[0]),
            ("timeline -n5 --timeout=9s URL/delay/500", &[0]),
        ],
    },
    Disturbance {
        id: "interrupted",
        is: "SIGINT at a random moment: exit 130, results kept",
        victim: Victim::Itself,
        action: Action::Signal("INT"),
        rows: LONG,
    },
    Disturbance {
        id: "terminated",
        is: "SIGTERM at a random moment: the same",
        victim: Victim::Itself,
        action: Action::Signal("TERM"),
        rows: LONG,
    },
];

/// Commands that go on until they are interrupted.
const LONG: &[(&str, &[i32])] = &[
    ("load --json --quiet -z60s --out=run URL/delay/5", &[130]),
    ("load --json --quiet --h2c -q100 -z60s --out=run URL/delay/5", &[130]),
    ("compare --json --loss=0% --proto=h1,h2c -c1 -q50 -z60s --out=run", &[130]),
    ("compare --json --proto=h1,h2c -c1 -q50 -z60s --out=run URL/", &[130]),
    ("trace --json -n1000 URL/delay/100", &[130]),
    ("timeline --json -n1000 URL/delay/100", &[130]),
    ("bulk get --json -o got URL/drip?bytes=100000000&ms=60000", &[130]),
    ("bulk put --json --memory=900G URL/echo", &[130]),
    ("probe --json --idle=60s URL/", &[130]),
];

/// An item for each, and for what is resumed after them.
pub fn items(seed: u64) -> Vec<Item> {
    let disturbed = DISTURBANCES.iter().map(move |disturbance| {
        item(disturbance.id, disturbance.is, move |h2lab| show(h2lab, disturbance, seed))
    });
    let mut items: Vec<Item> = disturbed.collect();
    items.push(item(
        "resumed",
        "`compare` and `bulk get` killed at random moments, and resumed: whole, exit 0",
        move |h2lab| resumed(h2lab, seed),
    ));
    items.push(item(
        "restarted",
        "the server is killed and started again: `bulk get` goes on, and is right",
        move |h2lab| restarted(h2lab, seed),
    ));
    items
}

fn show(h2lab: &H2lab, disturbance: &Disturbance, seed: u64) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    for (index, (words, codes)) in disturbance.rows.iter().enumerate() {
        let after = Duration::from_millis(draw(seed, &format!("{}{index}", disturbance.id)) % LATEST_MS);
        let folder = tempfile::tempdir()?;
        let ended = disturb(h2lab, disturbance, words, after, folder.path());
        let name = words.split(" -").next().unwrap_or_default();
        let row = match &ended {
            Ok(ended) => {
                format!("{name:<10} {}, {:.1} s, after {after:?}", ended.ending, ended.took.as_secs_f64())
            }
            Err(_) => format!("{name:<10} after {after:?}"),
        };
        let judged =
            ended.and_then(|ended| judge(&ended, codes).and_then(|()| judge_left(&ended, folder.path())));
        match judged {
            Ok(()) => outcome.check(true, row),
            Err(wrong) => outcome.check(false, format!("{row}: {wrong:#}: {words}")),
        }
    }
    Ok(outcome)
}

/// Starts a command, and does it to its victim `after` that is at work.
fn disturb(
    h2lab: &H2lab,
    disturbance: &Disturbance,
    words: &str,
    after: Duration,
    folder: &Path,
) -> Result<Ended> {
    let origin = Origin::start(h2lab)?;
    let words = words.replace("URL", origin.url("h1", "").trim_end_matches('/'));
    let mut run = begin(h2lab, &words, folder, "h2lab")?;
    let victim = match disturbance.victim {
        Victim::Itself | Victim::Origin => {
            let is_ready = run.until(START, |run| handles_signals(run.id()))?;
            ensure!(is_ready, "it handles no signals: {}", run.stderr());
            if matches!(disturbance.victim, Victim::Origin) { origin.id() } else { run.id() }
        }
        Victim::Below(word) => {
            let mut found = None;
            run.until(START, |run| {
                let all = below(run.id());
                // Its namespace is another than that from which it was started.
                let is_at_work = all.iter().any(|pid| has_word(*pid, "__load") && is_connected(*pid));
                found = all.into_iter().find(|pid| is_at_work && has_word(*pid, word));
                found.is_some()
            })?;
            found.with_context(|| format!("no {word} is at work: {}", run.stderr()))?
        }
    };
    std::thread::sleep(after); // the moment is what is drawn
    match disturbance.action {
        Action::Signal(signal) => send(victim, signal)?,
        Action::Stop => {
            send(victim, "STOP")?;
            std::thread::sleep(STOP);
            send(victim, "CONT")?;
        }
    }
    run.end(DEADLINE)
}

fn begin(h2lab: &H2lab, words: &str, folder: &Path, name: &str) -> Result<Started> {
    let mut program = Program::new(h2lab.path());
    program.args(words.split(' '));
    Started::begin(&mut program, folder, name)
}

/// What a run that was disturbed leaves: a document that adds up, without a verdict from what was disturbed, and no file that is not
/// whole.
fn judge_left(ended: &Ended, folder: &Path) -> Result<()> {
    let is_done = ended.ending == super::Ending::Code(0);
    ensure!(is_done || !folder.join("got").exists(), "a file that did not arrive has its name");
    let Ok(document) = serde_json::from_str::<Value>(&ended.stdout) else {
        ensure!(ended.stdout.is_empty() || !ended.stdout.starts_with('{'), "stdout is no JSON document");
        return Ok(());
    };
    for cell in document["cells"].as_array().unwrap_or(&Vec::new()).iter().chain([&document]) {
        let of = |name: &str| cell["requests"][name].as_u64();
        if let (Some(sent), Some(succeeded)) = (of("sent"), of("succeeded")) {
            let all = succeeded + of("failed").unwrap_or(0) + of("unfinished").unwrap_or(0);
            ensure!(sent == all, "{sent} requests were sent, and {all} have ended");
        }
    }
    for verdict in document["verdicts"].as_array().unwrap_or(&Vec::new()) {
        let word = verdict["verdict"].as_str().unwrap_or_default();
        ensure!(!word.contains("unstable"), "a verdict from what was disturbed: {}", verdict["sentence"]);
    }
    Ok(())
}

/// Runs that are killed, and continued.
fn resumed(h2lab: &H2lab, seed: u64) -> Result<ItemOutcome> {
    const GET: &str = "bulk get --json -s -o got URL/bytes/2G";
    let mut outcome = ItemOutcome::default();
    for (name, words, again, whole) in
        [("compare", COMPARE, "run --json --resume run", &[0, 5][..]), ("bulk get", GET, GET, &[0])]
    {
        let (origin, folder) = (Origin::start(h2lab)?, tempfile::tempdir()?);
        let at = origin.url("h1", "");
        let with_url = |words: &str| words.replace("URL", at.trim_end_matches('/'));
        let mut run = begin(h2lab, &with_url(words), folder.path(), "killed")?;
        let is_begun =
            |_: &Started| ["run/run.json", "got.part"].iter().any(|file| folder.path().join(file).exists());
        ensure!(run.until(START, is_begun)?, "{name} begins nothing: {}", run.stderr());
        std::thread::sleep(Duration::from_millis(draw(seed, name) % LATEST_MS));
        send(run.id(), "KILL")?;
        let killed = run.end(DEADLINE)?;
        let ended = begin(h2lab, &with_url(again), folder.path(), "again")?.end(DEADLINE)?;
        let row = format!("{name:<10} {}, and then {}", killed.ending, ended.ending);
        match judge(&ended, whole) {
            Ok(()) => outcome.check(true, row),
            Err(wrong) => outcome.check(false, format!("{row}: {wrong:#} ({})", ended.last_words())),
        }
    }
    Ok(outcome)
}

/// A server that ends in the middle of a file, and is there again.
fn restarted(h2lab: &H2lab, seed: u64) -> Result<ItemOutcome> {
    const SIZE: u64 = 300_000_000;
    let mut outcome = ItemOutcome::default();
    for flag in ["--http1.1", "--h2c"] {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("d"))?;
        fs::File::create(folder.path().join("d/file"))?.set_len(SIZE)?;
        let serve = |listen: &str, name: &str| {
            let mut server = begin(h2lab, &format!("bulk serve --listen {listen} d"), folder.path(), name)?;
            ensure!(server.until(START, |server| server.stdout().contains('\n'))?, "{}", server.stderr());
            Ok(server)
        };
        let first = serve("127.0.0.1:0", "first")?;
        let said = first.stdout();
        let url =
            said.trim().strip_prefix("listening ").context("it does not say where it listens")?.to_owned();
        let get = format!("bulk get --json {flag} -o got --timeout=9s {url}/file");
        let mut run = begin(h2lab, &get, folder.path(), "get")?;
        run.until(START, |_| folder.path().join("got.part").exists() || folder.path().join("got").exists())?;
        std::thread::sleep(Duration::from_millis(draw(seed, flag) % 100));
        send(first.id(), "KILL")?;
        drop(first);
        let _second = serve(url.trim_start_matches("http://"), "second")?;
        let ended = run.end(DEADLINE)?;
        let length = fs::metadata(folder.path().join("got")).map_or(0, |metadata| metadata.len());
        let row = format!("bulk get {flag:<9} {}, {length} bytes", ended.ending);
        match judge(&ended, &[0]) {
            Ok(()) => outcome.check(length == SIZE, row),
            Err(wrong) => outcome.check(false, format!("{row}: {wrong:#} ({})", ended.last_words())),
        }
    }
    Ok(outcome)
}

/// Sends a signal.
fn send(pid: u32, signal: &str) -> Result<()> {
    let sent =
        Program::new("kill").args(["-s", signal, &pid.to_string()]).status().context("cannot start kill")?;
    if !sent.success() {
        bail!("{pid} has ended by itself");
    }
    Ok(())
}

/// Whether a process handles SIGINT: bit 1 of `SigCgt` in `/proc/PID/status`.
fn handles_signals(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .is_some_and(|caught| caught & 2 != 0)
}

/// Processes below this one, as `/proc` has it.
fn below(pid: u32) -> Vec<u32> {
    let mut pids = vec![pid];
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
        next += 1;
    }
    pids
}

fn has_word(pid: u32, word: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
}

/// Whether there is an established TCP connection in a process's network namespace: state 01 in `/proc/PID/net/tcp`.
fn is_connected(pid: u32) -> bool {
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    table.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some("01"))
}
