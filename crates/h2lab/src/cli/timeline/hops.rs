//! `timeline --hops`: the exchange along a chain of real proxies.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use h2lab_model::workload::Protocol;
use h2lab_report::{TimelineDocument, timeline_document};

use super::request::{failure, to_chain};
use super::{TimelineArgs, asked, asking_of, is_cut, refuse};
use crate::cli::asking;
use h2lab_net::clock::Clock;
use h2lab_net::ownership;
use h2lab_roles::load::LoadSpec;
use h2lab_roles::timeline::chain::{ChainSpec, ServerChain};
use h2lab_roles::timeline::or_failed;

/// The default path.
const PATH: &str = "/early";

/// The exchange, at each server of the chain.
pub(super) fn along(args: &TimelineArgs, stop: &AtomicBool) -> Result<TimelineDocument> {
    let path = args.url.as_deref().unwrap_or(PATH);
    if !path.starts_with('/') {
        return refuse(format!("{path}: with --hops it is a path of our origin, such as {PATH}?ms=80"));
    }
    args.ask.reach.refuse(&[], "has no effect with --hops: the servers are ours")?;
    let scratch = tempfile::tempdir().context("cannot make a folder for the servers")?;
    let folder = args.logs.as_deref().unwrap_or(scratch.path());
    ownership::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let clock = Clock::start();
    let protocol = args.ask.client.protocol.single(false)?.unwrap_or(Protocol::H2c);
    let wanted =
        ChainSpec { links: &args.hops, protocol, early_hints: args.early_hints, pages: None, folder };
    let chain = ServerChain::start(wanted, clock).map_err(failure)?;
    let spec = LoadSpec { stop: Some(stop), ..to_chain(&args.ask, &chain, protocol, path, clock)? };
    let mut exchanges = Vec::new();
    while (exchanges.len() as u32) < args.n && (exchanges.is_empty() || !stop.load(Ordering::Relaxed)) {
        let seen = match chain.exchange(&spec, asking_of(args)) {
            // If a run could not connect, nothing reached the servers behind the first one.
            Err(error) if !exchanges.is_empty() => or_failed(Err(error)).map(|run| vec![run]),
            seen => seen,
        };
        let seen = seen.map_err(|error| asking::failure(&error))?;
        if !exchanges.is_empty() && is_cut(&seen[0], stop) {
            break;
        }
        exchanges.push(seen);
    }
    let concluded = chain.conclude(path, &exchanges);
    let runs = exchanges.into_iter().filter_map(|all| all.into_iter().next()).collect();
    Ok(timeline_document(asked(args, path, &spec, stop), runs, concluded))
}
