//! The processes that h2lab starts of itself; nobody calls them by hand.

use anyhow::Result;

use super::Exit;
use crate::run::{generator, lab};

/// `h2lab __lab`.
pub fn lab() -> Result<Exit> {
    lab::main()?;
    Ok(Exit::Done)
}

/// `h2lab __load`.
pub fn load() -> Result<Exit> {
    generator::main()?;
    Ok(Exit::Done)
}
