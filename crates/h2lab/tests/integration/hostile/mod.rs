//! Clients that attack the running origin, frame by frame over a socket, while another client keeps being served; and
//! servers that attack a run of ours, which must end by itself and name what it met.
//!
//! Each attack on the origin goes as far as the origin lets it, or to an end far beyond every bound. Asserted are: how
//! the origin ended it, and with which reason; that the other client was served without a single failure, by count; and
//! that the origin's memory did not grow with the attack.

/// The attacker: an HTTP/2 client that follows no rule.
pub mod attacker;
/// The well-behaved client.
pub mod bystander;
/// More of something than anyone needs.
mod floods;
/// More memory than there is for all.
mod memory;
/// A server that attacks, and a run of ours against it.
pub mod server;
/// Attacks of servers on our client.
mod servers;
/// Less than anyone needs: heads, bodies and windows that do not come.
mod slow;
/// TLS for attackers that do not implement it.
pub mod tunnel;

use std::time::Duration;

use attacker::Attacker;
use bystander::Bystander;

use crate::origin::Origin;

/// How much the origin may grow under any attack of one connection: its buffers, and what the allocator keeps of them.
const GROWTH: u64 = 24 << 20;

/// Runs `attack` against an origin that is started with `arguments`, and checks what holds for every attack. Returns what
/// the attack returned.
#[track_caller]
fn attack<T>(arguments: &[&str], attack: impl FnOnce(&Origin) -> T) -> T {
    let origin = Origin::start(arguments);
    origin.assert_serves();
    let before = origin.child.resident_bytes();
    let bystander = Bystander::begin(origin.clear);
    let outcome = attack(&origin);
    let served = bystander.end();
    let after = origin.child.resident_bytes();
    println!(
        "{served} requests of the bystander served; the origin grew by {} KiB",
        (after.saturating_sub(before)) / 1024
    );
    print!("{}", origin.child.log());
    assert!(after < before + GROWTH, "the origin grew from {before} to {after} bytes");
    origin.assert_serves();
    outcome
}

/// Requests of the bystander that must have been served during an attack, at least.
const SERVED: u32 = 50;

/// Far more than an attack needs to meet its bound.
const FAR: usize = 20_000;

/// A short timeout of our client, which must expire: the server never does what our client waits for.
const SHORT: Duration = Duration::from_millis(500);
