//! The HTTP engines against h2load, wrk, nghttpd and nginx: CPU per request on loopback.

use std::path::Path;
use std::rc::Rc;

use anyhow::Result;

use super::peers::{DEEP, Load, MANY, POST, Server, WIDE};
use super::{Contest, Pair};
use crate::verify::binary::H2lab;

/// All contests of the engines. The servers run until the contests are dropped.
pub fn contests(h2lab: &H2lab, generator: &Path) -> Result<Vec<Contest>> {
    let origin = Rc::new(Server::origin(h2lab, &[])?);
    let nghttpd = Rc::new(Server::nghttpd(&[])?);
    let nginx = Rc::new(Server::nginx()?);
    let client = |id, claim, limit, aim, load, server: &Rc<Server>| {
        let (generator, server) = (generator.to_owned(), Rc::clone(server));
        let round = move |peer_first| client_round(&generator, &server, load, peer_first);
        Contest { id, claim, limit, aim, round: Box::new(round) }
    };
    let served = |id, claim, limit, peer: &Rc<Server>| {
        let (origin, peer) = (Rc::clone(&origin), Rc::clone(peer));
        let round = move |peer_first| server_round(&origin, &peer, peer_first);
        Contest { id, claim, limit, aim: limit, round: Box::new(round) }
    };
    let tap = {
        let (origin, generator) = (Rc::clone(&origin), generator.to_owned());
        let round = move |peer_first| tap_round(&generator, &origin, peer_first);
        let claim = "our client, GET, 1 × 100, every frame recorded, against none";
        Contest { id: "tap-1x100", claim, limit: 2.0, aim: 1.2, round: Box::new(round) }
    };
    Ok(vec![
        client("get-1x100", "GET, 1 × 100, our origin, against h2load", 0.60, 0.35, DEEP, &origin),
        client("get-1x100-nghttpd", "the same, nghttpd", 0.60, 0.35, DEEP, &nghttpd),
        client("get-10x10", "GET, 10 × 10, our origin, against h2load", 0.65, 0.45, WIDE, &origin),
        client("get-10x10-nghttpd", "the same, nghttpd", 0.65, 0.45, WIDE, &nghttpd),
        client("post-1x100", "POST of 1 KiB, 1 × 100, our origin, against h2load", 0.50, 0.50, POST, &origin),
        client("h1-100", "GET, HTTP/1.1, 100 connections, against wrk", 1.05, 0.90, MANY, &origin),
        served("origin-nghttpd", "our origin's CPU, GET at 100 streams, against nghttpd", 0.50, &nghttpd),
        served("origin-nginx", "our origin's CPU, GET at 100 streams, against nginx", 0.50, &nginx),
        tap,
    ])
}

/// Our generator and the peer's client against the same server, each the whole process. Both record each request and no
/// frame: what recording those costs is a contest of its own.
fn client_round(generator: &Path, server: &Server, load: Load, peer_first: bool) -> Result<Pair> {
    let peers = || match load.protocol {
        "h1" => load.wrk(&server.url),
        _ => load.h2load(&server.url, load.requests()),
    };
    Pair::measure(peer_first, || load.generator(generator, &server.url, false), peers)
}

/// The same load by h2load on our origin and on another server: what it costs the server per request.
fn server_round(origin: &Server, peer: &Server, peer_first: bool) -> Result<Pair> {
    let cost = |server: &Server| -> Result<f64> {
        let before = server.cpu_us()?;
        DEEP.h2load(&server.url, DEEP.requests())?;
        Ok((server.cpu_us()? - before) / f64::from(DEEP.requests()))
    };
    Pair::measure(peer_first, || cost(origin), || cost(peer))
}

/// Our generator with and without the Tap.
fn tap_round(generator: &Path, origin: &Server, peer_first: bool) -> Result<Pair> {
    let cost = |tap| DEEP.generator(generator, &origin.url, tap);
    Pair::measure(peer_first, || cost(true), || cost(false))
}
