//! From flags to the one cell that is measured, in a protocol; pure but for files that flags name.

use std::time::Duration;

use anyhow::Result;
use h2lab_model::scenario::{ArrivalShape, Axis, Cell, LiveTarget, Scenario, WorkAxes};
use h2lab_model::workload::{MixEntry, Protocol, RequestShape};

use super::super::exit::Usage;
use super::super::flags;
use super::super::needs;
use super::super::protocols::check_streams;
use super::super::values::replace;
use super::super::work::ArrivalArg;
use super::LoadArgs;
use super::requests::Requests;

/// Measured time if nothing is said, as hey has no other end either.
const DURATION: Duration = Duration::from_secs(10);
/// Connections of HTTP/1.1 if nothing is said, as in hey.
const CONNECTIONS: u32 = 50;
/// Streams on the one connection of HTTP/2 if nothing is said: what servers commonly allow.
const STREAMS: u32 = 100;
/// For the last answers; a server that answers ends it sooner.
const DRAIN: Duration = Duration::from_secs(5);
/// With -n alone the number is the end; this only has to be later.
pub const ENDLESS: Duration = Duration::from_secs(24 * 3600);

/// What is to be done.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    /// As the run folder keeps it: `cell` is its only one.
    pub scenario: Scenario,
    /// The work.
    pub cell: Cell,
    /// At most so many requests.
    pub requests: Option<u64>,
}

/// The protocols to try, the best first; only one if it was asked for by name.
pub fn protocols(args: &LoadArgs, is_tls: bool) -> Result<Vec<Protocol>, Usage> {
    let protocols = args.client.protocol.to_try(is_tls, &[Protocol::H1])?;
    check_streams(protocols[0], args.load.streams)?;
    needs::check(&args.client, &protocols)?;
    needs::check(&args.policy, &protocols)?;
    check_most(args)?;
    Ok(protocols)
}

/// Refuses a maximum of connections that has no effect: a closed loop has a request for each connection, and none waits.
fn check_most(args: &LoadArgs) -> Result<(), Usage> {
    let Some(most) = args.policy.max_connections else { return Ok(()) };
    let is_closed = args.load.rate.is_none() && args.load.ramp.is_none();
    let why = match args.load.connections {
        _ if is_closed => {
            "has no effect in a closed loop, where -c is the number; it needs -q or --ramp".to_owned()
        }
        Some(connections) if connections > most => format!("is less than -c {connections}"),
        _ => return Ok(()),
    };
    Err(Usage(format!("--max-connections {most} {why}")))
}

/// The plan in `protocol`.
pub fn plan(args: &LoadArgs, requests: &Requests, protocol: Protocol) -> Result<LoadPlan> {
    let mut scenario = scenario(args, requests, protocol)?;
    let size = Size::of(args, protocol);
    let matrix = &mut scenario.matrix;
    (matrix.connections, matrix.streams) = (Axis::one(size.connections.into()), Axis::one(size.streams));
    (matrix.warm_pool, matrix.max_connections) = (size.connections, size.max_connections);
    if !size.is_open_loop {
        scenario.work.concurrency = Some(size.connections * size.streams);
    }
    flags::check(&scenario)?;
    let mut cell = flags::only_cell(&scenario)?;
    // The plan has none, since a live server has no emulated link: this one is of our sockets.
    cell.congestion.clone_from(&args.load.socket.congestion);
    Ok(LoadPlan { scenario, cell, requests: args.load.requests })
}

/// Connections and streams.
struct Size {
    connections: u32,
    max_connections: u32,
    streams: u32,
    is_open_loop: bool,
}

impl Size {
    fn of(args: &LoadArgs, protocol: Protocol) -> Self {
        let (most_connections, shares) = (args.policy.max_connections, args.shares());
        let args = &args.load;
        let is_open_loop = args.rate.is_some() || args.ramp.is_some();
        let streams = match (protocol.is_multiplexed(), args.streams) {
            (false, _) => 1,
            (true, Some(streams)) => streams,
            // The schedule decides how many are in flight.
            (true, None) if is_open_loop => {
                *Scenario::default().matrix.streams.values().first().unwrap_or(&1)
            }
            (true, None) if args.connections.is_some() => 1,
            (true, None) => STREAMS,
        };
        // Each agent has a connection at least.
        let usual = if protocol.is_multiplexed() { 1 } else { CONNECTIONS }.max(shares);
        // A connection without a request would be a useless dial.
        let most = args.requests.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
        let usual = most_connections.map_or(usual, |most| usual.min(most));
        let connections = args.connections.unwrap_or(usual).min(most);
        let max_connections = most_connections.unwrap_or(connections).max(connections);
        Self { connections, max_connections, streams, is_open_loop }
    }
}

/// Everything but sizes: what is sent, for how long, to which server.
fn scenario(args: &LoadArgs, requests: &Requests, protocol: Protocol) -> Result<Scenario> {
    let load = &args.load;
    let mut scenario = Scenario {
        claim: format!("How does {} perform under load?", args.client.request.url_as_shown(&requests.text)),
        seed: Axis::one(load.seed),
        repetitions: 1,
        ..Scenario::default()
    };
    let work = &mut scenario.work;
    (work.method, work.body_bytes, work.shape) = ("GET".to_owned(), 0, Axis::one(RequestShape::Bare));
    args.client.apply(&mut scenario)?;
    args.policy.apply(&mut scenario);
    // Where the cell has it, its record says so.
    scenario.client.policy.no_tls_resumption |= args.reach.tls.no_tls_resumption;
    let work = &mut scenario.work;
    match requests.kinds.as_slice() {
        [kind] => describe(work, kind, args.client.request.method.is_none()),
        kinds => work.mix = kinds.to_vec(),
    }
    work.measure = Axis::one(match (load.duration, load.requests) {
        (Some(duration), _) => duration,
        (None, Some(_)) => ENDLESS,
        (None, None) => DURATION,
    });
    work.warmup = load.warmup.unwrap_or_default();
    work.drain = load.drain.unwrap_or(DRAIN);
    work.timeout = load.timeout;
    if let Some(rate) = load.rate {
        work.rate = Axis::one(rate);
    }
    work.ramp = load.ramp;
    if load.arrival == Some(ArrivalArg::Poisson) {
        work.arrival = ArrivalShape::Poisson;
    }
    if let Some(name) = &load.socket.congestion {
        scenario.link.congestion = Axis::one(name.clone());
    }
    scenario.matrix.protocols = Axis::one(protocol);
    scenario.matrix.live = vec![LiveTarget {
        url: args.client.request.url_as_shown(&requests.text).into_owned(),
        path: requests.url.path_and_query().to_owned(),
        protocols: Axis::one(protocol),
    }];
    Ok(scenario)
}

/// Puts what is said of the only kind of requests in place of what flags say of all.
fn describe(work: &mut WorkAxes, kind: &MixEntry, may_be_post: bool) {
    if kind.body.is_some() {
        work.body.clone_from(&kind.body);
        if may_be_post {
            "POST".clone_into(&mut work.method);
        }
    }
    replace(&mut work.method, kind.method.as_ref());
    work.headers.extend(kind.headers.iter().cloned());
}
