//! The processes that h2lab starts of itself; nobody calls them by hand.

use anyhow::Result;

use super::{Exit, live};
use crate::load::preflight;
use crate::run::{generator, lab};

/// `h2lab __lab`.
pub fn lab() -> Result<Exit> {
    lab::main()?;
    Ok(Exit::Done)
}

/// `h2lab __get URL`: what conformance suites for clients call once per case. Prints the status of the response.
pub fn get(url: &str) -> Result<Exit> {
    println!("{}", preflight(&live::single(url)?)?.status);
    Ok(Exit::Done)
}

/// `h2lab __load`.
pub fn load() -> Result<Exit> {
    generator::main()?;
    Ok(Exit::Done)
}
