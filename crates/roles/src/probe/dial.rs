//! A connection of a probe, up to the first byte of its protocol.

use h2lab_model::workload::Protocol;

use super::prober::{Prober, Result};
use crate::client::connect::{DialState, Established};
use crate::client::{Dial, DialTarget};
use h2lab_net::reactor::{Completion, Reactor, Token};

/// The one token of a connection's own reactor.
const TOKEN: Token = Token(0);

/// Dials `target` on a reactor of its own.
pub fn dial(prober: &mut Prober, target: &DialTarget) -> Result<(Reactor, Established)> {
    prober.take_connection()?;
    let mut reactor = Reactor::new(prober.clock)?;
    let mut step = Dial::begin(&mut reactor, TOKEN, 0, target, u32::MAX, prober.now());
    loop {
        let dial = match step {
            DialState::Pending(dial) => dial,
            DialState::Failed(_, error) => return Err(error.into()),
            DialState::Established(established) => return Ok((reactor, established)),
        };
        prober.check_stop()?;
        let now = reactor.wait(prober.next_check(dial.deadline())?)?;
        step = match reactor.next_completion() {
            Some(Completion::Connected { result, .. }) => dial.connected(result, target, now),
            Some(_) => dial.proceed(now),
            None if now >= dial.deadline() => dial.expire(now),
            None => DialState::Pending(dial),
        };
    }
}

/// Whether anything answers on the port: if not, that is reported at once, and not once for each protocol.
pub fn reach(prober: &mut Prober) -> Result<()> {
    let target = prober.target(Protocol::H1)?;
    dial(prober, &target).map(drop)
}
