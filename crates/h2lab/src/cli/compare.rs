//! `h2lab compare`: the main job, over an emulated link or against live servers.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use h2lab_core::scenario::{Axis, LiveTarget, Scenario};
use h2lab_core::workload::{Protocol, RequestShape};

use super::Exit;
use super::axes::{LinkArgs, WorkArgs};
use super::exit::Usage;
use super::output::OutputArgs;
use super::run::Request;
use crate::client::url::Url;
use crate::io::clock::Clock;
use crate::load::LoadSpec;
use crate::load::discover::discover;
use crate::run::execute::LiveServer;
use crate::run::messages::{Failure, FailureKind};
use crate::run::spec::{GeneratorSpec, TlsTrust};

/// The embedded scenario: `h2lab run scenarios/compare.toml` gives the same cells.
const SCENARIO: &str = include_str!("../../../../scenarios/compare.toml");

/// `h2lab compare`.
///
/// Without URL: starts the built-in origin behind an emulated link and compares HTTP/1.1 with HTTP/2 on 1, 4 and 16
/// connections, without loss and with 3 %, in about a minute. No root is needed. With URLs: measures live servers over
/// the network as they are, gently: GET, 50 requests per second, one HTTP/2 connection, unless you ask for more.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Live servers (http:// or https://); several are compared with each other
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Run folder [default: h2lab-runs/<UTC>-<seed>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// How live servers are reached.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Live servers")]
struct LiveArgs {
    /// Believe any certificate
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Believe these certificates (PEM) instead of the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Connect to ADDR for HOST:PORT, as curl does; repeatable
    #[arg(long, value_name = "HOST:PORT:ADDR", value_parser = resolve_entry)]
    resolve: Vec<ResolveEntry>,
}

/// One `--resolve`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ResolveEntry {
    host: String,
    port: u16,
    address: IpAddr,
}

fn resolve_entry(text: &str) -> Result<ResolveEntry, String> {
    let parse = || {
        let (host, rest) = text.split_once(':')?;
        let (port, address) = rest.split_once(':')?;
        let address = address.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        Some(ResolveEntry { host: host.to_ascii_lowercase(), port: port.parse().ok()?, address })
    };
    parse().ok_or_else(|| format!("`{text}` is not HOST:PORT:ADDR (such as example.test:443:127.0.0.1)"))
}

/// Runs the comparison.
pub fn main(args: &CompareArgs, command_line: Vec<String>) -> Result<Exit> {
    args.output.validate()?;
    if args.urls.is_empty() { emulated(args, command_line) } else { live(args, command_line) }
}

/// Over an emulated link.
fn emulated(args: &CompareArgs, command_line: Vec<String>) -> Result<Exit> {
    if args.live.insecure || args.live.cacert.is_some() || !args.live.resolve.is_empty() {
        return Err(Usage("-k, --cacert and --resolve are for live servers: give a URL".to_owned()).into());
    }
    let mut scenario = Scenario::from_toml(SCENARIO).context("the embedded scenario")?;
    args.work.apply(&mut scenario)?;
    args.link.apply(&mut scenario);
    let request = Request {
        scenario,
        live: Vec::new(),
        // The origin's certificate is made at its start: nobody could believe it otherwise.
        tls: TlsTrust { insecure: true, ca_pem: None },
        max_requests_per_connection: args.link.max_requests_per_connection,
        out: args.out.as_deref(),
        command_line,
    };
    request.run(&args.output)
}

/// What is sent to live servers unless more is asked for: nobody's service notices it.
fn gentle() -> Scenario {
    let mut scenario = Scenario {
        claim: "Is HTTP/2 faster or slower than HTTP/1.1 here?".to_owned(),
        ..Scenario::default()
    };
    "GET".clone_into(&mut scenario.work.method);
    scenario.work.shape = Axis::one(RequestShape::Bare);
    scenario.work.body_bytes = 0;
    scenario.work.rate = Axis::one(50.0);
    scenario.work.measure = Axis::one(Duration::from_secs(5));
    scenario.work.timeout = Duration::from_secs(10);
    scenario.matrix.warm_pool = 1;
    scenario.matrix.max_connections = 16;
    scenario
}

/// Against live servers.
fn live(args: &CompareArgs, command_line: Vec<String>) -> Result<Exit> {
    if let Some(flag) = args.link.given() {
        return Err(Usage(format!(
            "{flag} belongs to the emulated link; a live server is measured as it is"
        ))
        .into());
    }
    let tls = trust(&args.live)?;
    let mut scenario = gentle();
    args.work.apply(&mut scenario)?;
    scenario.validate()?;
    let mut live = Vec::new();
    for text in &args.urls {
        let url: Url = text.parse().map_err(|error| Usage(format!("{text}: {error}")))?;
        let server = resolve(text, &url, &args.live.resolve)?;
        let protocols = spoken(&url, &server, &tls, &scenario, args.work.protocols.as_ref())?;
        let path = url.path_and_query().to_owned();
        scenario.matrix.live.push(LiveTarget { url: text.clone(), path, protocols });
        live.push(server);
    }
    if args.work.protocols.is_none() {
        scenario.matrix.protocols = all_spoken(&scenario.matrix.live);
    }
    let request = Request {
        scenario,
        live,
        tls,
        max_requests_per_connection: None,
        out: args.out.as_deref(),
        command_line,
    };
    request.run(&args.output)
}

/// Every protocol that any of the servers speaks, in the order of the reports.
fn all_spoken(live: &[LiveTarget]) -> Axis<Protocol> {
    let speaks = |protocol: &Protocol| live.iter().any(|target| target.protocols.values().contains(protocol));
    Axis::new(Protocol::ALL.into_iter().filter(speaks).collect()).expect("each target speaks at least one")
}

/// The protocols that a server speaks, of those wanted; none is an error that says what each attempt met.
fn spoken(
    url: &Url,
    server: &LiveServer,
    tls: &TlsTrust,
    scenario: &Scenario,
    wanted: Option<&Axis<Protocol>>,
) -> Result<Axis<Protocol>> {
    let discovery = discover(&probe(url, server, tls, scenario), url.is_tls());
    let found: Vec<Protocol> = match wanted {
        None => Protocol::ALL.into_iter().filter(|protocol| discovery.speaks(*protocol)).collect(),
        Some(wanted) => {
            wanted.values().iter().copied().filter(|protocol| discovery.speaks(*protocol)).collect()
        }
    };
    let Some(found) = Axis::new(found) else {
        let wanted =
            wanted.map_or_else(|| "neither protocol".to_owned(), |wanted| format!("none of {wanted}"));
        let message = format!("{} speaks {wanted}: {discovery}", server.url);
        return Err(Failure { kind: FailureKind::Unreachable, message }.into());
    };
    eprintln!("{}: {discovery}", server.url);
    Ok(found)
}

/// The work of the comparison, as a single request.
fn probe(url: &Url, server: &LiveServer, tls: &TlsTrust, scenario: &Scenario) -> LoadSpec<'static> {
    let mut one = scenario.clone();
    one.matrix.live = vec![LiveTarget {
        url: server.url.clone(),
        path: url.path_and_query().to_owned(),
        protocols: Axis::one(Protocol::H1),
    }];
    one.matrix.protocols = Axis::one(Protocol::H1);
    let cell = one.plan().swap_remove(0);
    GeneratorSpec {
        cell,
        address: server.address,
        authority: server.authority.clone(),
        server_name: server.server_name.clone(),
        tls: tls.clone(),
        clock_origin_ns: Clock::start().origin_ns(),
        cpu: None,
    }
    .load_spec()
}

/// How long one of several addresses of a name may take to accept a connection.
const ADDRESS_TRIAL: Duration = Duration::from_secs(2);

/// Finds the address: from `--resolve`, else the system's resolver.
fn resolve(text: &str, url: &Url, entries: &[ResolveEntry]) -> Result<LiveServer> {
    let (host, port) = (url.host(), url.port());
    let fixed = entries.iter().find(|entry| entry.port == port && entry.host.eq_ignore_ascii_case(host));
    let address = match fixed {
        Some(entry) => SocketAddr::new(entry.address, port),
        None => {
            let unreachable = |why: String| Failure {
                kind: FailureKind::Unreachable,
                message: format!(
                    "{text}: unknown host `{host}` ({why}); check the name, or give --resolve {host}:{port}:ADDR"
                ),
            };
            let addresses: Vec<SocketAddr> =
                (host, port).to_socket_addrs().map_err(|error| unreachable(error.to_string()))?.collect();
            // `localhost` is often ::1 first, while most services listen on 127.0.0.1: the first that answers is taken.
            let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, ADDRESS_TRIAL).is_ok();
            let answering = match addresses.as_slice() {
                [only] => Some(only),
                several => several.iter().find(answers).or(several.first()),
            };
            *answering.ok_or_else(|| unreachable("it has no address".to_owned()))?
        }
    };
    Ok(LiveServer {
        url: text.to_owned(),
        address,
        authority: url.authority().to_owned(),
        server_name: host.to_owned(),
    })
}

fn trust(args: &LiveArgs) -> Result<TlsTrust> {
    let ca_pem = match &args.cacert {
        None => None,
        Some(path) => Some(
            std::fs::read_to_string(path)
                .map_err(|error| Usage(format!("--cacert {}: {error}", path.display())))?,
        ),
    };
    Ok(TlsTrust { insecure: args.insecure, ca_pem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_entries_read_as_in_curl() {
        let entry = resolve_entry("Example.test:443:[::1]").unwrap();
        assert_eq!(
            (entry.host.as_str(), entry.port, entry.address),
            ("example.test", 443, "::1".parse().unwrap())
        );
        for bad in ["example.test:443", "example.test:x:127.0.0.1", "example.test:443:nowhere"] {
            assert!(resolve_entry(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_embedded_scenario_is_the_one_that_the_design_names() {
        let scenario = Scenario::from_toml(SCENARIO).unwrap();
        let plan = scenario.plan();
        assert_eq!(plan.len(), 16, "two losses, four ways to connect, two visits");
        let seconds: f64 =
            plan.iter().map(|cell| super::super::progress::length_of(cell).as_secs_f64()).sum();
        assert!((50.0..72.0).contains(&seconds), "about a minute, not {seconds} s");
    }

    #[test]
    fn live_servers_are_measured_gently() {
        let scenario = gentle();
        assert_eq!(scenario.work.method, "GET");
        assert_eq!(scenario.work.rate.values(), [50.0]);
        assert_eq!(scenario.matrix.connections.values(), [1]);
        assert!(scenario.matrix.max_connections <= 16);
        scenario.validate().unwrap();
    }
}
