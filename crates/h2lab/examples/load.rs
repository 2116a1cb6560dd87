//! Makes an exact number of requests with the generator, alone in its process: no discovery, no lab, no run folder.
//!
//! `cargo run --release --example load -- http://127.0.0.1:8080/ --proto h2c -n 100000 -c 1 -m 100`. `cargo xtask bench`
//! runs it where a peer's client is run: under valgrind and perf, whose counts are of the whole process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use h2lab_model::record::{Level, Outcome};
use h2lab_model::scenario::{Cell, Target};
use h2lab_model::workload::{Arrival, EngineSettings, H2cMode, Phases, Protocol, RequestShape, Share, Work};
use h2lab_net::clock::Clock;
use h2lab_net::tls::TlsOptions;
use h2lab_roles::load;
use h2lab_roles::load::{LoadResult, LoadSpec};

/// Ends the run if the server no longer answers.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What to do.
#[derive(Debug, Parser)]
struct Arguments {
    /// `http://ADDRESS:PORT/PATH`, the address in digits.
    url: String,
    /// The protocol; TLS certificates are not checked.
    #[arg(long, default_value = "h2c")]
    proto: Protocol,
    /// Requests.
    #[arg(short, default_value_t = 10_000)]
    n: usize,
    /// Connections.
    #[arg(short, default_value_t = 1)]
    connections: u32,
    /// Requests at a time on each; 1 for HTTP/1.1.
    #[arg(short = 'm', default_value_t = 1)]
    streams: u32,
    /// Bytes of a POST's body; 0 makes it a GET.
    #[arg(long, default_value_t = 0)]
    body_bytes: u64,
    /// Threads.
    #[arg(short = 't', default_value_t = 1)]
    threads: u32,
    /// Requests per second, at even intervals; without it as many as are answered.
    #[arg(short = 'q')]
    rate: Option<f64>,
    /// What is kept of each request: full, tail or hist; without it as much as fits.
    #[arg(long)]
    record: Option<Level>,
    /// Records no frames.
    #[arg(long)]
    no_tap: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let rest = arguments.url.split_once("://").map_or(arguments.url.as_str(), |(_, rest)| rest);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let address: SocketAddr = authority.parse().context("the URL needs an address in digits and a port")?;
    let spec = LoadSpec {
        cell: cell(&arguments, path),
        address: address.into(),
        authority: authority.to_owned(),
        server_name: address.ip().to_string(),
        tls: TlsOptions { insecure: true, ..TlsOptions::default() },
        clock_origin_ns: Clock::start().origin_ns(),
        requests: Some(arguments.n),
        threads: arguments.threads,
        record: arguments.record,
        tap: !arguments.no_tap,
        on_thread: None,
        sharp: false,
        share: Share::default(),
        start: None,
        stop: None,
    };
    let result = load::run(&spec, &mut |_| ())?.close();
    let succeeded = succeeded(&result);
    if succeeded != arguments.n {
        bail!("{succeeded} of {} requests succeeded", arguments.n);
    }
    println!("{succeeded} succeeded, {} frames recorded", result.frames.len());
    let generator = &result.generator;
    let cpu_us = generator.cpu_ns as f64 / 1e3 / succeeded.max(1) as f64;
    println!("{} threads, {cpu_us:.3} us of CPU per request, level {}", generator.threads, generator.level);
    Ok(())
}

/// Requests that were answered with 2xx or 3xx, at any recording level.
fn succeeded(result: &LoadResult) -> usize {
    if result.tallies.is_empty() {
        return result.samples.iter().filter(|sample| sample.outcome.is_success()).count();
    }
    let tallies = result.tallies.iter().filter(|tally| tally.class.outcome == Outcome::Succeeded);
    tallies.map(|tally| tally.counts.requests as usize).sum()
}

/// A closed loop that always has as many requests in flight as the connections carry.
fn cell(arguments: &Arguments, path: &str) -> Cell {
    let work = Work {
        method: if arguments.body_bytes > 0 { "POST" } else { "GET" }.to_owned(),
        path: if path.is_empty() { "/" } else { path }.to_owned(),
        shape: RequestShape::Bare,
        headers: Vec::new(),
        body_bytes: arguments.body_bytes,
        body: None,
        mix: Vec::new(),
        template: false,
        secrets: false,
        bulk: false,
        arrival: match arguments.rate {
            Some(rate) => Arrival::Constant { rate },
            None => Arrival::Closed { concurrency: arguments.connections * arguments.streams },
        },
        phases: Phases { warmup: Duration::ZERO, measure: TIMEOUT, drain: Duration::from_secs(1) },
        timeout: TIMEOUT,
        replay: true,
    };
    Cell {
        index: 0,
        group: 0,
        repetition: 0,
        seed: 1,
        request_seed: 1,
        target: Target::Url { url: arguments.url.clone() },
        sidecar: None,
        protocol: arguments.proto,
        h2c_mode: H2cMode::PriorKnowledge,
        twin: 0,
        connections: arguments.connections,
        max_connections: arguments.connections,
        streams: arguments.streams,
        link: None,
        congestion: None,
        sysctls: h2lab_model::scenario::Sysctls::default(),
        capture: h2lab_model::scenario::CaptureOptions::default(),
        client: EngineSettings::default(),
        server: h2lab_model::workload::EngineSettings::default(),
        setup: h2lab_model::scenario::ServerSetup::default(),
        max_requests_per_connection: None,
        dial: h2lab_model::workload::DialPolicy::default(),
        policy: h2lab_model::workload::ClientPolicy::default(),
        work,
    }
}
