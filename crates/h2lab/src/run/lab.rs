//! The lab's process: `h2lab __lab`. Namespaces, link, server and generator of one visit; all of it ends with it.

use std::io::{BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use h2lab_core::record::{Environment, ServerSummary};
use h2lab_core::scenario::Target;
use h2lab_core::units::nanos;

use super::child::{Ended, LOAD, Running};
use super::generator::read_task;
use super::messages::{Failure, FailureKind, Incoming, Writer};
use super::placement::Placement;
use super::server_watch::ServerWatch;
use super::spec::{GeneratorSpec, LabSpec, TlsTrust};
use crate::io::clock::Clock;
use crate::sut::{self, StartedSut};
use crate::topology::{self, Entered, LinkResult, Namespaces, Pump, PumpOptions, Side, TopologySpec};

/// Enters the namespaces and does the task. Returns in the first process of the PID namespace only.
pub fn main() -> Result<()> {
    let spec: LabSpec = read_task(&mut BufReader::new(std::io::stdin()))?;
    let mut writer = Writer::new(std::io::stdout());
    let result = match topology::enter() {
        Err(error) => Err(Failure::from(error).into()),
        Ok(entered) => Visit { spec, entered }.make(&mut writer),
    };
    result.or_else(|error| writer.failed(&failure(error)))
}

/// What an error in a lab means for the exit code.
pub(super) fn failure(error: anyhow::Error) -> Failure {
    error
        .downcast::<Failure>()
        .unwrap_or_else(|error| Failure { kind: FailureKind::Harness, message: format!("{error:#}") })
}

/// One visit.
#[derive(Debug)]
struct Visit {
    spec: LabSpec,
    entered: Entered,
}

impl Visit {
    fn make<W: Write>(&self, writer: &mut Writer<W>) -> Result<()> {
        let link = self.spec.cell.link.clone().context("a lab needs a link")?;
        let spec = TopologySpec {
            congestion: self.spec.cell.congestion.clone(),
            sysctls: self.spec.cell.sysctls.clone(),
            ..TopologySpec::default()
        };
        let namespaces = Namespaces::create(&spec).map_err(Failure::from)?;
        let placement = Placement::choose();
        let clock = Clock::new(self.spec.clock_origin_ns);
        let options = PumpOptions {
            origin_nanos: self.spec.clock_origin_ns,
            cpu: placement.pump,
            ..PumpOptions::default()
        };
        let server = self.start_server(&namespaces)?;
        let pump = Pump::start(&namespaces, &link, self.spec.cell.seed, options).map_err(Failure::from)?;
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
        let name = match &self.spec.cell.target {
            Target::Origin => "origin",
            Target::Sut { name } => name,
            Target::Url { url } => anyhow::bail!("{url} is a live server: it has no lab"),
        };
        let options = sut::StartOptions {
            ip: IpAddr::V4(Side::Server.address()),
            logs: self.spec.logs.clone(),
            max_requests_per_connection: self.spec.cell.max_requests_per_connection,
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
        let protocol = self.spec.cell.protocol;
        let address: SocketAddr = server.endpoint(protocol).ok_or_else(|| Failure {
            kind: FailureKind::Unsupported,
            message: format!("{} does not speak {protocol}", server.name),
        })?;
        let spec = GeneratorSpec {
            cell: self.spec.cell.clone(),
            address,
            authority: address.to_string(),
            server_name: "server".to_owned(),
            tls: TlsTrust { insecure: true, ..TlsTrust::default() },
            clock_origin_ns: self.spec.clock_origin_ns,
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
