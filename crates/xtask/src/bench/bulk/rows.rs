//! What is measured: the server, the client, and how much.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::servers::{FILE_BYTES, Server, Servers};
use crate::process;

/// Bytes in thousands of millions, so that a transfer lasts about a second.
const GB: u64 = 1_000_000_000;

/// The divisor of bytes in a quick run.
const QUICK: u64 = 4;

/// One way to move bytes, a row of the table.
#[derive(Debug)]
pub struct Row {
    /// How `--only` selects it, and gates.
    pub id: &'static str,
    /// What it is.
    pub claim: &'static str,
    /// The server.
    pub server: Server,
    /// The client.
    client: Client,
    /// How much, in a full run.
    bytes: u64,
    /// The row that has the same work to do without HTTP.
    pub yardstick: &'static str,
}

/// The program that fetches, and its command line.
#[derive(Debug)]
enum Client {
    /// `h2lab bulk get`: flags, which of the server's ports, and how many files, all at a time.
    Ours(&'static [&'static str], usize, u64),
    /// `examples/raw.rs` with these flags.
    Raw(&'static [&'static str]),
    /// The same over TLS.
    Rustls,
    /// iperf3, whose server sends.
    Iperf,
    /// The Go program with these flags.
    Go(&'static [&'static str]),
    /// curl with these flags, on one of nginx's ports, which serve one file.
    Curl(&'static [&'static str], usize),
}

/// What a client says of its transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientReport {
    /// Bytes of bodies.
    pub bytes: u64,
    /// From the request to the last byte.
    pub elapsed_s: f64,
    /// The server's CPU, where it reports that itself: iperf3 from 3.16 on sends in a thread that ends with the test,
    /// so that it cannot be read from outside.
    pub server_cpu_s: Option<f64>,
}

const fn ours(
    id: &'static str,
    claim: &'static str,
    bytes: u64,
    flags: &'static [&'static str],
    (port, files): (usize, u64),
) -> Row {
    let yardstick = if port == 0 { "raw" } else { "rustls" };
    Row { id, claim, server: Server::Ours, client: Client::Ours(flags, port, files), bytes, yardstick }
}

const fn go(
    id: &'static str,
    claim: &'static str,
    server: Server,
    bytes: u64,
    flags: &'static [&'static str],
) -> Row {
    let yardstick = if matches!(server, Server::GoTls) { "rustls" } else { "raw" };
    Row { id, claim, server, client: Client::Go(flags), bytes, yardstick }
}

const fn nginx(
    id: &'static str,
    claim: &'static str,
    server: Server,
    (flags, port): (&'static [&'static str], usize),
) -> Row {
    Row { id, claim, server, client: Client::Curl(flags, port), bytes: FILE_BYTES, yardstick: "raw" }
}

/// All of them, those that are compared with each other side by side.
pub const ROWS: &[Row] = &[
    Row {
        id: "iperf3",
        claim: "TCP, iperf3 -R, one stream, 256 KiB at a time",
        server: Server::Iperf,
        client: Client::Iperf,
        bytes: 4 * GB,
        yardstick: "raw",
    },
    Row {
        id: "raw",
        claim: "TCP, our own writer and reader, 256 KiB at a time",
        server: Server::Raw,
        client: Client::Raw(&[]),
        bytes: 4 * GB,
        yardstick: "raw",
    },
    Row {
        id: "raw-1m",
        claim: "the same, its receive buffer kept at 1 MiB, as ours keeps it",
        server: Server::Raw,
        client: Client::Raw(&["--receive-buffer=1048576"]),
        bytes: 4 * GB,
        yardstick: "raw",
    },
    ours("h2c", "ours, HTTP/2 in clear, one stream", 4 * GB, &["--h2c"], (0, 1)),
    ours("h1", "ours, HTTP/1.1", 4 * GB, &["--http1.1"], (0, 1)),
    ours("h2c-10", "the same bytes in 10 files, all at a time", 4 * GB, &["--h2c", "-m10"], (0, 10)),
    ours("h2c-100", "in 100", 4 * GB, &["--h2c", "-m100"], (0, 100)),
    ours("h2c-1000", "in 1,000", 4 * GB, &["--h2c", "-m1000"], (0, 1000)),
    Row {
        id: "rustls",
        claim: "rustls on TCP, our own writer and reader",
        server: Server::Rustls,
        client: Client::Rustls,
        bytes: 2 * GB,
        yardstick: "rustls",
    },
    ours("h2", "ours, HTTP/2 over TLS, one stream", 2 * GB, &["-k", "--http2"], (1, 1)),
    ours("h1s", "ours, HTTP/1.1 over TLS", 2 * GB, &["-k", "--http1.1"], (1, 1)),
    ours("h3", "ours, HTTP/3, one stream", GB, &["-k", "--http3"], (1, 1)),
    go("go-h1", "Go net/http, HTTP/1.1", Server::Go, 3 * GB, &["-proto", "h1"]),
    go("go-h2c", "Go net/http, HTTP/2 in clear", Server::Go, GB, &[]),
    go(
        "go-h2c-tuned",
        "the same, frames of 1 MiB, read 1 MiB at a time",
        Server::Go,
        3 * GB,
        &["-frame", "1048576", "-buffer", "1048576"],
    ),
    go("go-h2", "Go net/http, HTTP/2 over TLS", Server::GoTls, GB, &[]),
    go(
        "go-h2-tuned",
        "the same, frames of 1 MiB, read 1 MiB at a time",
        Server::GoTls,
        GB,
        &["-frame", "1048576", "-buffer", "1048576"],
    ),
    nginx("nginx-h1", "nginx and curl, HTTP/1.1", Server::Nginx, (&["--http1.1"], 0)),
    nginx("nginx-h2c", "nginx and curl, HTTP/2 in clear", Server::Nginx, (&["--http2-prior-knowledge"], 1)),
    nginx(
        "nginx-h2c-tuned",
        "the same, http2_chunk_size 1m",
        Server::NginxTuned,
        (&["--http2-prior-knowledge"], 1),
    ),
    go(
        "chasqui-h1",
        "chasqui's method in clear, HTTP/1.1",
        Server::Go,
        2 * GB,
        &["-workers", "4", "-proto", "h1"],
    ),
    go("chasqui-h2c", "the same, HTTP/2", Server::Go, GB, &["-workers", "4"]),
    go(
        "chasqui-h2c-1m",
        "the same, frames of 1 MiB",
        Server::Go,
        2 * GB,
        &["-workers", "4", "-frame", "1048576"],
    ),
    go(
        "chasqui-h1s",
        "chasqui's method over TLS, HTTP/1.1",
        Server::GoTls,
        GB,
        &["-workers", "4", "-proto", "h1"],
    ),
    go("chasqui-h2", "the same, HTTP/2", Server::GoTls, GB, &["-workers", "4"]),
];

/// The row with this id.
pub fn row(id: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.id == id)
}

impl Row {
    /// How much it moves in a run, quick or in full: nginx has one file.
    pub const fn in_run(&self, is_quick: bool) -> u64 {
        if is_quick && !matches!(self.client, Client::Curl(..)) { self.bytes / QUICK } else { self.bytes }
    }

    /// The program and its arguments that fetch `bytes`.
    pub fn words(&self, servers: &Servers, bytes: u64) -> Result<Vec<String>> {
        let at = &servers.get(self.server)?.at;
        let strings = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
        let count = bytes.to_string();
        Ok(match &self.client {
            Client::Ours(flags, n, files) => {
                let size = bytes / files;
                let url = format!("{}/bytes/{size}", at[*n]);
                // With parts as long as a file, each file is one request.
                let part = format!("--part={size}");
                let program = servers.h2lab().display().to_string();
                let words = strings(&[&program, "bulk", "get", "--json", "--discard", &part]);
                [words, strings(flags), vec![url; *files as usize]].concat()
            }
            Client::Raw(flags) => {
                let program = servers.raw().display().to_string();
                [strings(&[&program, "get", &at[0], &count]), strings(flags)].concat()
            }
            Client::Rustls => {
                let certificate = format!("--certificate={}", servers.certificate().display());
                strings(&[&servers.raw().display().to_string(), "get", &at[0], &count, &certificate])
            }
            Client::Iperf => {
                strings(&[&installed("iperf3")?, "-c", &at[0], "-n", &count, "-R", "-l", "256K", "--json"])
            }
            Client::Go(flags) => {
                let program = servers.go().display().to_string();
                [strings(&[&program, "-get", &at[0], "-bytes", &count]), strings(flags)].concat()
            }
            Client::Curl(flags, port) => {
                let url = format!("{}/file", at[*port]);
                let write_out = "%{size_download} %{time_total}\\n";
                let words = strings(&[&installed("curl")?, "-s", "-f", "-o", "/dev/null", "-w", write_out]);
                [words, strings(flags), vec![url]].concat()
            }
        })
    }

    /// What the client printed, read.
    pub fn parse(&self, stdout: &str) -> Result<ClientReport> {
        let reported = match self.client {
            Client::Iperf => iperf(stdout),
            Client::Curl(..) => curl(stdout),
            Client::Ours(..) | Client::Raw(_) | Client::Rustls | Client::Go(_) => ours_or_alike(stdout),
        };
        let reported = reported.with_context(|| format!("{}: no report: {stdout}", self.id))?;
        ensure!(reported.bytes > 0 && reported.elapsed_s > 0.0, "{}: nothing came: {stdout}", self.id);
        Ok(reported)
    }
}

/// Where a program is.
fn installed(name: &str) -> Result<String> {
    let file = process::find(name).with_context(|| format!("{name} is not installed"))?;
    Ok(file.display().to_string())
}

/// `{"bytes": …, "elapsed_s": …}` and more.
fn ours_or_alike(stdout: &str) -> Option<ClientReport> {
    let document: Value = serde_json::from_str(stdout).ok()?;
    let (bytes, elapsed_s) = (document["bytes"].as_u64()?, document["elapsed_s"].as_f64()?);
    Some(ClientReport { bytes, elapsed_s, server_cpu_s: None })
}

fn iperf(stdout: &str) -> Option<ClientReport> {
    let document: Value = serde_json::from_str(stdout).ok()?;
    let end = &document["end"];
    let (received, percent) =
        (&end["sum_received"], end["cpu_utilization_percent"]["remote_total"].as_f64()?);
    let elapsed_s = received["seconds"].as_f64()?;
    let server_cpu_s = Some(percent / 100.0 * elapsed_s);
    Some(ClientReport { bytes: received["bytes"].as_u64()?, elapsed_s, server_cpu_s })
}

/// Bytes and seconds.
fn curl(stdout: &str) -> Option<ClientReport> {
    let (bytes, seconds) = stdout.trim().split_once(' ')?;
    Some(ClientReport { bytes: bytes.parse().ok()?, elapsed_s: seconds.parse().ok()?, server_cpu_s: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_an_id_of_its_own_and_a_yardstick_that_exists() {
        for (n, one) in ROWS.iter().enumerate() {
            assert!(row(one.yardstick).is_some(), "{}", one.id);
            assert!(ROWS[n + 1..].iter().all(|other| other.id != one.id), "{}", one.id);
        }
    }

    #[test]
    fn files_are_whole_where_the_size_of_one_is_given() {
        for row in ROWS {
            if let Client::Ours(.., files) = row.client {
                assert_eq!(row.in_run(true) % files + row.in_run(false) % files, 0, "{}", row.id);
            }
        }
    }

    #[test]
    fn what_clients_say_is_read() {
        let reported = |bytes, elapsed_s, server_cpu_s| Some(ClientReport { bytes, elapsed_s, server_cpu_s });
        assert_eq!(ours_or_alike(r#"{"bytes": 8, "elapsed_s": 0.5, "more": []}"#), reported(8, 0.5, None));
        assert_eq!(curl("6 0.5\n"), reported(6, 0.5, None));
        let report = r#"{"end": {"sum_received": {"bytes": 9, "seconds": 2.0}, "cpu_utilization_percent": {"remote_total": 50.0}}}"#;
        assert_eq!(iperf(report), reported(9, 2.0, Some(1.0)));
    }

    #[test]
    fn what_is_no_report_is_none() {
        assert_eq!(curl("curl: (7) failed"), None);
        assert_eq!(iperf(r#"{"error": "unable to connect"}"#), None);
        assert!(row("raw").unwrap().parse("").is_err());
    }
}
