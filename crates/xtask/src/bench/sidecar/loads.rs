//! The loads of a pair.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::super::{meter, peers};
use crate::verify::binary::H2lab;

/// Bytes of a request's body, and of a response's.
pub const BODY: usize = 1024;
/// Callers at saturation, each with one connection.
pub const CALLERS: u32 = 32;
/// Requests per second of the open loop, and its connections.
pub const RATE: u32 = 1_000;
const PACED_CONNECTIONS: u32 = 8;
/// Seconds of a run.
const SATURATED_S: u32 = 2;
const PACED_S: u32 = 3;
/// How often an open loop is run if its generator calls it invalid, because the generator was late.
const TRIES: u32 = 3;

/// Requests as fast as the pair takes them; requests per second, and how many there were.
pub fn saturate(entry: SocketAddr, folder: &Path) -> Result<(f64, f64)> {
    let script = folder.join("post.lua");
    std::fs::write(&script, format!("wrk.method = 'POST'\nwrk.body = string.rep('x', {BODY})\n"))?;
    let words: Vec<String> = vec![
        "-t1".into(),
        format!("-c{CALLERS}"),
        format!("-d{SATURATED_S}s"),
        "-s".into(),
        script.display().to_string(),
        format!("http://{entry}/"),
    ];
    let said = meter::run("wrk", &words)?.stdout;
    ensure!(!said.contains("Non-2xx") && !said.contains("Socket errors"), "wrk: {said}");
    let requests = peers::wrk_requests(&said)?;
    Ok((requests / f64::from(SATURATED_S), requests))
}

/// The open loop: the median time of a response in microseconds, and how many there were.
pub fn pace(h2lab: &H2lab, entry: SocketAddr) -> Result<(f64, f64)> {
    let mut doubts = String::new();
    for _ in 0..TRIES {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("body"), vec![b'x'; BODY])?;
        let words = format!(
            "load --json --proto h1 -c {PACED_CONNECTIONS} -q {RATE} -z {PACED_S}s -X POST -d @body --out run http://{entry}/"
        );
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let run = h2lab.run(folder.path(), &words, "")?;
        if run.code != Some(0) {
            doubts = run.stderr;
            continue;
        }
        let document: Value = serde_json::from_str(&run.stdout)?;
        let number = |at: &str| document.pointer(at).and_then(Value::as_f64).with_context(|| at.to_owned());
        let (sent, succeeded) = (number("/requests/sent")?, number("/requests/succeeded")?);
        ensure!(sent <= succeeded, "{} of {sent} requests failed", sent - succeeded);
        return Ok((number("/latency_us/response/p50")?, succeeded));
    }
    bail!("h2lab load did not succeed {TRIES} times: {doubts}");
}

/// Connections that have had a response and ask for nothing more.
#[derive(Debug)]
pub struct Idle {
    _connections: Vec<TcpStream>,
}

impl Idle {
    /// Opens `count` connections.
    pub fn open(entry: SocketAddr, count: usize) -> Result<Self> {
        let connections = (0..count).map(|_| answered(entry)).collect::<Result<_>>()?;
        Ok(Self { _connections: connections })
    }
}

fn answered(entry: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(entry)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // In one piece: Nagle's algorithm would hold the second one back for the peer's delayed acknowledgement.
    stream.write_all(format!("GET / HTTP/1.1\r\nhost: {entry}\r\n\r\n").as_bytes())?;
    let (mut response, mut space) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut space)?;
        ensure!(n > 0, "a connection was closed: {}", String::from_utf8_lossy(&response));
        response.extend_from_slice(&space[..n]);
        let head = response.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        if head.is_some_and(|end| response.len() >= end + 4 + BODY) {
            ensure!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&response));
            return Ok(stream);
        }
    }
}
