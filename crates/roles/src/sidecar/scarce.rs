//! What the system has run out of: file descriptors, local ports, memory for sockets. Reports which, and how to get
//! more of it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use h2lab_base::units::Time;
use h2lab_net::resources::open_files;
use h2lab_net::tcp::Endpoint;
use h2lab_proxy::refusal::ProxyError;
use rustix::io::Errno;

use super::Sidecar;
use super::exchange::Refusal;
use super::guard::{DEFAULT_RETRY_AFTER, NOTE_PERIOD};
use crate::client::connect::ConnectError;

/// What has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scarce {
    /// File descriptors of this process.
    Files,
    /// Those of the system.
    SystemFiles,
    /// Ports for connections to an instance.
    Ports,
    /// Memory that the kernel has for sockets.
    Memory,
}

impl Scarce {
    /// All of them, by their names in the metrics.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Files, "files"),
        (Self::SystemFiles, "system-files"),
        (Self::Ports, "ports"),
        (Self::Memory, "memory"),
    ];

    /// What this answer of the kernel says has run out (accept(2), connect(2), socket(2)).
    fn of(error: &io::Error) -> Option<Self> {
        match Errno::from_io_error(error)? {
            Errno::MFILE => Some(Self::Files),
            Errno::NFILE => Some(Self::SystemFiles),
            // Over UDP it is the latter.
            Errno::ADDRNOTAVAIL | Errno::AGAIN => Some(Self::Ports),
            Errno::NOBUFS | Errno::NOMEM => Some(Self::Memory),
            _ => None,
        }
    }

    /// Why a connection to this address could not be made, if the cause is a shortage on our side.
    pub fn of_dial(error: &ConnectError, to: &Endpoint) -> Option<Self> {
        let ConnectError::Io(error) = error else { return None };
        Self::of(error).filter(|scarce| *scarce != Self::Ports || has_source(to))
    }

    /// What has run out.
    const fn what(self) -> &'static str {
        match self {
            Self::Files => "file descriptors",
            Self::SystemFiles => "file descriptors (system-wide)",
            Self::Ports => "local ports",
            Self::Memory => "memory for sockets",
        }
    }

    /// How to get more of it.
    fn advice(self) -> String {
        match self {
            Self::Files => {
                format!("the limit of this process is {}: raise LimitNOFILE (systemd) or ulimit -n", open_files())
            }
            Self::SystemFiles => "raise the sysctl fs.file-max".to_owned(),
            Self::Ports => "widen the sysctl net.ipv4.ip_local_port_range, or use fewer connections (HTTP/2, limits.connections)"
                .to_owned(),
            Self::Memory => "raise the sysctl net.ipv4.tcp_mem or the memory limit of the cgroup".to_owned(),
        }
    }

    /// The answer to a client whose request found no connection because of this.
    pub fn refusal(self, service: &str, instance: &str) -> Refusal {
        let what = self.what();
        Refusal::new(503, format!("service {service} is unreachable: the proxy is out of {what}"))
            .because(ProxyError::ConnectionLimitReached)
            .with_detail(format!("cannot connect to {instance}: out of {what}; {}", self.advice()))
            .come_again_after(DEFAULT_RETRY_AFTER)
    }
}

/// Whether this machine has an address from which that one can be reached. Without one, as where IPv6 is switched off,
/// the kernel's answer is the same as without ports.
fn has_source(to: &Endpoint) -> bool {
    let Endpoint::Tcp(to) = to else { return true };
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // This sends nothing, and UDP has ports of its own.
    let reached = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(to));
    !reached.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// How often each resource has run out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lacks([u64; Scarce::ALL.len()]);

impl Lacks {
    /// It has run out once more.
    pub const fn count(&mut self, scarce: Scarce) {
        self.0[scarce as usize] += 1;
    }

    /// How often it has run out.
    pub const fn times(&self, scarce: Scarce) -> u64 {
        self.0[scarce as usize]
    }
}

impl Sidecar<'_> {
    /// A connection could not be accepted. It stays in the queue, and is accepted when that is possible.
    pub(super) fn accept_failed(&mut self, error: &io::Error, now: Time) {
        let scarce = Scarce::of(error);
        let why = match scarce {
            Some(scarce) => {
                self.lacks.count(scarce);
                format!("out of {}; {}", scarce.what(), scarce.advice())
            }
            // The client has gone before it was accepted.
            None if error.kind() == io::ErrorKind::ConnectionAborted => return,
            None => error.to_string(),
        };
        let Some(write) = self.config.on_note else { return };
        let kind = ProxyError::ProxyInternalError;
        if let Some(others) = self.shared.may_note("accept".to_owned(), kind, now, NOTE_PERIOD) {
            let others =
                if others > 0 { format!(" ({others} more since the last such line)") } else { String::new() };
            write(&format!(
                "not accepting new connections for now: {why}. Established connections continue, new ones wait{others}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(errno: Errno) -> ConnectError {
        ConnectError::Io(io::Error::from(errno))
    }

    #[test]
    fn what_is_our_own_lack_is_told_from_what_the_instance_does() {
        let here = Endpoint::Tcp(([127, 0, 0, 1], 9).into());
        for (errno, scarce) in [
            (Errno::MFILE, Some(Scarce::Files)),
            (Errno::NFILE, Some(Scarce::SystemFiles)),
            (Errno::ADDRNOTAVAIL, Some(Scarce::Ports)),
            (Errno::AGAIN, Some(Scarce::Ports)),
            (Errno::NOBUFS, Some(Scarce::Memory)),
            (Errno::HOSTUNREACH, None),
            (Errno::ACCESS, None),
        ] {
            assert_eq!(Scarce::of_dial(&answer(errno), &here), scarce, "{errno:?}");
        }
        assert_eq!(Scarce::of_dial(&ConnectError::Refused, &here), None);
    }

    #[test]
    fn the_client_learns_what_has_run_out_and_the_operator_what_raises_it() {
        for (scarce, advice) in [
            (Scarce::Files, "LimitNOFILE"),
            (Scarce::SystemFiles, "fs.file-max"),
            (Scarce::Ports, "ip_local_port_range"),
            (Scarce::Memory, "tcp_mem"),
        ] {
            let refusal = scarce.refusal("users", "h2c://10.0.0.7:80");
            let detail = refusal.detail.expect("the operator is told");
            assert!((refusal.status, refusal.retry_after) == (503, Some(DEFAULT_RETRY_AFTER)));
            assert!(
                refusal.why.contains(scarce.what()) && !refusal.why.contains("10.0.0.7"),
                "{}",
                refusal.why
            );
            assert!(detail.contains(advice) && detail.contains("10.0.0.7"), "{detail}");
        }
        let mut lacks = Lacks::default();
        lacks.count(Scarce::Ports);
        let told = Scarce::ALL.map(|(scarce, _)| lacks.times(scarce));
        assert_eq!(told, [0, 0, 1, 0], "each has a place of its own");
    }
}
