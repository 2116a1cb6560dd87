//! The loops of a sidecar, a thread each, and what they have in common.
//!
//! **Who accepts.** The first loop has all listening sockets, and gives each connection that it accepts to the loop
//! with the fewest clients, through an inbox and an eventfd. A listening socket for each thread (`SO_REUSEPORT`) would
//! save that step, which is one per connection and not per request. But the kernel then chooses by a hash of the
//! addresses. With four connections of one peer, which carry everything if the callers are sidecars, too, two of the
//! threads would get all of them in more than half of the cases. A handover would pass as many sockets as there are
//! threads, and a successor with fewer threads would have to close some; connections that wait in the queue of a closed
//! socket are reset.
//!
//! **What is common.** Bounds hold for all loops together ([`Shared`], [`super::guard`]): rates, requests under way and
//! waiting, the budget of retries, memory, and which instances are left out. Requests are counted there only where they
//! are bounded. Connections to instances belong to one loop each: bounds on them are divided
//! ([`h2lab_proxy::pool::portion`]), since a loop cannot use those of another one. What a loop learns of an instance
//! from its connections also belongs to it alone: delay, quota, protocol.
//!
//! **Changes.** The first loop follows [`Live`], and the others follow what it has made of that ([`Common`]): places of
//! listeners have the same numbers in all of them. Numbers of services and instances belong to one loop each, since a
//! loop may skip a state; what is common is identified by name.
//!
//! **The end.** The first loop closes the listeners. Then nothing is handed over any more, and all loops finish what
//! they have begun.

mod inbox;
mod shared;

use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub use inbox::{Assignment, Given};
pub use shared::{Common, Shared};

use super::live::Live;
use super::{Sidecar, SidecarError, Totals};

/// Runs the first loop in this thread, and the others, until all have ended; returns what they have done together.
pub fn run(first: &mut Sidecar<'_>, stop: &AtomicBool) -> Result<Totals, SidecarError> {
    let (live, shared) = (first.live, Arc::clone(&first.shared));
    thread::scope(|scope| {
        // However this ends, the others end, too: otherwise the scope would wait for ever.
        let ending = Ending(&shared);
        let mut others = Vec::new();
        for number in 1..shared.threads() {
            let shared = Arc::clone(&shared);
            let name = format!("sidecar {number}");
            let other = move || other(live, &shared, number);
            others.push(thread::Builder::new().name(name).spawn_scoped(scope, other)?);
        }
        let mut result = first.serve(stop).map(|()| first.totals);
        drop(ending);
        for other in others {
            let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and_then(|mut totals| {
                totals += other?;
                Ok(totals)
            });
        }
        result
    })
}

/// A loop that takes what the first one accepts.
fn other(live: &Live, shared: &Arc<Shared>, number: u32) -> Result<Totals, SidecarError> {
    // If it ends early, all do: clients that it was given would wait for ever.
    let failing = Failing(shared, number);
    let mut sidecar = Sidecar::new(live, Arc::clone(shared), number)?;
    sidecar.serve(&AtomicBool::new(false))?;
    std::mem::forget(failing);
    Ok(sidecar.totals)
}

/// When this is dropped, nothing is accepted any more.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// If this is dropped, the loop with this number has failed.
struct Failing<'a>(&'a Shared, u32);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.fail(self.1);
    }
}

impl Sidecar<'_> {
    /// Whether it is the one that accepts.
    pub(super) const fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Whether it is to end.
    pub(super) fn is_over(&self, stop: &AtomicBool) -> bool {
        if self.is_first() {
            stop.load(Ordering::Relaxed) || self.shared.has_failed()
        } else {
            self.shared.is_closed()
        }
    }

    /// Takes the connections that the first loop has given to this one.
    pub(super) fn take_inbox(&mut self) {
        for Given { stream, assignment, before } in self.shared.take(self.number) {
            // Even if the listener is gone by now: a request may have come, and the client is notified.
            match before {
                None => self.take_client(stream, assignment),
                Some(before) => self.resume(stream, assignment, before),
            }
        }
    }

    /// Reports something that all loops find out, only once.
    pub(super) fn report(&self, text: &str) {
        if self.is_first() {
            self.live.report(text);
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        let Self { requests, refused, broken, repeated, pushed, clients, dialled, taken_over, handed_over } =
            other;
        self.requests += requests;
        self.refused += refused;
        self.broken += broken;
        self.repeated += repeated;
        self.pushed += pushed;
        self.clients += clients;
        self.dialled += dialled;
        self.taken_over += taken_over;
        self.handed_over += handed_over;
    }
}
