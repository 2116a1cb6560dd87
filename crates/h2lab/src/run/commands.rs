//! Programs of the user's at both ends of an emulated link.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_link::LinkSpec;
use h2lab_model::scenario::Sysctls;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::capture::{Capture, Captured};
use super::client_command;
use super::keys::{self, KeyLog};
use super::messages::{Failure, FailureKind};
use super::placement::Placement;
use h2lab_lab::topology;
use h2lab_lab::topology::{
    Addressing, CongestionReadBack, EnteredNamespaces, Interrupts, IsolationLevel, LinkResult, Namespaces,
    Outside, Pump, PumpOptions, Side, TopologySpec, keep_network_rights, name_ends, present_sysctls,
};
use h2lab_net::clock::Clock;
use h2lab_net::process::cpu_of_children;

/// How long a server may take to end after it was asked to.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often to check whether a server listens or has ended.
pub(super) const CHECK_PERIOD: Duration = Duration::from_millis(5);

/// What is to be run, and over which link. Commands are the shell's: `sh -c`.
#[derive(Debug)]
pub struct Commands {
    /// The link.
    pub link: LinkSpec,
    /// Congestion control of both ends; `None` leaves the system's.
    pub congestion: Option<String>,
    /// Kernel settings of both ends' network namespaces.
    pub sysctls: Sysctls,
    /// Whether the ends have IPv6 addresses, and their names mean these.
    pub ipv6: bool,
    /// Seed of the link.
    pub seed: u64,
    /// Runs in the server's namespace until the client's command has ended.
    pub server: Option<String>,
    /// For how long to wait for the server to listen before the client begins.
    pub wait: Duration,
    /// Where the server's output goes; `None` is our standard error.
    pub server_log: Option<File>,
    /// Runs in the client's namespace.
    pub client: String,
    /// The client's command has not our terminal, but this.
    pub detached: Option<Detached>,
    /// Keep the bytes of packets, on the disk of this folder as long as it lasts; `None` does not.
    pub captured_beside: Option<PathBuf>,
    /// A folder that must not stay, however the lab ends.
    pub removed: Option<PathBuf>,
    /// The client's output goes to standard error, because standard output has another use.
    pub client_to_stderr: bool,
    /// Panics with everything running, to show that nothing is left behind.
    pub panic: bool,
}

/// What a client's command has instead of our terminal. In its words, [`SERVER`] stands for the server's address.
#[derive(Debug)]
pub struct Detached {
    /// Where both of its outputs go.
    pub output: File,
    /// It is killed after this long, with what it has started.
    pub limit: Duration,
}

/// Stands for the server's address, which is known only when the lab is.
pub const SERVER: &str = "{h2lab-server}";

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// By itself.
    Itself(ExitStatus),
    /// We ended it, because the client had ended.
    Stopped,
}

/// What came of it.
#[derive(Debug)]
pub struct CommandsResult {
    /// How the client's command ended.
    pub client: ExitStatus,
    /// Whether the client's command was killed because its time had run out.
    pub ran_out: bool,
    /// Whether the user interrupted us.
    pub is_interrupted: bool,
    /// How the server's command ended, if there was one.
    pub server: Option<CommandEnd>,
    /// The server did not listen in time, and the client began all the same.
    pub was_deaf: bool,
    /// What the link did.
    pub link: LinkResult,
    /// The packets, if they were to be kept.
    pub captured: Option<Captured>,
    /// The congestion control of both ends, as read back.
    pub congestion: CongestionReadBack,
    /// Every sysctl that was set, asked for or not, as read back: `client net.ipv4.tcp_rmem` and the value.
    pub sysctls: Vec<(String, String)>,
    /// Why `server` and `client` do not resolve, if they do not.
    pub nameless: Option<String>,
    /// For how long the client's command ran.
    pub took: Duration,
    /// CPU time of the client's command, and of all that it started and waited for.
    pub client_cpu: Duration,
    /// For how long the threads of the server's command were ready meanwhile and had no CPU, if the kernel counts that.
    pub server_waited: Option<Duration>,
}

impl Commands {
    /// Runs them. The calling process becomes the lab and must not have started a thread; what it printed or wrote
    /// before is its parent's, and what it does after this is done by a child with the same standard streams.
    pub fn run(self) -> Result<CommandsResult> {
        self.enter()?.run(&self)
    }

    /// Enters a lab for runs of these commands, one after another: what [`Self::run`] says of the calling process holds.
    pub fn enter(&self) -> Result<CommandLab> {
        let mut interrupts = Interrupts::catch(self.signals()).context("cannot catch signals")?;
        let outside = present_sysctls(self.sysctls.names());
        // The process that stays outside removes it, however the lab ends.
        let keys = self.captured_beside.as_deref().map(KeyLog::choose).transpose()?;
        let removed = self.removed.as_deref().or(keys.as_ref().and_then(KeyLog::ours));
        let entered = topology::enter_beside(Outside { removed, interrupts: Some(&mut interrupts) })
            .map_err(Failure::from)?;
        if entered.isolation_level == IsolationLevel::User {
            keep_network_rights().context("cannot keep the network capabilities for the commands")?;
        }
        Ok(CommandLab { interrupts, outside, keys, entered, names: OnceCell::new() })
    }

    /// What interrupts the work. Ctrl-C is an attached client's once that runs, and SIGTERM ends all at once; a detached one is ended here,
    /// and what it has done is reported. A handler, unlike `SIG_IGN`, is not inherited by the programs that we execute.
    fn signals(&self) -> &'static [i32] {
        if self.detached.is_some() { &[SIGINT, SIGQUIT, SIGTERM, SIGHUP] } else { &[SIGINT, SIGQUIT] }
    }

    fn client(&self, namespaces: &Namespaces, keys: Option<&KeyLog>) -> Result<Command> {
        let Some(detached) = &self.detached else { return self.attached(namespaces, keys) };
        let address = namespaces.addressing().from_afar(Side::Server).to_string();
        let mut command = shell(namespaces, Side::Client, &self.client.replace(SERVER, &address), keys);
        let output = || detached.output.try_clone().context("cannot share the client's output");
        command.stdin(Stdio::null()).stdout(output()?).stderr(output()?).process_group(0);
        Ok(command)
    }

    fn attached(&self, namespaces: &Namespaces, keys: Option<&KeyLog>) -> Result<Command> {
        let mut command = shell(namespaces, Side::Client, &self.client, keys);
        if self.client_to_stderr {
            command.stdout(our_stderr()?);
        }
        Ok(command)
    }

    fn start_server(&self, namespaces: &Namespaces, keys: Option<&KeyLog>) -> Result<Option<Server>> {
        let Some(words) = &self.server else { return Ok(None) };
        // A namespace of its own has none yet.
        let others = namespaces.within(Side::Server, listeners).map_err(Failure::from)?;
        let mut command = shell(namespaces, Side::Server, words, keys);
        let (output, errors) = match &self.server_log {
            Some(file) => (file.try_clone()?.into(), file.try_clone()?.into()),
            None => (our_stderr()?, Stdio::inherit()),
        };
        // A group of its own: the terminal's signals are for the client, and we end all of it at once.
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let child = command.spawn().context("cannot start the server's command")?;
        Ok(Some(Server { child, ended: None, others }))
    }
}

/// A lab in which commands are run, each time over a network that is made for them.
#[derive(Debug)]
pub struct CommandLab {
    interrupts: Interrupts,
    /// The sysctls that the machine has outside of it.
    outside: BTreeSet<String>,
    /// Of the first run: it was chosen before, so that the process outside can remove it.
    keys: Option<KeyLog>,
    entered: EnteredNamespaces,
    /// Whether the ends' names resolve, once there was a network; if not, why.
    names: OnceCell<Option<String>>,
}

impl CommandLab {
    /// Runs them. If the user has interrupted a run, further ones end at once.
    pub fn run(&mut self, commands: &Commands) -> Result<CommandsResult> {
        if self.names.get().is_some() {
            self.entered.renew().map_err(Failure::from)?;
        }
        let topology = TopologySpec {
            congestion: commands.congestion.clone(),
            sysctls: commands.sysctls.clone(),
            ipv6: commands.ipv6,
            mechanism: self.entered.mechanism(),
            instead_of: self.entered.refusal.clone(),
            ..TopologySpec::default()
        };
        let namespaces =
            Namespaces::create(&topology).map_err(|error| Failure::from(error.seen_from(&self.outside)))?;
        // A second mount would hide the first.
        let entered = &self.entered;
        let nameless = self.names.get_or_init(|| nameless(entered, namespaces.addressing())).clone();
        let clock = Clock::start();
        let cpu = Placement::choose().pump;
        let capture = commands.captured_beside.as_deref().map(|folder| {
            let keys = self.keys.take().map_or_else(|| KeyLog::choose(folder), Ok)?;
            Capture::start(folder, keys, clock)
        });
        let (capture, intake) = capture.transpose()?.unzip();
        let keys = capture.as_ref().map(Capture::keys);
        let options = PumpOptions { origin_nanos: clock.origin_ns(), cpu, intake, ..PumpOptions::default() };
        let pump = Pump::start(&namespaces, &commands.link, commands.seed, options).map_err(Failure::from)?;
        let mut server = commands.start_server(&namespaces, keys)?;
        let interrupts = &mut self.interrupts;
        let is_ready = server
            .as_mut()
            .map_or(Ok(true), |server| server.wait(&namespaces, clock, commands.wait, interrupts))?;
        assert!(!commands.panic, "a panic was asked for");
        let (began, cpu_before) = (clock.now(), cpu_of_children());
        let waited_before = server.as_ref().and_then(Server::waited);
        let mut client = commands.client(&namespaces, keys)?;
        let (client, ran_out) = match &commands.detached {
            None => {
                let ended = client_command::attached(&mut client, interrupts, sees_processes(&self.entered));
                (ended.context("cannot start the client's command")?, false)
            }
            Some(detached) => detached.run(client, clock, interrupts)?,
        };
        let took = clock.now().since(began);
        // The server has not been waited for yet.
        let client_cpu = cpu_of_children().saturating_sub(cpu_before);
        let waited = server.as_ref().and_then(Server::waited);
        let server = server.map(|server| server.stop(clock)).transpose()?;
        let link = pump.stop().context("the link's pump failed")?;
        Ok(CommandsResult {
            client,
            ran_out,
            is_interrupted: interrupts.is_set(),
            server,
            was_deaf: !is_ready,
            captured: capture.map(Capture::finish).transpose()?,
            link,
            congestion: namespaces.congestion().clone(),
            sysctls: namespaces.sysctls().to_vec(),
            nameless,
            took,
            client_cpu,
            server_waited: waited.zip(waited_before).map(|(after, before)| after.saturating_sub(before)),
        })
    }
}

/// `sh -c` on a side; `SSLKEYLOGFILE` names where to write the secrets of TLS if they are wanted.
fn shell(namespaces: &Namespaces, side: Side, words: &str, keys: Option<&KeyLog>) -> Command {
    let mut command = namespaces.command(side, "/bin/sh");
    command.args(["-c", words]);
    for end in Side::BOTH {
        let addressing = namespaces.addressing();
        let address = if end == side { addressing.own(end) } else { addressing.from_afar(end) };
        command.env(format!("H2LAB_{}", end.name().to_uppercase()), address.to_string());
    }
    if let Some(keys) = keys {
        command.env(keys::VARIABLE, keys.path());
    }
    command
}

/// Whether `/proc` shows processes by the numbers that this one knows them by.
fn sees_processes(entered: &EnteredNamespaces) -> bool {
    entered.has_own_proc || entered.isolation_level == IsolationLevel::Reflector
}

/// Lets the ends' names resolve; why they do not, if so.
fn nameless(entered: &EnteredNamespaces, addressing: Addressing) -> Option<String> {
    if entered.isolation_level == IsolationLevel::Reflector {
        return Some("without a mount namespace they have no hosts file of their own".to_owned());
    }
    name_ends(addressing).err().map(|error| format!("cannot mount a hosts file: {error}"))
}

fn our_stderr() -> Result<Stdio> {
    use std::os::fd::AsFd;
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().context("cannot share standard error")?;
    Ok(stderr.into())
}

/// The server's command while it runs.
#[derive(Debug)]
struct Server {
    child: Child,
    ended: Option<ExitStatus>,
    /// The sockets that listened before it was started.
    others: BTreeSet<String>,
}

impl Server {
    /// Waits until something listens in the server's namespace: a TCP listener, or a UDP socket with a port. False if
    /// nothing does in time. A command that ends well may have left a daemon; one that fails is an error.
    fn wait(
        &mut self,
        namespaces: &Namespaces,
        clock: Clock,
        timeout: Duration,
        interrupts: &mut Interrupts,
    ) -> Result<bool> {
        let began = clock.now();
        loop {
            let all = namespaces.within(Side::Server, listeners).map_err(Failure::from)?;
            if !all.is_subset(&self.others) {
                return Ok(true);
            }
            self.look()?;
            if let Some(status) = self.ended.filter(|status| !status.success()) {
                let message = format!("the server's command exited before it listened ({status})");
                return Err(Failure { kind: FailureKind::Unreachable, message }.into());
            }
            if interrupts.is_set() {
                let message = "interrupted before the client's command was started".to_owned();
                return Err(Failure { kind: FailureKind::Interrupted, message }.into());
            }
            if clock.now().since(began) >= timeout {
                return Ok(timeout.is_zero());
            }
            sleep(CHECK_PERIOD);
        }
    }

    /// For how long its threads that still run have waited for a CPU in all; `None` if that cannot be read.
    fn waited(&self) -> Option<Duration> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let of_thread = |path: PathBuf| -> Option<u64> {
            // proc(5): time on a CPU, time waiting for one, both in nanoseconds, and a count.
            std::fs::read_to_string(path.join("schedstat")).ok()?.split_whitespace().nth(1)?.parse().ok()
        };
        let waited: Vec<u64> = threads.filter_map(|thread| of_thread(thread.ok()?.path())).collect();
        (!waited.is_empty()).then(|| Duration::from_nanos(waited.iter().sum()))
    }

    fn look(&mut self) -> Result<()> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().context("cannot wait for the server's command")?;
        }
        Ok(())
    }

    /// Ends it, politely first. What it leaves behind in groups of its own ends with the lab.
    fn stop(mut self, clock: Clock) -> Result<CommandEnd> {
        self.look()?;
        if let Some(status) = self.ended {
            return Ok(CommandEnd::Itself(status));
        }
        let group = Pid::from_child(&self.child);
        // Signals fail only if all of the group is gone.
        let _ = kill_process_group(group, Signal::TERM);
        let asked = clock.now();
        // It is not reaped before the last signal: until then no other group can have its number.
        let not_reaped = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let is_over = || waitid(WaitId::Pid(group), not_reaped).map(|status| status.is_some());
        while !is_over().context("cannot wait for the server's command")?
            && clock.now().since(asked) < TIMEOUT
        {
            sleep(CHECK_PERIOD);
        }
        let _ = kill_process_group(group, Signal::KILL);
        self.child.wait().context("cannot wait for the server's command")?;
        Ok(CommandEnd::Stopped)
    }
}

/// The TCP listeners and the UDP sockets with a port in the calling thread's network namespace: kind, local address, inode. Those of
/// loopback addresses are left out: a backend listens before the proxy in front of it, and the client does not reach it.
fn listeners() -> BTreeSet<String> {
    let of_kind = |kind: &'static str| {
        let table = std::fs::read_to_string(format!("/proc/thread-self/net/{kind}")).unwrap_or_default();
        let lines = table.lines().skip(1).filter(|line| is_listener(line, kind.starts_with("udp")));
        let word = |line: &str, n| line.split_whitespace().nth(n).unwrap_or_default().to_owned();
        lines.map(|line| format!("{kind} {} {}", word(line, 1), word(line, 9))).collect::<Vec<_>>()
    };
    ["tcp", "tcp6", "udp", "udp6"].into_iter().flat_map(of_kind).collect()
}

/// Whether a line of `/proc/net/{tcp,udp}` (proc(5)) is of a socket that waits for others: the fourth column is 0A for a
/// TCP listener; a UDP socket needs only a port.
fn is_listener(line: &str, is_udp: bool) -> bool {
    let mut columns = line.split_whitespace().skip(1);
    let (local, state) = (columns.next().unwrap_or_default(), columns.nth(1));
    let Some((address, port)) = local.rsplit_once(':').filter(|(address, _)| !is_loopback(address)) else {
        return false;
    };
    if is_udp { !address.is_empty() && port != "0000" } else { state == Some("0A") }
}

/// Whether an address is one of loopback: 32-bit words in the machine's order, `0100007F` and `…01000000`.
fn is_loopback(address: &str) -> bool {
    let word = |at: usize| address.get(at..at + 8).and_then(|word| u32::from_str_radix(word, 16).ok());
    let is_v4 = |at: usize| word(at).is_some_and(|word| word.to_ne_bytes()[0] == 127);
    match address.len() {
        8 => is_v4(0),
        32 => {
            let starts = |with: [u32; 3]| [0, 8, 16].map(word) == with.map(Some);
            starts([0, 0, u32::from_ne_bytes([0, 0, 0xFF, 0xFF])]) && is_v4(24)
                || starts([0; 3]) && word(24) == Some(u32::from_ne_bytes([0, 0, 0, 1]))
        }
        _ => false,
    }
}

/// The exit code of a status, as in the shell: 128 and the signal's number after a signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_distinguished_from_connections() {
        let line = |state| format!("   0: 0200090A:01BB 00000000:0000 {state} 00000000:00000000 00:00000000");
        assert!(is_listener(&line("0A"), false), "LISTEN");
        assert!(!is_listener(&line("01"), false), "ESTABLISHED");
        assert!(!is_listener(&line("06"), false), "TIME_WAIT");
        assert!(is_listener(&line("07"), true), "a UDP socket is always in this state");
        assert!(!is_listener("   0: 00000000:0000 00000000:0000 07", true), "no port yet");
        assert!(!is_listener("", false) && !is_listener("", true));
        let at = |address: &str| is_listener(&line("0A").replace("0200090A", address), false);
        let [any, loopback, mapped] = [[0; 4], [127, 0, 0, 1], [127, 0, 0, 9]]
            .map(|octets| format!("{:08X}", u32::from_ne_bytes(octets)));
        let tail = |octets| format!("{:08X}", u32::from_ne_bytes(octets));
        assert!(at(&any) && !at(&loopback), "a backend behind a proxy that does not listen yet");
        assert!(at(&"0".repeat(32)) && !at(&format!("{}{}", "0".repeat(24), tail([0, 0, 0, 1]))));
        assert!(!at(&format!("{}{}{mapped}", "0".repeat(16), tail([0, 0, 0xFF, 0xFF]))));
    }

    #[test]
    fn exit_codes_are_the_shells() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(2)), 130);
    }
}
