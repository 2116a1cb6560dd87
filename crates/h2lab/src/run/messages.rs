//! What a child (lab, generator) sends its parent over its standard output: framed messages, JSON or postcard.
//!
//! Heads are JSON, because a cell holds tagged enumerations; bulk is postcard in chunks, because a repetition may have a
//! million samples. A child that dies shows as the end of the pipe before [`Message::Done`].

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read, Write};

use anyhow::{Context, Result, bail, ensure};
use h2lab_analysis::diagnose::waits::Waits;
use h2lab_base::counters::TcpTick;
use h2lab_base::units::Time;
use h2lab_model::record::{BulkRepetition, CellRecord, ConnectionRecord, Environment, GeneratorSummary};
use h2lab_model::record::{LinkSummary, PacketRecord, Sample, Samples, ServerSummary, SidecarSummary};
use h2lab_model::scenario::ScenarioError;
#[cfg(feature = "nats")]
use h2lab_nats::NatsError;
use h2lab_wire::trace::FrameEvent;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use h2lab_lab::sut::SutError;
use h2lab_lab::topology::TopologyError;
use h2lab_roles::client::ConnectError;
use h2lab_roles::load::LoadError;
use rustix::io::Errno;

/// How a repetition goes, a few times per second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RepetitionProgress {
    /// Seconds since the first request was due.
    pub elapsed_s: f64,
    /// Requests sent so far.
    pub sent: u64,
    /// Requests answered so far.
    pub completed: u64,
    /// Requests failed so far.
    pub failed: u64,
}

/// Why a child could not do its work, in a form that decides the exit code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Which kind.
    pub kind: FailureKind,
    /// What, where, and what to do next.
    pub message: String,
}

/// Kinds of [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The server cannot be reached, or does not speak what was asked (exit 3).
    Unreachable,
    /// The server answered and then could not be reached any more (exit 1).
    Ended,
    /// This machine cannot do it: no namespaces, no nginx (exit 4).
    Environment,
    /// What was asked for does not exist: no such server, no such congestion control (exit 2).
    Usage,
    /// This cell cannot be done with this server; others may.
    Unsupported,
    /// What would be measured says nothing of what was asked (exit 5).
    Invalid,
    /// A process of h2lab's own was killed from outside. Another try may do.
    Killed,
    /// The user stopped it before anything ran.
    Interrupted,
    /// A defect of h2lab.
    Harness,
}

/// Something on this machine is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MissingRequirement(pub String);

/// What ended a run, by its root cause, as the run folder keeps it.
pub fn failure_of(error: &anyhow::Error) -> Failure {
    // What is left are files that cannot be read or written.
    let kind = error.chain().find_map(kind_of).unwrap_or(FailureKind::Usage);
    Failure { kind, message: error.root_cause().to_string() }
}

/// The kind of failure that one cause of an error is; `None` if it does not say.
pub fn kind_of(cause: &(dyn Error + 'static)) -> Option<FailureKind> {
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some(failure.kind);
    }
    #[cfg(feature = "nats")]
    if let Some(kind) = cause.downcast_ref().and_then(kind_of_nats) {
        return Some(kind);
    }
    if cause.is::<MissingRequirement>() || cause.downcast_ref().is_some_and(is_of_this_machine) {
        return Some(FailureKind::Environment);
    }
    cause.is::<ScenarioError>().then_some(FailureKind::Usage)
}

/// The same of an error of NATS; `None`: its cause, a file's error, decides.
#[cfg(feature = "nats")]
pub fn kind_of_nats(error: &NatsError) -> Option<FailureKind> {
    match error {
        NatsError::Io { .. } => None,
        NatsError::Refused { .. }
        | NatsError::Tls { .. }
        | NatsError::Denied { .. }
        | NatsError::NoJetStream
        | NatsError::Quota { .. } => Some(FailureKind::Environment),
        NatsError::Invalid { .. } => Some(FailureKind::Usage),
        NatsError::TooLarge { .. } | NatsError::Corrupt { .. } => Some(FailureKind::Invalid),
        NatsError::Unreachable { .. }
        | NatsError::Absent { .. }
        | NatsError::Full
        | NatsError::Timeout { .. }
        | NatsError::Other { .. }
        | NatsError::Gone => Some(FailureKind::Unreachable),
    }
}

/// Whether this machine, and no wrong name, is the reason of this error.
fn is_of_this_machine(error: &io::Error) -> bool {
    is_exhausted(error) || error.kind() == io::ErrorKind::PermissionDenied
}

/// Whether this error says that what the machine has is used up, or what this process may have of it: files, memory, threads
/// (`EAGAIN` of clone(2)), space on the disk. Nothing that a peer does and no other file name would help. `EAGAIN` of
/// non-blocking I/O does not get here: it is not an error there.
pub fn is_exhausted(error: &io::Error) -> bool {
    const EXHAUSTED: [Errno; 9] = [
        Errno::AGAIN,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::NOBUFS,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::FBIG,
        Errno::ROFS,
    ];
    Errno::from_io_error(error).is_some_and(|errno| EXHAUSTED.contains(&errno))
}

/// `error` with its causes. One whose words end the error before it is left out: many errors quote their cause.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.ends_with(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

impl From<&ConnectError> for FailureKind {
    fn from(error: &ConnectError) -> Self {
        match error {
            // connect(2) says EAGAIN where the server's queue of a Unix socket is full.
            ConnectError::Io(error) if error.kind() == io::ErrorKind::WouldBlock => Self::Unreachable,
            ConnectError::Io(error) if is_exhausted(error) => Self::Environment,
            _ => Self::Unreachable,
        }
    }
}

impl From<SutError> for Failure {
    fn from(error: SutError) -> Self {
        let kind = match error {
            SutError::Unknown { .. } | SutError::OwnConfig { .. } | SutError::OwnRefused { .. } => {
                FailureKind::Usage
            }
            // Other cells may have other servers.
            SutError::Missing { .. } | SutError::Unsupported { .. } => FailureKind::Unsupported,
            // This machine's version does not start as we start it.
            _ => FailureKind::Environment,
        };
        Self { kind, message: error.to_string() }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let kind = match &error {
            LoadError::Unreachable { why, .. } => why.into(),
            LoadError::Io(_) => FailureKind::Environment,
            LoadError::Template(_) => FailureKind::Usage,
            LoadError::Tls(_) => FailureKind::Harness,
        };
        Self { kind, message: error.to_string() }
    }
}

impl From<TopologyError> for Failure {
    fn from(error: TopologyError) -> Self {
        if error.is_input() {
            return Self { kind: FailureKind::Usage, message: error.to_string() };
        }
        let remedy = error.remedy().map_or_else(String::new, |remedy| format!("; to enable it: {remedy}"));
        let message = format!("{error}{remedy}; `h2lab doctor` tries each step and shows what still works");
        Self { kind: FailureKind::Environment, message }
    }
}

/// A repetition without `cell` and the record tables.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RepetitionMessage {
    /// When the first request was due.
    pub started_at: Time,
    /// Every connection.
    pub connections: Vec<ConnectionRecord>,
    /// How the generator did.
    pub generator: GeneratorSummary,
    /// What the link did.
    pub link: Option<LinkSummary>,
    /// How the server did.
    pub server: Option<ServerSummary>,
    /// How the client's sidecar did.
    pub sidecar: Option<SidecarSummary>,
    /// What moved, if the work is bulk.
    pub bulk: Option<BulkRepetition>,
    /// What the repetition was made under.
    pub environment: Environment,
    /// Doubts, in sentences.
    pub warnings: Vec<String>,
}

/// One message.
#[derive(Debug)]
pub enum Message {
    /// How it goes.
    Progress(RepetitionProgress),
    /// The result, without bulk.
    Head(Box<RepetitionMessage>),
    /// More samples.
    Samples(Vec<Sample>),
    /// More frames.
    Frames(Vec<FrameEvent>),
    /// More ticks of `TCP_INFO`.
    Tcp(Vec<TcpTick>),
    /// More packets of the packet log.
    Packets(Vec<PacketRecord>),
    /// What slow requests waited for; more than one message adds latency breakdowns.
    Waits(Box<Waits>),
    /// It could not be done. Nothing follows.
    Failed(Failure),
    /// Everything was sent. Nothing follows.
    Done,
}

/// Items per bulk message: about 1 MiB.
const CHUNK: usize = 16_384;

/// Latency breakdowns per message: they are JSON, since their causes are tagged enumerations, and have a few hundred bytes each.
const MAX_BREAKDOWNS: usize = 4_096;

/// The longest message that a parent accepts.
const MAX_MESSAGE: u32 = 64 << 20;

mod kind {
    pub(super) const PROGRESS: u8 = 1;
    pub(super) const HEAD: u8 = 2;
    pub(super) const SAMPLES: u8 = 3;
    pub(super) const FRAMES: u8 = 4;
    pub(super) const TCP: u8 = 5;
    pub(super) const PACKETS: u8 = 6;
    pub(super) const FAILED: u8 = 7;
    pub(super) const DONE: u8 = 8;
    pub(super) const WAITS: u8 = 9;
}

/// The writing end, in the child.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`.
    pub const fn new(out: W) -> Self {
        Self { out }
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len()).context("a message above 4 GiB")?;
        self.out.write_all(&[kind])?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(payload)?;
        self.out.flush().context("the parent no longer reads")
    }

    fn json(&mut self, kind: u8, value: &impl Serialize) -> Result<()> {
        self.frame(kind, &serde_json::to_vec(value)?)
    }

    fn bulk<T: Serialize>(&mut self, kind: u8, items: impl IntoIterator<Item = T>) -> Result<()> {
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let chunk: Vec<T> = items.by_ref().take(CHUNK).collect();
            self.frame(kind, &postcard::to_stdvec(&chunk)?)?;
        }
        Ok(())
    }

    /// Reports how it goes.
    pub fn progress(&mut self, progress: &RepetitionProgress) -> Result<()> {
        self.json(kind::PROGRESS, progress)
    }

    /// Reports that it could not be done.
    pub fn failed(&mut self, failure: &Failure) -> Result<()> {
        self.json(kind::FAILED, failure)
    }

    /// Sends a whole repetition but its packet log and [`Message::Done`].
    pub fn repetition(
        &mut self,
        head: &RepetitionMessage,
        samples: impl IntoIterator<Item = impl Serialize>,
        frames: &[FrameEvent],
        tcp: &[TcpTick],
    ) -> Result<()> {
        self.json(kind::HEAD, head)?;
        self.bulk(kind::SAMPLES, samples)?;
        self.bulk(kind::FRAMES, frames)?;
        self.bulk(kind::TCP, tcp)
    }

    /// Sends the packet log.
    pub fn packets(&mut self, packets: &[PacketRecord]) -> Result<()> {
        self.bulk(kind::PACKETS, packets)
    }

    /// Reports what slow requests waited for.
    pub fn waits(&mut self, waits: &Waits) -> Result<()> {
        let mut chunks = waits.breakdowns.chunks(MAX_BREAKDOWNS);
        let first = Waits { breakdowns: chunks.next().unwrap_or_default().to_vec(), ..waits.clone() };
        self.json(kind::WAITS, &first)?;
        chunks.try_for_each(|more| {
            self.json(kind::WAITS, &Waits { breakdowns: more.to_vec(), ..Waits::default() })
        })
    }

    /// Reports that everything was sent.
    pub fn done(&mut self) -> Result<()> {
        self.frame(kind::DONE, &[])
    }
}

/// Reads the next message; `None` at the end of the pipe.
pub fn read(input: &mut impl Read) -> Result<Option<Message>> {
    let mut header = [0; 5];
    match input.read(&mut header[..1])? {
        0 => return Ok(None),
        _ => input.read_exact(&mut header[1..]).context("the child's message was cut short")?,
    }
    let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
    ensure!(length <= MAX_MESSAGE, "the child sent a message of {length} bytes");
    let mut payload = vec![0; length as usize];
    input.read_exact(&mut payload).context("the child's message was cut short")?;
    Ok(Some(match header[0] {
        kind::PROGRESS => Message::Progress(json(&payload)?),
        kind::HEAD => Message::Head(json(&payload)?),
        kind::SAMPLES => Message::Samples(postcard(&payload)?),
        kind::FRAMES => Message::Frames(postcard(&payload)?),
        kind::TCP => Message::Tcp(postcard(&payload)?),
        kind::PACKETS => Message::Packets(postcard(&payload)?),
        kind::WAITS => Message::Waits(json(&payload)?),
        kind::FAILED => Message::Failed(json(&payload)?),
        kind::DONE => Message::Done,
        other => bail!("the child sent a message of unknown kind {other}"),
    }))
}

fn json<T: DeserializeOwned>(payload: &[u8]) -> Result<T> {
    serde_json::from_slice(payload).context("the child's message is not what this version of h2lab sends")
}

fn postcard<T: DeserializeOwned>(payload: &[u8]) -> Result<T> {
    postcard::from_bytes(payload).context("the child's message is not what this version of h2lab sends")
}

/// A repetition as it comes in.
#[derive(Debug, Default)]
pub struct Incoming {
    /// The head, once it has come.
    pub head: Option<Box<RepetitionMessage>>,
    /// Samples so far.
    pub samples: Samples,
    /// Frames so far.
    pub frames: Vec<FrameEvent>,
    /// Ticks so far.
    pub tcp: Vec<TcpTick>,
    /// Packets so far.
    pub packets: Vec<PacketRecord>,
    /// What slow requests waited for, if that was asked.
    pub waits: Option<Waits>,
}

impl Incoming {
    /// Takes one message in; returns the failure if it is one.
    pub fn take(&mut self, message: Message) -> Result<(), Failure> {
        match message {
            Message::Head(head) => self.head = Some(head),
            Message::Samples(more) => self.samples.extend(more),
            Message::Frames(more) => self.frames.extend(more),
            Message::Tcp(more) => self.tcp.extend(more),
            Message::Packets(more) => self.packets.extend(more),
            Message::Waits(more) => match &mut self.waits {
                None => self.waits = Some(*more),
                Some(waits) => waits.breakdowns.extend(more.breakdowns),
            },
            Message::Failed(failure) => return Err(failure),
            Message::Progress(_) | Message::Done => {}
        }
        Ok(())
    }

    /// Adds what only the lab knows of the client's sidecar.
    pub fn set_sidecar(&mut self, sidecar: SidecarSummary) {
        if let Some(head) = &mut self.head {
            head.sidecar = Some(sidecar);
        }
    }

    /// Adds what the server's end saw of connections, by the client's port; those of others are left out.
    pub fn add_ticks(&mut self, ticks: impl Iterator<Item = (u16, TcpTick)>) {
        let Some(head) = &self.head else { return };
        let index_of: BTreeMap<u16, u32> =
            head.connections.iter().map(|connection| (connection.local_port, connection.index)).collect();
        let known =
            ticks.filter_map(|(port, tick)| Some(TcpTick { connection: *index_of.get(&port)?, ..tick }));
        self.tcp.extend(known);
        self.tcp.sort_by_key(|tick| tick.at);
    }

    /// Lets `look` see the repetition as a record that has this packet log. Nothing is copied: a repetition can have a million
    /// requests.
    pub fn as_record<T>(
        &mut self,
        cell: &h2lab_model::scenario::Cell,
        packets: &mut Vec<PacketRecord>,
        look: impl FnOnce(&CellRecord) -> T,
    ) -> T {
        let head = self.head.take().unwrap_or_default();
        let mut record = CellRecord {
            started_at: head.started_at,
            connections: head.connections.clone(),
            samples: std::mem::take(&mut self.samples),
            frames: std::mem::take(&mut self.frames),
            tcp: std::mem::take(&mut self.tcp),
            packets: std::mem::take(packets),
            ..CellRecord::empty(cell.clone())
        };
        let seen = look(&record);
        self.head = Some(head);
        std::mem::swap(&mut self.samples, &mut record.samples);
        std::mem::swap(&mut self.frames, &mut record.frames);
        std::mem::swap(&mut self.tcp, &mut record.tcp);
        std::mem::swap(packets, &mut record.packets);
        seen
    }

    /// Adds what only the lab knows of a bulk server: the most that its send buffers may grow to.
    pub fn set_send_buffer(&mut self, bytes: Option<u64>) {
        if let Some(bulk) = self.head.as_mut().and_then(|head| head.bulk.as_mut()) {
            bulk.send_buffer = bytes;
        }
    }

    /// Adds doubts.
    pub fn warn(&mut self, doubts: Vec<String>) {
        if let Some(head) = &mut self.head {
            head.warnings.extend(doubts);
        }
    }

    /// The whole record of a repetition of `cell`, and what its slow requests waited for.
    pub fn finish(
        self,
        cell: h2lab_model::scenario::Cell,
        attempt: u32,
    ) -> Result<(CellRecord, Option<Waits>)> {
        let head = self.head.context("the child ended without a result")?;
        let record = CellRecord {
            cell,
            attempt,
            started_at: head.started_at,
            samples: self.samples,
            tallies: Vec::new(), // a cell's requests are all kept
            connections: head.connections,
            frames: self.frames,
            tcp: self.tcp,
            packets: self.packets,
            link: head.link,
            generator: head.generator,
            server: head.server,
            sidecar: head.sidecar,
            bulk: head.bulk,
            agents: Vec::new(),
            environment: head.environment,
            warnings: head.warnings,
            unsupported: None,
            machine: None,
        };
        Ok((record, self.waits))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use h2lab_analysis::diagnose::waits::{CauseKind, LatencyBreakdown};

    use super::*;

    #[test]
    fn a_cause_that_the_error_before_it_quotes_is_not_repeated() {
        let full = || io::Error::from(Errno::NOSPC);
        let quoted = Err::<(), _>(io::Error::other(full())).context("cannot write x").unwrap_err();
        assert_eq!(with_causes(&quoted), format!("cannot write x: {}", full()));
        let error = anyhow::Error::new(full()).context(format!("External: {}", full())).context("kept in y");
        assert_eq!(with_causes(&error), format!("kept in y: External: {}", full()));
        assert_eq!(with_causes(&anyhow::Error::msg("full").context("disk")), "disk: full");
    }

    #[test]
    fn a_repetition_survives_the_pipe() {
        let samples = vec![Sample::due(Time::from_millis(3), true); CHUNK + 1];
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        let head = RepetitionMessage { started_at: Time::from_millis(1), ..RepetitionMessage::default() };
        writer.progress(&RepetitionProgress { sent: 3, ..RepetitionProgress::default() }).unwrap();
        writer.repetition(&head, &samples, &[], &[]).unwrap();
        writer.done().unwrap();

        let mut input = bytes.as_slice();
        let mut incoming = Incoming::default();
        let mut done = false;
        while let Some(message) = read(&mut input).unwrap() {
            done |= matches!(message, Message::Done);
            incoming.take(message).unwrap();
        }
        assert!(done);
        assert_eq!(incoming.samples, samples.into_iter().collect());
        assert_eq!(*incoming.head.unwrap(), head);
    }

    #[test]
    fn latency_breakdowns_survive_the_pipe_however_many_they_are() {
        let breakdown = LatencyBreakdown {
            sample: 0,
            scheduled_at: Time::ZERO,
            completed_at: Time::from_millis(3),
            place: None,
            intervals: vec![],
            dominant: CauseKind::Unknown,
        };
        let breakdowns = (0..=MAX_BREAKDOWNS as u32)
            .map(|sample| LatencyBreakdown { sample, ..breakdown.clone() })
            .collect();
        let waits = Waits { slower_than_ns: 7, breakdowns, ..Waits::default() };
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).waits(&waits).unwrap();
        let (mut input, mut incoming) = (bytes.as_slice(), Incoming::default());
        while let Some(message) = read(&mut input).unwrap() {
            incoming.take(message).unwrap();
        }
        assert_eq!(incoming.waits, Some(waits));
    }

    #[test]
    fn what_this_machine_has_too_little_of_is_not_the_servers_fault() {
        let kind = |errno: Errno| FailureKind::from(&ConnectError::Io(errno.into()));
        assert_eq!(
            (kind(Errno::MFILE), kind(Errno::NOMEM)),
            (FailureKind::Environment, FailureKind::Environment)
        );
        assert_eq!(
            (kind(Errno::NETUNREACH), kind(Errno::AGAIN)),
            (FailureKind::Unreachable, FailureKind::Unreachable)
        );
        assert_eq!(FailureKind::from(&ConnectError::Refused), FailureKind::Unreachable);
    }

    #[test]
    fn a_cut_message_and_an_unknown_kind_are_errors_not_panics() {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes)
            .failed(&Failure { kind: FailureKind::Harness, message: "x".to_owned() })
            .unwrap();
        for cut in 1..bytes.len() {
            assert!(read(&mut &bytes[..cut]).is_err(), "cut at {cut}");
        }
        assert!(read(&mut [9_u8, 0, 0, 0, 0].as_slice()).is_err());
        assert!(read(&mut [1_u8, 0xff, 0xff, 0xff, 0xff].as_slice()).is_err());
    }
}
