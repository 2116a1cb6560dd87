//! The server while it is measured, whatever it is: its end of every connection, read from the kernel in the server's namespace,
//! and whether its processes run.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_base::counters::{TcpSummary, TcpTick};
use h2lab_base::units::{Time, nanos};

use super::messages::Incoming;
use h2lab_lab::topology::{Namespaces, Side, sched};
use h2lab_model::record::RunDelay;
use h2lab_net::clock::Clock;
use h2lab_net::privileges;
use h2lab_net::process_watch::{ProcessObservation, ProcessWatch};
use h2lab_net::resources;
use h2lab_net::sock_diag::SockDiag;

/// How often the server's sockets and processes are read. Its retransmissions come in steps of at least a round trip or 200 ms.
const PERIOD: Duration = Duration::from_millis(20);

/// A thread that looks at the server while a repetition runs.
#[derive(Debug)]
pub struct ServerWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<ServerEnds>>,
}

/// What was seen, by the client's port.
#[derive(Debug)]
pub struct ServerEnds {
    /// The client, as the server's sockets know it.
    client: IpAddr,
    last: BTreeMap<u16, TcpSummary>,
    /// Steps of the retransmission counter: a tick only where it grew, since nothing else of the server's is plotted.
    steps: Vec<(u16, TcpTick)>,
    /// What became of each process, by name.
    pub processes: Vec<(String, ProcessObservation)>,
    /// CPU time that all programs of this machine used meanwhile on the CPUs that we may use, in nanoseconds.
    used_ns: u64,
}

impl ServerWatch {
    /// Begins to read where the server is, on this side, and to look at these processes.
    pub fn start(
        namespaces: &Namespaces,
        side: Side,
        mut processes: Vec<(String, ProcessWatch)>,
        clock: Clock,
    ) -> Result<Self> {
        // A netlink socket stays in the namespace in which it was made.
        let mut diag =
            namespaces.within(side, SockDiag::open)?.context("cannot read the server's sockets")?;
        let client = match side {
            Side::Server => namespaces.addressing().from_afar(Side::Client),
            Side::Client => Ipv4Addr::LOCALHOST.into(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let watch = move || {
            // The socket is open, and everybody may see whether a process runs.
            privileges::renounce();
            let mut ends = ServerEnds {
                client,
                last: BTreeMap::new(),
                steps: Vec::new(),
                processes: Vec::new(),
                used_ns: 0,
            };
            let cpus = sched::allowed_cpus().unwrap_or_default();
            let used_before = resources::used_ns(&cpus);
            loop {
                // The flag is read before the sockets: so the last reading comes after the generator's last message.
                let is_last = flag.load(Ordering::Acquire);
                let now = clock.now();
                ends.read(&mut diag, now)?;
                let looked = processes.iter_mut().map(|(_, watch)| watch.look(now));
                let seen: Vec<ProcessObservation> = looked.collect();
                if is_last {
                    ends.processes = processes.into_iter().map(|(name, _)| name).zip(seen).collect();
                    ends.used_ns = resources::used_ns(&cpus).saturating_sub(used_before);
                    return Ok(ends);
                }
                std::thread::park_timeout(PERIOD);
            }
        };
        let thread = std::thread::Builder::new()
            .name("server-watch".to_owned())
            .spawn(watch)
            .context("cannot start the thread that watches the server")?;
        Ok(Self { stop, thread })
    }

    /// Reads a last time, while the connections are still open, and ends.
    pub fn stop(self) -> Result<ServerEnds> {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl ServerEnds {
    /// How the processes of these names waited for a CPU; `harness` is the CPU time that we used ourselves meanwhile, beside all
    /// that were looked at.
    pub fn run_delay(&self, names: &[String], harness: Duration) -> RunDelay {
        let ours: Duration = self.processes.iter().map(|(_, seen)| seen.cpu.ran).sum();
        let own = || self.processes.iter().filter(|(name, _)| names.contains(name)).map(|(_, seen)| seen.cpu);
        RunDelay {
            ran_ns: nanos(own().map(|cpu| cpu.ran).sum()),
            waited_ns: nanos(own().map(|cpu| cpu.waited).sum()),
            longest_ns: nanos(own().map(|cpu| cpu.longest).max().unwrap_or_default()),
            others_ns: self.used_ns.saturating_sub(nanos(ours + harness)),
        }
    }

    /// For how long the server of this name waited for a disk.
    pub fn disk_wait(&self, name: &str) -> Duration {
        let own = self.processes.iter().find(|(process, _)| process == name);
        own.map_or(Duration::ZERO, |(_, seen)| seen.disk)
    }

    fn read(&mut self, diag: &mut SockDiag, now: Time) -> Result<()> {
        for socket in diag.established().context("cannot read the server's sockets")? {
            // A proxy and its upstream have connections of their own here, on arbitrary ports.
            if socket.remote.ip() != self.client {
                continue;
            }
            let port = socket.remote.port();
            let summary = socket.summary();
            let before = self.last.get(&port).map_or(0, |last| last.retransmits);
            if summary.retransmits > before {
                let tick = TcpTick {
                    at: now,
                    connection: 0, // known only when the generator has reported its ports
                    retransmits: summary.retransmits,
                    cwnd: summary.cwnd,
                    rtt_us: summary.rtt_us,
                    unacked: socket.info.unacked,
                    server: true,
                };
                self.steps.push((port, tick));
            }
            self.last.insert(port, summary);
        }
        Ok(())
    }

    /// Puts what was seen beside the client's own figures.
    pub fn attach(&self, incoming: &mut Incoming) {
        let Some(head) = &mut incoming.head else { return };
        for connection in &mut head.connections {
            connection.tcp_server = self.last.get(&connection.local_port).cloned();
        }
        incoming.add_ticks(self.steps.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_disk_is_that_of_the_server_itself_and_not_of_one_behind_it() {
        let seen = |ms: u64| {
            let disk = Duration::from_millis(ms);
            ProcessObservation { disk, ..ProcessObservation::default() }
        };
        let ends = ServerEnds {
            client: Ipv4Addr::LOCALHOST.into(),
            last: BTreeMap::new(),
            steps: Vec::new(),
            processes: vec![("nginx".to_owned(), seen(20)), ("origin".to_owned(), seen(40))],
            used_ns: 0,
        };
        let waits = ["nginx", "origin", "haproxy"].map(|name| ends.disk_wait(name).as_millis());
        assert_eq!(waits, [20, 40, 0]);
    }
}
