//! The lab's process: `h2lab __lab`. Namespaces, link, server and generator of one repetition; all of it ends with it.

use std::collections::BTreeSet;
use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_base::units::{Time, nanos};
use h2lab_model::fleet::Trust;
use h2lab_model::record::{
    CellRecord, Disturbance, DisturbanceKind, Environment, LinkSummary, OriginCounts, PacketRecord,
    ServerSummary, SidecarSummary,
};
use h2lab_model::scenario::{Cell, Target};
use h2lab_model::workload::Protocol;

use super::capture::Capture;
use super::child::{ChildOutcome, LOAD, Running};
use super::keys::{self, KeyLog};
use super::messages::{Failure, FailureKind, Incoming, Writer, is_exhausted, with_causes};
use super::placement::Placement;
use super::server_watch::{ServerEnds, ServerWatch};
use super::spec::{GeneratorSpec, LabSpec, read_task};
use h2lab_lab::sut;
use h2lab_lab::sut::{ServerNamespace, StartedSut, Upstream};
use h2lab_lab::topology;
use h2lab_lab::topology::{EnteredNamespaces, Mechanism, Namespaces, Pump, PumpOptions, Side, TopologySpec};
use h2lab_net::clock::{Clock, process_cpu};
use h2lab_net::privileges::{self, CapabilitySet};
use h2lab_net::process::ChildExit;
use h2lab_net::tcp;
use h2lab_net::tcp::largest_buffers;
use h2lab_roles::client::url::Url;
use h2lab_roles::origin::{counts, quic_samples};

/// Enters the namespaces and does the task. Returns in the first process of the PID namespace only.
pub fn main() -> Result<()> {
    let spec: LabSpec = read_task(&mut BufReader::new(std::io::stdin()))?;
    let mut writer = Writer::new(std::io::stdout());
    let result = match topology::enter() {
        Err(error) => Err(Failure::from(error).into()),
        Ok(entered) => Repetition { spec, entered }.make(&mut writer),
    };
    result.or_else(|error| writer.failed(&failure(error)))
}

/// What an error in a lab means for the exit code.
pub(super) fn failure(error: anyhow::Error) -> Failure {
    error.downcast::<Failure>().unwrap_or_else(|error| {
        let is_ours = error.chain().filter_map(|cause| cause.downcast_ref()).any(is_exhausted);
        let kind = if is_ours { FailureKind::Environment } else { FailureKind::Harness };
        Failure { kind, message: with_causes(&error) }
    })
}

/// The folder, among those of the servers, of the client's sidecar.
const CLIENT: &str = "client";

/// One repetition.
#[derive(Debug)]
struct Repetition {
    spec: LabSpec,
    entered: EnteredNamespaces,
}

impl Repetition {
    fn make<W: Write>(&self, writer: &mut Writer<W>) -> Result<()> {
        let spec = TopologySpec {
            congestion: self.spec.cell.congestion.clone(),
            sysctls: self.spec.cell.sysctls.clone(),
            mechanism: self.entered.mechanism(),
            instead_of: self.entered.refusal.clone(),
            ..TopologySpec::default()
        };
        let namespaces = Namespaces::create(&spec).map_err(Failure::from)?;
        let placement = Placement::choose();
        let clock = Clock::new(self.spec.clock_origin_ns);
        let is_captured = self.spec.cell.capture.needs_packets();
        let scratch = &self.spec.scratch;
        let capture = is_captured.then(|| Capture::start(scratch, KeyLog::choose(scratch)?, clock));
        let capture = capture.transpose()?;
        let (capture, intake) = capture.unzip();
        let keys = capture.as_ref().map(Capture::keys);
        let options = PumpOptions {
            origin_nanos: self.spec.clock_origin_ns,
            cpu: placement.pump,
            intake,
            ..PumpOptions::default()
        };
        let mut server = self.start_server(&namespaces, keys)?;
        let start = |link| Pump::start(&namespaces, link, self.spec.cell.seed, options);
        let pump = self.spec.cell.link.as_ref().map(start).transpose().map_err(Failure::from)?;
        let mut sidecar = self.start_sidecar(&namespaces, &server, keys)?;
        let mut watches = server.watches()?;
        watches.extend(sidecar.as_ref().map(StartedSut::watches).transpose()?.unwrap_or_default());
        let watch = ServerWatch::start(&namespaces, self.server_side(), watches, clock)?;
        let began = Began {
            at: clock.now(),
            cpu: [Some(&server), sidecar.as_ref()].map(cpu),
            own_cpu: process_cpu(),
        };

        let front = sidecar.as_ref().unwrap_or(&server);
        let lab_side = LabSide { namespaces: &namespaces, side: Side::Client, keys };
        let mut generator = self.start_generator(&lab_side, front, &server, placement)?;
        let send_buffer = namespaces.within(self.server_side(), largest_buffers)?.1;
        self.renounce(keys)?;
        let never = AtomicBool::new(false);
        let ended = generator.receive(&never, &mut |progress| {
            // Fails only when the parent is gone, and then we are being killed.
            let _ = writer.progress(progress);
        })?;
        let ChildOutcome::Done(mut incoming) = ended else {
            unreachable!("nothing stops a generator inside its lab")
        };

        let ends = watch.stop()?;
        let now = clock.now();
        let took = now.since(began.at);
        let first = incoming.head.as_ref().map_or(began.at, |head| head.started_at);
        let harness = process_cpu().saturating_sub(began.own_cpu) + generator.cpu();
        let origin_ns = self.spec.clock_origin_ns;
        let while_it_ran = Meanwhile { began: began.at, origin_ns, wall: took, ends: &ends, first, harness };
        let server_summary = summary(&mut server, began.cpu[0], &while_it_ran)?;
        let process = sidecar.as_mut().map(|sidecar| summary(sidecar, began.cpu[1], &while_it_ran));
        let process = process.transpose()?;
        generator.finish()?;
        drop(sidecar);
        let samples = server.samples();
        let mut link = pump.map(Pump::stop).transpose().context("the link's pump failed")?;
        drop(server);
        let mut packets = link.as_mut().map(|link| std::mem::take(&mut link.packets)).unwrap_or_default();
        let unrecorded = link.as_ref().map_or(0, |link| link.unrecorded);
        if let Some(capture) = capture {
            self.use_capture(capture, &mut incoming, &mut packets, unrecorded)?;
        }
        incoming.warn(lacking(unrecorded).into_iter().collect());
        match process {
            // The server's ends belong to the sidecar's connections, which the generator does not know.
            Some(process) => {
                incoming.set_sidecar(SidecarSummary { process, connections: hop(&packets) });
            }
            None => {
                ends.attach(&mut incoming);
                let lines = samples.lock().unwrap_or_else(PoisonError::into_inner);
                incoming.add_ticks(lines.iter().filter_map(|line| quic_samples::read(line, origin_ns)));
            }
        }
        if self.spec.cell.work.bulk {
            incoming.set_send_buffer(send_buffer);
            // At 10 Gbit/s they are a million in a second, and no figure of bulk work comes from a single packet.
            packets.clear();
        }
        let summary = link.map(|link| link.summary);
        self.notify(writer, *incoming, &namespaces, placement, server_summary, (summary, &packets))
    }

    /// Gives up what only making the lab and starting its programs needs. `CAP_KILL` stays, to end a server that has become
    /// another user, which the end of the namespace would do only later; and what the packets' file needs.
    fn renounce(&self, keys: Option<&KeyLog>) -> Result<()> {
        let files = [Some(self.spec.scratch.as_path()), keys.map(KeyLog::path)];
        let files = files.into_iter().flatten().map(privileges::to_write);
        privileges::keep(files.fold(CapabilitySet::KILL, CapabilitySet::union))
            .context("the lab cannot drop its privileges; allow it capset(2) and prctl(2)")
    }

    /// Where the server is: over the loopback device it is beside the client.
    const fn server_side(&self) -> Side {
        if self.spec.cell.link.is_some() { Side::Server } else { Side::Client }
    }

    /// Makes of the packets what was asked for.
    fn use_capture(
        &self,
        capture: Capture,
        incoming: &mut Incoming,
        packets: &mut Vec<PacketRecord>,
        unrecorded: u64,
    ) -> Result<()> {
        let cell = &self.spec.cell;
        let captured = capture.finish()?;
        if let Some(path) = &self.spec.pcap {
            captured.store(path, packets, cell.capture.snaplen)?;
        }
        if cell.capture.causes {
            let explain = |repetition: &CellRecord| captured.explain(repetition, unrecorded);
            incoming.waits = Some(incoming.as_record(cell, packets, explain)?);
        }
        incoming.warn(captured.doubts(cell.protocol.is_tls() && cell.capture.pcap));
        Ok(())
    }

    fn start_server(&self, namespaces: &Namespaces, keys: Option<&KeyLog>) -> Result<StartedSut> {
        let name = match &self.spec.cell.target {
            Target::Origin => "origin",
            Target::Sut { name } => name,
            Target::Url { url } => anyhow::bail!("{url} is a live server: it has no lab"),
        };
        let options = sut::StartOptions {
            ip: match self.server_side() {
                Side::Server => namespaces.addressing().own(Side::Server),
                Side::Client => Ipv4Addr::LOCALHOST.into(),
            },
            logs: self.spec.logs.clone(),
            max_requests_per_connection: self.spec.cell.max_requests_per_connection,
            key_log: keys.map(|keys| keys.path().to_owned()),
            h3: self
                .spec
                .cell
                .protocol
                .is_quic()
                .then(|| sut::H3 { congestion: self.spec.cell.congestion.clone() }),
            engine: Some(self.spec.cell.server),
            bulk: self.spec.cell.work.bulk.then(|| self.bulk_server()),
            is_stand_in: false,
            early: None,
            own: self.spec.own.clone(),
            changes: self.spec.cell.setup.changes.clone(),
        };
        let place = LabSide { namespaces, side: self.server_side(), keys };
        sut::start(name, &options, &place).map_err(|error| Failure::from(error).into())
    }

    fn bulk_server(&self) -> sut::BulkServer {
        let cell = &self.spec.cell;
        sut::BulkServer {
            client_frame: cell.client.max_frame_size,
            congestion: cell.congestion.clone().filter(|_| cell.link.is_none()),
            is_raw: cell.protocol == Protocol::Tcp,
        }
    }

    /// The sidecar beside the generator, which asks `server` over the link in the cell's protocol.
    fn start_sidecar(
        &self,
        namespaces: &Namespaces,
        server: &StartedSut,
        keys: Option<&KeyLog>,
    ) -> Result<Option<StartedSut>> {
        let cell = &self.spec.cell;
        let Some(sidecar) = &cell.sidecar else { return Ok(None) };
        let upstream = Upstream {
            address: namespaces.dialled(endpoint(server, cell.protocol)?),
            protocol: cell.protocol,
            connections: if cell.protocol.is_multiplexed() { cell.connections } else { 1 },
        };
        // The server's end may be the same program.
        let logs = self.spec.logs.join(CLIENT);
        let options = sut::StartOptions {
            key_log: keys.map(|keys| keys.path().to_owned()),
            ..sut::StartOptions::new(Ipv4Addr::LOCALHOST.into(), logs)
        };
        let place = LabSide { namespaces, side: Side::Client, keys };
        let started = sut::start_sidecar(&sidecar.name, &options, upstream, &place).map_err(Failure::from)?;
        Ok(Some(started))
    }

    /// The generator, which talks to `front` and asks for what is at `server`.
    fn start_generator(
        &self,
        lab_side: &LabSide<'_>,
        front: &StartedSut,
        server: &StartedSut,
        placement: Placement,
    ) -> Result<Running> {
        let cell = self.spec.cell.as_generated();
        let spec = GeneratorSpec {
            address: lab_side.namespaces.dialled(endpoint(front, cell.protocol)?).into(),
            // A client does not know of its sidecar.
            authority: endpoint(server, self.spec.cell.protocol)?.to_string(),
            server_name: server_name(&cell),
            cell,
            tls: Trust { insecure: true, ..Trust::default() },
            clock_origin_ns: self.spec.clock_origin_ns,
            cpu: placement.generator,
        };
        let mut command = lab_side.command(Path::new("/proc/self/exe"));
        command.arg(LOAD);
        Running::start(command, &spec)
    }

    fn notify<W: Write>(
        &self,
        writer: &mut Writer<W>,
        incoming: Incoming,
        namespaces: &Namespaces,
        placement: Placement,
        server: ServerSummary,
        (link, packets): (Option<LinkSummary>, &[PacketRecord]),
    ) -> Result<()> {
        let mut head = *incoming.head.context("the generator ended without a result")?;
        let congestion = namespaces.congestion();
        head.link = link;
        head.server = Some(server);
        head.environment = Environment {
            congestion_client: congestion.client.clone(),
            congestion_server: congestion.server.clone(),
            sysctls: namespaces.sysctls().to_vec(),
            placement: [placement.describe(), std::mem::take(&mut head.environment.placement)].concat(),
            root: self.entered.is_root(),
        };
        writer.repetition(&head, &incoming.samples, &incoming.frames, &incoming.tcp)?;
        writer.packets(packets)?;
        incoming.waits.iter().try_for_each(|waits| writer.waits(waits))?;
        writer.done()
    }
}

/// A side of the lab, as the programs know it that run there.
struct LabSide<'a> {
    namespaces: &'a Namespaces,
    side: Side,
    /// Where they are to write the secrets of TLS.
    keys: Option<&'a KeyLog>,
}

impl ServerNamespace for LabSide<'_> {
    fn command(&self, program: &Path) -> Command {
        let mut command = self.namespaces.command(self.side, program);
        if let Some(keys) = self.keys {
            command.env(keys::VARIABLE, keys.path());
        }
        command
    }

    fn reach(&self, address: SocketAddr) -> std::io::Result<()> {
        let connected = self.namespaces.within(self.side, || tcp::probe_port(address));
        connected.map_err(std::io::Error::other)?
    }

    /// With a reflector both sides are where h2lab was started.
    fn is_shared(&self) -> bool {
        self.namespaces.mechanism() == Mechanism::Reflector
    }
}

/// When the load began, and the CPU time of server, sidecar and this process until then.
struct Began {
    at: Time,
    cpu: [u64; 2],
    own_cpu: Duration,
}

/// What was measured beside a server.
struct Meanwhile<'a> {
    /// From when on.
    began: Time,
    /// What times count from on the monotonic clock, in nanoseconds.
    origin_ns: u64,
    /// For how long.
    wall: Duration,
    /// What its processes were seen to do.
    ends: &'a ServerEnds,
    /// When the first request was due.
    first: Time,
    /// CPU time of generator and link.
    harness: Duration,
}

fn cpu(server: Option<&StartedSut>) -> u64 {
    server.map_or(0, StartedSut::cpu)
}

/// What became of a server since it had used `cpu_before`.
fn summary(server: &mut StartedSut, cpu_before: u64, while_it_ran: &Meanwhile<'_>) -> Result<ServerSummary> {
    let (cpu, rss_peak_bytes) = (server.cpu(), server.resident_peak());
    let mut names = vec![server.name.clone()];
    names.extend(server.behind().map(|behind| behind.name.clone()));
    let &Meanwhile { wall, ends, first, harness, .. } = while_it_ran;
    Ok(ServerSummary {
        name: server.name.clone(),
        version: server.version.clone(),
        cpu_ns: cpu.saturating_sub(cpu_before),
        wall_ns: nanos(wall),
        rss_peak_bytes,
        run_delay: ends.run_delay(&names, harness),
        disk_wait_ns: nanos(ends.disk_wait(&server.name)),
        origin: counted(server, while_it_ran),
        disturbance: disturbance(server, &names, (ends, first))?,
    })
}

/// What our origin said last of what it counted, if the server is one, or has one behind it.
fn counted(server: &StartedSut, while_it_ran: &Meanwhile<'_>) -> Option<OriginCounts> {
    let samples = server.behind().unwrap_or(server).samples();
    let lines = samples.lock().unwrap_or_else(PoisonError::into_inner);
    let (at, counts) = lines.iter().rev().find_map(|line| counts::read(line, while_it_ran.origin_ns))?;
    Some(OriginCounts { wall_ns: at.nanos_since(while_it_ran.began), ..counts })
}

/// What stopped or ended the server, or the origin behind it. An end counts before a stop: after it nothing can be measured.
fn disturbance(
    server: &mut StartedSut,
    names: &[String],
    (ends, first): (&ServerEnds, Time),
) -> Result<Option<Disturbance>> {
    let ended = server.ended().context("cannot check whether the server is running")?;
    let found =
        |process: String, at: Time, kind| Disturbance { process, after_ns: at.nanos_since(first), kind };
    if let Some((name, ChildExit { status, .. })) = ended {
        let seen = ends.processes.iter().find(|(process, _)| *process == name);
        let at = seen.and_then(|(_, seen)| seen.ended).unwrap_or(first);
        return Ok(Some(found(name, at, DisturbanceKind::ended(status.code(), status.signal()))));
    }
    let mut own = ends.processes.iter().filter(|(name, _)| names.contains(name));
    Ok(own.find_map(|(name, seen)| {
        let stopped = seen.stopped.map(|(at, time)| (at, DisturbanceKind::Stopped { for_ns: nanos(time) }));
        let (at, kind) = stopped.or_else(|| seen.child_ended.map(|at| (at, DisturbanceKind::ChildEnded)))?;
        Some(found(name.clone(), at, kind))
    }))
}

/// Where `server` speaks `protocol`.
fn endpoint(server: &StartedSut, protocol: Protocol) -> Result<SocketAddr, Failure> {
    server.endpoint(protocol).ok_or_else(|| Failure {
        kind: FailureKind::Unsupported,
        message: format!("{} does not speak {protocol}", server.name),
    })
}

/// What it costs that the packet log had no room for so many packets, if any.
fn lacking(unrecorded: u64) -> Option<String> {
    (unrecorded > 0).then(|| {
        format!(
            "the link's packet log had no room for {unrecorded} packets that were delivered: it is incomplete, and connections known only from them are not counted"
        )
    })
}

/// TCP connections over the link, as far as the packet log has packets of them: all that had room in it, see [`lacking`].
fn hop(packets: &[PacketRecord]) -> u32 {
    let ports = packets.iter().map(|packet| (packet.client_port, packet.server_port));
    ports.filter(|(client, _)| *client != 0).collect::<BTreeSet<_>>().len() as u32
}

/// The name for SNI: that of `-H 'Host: NAME'`, since a configuration of the user's may refuse others, and there is no URL to have
/// it; else that of our certificates.
fn server_name(cell: &Cell) -> String {
    let asked = cell.work.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let asked = asked.and_then(|(_, value)| format!("https://{value}/").parse::<Url>().ok());
    asked.map_or_else(|| "server".to_owned(), |url| url.host().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_warns_of_what_its_packet_log_had_no_room_for() {
        assert_eq!(lacking(0), None);
        assert!(lacking(1).unwrap().contains("no room for 1 packets"));
    }
}
