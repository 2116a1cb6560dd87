//! The lab's process: `h2lab __lab`. Namespaces, link, server and generator of one visit; all of it ends with it.

use std::io::{BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use h2lab_core::record::{Environment, ServerSummary};
use h2lab_core::scenario::{Cell, Target};
use h2lab_core::units::nanos;

use super::child::{Ended, LOAD, Running};
use super::generator::read_task;
use super::messages::{Failure, FailureKind, Incoming, Writer};
use super::server_watch::ServerWatch;
use super::spec::{CommandsSpec, GeneratorSpec, LabSpec, TlsTrust};
use crate::io::clock::Clock;
use crate::sut::{self, StartedSut};
use crate::topology::{self, Entered, LinkResult, Namespaces, Pump, PumpOptions, Side, TopologySpec, sched};

/// Enters the namespaces and does the task. Returns in the first process of the PID namespace only.
pub fn main() -> Result<()> {
    let spec: LabSpec = read_task(&mut BufReader::new(std::io::stdin()))?;
    let mut writer = Writer::new(std::io::stdout());
    let is_visit = matches!(spec, LabSpec::Visit { .. });
    let result = match topology::enter() {
        Err(error) => Err(Failure::from(error).into()),
        Ok(entered) => match spec {
            LabSpec::Visit { cell, clock_origin_ns, logs } => {
                Visit { cell: *cell, clock_origin_ns, logs, entered }.make(&mut writer)
            }
            LabSpec::Commands(spec) => commands(*spec),
        },
    };
    result.or_else(|error| {
        if !is_visit {
            return Err(error);
        }
        let failure = error
            .downcast::<Failure>()
            .unwrap_or_else(|error| Failure { kind: FailureKind::Harness, message: format!("{error:#}") });
        writer.failed(&failure)
    })
}

/// Which CPU does what. Generator and pump never share one where there are two, since each would make the other late.
#[derive(Debug, Clone, Copy)]
struct Placement {
    pump: Option<usize>,
    generator: Option<usize>,
}

impl Placement {
    /// The placement on the CPUs that we may use. The server is left to the scheduler.
    fn choose() -> Self {
        match sched::allowed_cpus().as_deref() {
            Ok([pump, generator, ..]) => Self { pump: Some(*pump), generator: Some(*generator) },
            _ => Self { pump: None, generator: None },
        }
    }

    /// As the record has it.
    fn describe(self) -> Vec<(String, String)> {
        let cpu = |cpu: Option<usize>| cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string());
        vec![
            ("pump".to_owned(), cpu(self.pump)),
            ("generator".to_owned(), cpu(self.generator)),
            ("server".to_owned(), "any".to_owned()),
        ]
    }
}

/// One visit.
#[derive(Debug)]
struct Visit {
    cell: Cell,
    clock_origin_ns: u64,
    logs: PathBuf,
    entered: Entered,
}

impl Visit {
    fn make<W: Write>(&self, writer: &mut Writer<W>) -> Result<()> {
        let link = self.cell.link.clone().context("a lab needs a link")?;
        let spec = TopologySpec { congestion: self.cell.congestion.clone(), ..TopologySpec::default() };
        let namespaces = Namespaces::create(&spec).map_err(Failure::from)?;
        let placement = Placement::choose();
        let clock = Clock::new(self.clock_origin_ns);
        let options =
            PumpOptions { origin_nanos: self.clock_origin_ns, cpu: placement.pump, ..PumpOptions::default() };
        let server = self.start_server(&namespaces)?;
        let pump = Pump::start(&namespaces, &link, self.cell.seed, options).map_err(Failure::from)?;
        let watch = ServerWatch::start(&namespaces, clock)?;
        let (server_cpu, began) = (server.cpu(), clock.now());

        let mut generator = self.start_generator(&namespaces, &server, placement)?;
        let never = AtomicBool::new(false);
        let ended = generator.receive(&never, &mut |progress| {
            // Fails only when the parent is gone, and then we are being killed.
            let _ = writer.progress(progress);
        })?;
        let Ended::Done(mut incoming) = ended else {
            unreachable!("nothing stops a generator inside its lab")
        };

        let ends = watch.stop()?;
        let server_summary = ServerSummary {
            name: server.name.clone(),
            version: server.version.clone(),
            cpu_ns: server.cpu().saturating_sub(server_cpu),
            wall_ns: nanos(clock.now().since(began)),
        };
        generator.finish()?;
        let link = pump.stop().context("the link's pump failed")?;
        drop(server);
        ends.attach(&mut incoming);
        self.tell(writer, *incoming, &namespaces, placement, server_summary, &link)
    }

    fn start_server(&self, namespaces: &Namespaces) -> Result<StartedSut> {
        let name = match &self.cell.target {
            Target::Origin => "origin",
            Target::Sut { name } => name,
            Target::Url { url } => anyhow::bail!("{url} is a live server: it has no lab"),
        };
        let options = sut::StartOptions {
            ip: IpAddr::V4(Side::Server.address()),
            logs: self.logs.clone(),
            max_requests_per_connection: self.cell.max_requests_per_connection,
        };
        let place = |program: &std::path::Path| namespaces.command(Side::Server, program);
        sut::start(name, &options, &place).map_err(|error| Failure::from(error).into())
    }

    fn start_generator(
        &self,
        namespaces: &Namespaces,
        server: &StartedSut,
        placement: Placement,
    ) -> Result<Running> {
        let protocol = self.cell.protocol;
        let address: SocketAddr = server.endpoint(protocol).ok_or_else(|| Failure {
            kind: FailureKind::Unsupported,
            message: format!("{} does not speak {protocol}", server.name),
        })?;
        let spec = GeneratorSpec {
            cell: self.cell.clone(),
            address,
            authority: address.to_string(),
            server_name: "server".to_owned(),
            tls: TlsTrust { insecure: true, ..TlsTrust::default() },
            clock_origin_ns: self.clock_origin_ns,
            cpu: placement.generator,
        };
        let mut command: Command = namespaces.command(Side::Client, "/proc/self/exe");
        command.arg(LOAD);
        Running::start(command, &spec)
    }

    fn tell<W: Write>(
        &self,
        writer: &mut Writer<W>,
        incoming: Incoming,
        namespaces: &Namespaces,
        placement: Placement,
        server: ServerSummary,
        link: &LinkResult,
    ) -> Result<()> {
        let mut head = *incoming.head.context("the generator ended without a result")?;
        let congestion = namespaces.congestion();
        head.link = Some(link.summary.clone());
        head.server = Some(server);
        head.environment = Environment {
            congestion_client: congestion.client.clone(),
            congestion_server: congestion.server.clone(),
            sysctls: namespaces.sysctls().to_vec(),
            placement: [placement.describe(), std::mem::take(&mut head.environment.placement)].concat(),
            root: self.entered.is_root,
        };
        writer.visit(&head, &incoming.samples, &incoming.frames, &incoming.tcp)?;
        writer.packets(&link.packets)?;
        writer.done()
    }
}

/// Runs foreign commands at both ends of a link. The client's output is ours; one line of JSON follows: the client's exit
/// code, the link's summary, and the fate of every packet.
fn commands(spec: CommandsSpec) -> Result<()> {
    let topology = TopologySpec { congestion: Some(spec.congestion), ..TopologySpec::default() };
    let namespaces = Namespaces::create(&topology).map_err(Failure::from)?;
    let options = PumpOptions {
        origin_nanos: Clock::start().origin_ns(),
        cpu: Placement::choose().pump,
        ..PumpOptions::default()
    };
    let pump = Pump::start(&namespaces, &spec.link, spec.seed, options).map_err(Failure::from)?;
    let command = |side: Side, words: &[String]| -> Result<Command> {
        let (program, arguments) = words.split_first().context("an empty command")?;
        let mut command = namespaces.command(side, program);
        command.args(arguments).stdin(Stdio::null());
        Ok(command)
    };
    let background = match &spec.server {
        None => None,
        Some(words) => Some(
            command(Side::Server, words)?.stdout(Stdio::null()).spawn().context("the server's command")?,
        ),
    };
    assert!(!spec.panic, "a panic was asked for");
    let status = command(Side::Client, &spec.client)?.status().context("the client's command")?;
    if let Some(mut background) = background {
        background.kill().context("cannot end the server's command")?;
        background.wait().context("cannot wait for the server's command")?;
    }
    let result = pump.stop().context("the link's pump failed")?;
    let fates: Vec<_> =
        result.packets.iter().map(|packet| (packet.direction, packet.index, packet.fate)).collect();
    let report = serde_json::json!({ "status": status.code(), "link": result.summary, "fates": fates });
    println!("\n{report}");
    Ok(())
}
