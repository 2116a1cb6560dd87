//! What brings messages to an agent and back: a channel to a thread, the pipes of a child process, or a session over packets.
//!
//! Sending never waits: an agent that stops reading must not delay the others. What is received goes to one channel, with the
//! time of its arrival.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use h2lab_base::text::printable;
use h2lab_base::units::Time;
use h2lab_model::fleet::messages::{decode_printable, encode_order};
use h2lab_model::fleet::{FromAgent, ToAgent};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::agent::{self, AgentSetup};
use super::event::{AgentEvent, Summarize};
use super::session_transport::{SessionAgent, SessionTransport};
use super::stdio;
use h2lab_net::clock::Clock;
use h2lab_net::lock::lock;
use h2lab_net::process::die_with_us;

/// How an agent is reached.
#[derive(Debug)]
pub enum TransportKind {
    /// It is a thread of this process.
    Thread(Summarize),
    /// It is the child of this command, which is an agent on its standard streams ([`stdio`]) or connects to one.
    Command(Command),
    /// It runs already, and what carries packets to it may lose, double and reorder them.
    Session(SessionAgent),
}

impl TransportKind {
    /// An agent in a process of its own in this machine's network namespace `name`, as `ip netns` has them, or at a path.
    pub fn namespace(name: &str) -> io::Result<Self> {
        let path = if name.contains('/') { name.into() } else { Path::new("/run/netns").join(name) };
        let namespace = File::open(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        // Valid even if its file is replaced or removed.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("h2lab").args(["agent", "--stdio"]);
        let move_in = move || {
            move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&namespace),
                Some(LinkNameSpaceType::Network),
            )?;
            Ok(())
        };
        // SAFETY: between fork and exec it only makes a system call: no allocation, no lock.
        unsafe { command.pre_exec(move_in) };
        Ok(Self::Command(command))
    }
}

/// What comes from an agent.
#[derive(Debug)]
pub(super) enum IncomingEvent {
    /// A message.
    Message(Box<FromAgent>),
    /// Nothing more will come; with the reason.
    Closed(String),
}

/// What has come: when, from which agent, and what.
pub(super) type Received = (Time, usize, IncomingEvent);

/// Where received messages are put.
#[derive(Debug, Clone)]
pub(super) struct Inbox {
    /// The agent's place.
    pub agent: usize,
    /// The clock of the arrival times.
    pub clock: Clock,
    /// The inbox of all agents.
    pub all: Sender<Received>,
}

impl Inbox {
    /// Whether the inbox still has a reader.
    pub fn put(&self, incoming: IncomingEvent) -> bool {
        self.all.send((self.clock.now(), self.agent, incoming)).is_ok()
    }
}

/// The path to one agent. Dropping it ends what was begun at the agent, and the agent itself if we have started it.
#[derive(Debug)]
pub(super) enum AgentTransport {
    Thread(ThreadAgent),
    Child(Box<Piped>),
    Session(SessionTransport),
}

impl AgentTransport {
    /// Starts an agent, or opens a session with it.
    pub fn open(transport_kind: TransportKind, inbox: Inbox) -> io::Result<Self> {
        match transport_kind {
            TransportKind::Command(command) => Ok(Self::Child(Box::new(Piped::start(command, inbox)?))),
            TransportKind::Thread(summarize) => Ok(Self::Thread(ThreadAgent::start(summarize, inbox)?)),
            TransportKind::Session(agent) => Ok(Self::Session(SessionTransport::open(agent, inbox)?)),
        }
    }

    /// Sends a message, or queues it; an error means that the agent is gone, or would not read it.
    pub fn send(&self, message: ToAgent) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        match self {
            Self::Thread(agent) => agent.events.send(AgentEvent::Message(message)).map_err(|_| gone()),
            Self::Child(piped) => {
                let lines = piped.lines.as_ref().ok_or_else(gone)?;
                let line = encode_order(&message).map_err(io::Error::other)?;
                lines.send(line + "\n").map_err(|_| gone())
            }
            Self::Session(session) => session.send(&message),
        }
    }
}

/// An agent in a thread of this process.
#[derive(Debug)]
pub(super) struct ThreadAgent {
    events: Sender<AgentEvent>,
    thread: Option<JoinHandle<()>>,
}

impl ThreadAgent {
    fn start(summarize: Summarize, inbox: Inbox) -> io::Result<Self> {
        let (sender, events) = channel();
        let own = sender.clone();
        let work = move || {
            // Its driver is this process, and the channel reports its end.
            let setup = AgentSetup::of_driver(summarize, Duration::MAX);
            agent::work(&events, own, &setup, &mut |message| {
                inbox.put(IncomingEvent::Message(Box::new(message)))
            });
            inbox.put(IncomingEvent::Closed("its thread ended".to_owned()));
        };
        let thread = thread::Builder::new().name("agent".to_owned()).spawn(work)?;
        Ok(Self { events: sender, thread: Some(thread) })
    }
}

impl Drop for ThreadAgent {
    fn drop(&mut self) {
        let _ = self.events.send(AgentEvent::End(None));
        if let Some(thread) = self.thread.take() {
            // A panic of the agent has been reported as its end.
            let _ = thread.join();
        }
    }
}

/// How long a child may take to end after its input.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait for the reason of an end that was seen already.
const EXIT_REASON_WAIT: Duration = Duration::from_millis(200);

/// How often to check whether it has.
const CHECK_PERIOD: Duration = Duration::from_millis(5);

/// A child process and its pipes.
#[derive(Debug)]
pub(super) struct Piped {
    child: Arc<Mutex<Child>>,
    /// To the thread that writes; closing it closes the child's input.
    lines: Option<Sender<String>>,
}

impl Piped {
    fn start(mut command: Command, inbox: Inbox) -> io::Result<Self> {
        // A process group of its own: a Ctrl-C at the terminal is ours, and what ssh starts ends with it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        die_with_us(&mut command);
        let mut child = command.spawn()?;
        let missing = || io::Error::other("the child has no pipes");
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (lines, to_write) = channel::<String>();
        let child = Arc::new(Mutex::new(child));
        // From here on any error ends the child.
        let piped = Self { child: Arc::clone(&child), lines: Some(lines) };
        let (mut input, output) = (input.ok_or_else(missing)?, output.ok_or_else(missing)?);
        let errors = errors.ok_or_else(missing)?;
        thread::Builder::new().name("to-agent".to_owned()).spawn(move || {
            write_all(&mut input, to_write.iter());
        })?;
        let last_words = Arc::<Mutex<String>>::default();
        let incoming = Arc::clone(&last_words);
        let words = thread::Builder::new().name("agent-errors".to_owned());
        let words = words.spawn(move || listen(errors, &incoming))?;
        let exit_reason = ExitReason { child, last_words, words };
        let from_agent = thread::Builder::new().name("from-agent".to_owned());
        from_agent.spawn(move || receive(output, &inbox, &exit_reason))?;
        Ok(piped)
    }
}

/// Waits for the end of a child, at most so long.
fn wait(child: &Mutex<Child>, timeout: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + timeout;
    loop {
        let ended = lock(child).try_wait();
        match ended {
            Ok(Some(status)) => return Some(status),
            // std has no wait with a timeout; a pidfd would be one more descriptor for what takes some milliseconds, once.
            Ok(None) if Instant::now() < until => thread::sleep(CHECK_PERIOD),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Why an agent ended, reported by the thread that saw the end of its output, so that no other thread waits for it.
struct ExitReason {
    child: Arc<Mutex<Child>>,
    /// The last line of its standard error.
    last_words: Arc<Mutex<String>>,
    words: JoinHandle<()>,
}

impl ExitReason {
    fn describe(&self) -> String {
        let ended = match wait(&self.child, EXIT_REASON_WAIT) {
            Some(status) => format!("its agent ended ({status})"),
            None => "its agent closed its output".to_owned(),
        };
        // Standard error is read to its end if there is one: a grandchild may hold the pipe open.
        let until = Instant::now() + EXIT_REASON_WAIT;
        while !self.words.is_finished() && Instant::now() < until {
            thread::sleep(CHECK_PERIOD);
        }
        let words = lock(&self.last_words).clone();
        if words.is_empty() { ended } else { format!("{ended}: {words}") }
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.lines = None;
        if wait(&self.child, TIMEOUT).is_none() {
            let mut child = lock(&self.child);
            // Fails only if all of the group is gone.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

/// Writes lines until there are no more, or the reader is gone.
fn write_all(input: &mut ChildStdin, mut lines: impl Iterator<Item = String>) {
    // An error also shows as the end of the output.
    let _ = lines.try_for_each(|line| input.write_all(line.as_bytes()));
}

/// Passes on an agent's messages.
fn receive(output: ChildStdout, inbox: &Inbox, exit_reason: &ExitReason) {
    let mut output = BufReader::new(output);
    let closed = loop {
        match stdio::read(&mut output, decode_printable) {
            Ok(Some(message)) => {
                if !inbox.put(IncomingEvent::Message(Box::new(message))) {
                    return;
                }
            }
            Ok(None) => break exit_reason.describe(),
            Err(error) => break error.to_string(),
        }
    };
    inbox.put(IncomingEvent::Closed(closed));
}

/// Keeps the last line of its standard error; long ones are cut.
fn listen(errors: ChildStderr, last: &Mutex<String>) {
    const LONGEST: u64 = 4096;
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    while matches!(errors.by_ref().take(LONGEST).read_until(b'\n', &mut line), Ok(n) if n > 0) {
        let text = printable(line.trim_ascii());
        if !text.is_empty() {
            *lock(last) = text;
        }
        line.clear();
    }
}
