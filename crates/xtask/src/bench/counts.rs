//! What a request costs in counts: user-space instructions and system calls, ours against the peers'.
//!
//! Unlike CPU time they do not depend on what else the machine does, so that a change of a few percent shows. Each
//! figure is the difference between a longer and a shorter run divided by that of their requests: what a program does
//! once, at its start and at its end, drops out.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};

use super::instruments::{self, Count};
use super::peers::{DEEP, Load, MANY, POST, Server, WIDE};
use super::{Contest, Pair};
use crate::process;
use crate::verify::binary::H2lab;

/// Ours may cost as much as the peer.
const LIMIT: f64 = 1.0;
/// With every frame recorded the client may cost twice what it costs without.
const TAP_LIMIT: f64 = 2.0;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Instructions in user space.
    Instructions,
    /// System calls.
    Calls,
}

impl Unit {
    /// Requests of the shorter run; the longer makes twice as many. valgrind slows a program down fifty times; on the
    /// other hand it counts exactly, so that fewer are enough.
    const fn requests(self) -> u32 {
        match self {
            Self::Instructions => 20_000,
            Self::Calls => 100_000,
        }
    }

    /// Seconds of the shorter run of a client that takes no number of requests.
    const fn seconds(self) -> u32 {
        match self {
            Self::Instructions => 3,
            Self::Calls => 1,
        }
    }

    fn of_command(self, words: &[String]) -> Result<Count> {
        match self {
            Self::Instructions => instruments::instructions(words),
            Self::Calls => instruments::calls(words),
        }
    }
}

/// A client whose work is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Client {
    /// Our generator, alone in its process.
    Ours { program: PathBuf, tap: bool },
    /// h2load or, for HTTP/1.1, wrk.
    Peer,
}

/// All contests of counts. The servers run until the contests are dropped.
pub fn contests(h2lab: &H2lab, generator: &Path) -> Result<Vec<Contest>> {
    let origin = Rc::new(Server::origin(h2lab, &[])?);
    let nghttpd = Rc::new(Server::nghttpd(&[])?);
    let ours = |tap| Client::Ours { program: generator.to_owned(), tap };
    let contest = |id, claim, limit, unit, load: Load, server: &Rc<Server>, [a, b]: [Client; 2]| {
        let server = Rc::clone(server);
        let round = move |peer_first| {
            Pair::measure(
                peer_first,
                || of_client(unit, load, &a, &server),
                || of_client(unit, load, &b, &server),
            )
        };
        Contest { id, claim, limit, aim: limit, round: Box::new(round) }
    };
    let client = |id, claim, unit, load, server| {
        contest(id, claim, LIMIT, unit, load, server, [ours(false), Client::Peer])
    };
    let tap = |id, claim, load| {
        contest(id, claim, TAP_LIMIT, Unit::Instructions, load, &origin, [ours(true), ours(false)])
    };
    let mut contests = Vec::new();
    for (unit, ids) in [
        (Unit::Instructions, ["ir-1x100", "ir-1x100-nghttpd", "ir-10x10-nghttpd", "ir-post", "ir-h1-100"]),
        (Unit::Calls, ["sys-1x100", "sys-1x100-nghttpd", "sys-10x10-nghttpd", "sys-post", "sys-h1-100"]),
    ] {
        let [deep, deep_foreign, wide, post, many] = ids;
        contests.extend([
            client(deep, "GET, 1 × 100, our origin, against h2load", unit, DEEP, &origin),
            client(deep_foreign, "the same, nghttpd", unit, DEEP, &nghttpd),
            client(wide, "GET, 10 × 10, nghttpd, against h2load", unit, WIDE, &nghttpd),
            client(post, "POST of 1 KiB, 1 × 100, our origin, against h2load", unit, POST, &origin),
            client(many, "GET, HTTP/1.1, 100 connections, against wrk", unit, MANY, &origin),
        ]);
    }
    for (id, unit) in [("ir-origin", Unit::Instructions), ("sys-origin", Unit::Calls)] {
        let h2lab = h2lab.clone();
        let round = move |peer_first| {
            Pair::measure(
                peer_first,
                || of_server(unit, |wrapper| Server::origin(&h2lab, wrapper)),
                || of_server(unit, Server::nghttpd),
            )
        };
        let claim = "our origin, GET, 1 × 100 by h2load, against nghttpd";
        contests.push(Contest { id, claim, limit: LIMIT, aim: LIMIT, round: Box::new(round) });
    }
    contests.push(tap("ir-tap-1x100", "our client with every frame recorded, against without", DEEP));
    contests.push(tap("ir-tap-h1-100", "the same, HTTP/1.1, 100 connections", MANY));
    Ok(contests)
}

/// Instructions per request of our generator alone, GET, 1 × 100, our origin: the first figure of `ir-1x100`.
pub fn instructions_per_request(h2lab: &H2lab, generator: &Path) -> Result<f64> {
    super::need(&super::INSTRUMENTS[..1])?;
    let server = Server::origin(h2lab, &[])?;
    of_client(Unit::Instructions, DEEP, &Client::Ours { program: generator.to_owned(), tap: false }, &server)
}

/// What a request costs a client.
fn of_client(unit: Unit, load: Load, client: &Client, server: &Server) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let run = |times: u32| -> Result<(f64, f64)> {
        let requests = unit.requests() * times;
        let (words, by_time) = match client {
            Client::Ours { program, tap } => {
                (load.generator_words(program, &server.url, requests, *tap), false)
            }
            Client::Peer if load.protocol == "h1" => {
                let mut words = load.wrk_words(&server.url, unit.seconds() * times);
                words.insert(0, program("wrk")?);
                (words, true)
            }
            Client::Peer => {
                let mut words = load.h2load_words(&server.url, requests, folder.path())?;
                words.insert(0, program("h2load")?);
                (words, false)
            }
        };
        let count = unit.of_command(&words)?;
        let made = if by_time {
            super::peers::wrk_requests(&count.stdout)?
        } else {
            let succeeded = format!("{requests} succeeded");
            anyhow::ensure!(
                count.stdout.contains(&succeeded),
                "not all requests succeeded: {}",
                count.stdout
            );
            f64::from(requests)
        };
        Ok((made, count.count))
    };
    let ((few, cheap), (many, dear)) = (run(1)?, run(2)?);
    Ok((dear - cheap) / (many - few))
}

/// What a request costs a server that is loaded by h2load.
fn of_server(unit: Unit, start: impl Fn(&[String]) -> Result<Server>) -> Result<f64> {
    let run = |times: u32| -> Result<f64> {
        let requests = unit.requests() * times;
        match unit {
            Unit::Instructions => {
                let folder = tempfile::tempdir()?;
                let out = folder.path().join("callgrind.out");
                let server = start(&instruments::valgrind(&out))?;
                DEEP.h2load(&server.url, requests)?;
                server.end()?;
                instruments::collected(&out)
            }
            Unit::Calls => {
                let server = start(&[])?;
                let folder = tempfile::tempdir()?;
                let mut words = DEEP.h2load_words(&server.url, requests, folder.path())?;
                words.insert(0, program("h2load")?);
                Ok(instruments::calls_of(server.id(), &words)?.count)
            }
        }
    };
    let (cheap, dear) = (run(1)?, run(2)?);
    Ok((dear - cheap) / f64::from(unit.requests()))
}

/// Where a peer's program is.
fn program(name: &str) -> Result<String> {
    let path = process::find(name).with_context(|| format!("{name} is not installed"))?;
    Ok(path.display().to_string())
}
