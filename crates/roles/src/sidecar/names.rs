//! Names of instances, those of the configuration itself and those that a file or Consul lists.
//!
//! They are resolved at the start and at each reload, or when the list changes. One that does not resolve then, because
//! name servers or its service are not there yet, stops nothing: requests for its service are answered 503 until it
//! does, which is tried again and again.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use h2lab_proxy::config::Member;

use super::config::SidecarConfig;
use super::live::{Live, Resolved};

/// How long names are waited for at the start, as the first answers of registries are.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// The same at a further attempt: as long as resolvers commonly take to give up (resolv.conf(5)).
pub const LONG_LOOKUP_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause until a name is tried again; doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Names that are asked for at a time.
const MOST_THREADS: usize = 16;

/// An instance whose name has no address yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// The instance.
    pub member: Member,
    /// Why.
    pub why: String,
}

/// Each instance with the addresses of its name. Waits for `timeout` at most.
pub fn resolve(members: Vec<Member>, timeout: Duration) -> Vec<Result<Resolved, String>> {
    let late = || Err(format!("no answer within {} s", timeout.as_secs()));
    let mut results: Vec<Result<Resolved, String>> = members.iter().map(|_| late()).collect();
    let mut names = VecDeque::new();
    for (place, member) in members.into_iter().enumerate() {
        if member.url.host.parse::<IpAddr>().is_ok() {
            results[place] = Resolved::one(&member);
        } else {
            names.push_back((place, member));
        }
    }
    let threads = names.len().min(MOST_THREADS);
    let names = Arc::new(Mutex::new(names));
    let (found, has_found) = mpsc::channel();
    for _ in 0..threads {
        let (names, found) = (Arc::clone(&names), found.clone());
        // The resolver of the C library cannot be interrupted: a thread that waits for it is left alone.
        let ask = move || {
            let next = || names.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            while let Some((place, member)) = next() {
                if found.send((place, Resolved::one(&member))).is_err() {
                    return;
                }
            }
        };
        if thread::Builder::new().name("names".to_owned()).spawn(ask).is_err() {
            break; // the others take them, or they are tried again
        }
    }
    drop(found);
    let until = Instant::now() + timeout;
    while let Ok((place, result)) = has_found.recv_timeout(until.saturating_duration_since(Instant::now())) {
        results[place] = result;
    }
    results
}

/// Resolves what has no address yet, in a thread of its own, until all has one, or another configuration is in effect.
/// Does nothing if there is such a thread already.
pub fn follow(live: &Arc<Live>) -> io::Result<()> {
    let Some(config) = live.begin_to_look_up() else { return Ok(()) };
    let followed = Arc::clone(live);
    let run = move || run(&followed, &config);
    let started = thread::Builder::new().name("names".to_owned()).spawn(run);
    if started.is_err() {
        live.end_to_look_up();
    }
    started.map(drop)
}

fn run(live: &Live, config: &Arc<SidecarConfig>) {
    let mut pause = FIRST_PAUSE;
    loop {
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
        let unresolved = live.to_look_up(config);
        if unresolved.is_empty() {
            return;
        }
        let members = unresolved.iter().map(|(_, one)| one.member.clone()).collect();
        for ((service, one), result) in unresolved.iter().zip(resolve(members, LONG_LOOKUP_TIMEOUT)) {
            live.take_name(config, service, &one.member, result);
        }
    }
}

#[cfg(test)]
mod tests {
    use h2lab_proxy::config::Instance;

    use super::*;

    #[test]
    fn each_instance_has_its_own_result_in_its_place() {
        let names = ["127.0.0.1:1", "no-such-name.invalid:2", "localhost:3", "[::1]:4"];
        let of = |name: &&str| Member::from(format!("http://{name}").parse::<Instance>().expect(name));
        let results = resolve(names.iter().map(of).collect(), Duration::from_secs(600));
        let ports = results.iter().map(|result| result.as_ref().ok().map(|at| at.address.port()));
        assert_eq!(ports.collect::<Vec<_>>(), [Some(1), None, Some(3), Some(4)], "{results:?}");
    }
}
