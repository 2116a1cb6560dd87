//! Bulk transfers: the long fat link filled without a flag, what holds a transfer back named, and nothing lost or fetched twice.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{Item, causes, engines, item};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

/// The long fat link: a bandwidth-delay product of 31 MB, and a queue that holds two of them.
const LINK: [&str; 4] = ["--bandwidth=1gbit", "--delay=125ms", "--queue=64M", "--congestion=cubic"];
/// Four times the bandwidth-delay product.
const LARGE: &str = "4096 131072 125000000";
/// What Linux lets a send buffer grow to by default.
const USUAL: &str = "4096 16384 4194304";
/// Least rate of one HTTP/2 stream over that link, in bit/s.
const LEAST: f64 = 850e6;
/// Least share of what raw TCP does.
const LEAST_OF_RAW: f64 = 0.9;
/// The file that is fetched from disk to disk, in bytes.
const FILE: u64 = 10_000_000_000;
/// Bytes that may come twice for each SIGKILL: what had not been brought to the disk. A second of a fast disk, and not a tenth
/// of the file.
const LAG: u64 = FILE / 10;
/// No run takes longer, but one that hangs.
const DEADLINE: Duration = Duration::from_secs(600);

/// The promises of this file.
pub fn items() -> Vec<Item> {
    vec![
        item(
            "bulk-long-fat",
            "1 Gbit/s x 250 ms, tcp_rmem and tcp_wmem of 4 x BDP: one h2c stream with no flag set reaches >= 850 Mbit/s and \
             >= 0.9 x raw TCP (iperf3) over the last 30 of 60 s",
            long_fat,
        ),
        item(
            "bulk-usual-buffers",
            "the same link with tcp_wmem of 4 MiB: about 134 Mbit/s, and the report names the socket buffer as the limit",
            usual_buffers,
        ),
        item(
            "bulk-resume",
            "10 GB from disk to disk, interrupted three times (Ctrl-C, SIGKILL, the server killed), arrive with the right \
             checksum, and hardly a byte twice",
            resume,
        ),
        item(
            "bulk-fleet",
            "two clients and two servers in four namespaces, one behind an impaired link, one killed in the middle: the run \
             ends in time, its part is marked lost, the rest is kept",
            |_| causes::topology("of_two_clients_and_two_servers", &[]),
        ),
        item(
            "bulk-speed",
            "loopback, medians of 9 paired rounds: h2c >= 0.95 x raw TCP and >= 0.97 x h1; TLS >= 0.95 x rustls over raw TCP; \
             CPU per GB <= 1.08 x raw",
            |_| engines::bench("bulk"),
        ),
    ]
}

/// What the client of a lab over [`LINK`] prints; `more` are flags of `h2lab link`.
fn over_the_link(h2lab: &H2lab, more: &[String], server: &str, client: &str) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let mut words: Vec<String> = ["link"].iter().chain(&LINK).map(|&word| word.to_owned()).collect();
    words.extend_from_slice(more);
    words.extend([format!("--server={server}"), format!("--client={client}")]);
    let run = h2lab.run(folder.path(), &words, "")?;
    ensure!(
        run.code == Some(0),
        "`h2lab {}` ended with {:?}: {}",
        words.join(" "),
        run.code,
        run.stderr.trim()
    );
    serde_json::from_str(&run.stdout).with_context(|| format!("no JSON from `{client}`: {}", run.stdout))
}

/// Socket buffers of both ends, as flags of `h2lab link`.
fn buffers(of: impl Fn(&str) -> &'static str) -> Vec<String> {
    let flag = |side, key| format!("--sysctl-{side}=net.ipv4.{key}={}", of(key));
    ["client", "server"].iter().flat_map(|side| ["tcp_rmem", "tcp_wmem"].map(|key| flag(side, key))).collect()
}

/// `bulk get` of endless memory over the link, for `time`.
fn get_over_the_link(h2lab: &H2lab, buffers: &[String], time: &str) -> Result<Value> {
    let program = h2lab.path().display();
    over_the_link(
        h2lab,
        buffers,
        &format!("{program} bulk serve --listen 0.0.0.0:8080 --memory"),
        &format!("{program} bulk get --json --discard -z {time} --h2c http://server:8080/bytes/100G"),
    )
}

/// The long fat link, filled.
fn long_fat(h2lab: &H2lab) -> Result<ItemOutcome> {
    ensure!(process::find("iperf3").is_some(), "iperf3 is not installed");
    let large = buffers(|_| LARGE);
    let ours = get_over_the_link(h2lab, &large, "60s")?;
    let client = "iperf3 -c server -R -t 60 -J -l 256K";
    let raw = over_the_link(h2lab, &large, "iperf3 -s -1", client)?;
    let mut outcome = ItemOutcome::default();
    let (ours, raw) = (number(&ours, "/rate_last_30s_bps")?, last_half(&raw)?);
    let text = format!("one h2c stream: {:.1} Mbit/s over the last 30 of 60 s", ours / 1e6);
    outcome.check(ours >= LEAST, text);
    let text = format!("raw TCP: {:.1} Mbit/s in its last 30 s; ours is {:.3} x that", raw / 1e6, ours / raw);
    outcome.check(ours >= LEAST_OF_RAW * raw, text);
    Ok(outcome)
}

/// The rate of the second half of the seconds that iperf3 reports, in bit/s.
fn last_half(iperf: &Value) -> Result<f64> {
    let intervals =
        iperf.pointer("/intervals").and_then(Value::as_array).context("iperf3 reported no intervals")?;
    let last = &intervals[intervals.len() / 2..];
    let rates =
        last.iter().map(|interval| number(interval, "/sum/bits_per_second")).collect::<Result<Vec<_>>>()?;
    ensure!(!rates.is_empty(), "iperf3 reported no rates");
    Ok(rates.iter().sum::<f64>() / rates.len() as f64)
}

/// The usual send buffer, found out.
fn usual_buffers(h2lab: &H2lab) -> Result<ItemOutcome> {
    let rendered =
        get_over_the_link(h2lab, &buffers(|key| if key == "tcp_wmem" { USUAL } else { LARGE }), "20s")?;
    let mut outcome = ItemOutcome::default();
    let rate = number(&rendered, "/rate_bps")?;
    outcome.check(rate < 200e6, format!("{:.1} Mbit/s", rate / 1e6));
    let kind = rendered.pointer("/limit/kind").and_then(Value::as_str).unwrap_or("none");
    let sentence = rendered.pointer("/limit/sentence").and_then(Value::as_str).unwrap_or("nothing");
    outcome.check(kind == "send-buffer", format!("{kind}: {sentence}"));
    let fix = rendered.pointer("/limit/fixes/0/setting").and_then(Value::as_str).unwrap_or("none");
    outcome.check(fix.contains("tcp_wmem"), format!("the fix: {fix}"));
    Ok(outcome)
}

fn number(of: &Value, pointer: &str) -> Result<f64> {
    of.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("there is no {pointer} in {of}"))
}

/// A process that ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a download is ended before its time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Interruption {
    CtrlC,
    Kill,
    ServerKilled,
}

/// A large file, interrupted again and again.
fn resume(h2lab: &H2lab) -> Result<ItemOutcome> {
    let folder = tempfile::tempdir()?;
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    let mut random = File::open("/dev/urandom").context("no randomness")?.take(FILE);
    std::fs::create_dir(&source)?;
    let made = std::io::copy(&mut random, &mut File::create(source.join("file"))?);
    made.context("no room for two files of 10 GB beside the temporary folder")?;
    let mut outcome = ItemOutcome::default();
    let mut arrived = 0;
    for (n, how) in
        [Interruption::CtrlC, Interruption::Kill, Interruption::ServerKilled].into_iter().enumerate()
    {
        let at = FILE / 5 * (n as u64 + 1);
        let (code, bytes) = interrupted(h2lab, &source, &target, how, at)?;
        // A killed process reports nothing; the files that it left count.
        arrived += bytes.unwrap_or(0);
        let expected = match how {
            Interruption::CtrlC => Some(130),
            Interruption::Kill => None,
            Interruption::ServerKilled => Some(3),
        };
        outcome
            .check(code == expected, format!("{how:?} behind {} GB: exit code {code:?}", at / 1_000_000_000));
    }
    let server = Server::start(h2lab, &source)?;
    let run = h2lab.run(folder.path(), &get_words(&server.url, &target), "")?;
    ensure!(run.code == Some(0), "the last run ended with {:?}: {}", run.code, run.stderr.trim());
    let rendered: Value = serde_json::from_str(&run.stdout)?;
    let last = number(&rendered, "/bytes")? as u64;
    let held = number(&rendered, "/held_bytes")? as u64;
    outcome.note(format!("the last run found {held} bytes and fetched {last}"));
    outcome.check(held + last == FILE, format!("{} of {FILE} bytes in all", held + last));
    outcome.check(
        arrived + last <= FILE + LAG,
        format!("{} bytes reported by the runs that lived", arrived + last),
    );
    let verdict = rendered.pointer("/transfers/0/checksum/verdict").and_then(Value::as_str).unwrap_or("none");
    outcome.check(verdict == "matches", format!("crc32c of both ends: {verdict}"));
    let compared = Command::new("cmp").arg(source.join("file")).arg(&target).status()?;
    outcome.check(compared.success(), "cmp finds no difference");
    Ok(outcome)
}

fn get_words(url: &str, target: &Path) -> Vec<String> {
    let target = target.display();
    ["bulk", "get", "--json", "--h2c", "-c2", "-m2", &format!("--output={target}"), &format!("{url}/file")]
        .map(str::to_owned)
        .to_vec()
}

/// `bulk serve` of a folder.
struct Server {
    process: Running,
    url: String,
}

impl Server {
    fn start(h2lab: &H2lab, folder: &Path) -> Result<Self> {
        let mut command = Command::new(h2lab.path());
        command.args(["bulk", "serve", "--listen", "127.0.0.1:0"]).arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start the server")?;
        let output = child.stdout.take().context("its output is a pipe")?;
        let process = Running(child);
        for line in BufReader::new(output).lines() {
            let line = line?;
            if let Some(at) = line.find("http://") {
                let url = line[at..].split_whitespace().next().unwrap_or_default().trim_end_matches('/');
                return Ok(Self { process, url: url.to_owned() });
            }
        }
        bail!("the server ended before it was ready")
    }
}

/// A run that is ended when `at` bytes are there: its exit code, and how many bytes it says it fetched.
fn interrupted(
    h2lab: &H2lab,
    source: &Path,
    target: &Path,
    how: Interruption,
    at: u64,
) -> Result<(Option<i32>, Option<u64>)> {
    let mut server = Server::start(h2lab, source)?;
    let mut command = Command::new(h2lab.path());
    command.args(get_words(&server.url, target));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = Running(command.spawn().context("cannot start the client")?);
    let journal = target.with_extension("part.journal");
    let deadline = Instant::now() + DEADLINE;
    while held(&journal) < at {
        ensure!(Instant::now() < deadline, "{at} bytes are not here after {DEADLINE:?}");
        ensure!(client.0.try_wait()?.is_none(), "the client ended before it was interrupted");
        // Nothing says when a file of another process changes but looking at it; how often decides nothing.
        std::thread::sleep(Duration::from_millis(20));
    }
    match how {
        Interruption::CtrlC => {
            let pid = client.0.id().to_string();
            ensure!(
                Command::new("kill").args(["-INT", &pid]).status()?.success(),
                "it cannot be interrupted"
            );
        }
        Interruption::Kill => client.0.kill()?,
        Interruption::ServerKilled => server.process.0.kill()?,
    }
    let output = std::io::read_to_string(client.0.stdout.take().context("its output is a pipe")?)?;
    let status = client.0.wait()?;
    let rendered: Option<Value> = serde_json::from_str(&output).ok();
    Ok((status.code(), rendered.and_then(|rendered| rendered.pointer("/bytes")?.as_u64())))
}

/// Bytes that a journal covers; 0 if there is none yet.
fn held(journal: &Path) -> u64 {
    let text = std::fs::read_to_string(journal).unwrap_or_default();
    let journal: Value = serde_json::from_str(&text).unwrap_or_default();
    let extents = journal.pointer("/extents").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let bytes = |extent: &Value| Some(extent.get(1)?.as_u64()? - extent.get(0)?.as_u64()?);
    extents.iter().filter_map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_second_half_of_the_seconds_counts() {
        let interval = |rate: f64| json!({"sum": {"bits_per_second": rate}});
        let rendered = json!({"intervals": [interval(1.0), interval(2.0), interval(4.0), interval(6.0)]});
        assert!((last_half(&rendered).unwrap() - 5.0).abs() < 1e-9);
        assert!(last_half(&json!({"intervals": []})).is_err());
        assert!(last_half(&json!({"error": "refused"})).is_err());
    }

    #[test]
    fn a_journal_says_how_much_is_here_and_none_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        assert_eq!(held(&path), 0);
        std::fs::write(&path, r#"{"extents": [[0, 40], [60, 80]]}"#).unwrap();
        assert_eq!(held(&path), 60);
    }
}
