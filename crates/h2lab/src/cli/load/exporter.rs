//! `--prometheus`: the metrics of a running load over HTTP/1.1, for scrapers.
//!
//! One thread answers one scraper after the other; it ends with the load. Built on blocking sockets and not on the
//! origin: it must never share a thread with the generator, and a scraper asks once in seconds.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::net::{Shutdown, shutdown};

use super::metrics::Metrics;

/// How long a scraper may take for its request, and for taking the answer: the end of the load waits for it.
pub(in crate::cli) const TIMEOUT: Duration = Duration::from_millis(500);

/// More than any scraper sends.
const MOST_HEAD: usize = 16 << 10;

/// A running exporter; dropping it ends it.
#[derive(Debug)]
pub struct Exporter {
    metrics: Arc<Metrics>,
    listener: Arc<TcpListener>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// `9100`, `:9100` or `ADDRESS:9100`; without an address only this machine is served.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok();
    let here = port.map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    here.or_else(|| text.parse().ok())
        .ok_or_else(|| format!("`{text}` is not a port or ADDRESS:PORT (9100, 0.0.0.0:9100, [::1]:9100)"))
}

impl Exporter {
    /// Listens at `address` and says where, for a load of so many threads.
    pub fn start(address: SocketAddr, threads: u32) -> Result<Self> {
        let listener = TcpListener::bind(address).with_context(|| {
            format!("--prometheus {address}: cannot listen there; 0 picks a free port, which is printed")
        })?;
        say!("metrics at http://{}/metrics", listener.local_addr()?);
        let (metrics, listener) = (Arc::new(Metrics::new(threads)), Arc::new(listener));
        let ended = Arc::new(AtomicBool::new(false));
        let (of_thread, reported, end) = (Arc::clone(&listener), Arc::clone(&metrics), Arc::clone(&ended));
        let thread = std::thread::Builder::new()
            .name("prometheus".to_owned())
            .spawn(move || serve(&of_thread, &reported, &end))
            .context("--prometheus: cannot start a thread")?;
        Ok(Self { metrics, listener, ended, thread: Some(thread) })
    }

    /// The exported metrics.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // It wakes `accept`. If it fails there is no thread that waits there.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // One that panicked has shown it; the load's result matters more.
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, metrics: &Metrics, ended: &AtomicBool) {
    for stream in listener.incoming() {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        // A scraper that went away or says nothing is its own trouble.
        let _ = stream.and_then(|stream| answer(stream, metrics));
    }
}

/// Answers the one request of a connection.
fn answer(mut stream: TcpStream, metrics: &Metrics) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let head = read_head(&mut stream)?;
    let (status, body) = respond(&head, metrics);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// A request's head, as far as it comes in time.
pub(in crate::cli) fn read_head(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let (until, mut head, mut piece) = (Instant::now() + TIMEOUT, Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let n = stream.read(&mut piece)?;
        head.extend_from_slice(&piece[..n]);
        if n == 0 || head.len() > MOST_HEAD || Instant::now() > until {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(head)
}

/// The status line's end and the body for a request.
fn respond(head: &[u8], metrics: &Metrics) -> (&'static str, String) {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET", "/metrics") => ("200 OK", metrics.text()),
        ("GET", _) => ("404 Not Found", "there is only /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "there is only GET\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_this_machine_unless_the_flag_names_another() {
        for text in ["9100", ":9100", "127.0.0.1:9100"] {
            assert_eq!(address(text), Ok("127.0.0.1:9100".parse().unwrap()), "{text}");
        }
        assert_eq!(address("0.0.0.0:0"), Ok("0.0.0.0:0".parse().unwrap()));
        for bad in ["", ":", "70000", "a:1", "127.0.0.1"] {
            assert!(address(bad).unwrap_err().contains("ADDRESS:PORT"), "{bad}");
        }
    }

    #[test]
    fn a_get_of_metrics_is_answered_and_all_else_refused() {
        let metrics = Metrics::new(1);
        let status = |head: &[u8]| respond(head, &metrics).0;
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET /metrics?x HTTP/1.0\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed");
        assert_eq!(status(b"\xff\xff"), "405 Method Not Allowed");
    }

    #[test]
    fn scrapers_are_served_one_after_the_other_and_the_end_waits_for_none() {
        let exporter = Exporter::start("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = exporter.listener.local_addr().unwrap();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("version=0.0.4"), "{head}");
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
            assert!(body.contains("h2lab_connections_open 0\n"), "{body}");
        }
        drop(exporter);
        assert!(TcpListener::bind(address).is_ok(), "its port is free again");
    }

    #[test]
    fn a_head_without_end_is_given_up() {
        assert!(read_head(&mut io::repeat(b'x')).is_err());
        assert!(read_head(&mut &b"GET / HTTP/1.1\r\n"[..]).is_err());
    }
}
