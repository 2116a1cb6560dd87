//! The state of the other end's socket, in its own process.
//!
//! From the wire, `TCP_NODELAY` could only be guessed by timing. But the client is our child: the kernel gives us a
//! duplicate of its descriptor (`pidfd_getfd(2)`), as it would give it to a debugger.

use std::fs;
use std::net::SocketAddr;

use rustix::net::{getsockname, sockopt};
use rustix::process::{ForeignRawFd, Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Whether the socket bound to `local`, in a process of this group, has `TCP_NODELAY` set; `None` if it is not found or not
/// shown to us.
pub fn no_delay(group: Pid, local: SocketAddr) -> Option<bool> {
    let processes = fs::read_dir("/proc").ok()?;
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| is_in_group(*number, group)).find_map(|number| in_process(number, local))
}

/// The fifth field of `/proc/PID/stat`, behind the name in brackets, which may hold anything.
fn is_in_group(number: i32, group: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().nth(2).and_then(|field| field.parse().ok()) == Some(group.as_raw_pid())
}

fn in_process(number: i32, local: SocketAddr) -> Option<bool> {
    let pidfd = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
    let entries = fs::read_dir(format!("/proc/{number}/fd")).ok()?;
    entries.filter_map(Result::ok).find_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        if !target.to_string_lossy().starts_with("socket:") {
            return None;
        }
        let fd: ForeignRawFd = entry.file_name().to_str()?.parse().ok()?;
        let socket = pidfd_getfd(&pidfd, fd, PidfdGetfdFlags::empty()).ok()?;
        let bound = SocketAddr::try_from(getsockname(&socket).ok()?).ok()?;
        is_same(bound, local).then(|| sockopt::tcp_nodelay(&socket).ok()).flatten()
    })
}

/// Whether they are one address: a socket of IPv6 that speaks IPv4 too shows it as `::ffff:127.0.0.1` (RFC 4291 §2.5.5.2).
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_address_of_a_socket_for_both_versions_of_ip_is_the_same() {
        let same = |one: &str, other: &str| is_same(one.parse().unwrap(), other.parse().unwrap());
        assert!(same("[::ffff:127.0.0.1]:80", "127.0.0.1:80") && same("127.0.0.1:80", "127.0.0.1:80"));
        assert!(!same("[::ffff:127.0.0.1]:81", "127.0.0.1:80") && !same("[::1]:80", "127.0.0.1:80"));
    }

    #[test]
    fn a_socket_of_a_process_of_the_group_is_looked_at() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = stream.local_addr().unwrap();
        let group = rustix::process::getpgrp();
        for is_set in [true, false] {
            stream.set_nodelay(is_set).unwrap();
            // A machine may forbid it: then the result is unknown, but never wrong.
            assert!([None, Some(is_set)].contains(&no_delay(group, local)));
        }
        drop(stream);
        assert_eq!(no_delay(group, local), None);
    }
}
