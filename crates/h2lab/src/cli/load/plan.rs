//! From flags to the one cell that is measured, in a protocol; pure but for files that flags name.

use std::time::Duration;

use anyhow::Result;
use h2lab_base::units::base64;
use h2lab_model::scenario::{ArrivalShape, Axis, Cell, LiveTarget, Scenario};
use h2lab_model::workload::{H2cMode, MixEntry, Protocol, RequestShape};

use super::super::axes::{ArrivalArg, H2cModeArg, header, read_data};
use super::super::exit::Usage;
use super::super::flags;
use super::super::protocols::check_streams;
use super::LoadArgs;
use super::flags::{AmountArgs, RequestArgs};
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
pub struct Plan {
    /// As the run folder keeps it: `cell` is its only one.
    pub scenario: Scenario,
    /// The work.
    pub cell: Cell,
    /// At most so many requests.
    pub requests: Option<u64>,
}

/// The protocols to try, the best first; only one if it was asked for by name.
pub fn protocols(args: &AmountArgs, is_tls: bool) -> Result<Vec<Protocol>, Usage> {
    let asked = match args.protocol.asked(is_tls)? {
        Some(protocol) => protocol,
        None if is_tls => return Ok(vec![Protocol::H2, Protocol::H1s]),
        None if args.h2c_mode.is_some() => Protocol::H2c,
        None => Protocol::H1,
    };
    if asked != Protocol::H2c && args.h2c_mode.is_some() {
        return Err(Usage(format!("--h2c-mode is about h2c, not {asked}; give --proto h2c and http://")));
    }
    check_streams(asked, args.streams)?;
    Ok(vec![asked])
}

/// The plan in `protocol`.
pub fn plan(args: &LoadArgs, requests: &Requests, protocol: Protocol) -> Result<Plan> {
    let mut scenario = scenario(args, requests, protocol)?;
    let size = Size::of(&args.load, protocol);
    let matrix = &mut scenario.matrix;
    (matrix.connections, matrix.streams) = (Axis::one(size.connections.into()), Axis::one(size.streams));
    (matrix.warm_pool, matrix.max_connections) = (size.connections, size.max_connections);
    if !size.is_open_loop {
        scenario.work.concurrency = Some(size.connections * size.streams);
    }
    args.engine.apply(&mut scenario.client.engine);
    flags::check(&scenario)?;
    let mut cell = scenario.plan().swap_remove(0);
    // The plan has none, since a live server has no emulated link: this one is of our sockets.
    cell.congestion.clone_from(&args.load.congestion);
    Ok(Plan { scenario, cell, requests: args.load.requests })
}

/// Connections and streams.
struct Size {
    connections: u32,
    max_connections: u32,
    streams: u32,
    is_open_loop: bool,
}

impl Size {
    fn of(args: &AmountArgs, protocol: Protocol) -> Self {
        let is_open_loop = args.rate.is_some() || args.ramp.is_some();
        let streams = match (protocol.is_multiplexed(), args.streams) {
            (false, _) => 1,
            (true, Some(streams)) => streams,
            // The schedule says how many are under way, not we.
            (true, None) if is_open_loop => {
                *Scenario::default().matrix.streams.values().first().unwrap_or(&1)
            }
            (true, None) if args.connections.is_some() => 1,
            (true, None) => STREAMS,
        };
        let usual = if protocol.is_multiplexed() { 1 } else { CONNECTIONS };
        // A connection without a request would be a useless dial.
        let most = args.requests.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
        let connections = args.connections.unwrap_or(usual).min(most);
        let max_connections = args.max_connections.unwrap_or(connections).max(connections);
        Self { connections, max_connections, streams, is_open_loop }
    }
}

/// All but sizes: what is sent, for how long, to whom.
fn scenario(args: &LoadArgs, requests: &Requests, protocol: Protocol) -> Result<Scenario> {
    let load = &args.load;
    let mut scenario = Scenario {
        claim: format!("How does {} answer load?", requests.url),
        seed: Axis::one(load.seed),
        visits: 1,
        ..Scenario::default()
    };
    let work = &mut scenario.work;
    describe(work, &args.request, &requests.kinds[0], requests.kinds.len() == 1)?;
    work.shape = Axis::one(args.request.shape.unwrap_or(RequestShape::Bare));
    work.measure = Axis::one(match (load.duration, load.requests) {
        (Some(duration), _) => duration,
        (None, Some(_)) => ENDLESS,
        (None, None) => DURATION,
    });
    work.warmup = load.warmup.unwrap_or_default();
    work.drain = load.drain.unwrap_or(DRAIN);
    work.timeout = load.timeout;
    work.replay = !load.policy.no_replay;
    if let Some(rate) = load.rate {
        work.rate = Axis::one(rate);
    }
    work.ramp = load.ramp;
    work.template = args.request.template;
    if requests.kinds.len() > 1 {
        work.mix.clone_from(&requests.kinds);
    }
    if load.arrival == Some(ArrivalArg::Poisson) {
        work.arrival = ArrivalShape::Poisson;
    }
    load.policy.apply(&mut scenario.client.policy);
    if let Some(name) = &load.congestion {
        scenario.link.congestion = Axis::one(name.clone());
    }
    scenario.matrix.dial_policy = Axis::one(load.dial_policy.unwrap_or_default());
    scenario.matrix.h2c_mode = match load.h2c_mode {
        Some(H2cModeArg::Upgrade) => H2cMode::Upgrade,
        None if load.protocol.http2 => H2cMode::Upgrade,
        _ => H2cMode::PriorKnowledge,
    };
    scenario.matrix.protocols = Axis::one(protocol);
    scenario.matrix.live = vec![LiveTarget {
        url: requests.text.clone(),
        path: requests.url.path_and_query().to_owned(),
        protocols: Axis::one(protocol),
    }];
    Ok(scenario)
}

/// What a request is: of the flags, and of its kind if there is but one.
fn describe(
    work: &mut h2lab_model::scenario::WorkAxes,
    args: &RequestArgs,
    kind: &MixEntry,
    is_only: bool,
) -> Result<()> {
    let kind = if is_only { kind.clone() } else { MixEntry::default() };
    work.body_bytes = args.body_bytes.unwrap_or(0);
    work.body = match (&args.data, kind.body) {
        (_, Some(body)) => Some(body),
        (Some(data), None) => Some(read_data(data)?),
        (None, None) => None,
    };
    let has_body = work.body.is_some() || work.body_bytes > 0;
    let usual = if has_body { "POST" } else { "GET" };
    work.method = kind.method.or_else(|| args.method.clone()).unwrap_or_else(|| usual.to_owned());
    let lines = args.headers.iter().map(|line| header(line)).collect::<Result<Vec<_>>>()?;
    work.headers = lines.into_iter().chain(credentials(args)?).chain(kind.headers).collect();
    Ok(())
}

/// The header fields of `-u`, `--oauth2-bearer` and `-b` (RFC 7617, RFC 6750, RFC 6265).
fn credentials(args: &RequestArgs) -> Result<Vec<(String, String)>, Usage> {
    let mut fields = Vec::new();
    if let Some(user) = &args.user {
        if !user.contains(':') {
            return Err(Usage("-u/--user wants NAME:PASSWORD; h2lab asks for no password".to_owned()));
        }
        fields.push(("authorization".to_owned(), format!("Basic {}", base64(user.as_bytes()))));
    }
    if let Some(token) = &args.oauth2_bearer {
        fields.push(("authorization".to_owned(), format!("Bearer {token}")));
    }
    if let Some(cookie) = &args.cookie {
        if !cookie.contains('=') {
            return Err(Usage("-b/--cookie wants NAME=VALUE; files of cookies are not read".to_owned()));
        }
        fields.push(("cookie".to_owned(), cookie.clone()));
    }
    Ok(fields)
}
