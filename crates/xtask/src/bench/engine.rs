//! The HTTP engines against h2load, wrk, nghttpd and nginx: CPU per request on loopback.

use std::rc::Rc;

use anyhow::Result;

use super::peers::{Load, Server};
use super::{Contest, Pair};
use crate::verify::binary::H2lab;

/// One connection with a hundred streams.
const DEEP: Load = Load { protocol: "h2c", connections: 1, streams: 100, body: 0 };
/// Ten connections with ten streams each.
const WIDE: Load = Load { protocol: "h2c", connections: 10, streams: 10, body: 0 };
/// A hundred connections of HTTP/1.1.
const MANY: Load = Load { protocol: "h1", connections: 100, streams: 1, body: 0 };
/// Requests by which a server is measured.
const POST: Load = Load { body: 1024, ..DEEP };

/// All contests of the engines. The servers run until the contests are dropped.
pub fn contests(h2lab: &H2lab) -> Result<Vec<Contest>> {
    let h2lab = Rc::new(h2lab.clone());
    let origin = Rc::new(Server::origin(&h2lab)?);
    let nghttpd = Rc::new(Server::nghttpd()?);
    let nginx = Rc::new(Server::nginx()?);
    let client = |id, claim, limit, aim, load, server: &Rc<Server>| {
        let (h2lab, server) = (Rc::clone(&h2lab), Rc::clone(server));
        let round = move |peer_first| client_round(&h2lab, &server, load, peer_first);
        Contest { id, claim, limit, aim, round: Box::new(round) }
    };
    let served = |id, claim, limit, peer: &Rc<Server>| {
        let (origin, peer) = (Rc::clone(&origin), Rc::clone(peer));
        let round = move |peer_first| server_round(&origin, &peer, peer_first);
        Contest { id, claim, limit, aim: limit, round: Box::new(round) }
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
    ])
}

/// Our generator and the peer's client against the same server.
fn client_round(h2lab: &H2lab, server: &Server, load: Load, peer_first: bool) -> Result<Pair> {
    let ours = || load.ours(h2lab, &server.url);
    let peers = || if load.protocol == "h1" { load.wrk(&server.url) } else { load.h2load(&server.url) };
    if peer_first {
        let peer = peers()?;
        return Ok(Pair { ours: ours()?, peer });
    }
    Ok(Pair { ours: ours()?, peer: peers()? })
}

/// The same load by h2load on our origin and on another server: what it costs the server per request.
fn server_round(origin: &Server, peer: &Server, peer_first: bool) -> Result<Pair> {
    let cost = |server: &Server| -> Result<f64> {
        let before = server.cpu_us()?;
        DEEP.h2load(&server.url)?;
        Ok((server.cpu_us()? - before) / f64::from(DEEP.requests()))
    };
    if peer_first {
        let peer = cost(peer)?;
        return Ok(Pair { ours: cost(origin)?, peer });
    }
    Ok(Pair { ours: cost(origin)?, peer: cost(peer)? })
}
