//! The processes that h2lab itself starts; users do not call them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::{Exit, discover, policy, signals};
use crate::run::{generator, lab, preflight};
use h2lab_net::resources;
use h2lab_roles::bulk::raw;
use h2lab_roles::load::ask_once;

/// `h2lab __lab`.
pub fn lab() -> Result<Exit> {
    lab::main()?;
    Ok(Exit::Done)
}

/// `h2lab __sysctls`.
pub fn sysctls() -> Result<Exit> {
    preflight::main()?;
    Ok(Exit::Done)
}

/// How long [`get`] keeps its connection: some cases begin when the response is complete.
const LINGER: Duration = Duration::from_secs(1);

/// `h2lab __get URL`: what conformance suites for clients call once per case. Prints the status of the response.
pub fn get(url: &str) -> Result<Exit> {
    println!("{}", ask_once(&discover::single(url)?, LINGER)?.status);
    Ok(Exit::Done)
}

/// `h2lab __tcp ADDRESS`: a server of bytes without HTTP, until it is stopped.
pub fn tcp(address: SocketAddr, congestion: Option<&str>) -> Result<Exit> {
    resources::raise_open_files();
    let stop = signals::stop_flag()?;
    congestion.map_or(Ok(()), policy::check_congestion)?;
    raw::serve(address, congestion, &stop, &mut |at| println!("listening tcp://{at}"))?;
    Ok(Exit::Done)
}

/// `h2lab __load`.
pub fn load() -> Result<Exit> {
    generator::main()?;
    Ok(Exit::Done)
}
