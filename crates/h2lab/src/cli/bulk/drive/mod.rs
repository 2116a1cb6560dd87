//! `h2lab bulk drive`: several clients fetch from several servers, or upload to them, all at once.

mod place;
mod view;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use clap::Args;
use h2lab_base::text::made_printable;
use h2lab_model::bulk::{TIME_WAS_OVER, TransferDirection, TransferOutcome};
use h2lab_model::fleet::plan::PlanInput;
use h2lab_model::fleet::{
    AgentName, AgentRecord, Coordinator, Ending, FleetJob, FleetPlan, FleetRecord, FleetSummary,
    FleetTimeouts, PairEnd, PairRecord, PairTally, Pairing, Server,
};
use h2lab_model::workload::Protocol;
use h2lab_transfer::Sizes;

use super::super::client::ClientArgs;
use super::super::documents::FormArgs;
use super::super::exit::{MissingRequirement, Usage};
use super::super::files::PageArg;
use super::super::flags::{FlagRefusal, Flags};
#[cfg(feature = "nats")]
use super::super::nats::{DRIVER, NatsArgs};
use super::super::needs;
use super::super::policy::CongestionArgs;
use super::super::reach::ReachArgs;
use super::super::values::{duration, value, whole};
use super::super::{Exit, help, note, output, signals};
use super::fields_and_settings;
use super::kept::{KeptFolder, Moved as _};
#[cfg(feature = "nats")]
use crate::run::agent::free::{self, Purpose};
#[cfg(feature = "nats")]
use crate::run::fleet;
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::machine::machine;
use h2lab_net::resources;
use h2lab_roles::fleet::{TransportKind, drive};
use place::{AgentPlace, Remote, ServerArg, names, unreachable};
use view::DriveView;

/// Have several clients fetch from several servers at once, and report the joint throughput
///
/// A place of a client or a server is `local` (this process), netns:NAME (a network namespace of this machine),
/// ssh:[USER@]HOST, where `h2lab agent --stdio` is run, or with --nats the name of an agent that runs there (`h2lab agents`
/// lists them). A server that runs already is given as a URL, or as HOST:PORT.
/// All clients begin at the same instant, whatever their clocks show, and fetch bytes from memory for --duration; with
/// --put they upload such bytes instead, which servers count and discard. Transfers still running then are aborted, and
/// their bytes are counted.
///
/// A client or server that dies or stops responding does not delay the others: its pairs are marked lost, and the other
/// results are kept. After Ctrl-C the results so far are reported. No process and no file is left on any machine; agents
/// of --nats stay. One of these that is busy is waited for, 5 s at most.
///
/// The default protocol is h2; --h2c and --proto h1 are without TLS.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab bulk drive --clients local,local --servers local,local --h2c", "two clients, two servers, in this process"),
        (
            "h2lab bulk drive --clients ssh:kek-1,ssh:kek-2 --servers ssh:lyon-1=192.0.2.7:8080 --duration 60s --concurrency 8 \
             --max-frame-size 1M --win-update-interval 1M --h2c",
            "two sites, h2c with larger frames and fewer updates",
        ),
        (
            "h2lab bulk drive --nats nats://192.0.2.1 --clients kek-1,kek-2 --servers lyon-1=192.0.2.7 --put --h2c",
            "agents that run already, which upload",
        ),
        ("h2lab bulk drive --clients netns:a --servers http://10.0.0.2:8080 --http1.1 --dry-run", "only the plan"),
    ],
))]
pub struct DriveArgs {
    /// The clients: local, netns:NAME, ssh:[USER@]HOST, or the name of an agent; comma list
    #[arg(long, value_name = "PLACE,…", value_delimiter = ',', required = true)]
    clients: Vec<AgentPlace>,
    /// The servers: a place as for --clients, PLACE=ADDRESS[:PORT] to set the address to listen on, or a running
    /// server: URL, HOST:PORT
    #[arg(long, value_name = "PLACE,…", value_delimiter = ',', required = true)]
    servers: Vec<ServerArg>,
    /// Upload: clients send bytes from memory, and servers discard them. A running server must take PUT at /bytes/SIZE, as
    /// `h2lab bulk serve --memory` does
    #[arg(long)]
    put: bool,
    /// Duration of the transfers
    #[arg(short = 'z', short_alias = 'D', long, value_name = "TIME", default_value = "10s", value_parser = above_zero)]
    duration: Duration,
    /// Concurrent transfers of each client
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole::<u32>(1..=10_000))]
    concurrency: u32,
    /// Connections of each pair in HTTP/2 and HTTP/3, which share its transfers evenly [default: 1; HTTP/1.1 has one
    /// for each transfer]
    #[arg(short = 'c', long, value_name = "N", value_parser = whole::<u32>(1..=1_000))]
    connections: Option<u32>,
    /// Which servers each client fetches from: all (its transfers spread evenly over all servers), one, random
    #[arg(long, value_name = "HOW", default_value_t = Pairing::All, value_parser = value::<Pairing>)]
    pairs: Pairing,
    /// Bytes of each transfer: a size, or normal:MEAN:DEVIATION
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = value::<Sizes>)]
    size: Sizes,
    /// Seed of the random choices: sizes, and --pairs random
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..))]
    seed: u64,
    /// Without TLS; implied by --h2c and --proto h1
    #[arg(long, hide = true)]
    plain_http: bool,
    #[command(flatten)]
    socket: CongestionArgs,
    /// Abort a pair after this long without a byte
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    timeout: Duration,
    /// Time to wait for results after the end; an agent without a result by then is lost
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    grace: Duration,
    /// Time to wait for the agents to start
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    setup_timeout: Duration,
    /// Command to reach another machine; the host name and a command are appended
    #[arg(long, value_name = "CMD", default_value = "ssh -o BatchMode=yes")]
    ssh: String,
    /// Path of h2lab on the other machines
    #[arg(long, value_name = "PATH", default_value = "h2lab")]
    agent_path: String,
    /// Print which client would fetch from which server, and exit
    #[arg(long, conflicts_with = "form")]
    dry_run: bool,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    page: PageArg,
    /// Also keep what was measured in this folder: `h2lab report` and `h2lab diagnose` read it again
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    out: Option<PathBuf>,
    /// Suppress progress
    #[arg(short_alias = 's', long, alias = "silent")]
    quiet: bool,
    // The last: the headings of these flags go for all that follow them.
    #[cfg(feature = "nats")]
    #[command(flatten)]
    nats: Flags<NatsArgs>,
    #[command(flatten)]
    client: Flags<ClientArgs, Agents>,
    #[command(flatten)]
    reach: Flags<ReachArgs>,
}

impl DriveArgs {
    /// The places of all agents: clients first.
    fn agents(&self) -> impl Iterator<Item = &AgentPlace> {
        self.clients.iter().chain(self.servers.iter().filter_map(|server| match server {
            ServerArg::Agent(place) => Some(place),
            ServerArg::Url(_) | ServerArg::Address(_) => None,
        }))
    }

    /// The names of the agents that run already: clients first.
    fn named(&self) -> Vec<AgentName> {
        self.agents().filter_map(AgentPlace::agent).cloned().collect()
    }

    /// Refuses agents that cannot be reached, or have two parts: an agent works for one end of one drive at a time.
    fn check_named(&self) -> Result<(), Usage> {
        let mut named = self.named();
        #[cfg(feature = "nats")]
        if named.is_empty() {
            let why = "has no effect without the name of an agent in --clients or --servers; `h2lab agents` lists \
                       them";
            self.nats.refuse(&[], why)?;
        }
        #[cfg(feature = "nats")]
        if !named.is_empty() {
            self.nats.check_key(&self.reach.tls.trust()?)?;
        }
        if let Some(name) = named.first().filter(|_| !self.has_nats()) {
            return Err(Usage(unreachable(name)));
        }
        named.sort();
        match named.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(Usage(format!(
                "{}: an agent is one client or one server; start another one there, with a name of its own",
                two[0]
            ))),
            None => Ok(()),
        }
    }

    #[cfg(feature = "nats")]
    fn has_nats(&self) -> bool {
        self.nats.is_given()
    }

    #[cfg(not(feature = "nats"))]
    #[expect(clippy::unused_self, reason = "with the feature `nats` the flags decide")]
    const fn has_nats(&self) -> bool {
        false
    }

    /// The transports to the agents that run already, in the order of their names. They are there, and free.
    #[cfg(feature = "nats")]
    fn sessions(&self) -> Result<Vec<TransportKind>> {
        let named = self.named();
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let nats = self.nats.connect(DRIVER).context(UNREACHED)?;
        free::await_free(&nats, PURPOSE, &named, &mut |words| note(&words))?;
        fleet::transports(&nats, &named).context(UNREACHED)
    }

    /// None: names of agents were refused.
    #[cfg(not(feature = "nats"))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "with the feature `nats` the flags decide, and it may fail"
    )]
    fn sessions(&self) -> Result<Vec<TransportKind>> {
        Ok(Vec::new())
    }

    /// The program of `--ssh`, if a place needs it and it is not there.
    fn missing_ssh(&self) -> Option<&str> {
        let needs_it = self.agents().any(AgentPlace::is_remote);
        let program = self.ssh.split_whitespace().next().filter(|_| needs_it)?;
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let is_in = |folder: PathBuf| folder.join(program).is_file();
        let is_there = if program.contains('/') {
            Path::new(program).is_file()
        } else {
            std::env::split_paths(&folders).any(is_in)
        };
        (!is_there).then_some(program)
    }
}

/// What the agents that `--nats` reaches are needed for.
#[cfg(feature = "nats")]
const PURPOSE: Purpose = Purpose { flags: "--clients, --servers", what: "drive" };

/// What cannot be done when not each agent can be reached.
const UNREACHED: &str = "cannot reach all agents";

/// What agents fetch is discarded.
#[derive(Debug, Clone, Default)]
struct Agents;

impl FlagRefusal for Agents {
    fn why(id: &str) -> Option<&'static str> {
        match id {
            "method" | "data" | "data_raw" | "body_bytes" | "shape" | "template" | "push" => {
                Some("has no effect on discarded bytes; use it with `h2lab load`")
            }
            _ => None,
        }
    }
}

/// Drives, and says how it went.
pub fn main(args: &DriveArgs, command_line: Vec<String>) -> Result<Exit> {
    args.page.validate()?;
    let job = job(args)?;
    if args.dry_run {
        output::print(&h2lab_report::fleet_plan_text(&job, output::style()))?;
        return Ok(Exit::Done);
    }
    let kept = KeptFolder::make(args.out.as_deref())?;
    let transport_kinds = transport_kinds(args)?;
    let stop = signals::stop_flag()?;
    resources::raise_open_files();
    let started = SystemTime::now();
    let mut view = DriveView::new(args.quiet || args.form.is_document());
    let mut look = |coordinator: &mut Coordinator, now| {
        if signals::must_leave() {
            coordinator.abandon();
        }
        view.show(coordinator, now);
    };
    let mut record = signals::in_sessions(|| drive(job, transport_kinds, &stop, &mut look))?;
    drop(view);
    if !args.client.request.secrets {
        record = record.without_secrets();
    }
    #[cfg(feature = "nats")]
    let command_line = if args.named().is_empty() { command_line } else { args.nats.added_to(command_line) };
    record.command = command_line;
    env!("CARGO_PKG_VERSION").clone_into(&mut record.version);
    record.started = humantime::format_rfc3339_seconds(started).to_string();
    record.machine = machine();
    h2lab_analysis::bulk::fleet::name_limits(&mut record);
    let summary = FleetSummary::of(&record);
    record.warnings = summary.doubts(&record).into_iter().chain(cut_by_agents(&record)).collect();
    if let Some(failure) = not_begun(&record).filter(|_| !args.form.is_document()) {
        return Err(failure.into());
    }
    output::print(&record.render(args.form.form(), output::style())?)?;
    if record.interrupted && summary.bytes == 0 {
        // A page would look like that of a measurement.
        note(&"nothing was measured, and no page is written");
    } else {
        args.page.write(|| h2lab_report::fleet_page(&record))?;
        kept.keep_drive(&record)?;
    }
    Ok(exit_of(&record))
}

/// A time above zero: no rate could be given of transfers that take none.
fn above_zero(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() { Err("the time must be above 0".to_owned()) } else { Ok(time) }
}

/// Why nothing was begun that agents have refused; `None` if something was, or the user ended it before.
fn not_begun(record: &FleetRecord) -> Option<Failure> {
    let is_refused = |pair: &PairRecord| matches!(pair.end, PairEnd::Failed { .. });
    if record.start_at.happened() || record.interrupted || !record.pairs.iter().any(is_refused) {
        return None;
    }
    let agents = record.clients.iter().chain(&record.servers);
    let why = agents.filter_map(|agent| Some(format!("{}: {}", agent.name, agent.lost.as_ref()?)));
    let why = why.collect::<Vec<_>>().join("; ");
    let message = format!("the drive was not begun: {}", made_printable(&why));
    Some(Failure { kind: FailureKind::Unreachable, message })
}

/// The pairs that their client ended before their time although the user did not, with the reason, such as its
/// `--max-bytes`.
fn cut_by_agents(record: &FleetRecord) -> Vec<String> {
    let is_cut = |ending: &Ending| match &ending.outcome {
        TransferOutcome::Partial { why } if why != TIME_WAS_OVER => Some(why.clone()),
        _ => None,
    };
    let of_pair = |pair: &PairRecord| {
        let PairEnd::Reported(figures) = &pair.end else { return None };
        let why = figures.endings.iter().filter(|_| figures.interrupted).find_map(is_cut)?;
        let client = &record.clients.get(pair.pair.client as usize)?.name;
        Some(format!("{client}: {why}: its transfers ended before their time"))
    };
    let mut warnings: Vec<String> =
        record.pairs.iter().filter(|_| !record.interrupted).filter_map(of_pair).collect();
    warnings.dedup();
    warnings
}

/// That the user wanted an end, else whether all pairs are complete, and all agents were there to the end.
fn exit_of(record: &FleetRecord) -> Exit {
    let summary = FleetSummary::of(record);
    let PairTally { partial, failed, lost, invalid, .. } = summary.pairs;
    // A server that was lost in the middle may have served everything that its clients report.
    let is_lost = |agents: &[AgentRecord]| agents.iter().any(|agent| agent.lost.is_some());
    match record.interrupted {
        true => Exit::Interrupted,
        false if partial + failed + lost > 0 => Exit::Unreachable,
        false if is_lost(&record.clients) || is_lost(&record.servers) => Exit::Unreachable,
        false if invalid > 0 || summary.is_void(record) => Exit::Invalid,
        false => Exit::Done,
    }
}

/// What the flags say is to be done.
fn job(args: &DriveArgs) -> Result<FleetJob> {
    if let Some(client) = args.clients.iter().find(|client| client.has_address()) {
        let words = "a client does not listen; give the address to a server";
        return Err(Usage(format!("--clients {}: {words}", client.name)).into());
    }
    args.check_named()?;
    args.reach.check(&args.client.protocol)?;
    let protocol = protocol(args)?;
    let direction = if args.put { TransferDirection::Put } else { TransferDirection::Get };
    if let Some(server) = args.servers.iter().find(|server| args.put && server.has_path()) {
        let words = "uploads go to /bytes/SIZE; give the URL without a path, or use `h2lab bulk put --memory SIZE \
                     URL`";
        return Err(Usage(format!("--put --servers {}: {words}", server.name())).into());
    }
    let connections = match (protocol.is_multiplexed(), args.connections) {
        (false, Some(_)) => {
            let words = "has a connection for each transfer; give --concurrency instead";
            return Err(Usage(format!("-c/--connections: {protocol} {words}")).into());
        }
        (false, None) => None,
        (true, connections) => Some(connections.unwrap_or(1)),
    };
    let input = PlanInput {
        clients: args.clients.len() as u32,
        servers: args.servers.len() as u32,
        concurrency: args.concurrency,
        connections,
        pairing: args.pairs,
        seed: args.seed,
    };
    let servers = names(args.servers.iter().map(ServerArg::name)).into_iter().zip(&args.servers);
    let server = |(name, server): (String, &ServerArg)| -> Result<Server, Usage> {
        Ok(Server {
            name,
            place: server.place(protocol.is_tls()).map_err(|why| Usage(format!("--servers {why}")))?,
        })
    };
    if !args.servers.iter().any(ServerArg::runs_already) {
        let why = "is for running servers (--servers URL); an agent's server listens at PLACE=ADDRESS";
        args.reach.refuse(&["insecure", "cacert", "no_tls_resumption"], why)?;
    }
    let (fields, settings) = fields_and_settings(&args.client)?;
    Ok(FleetJob {
        clients: names(args.clients.iter().map(|client| client.name.as_str())),
        servers: servers.map(server).collect::<Result<_, _>>()?,
        concurrency: args.concurrency,
        plan: FleetPlan::make(&input).map_err(|error| Usage(error.to_string()))?,
        direction,
        protocol,
        upgrade: args.client.protocol.upgrades(protocol),
        sizes: args.size,
        duration: args.duration,
        timeout: args.timeout,
        settings,
        fields,
        congestion: args.socket.congestion.clone(),
        trust: args.reach.tls.trust()?,
        reach: args.reach.reach(),
        seed: args.seed,
        waits: FleetTimeouts { setup: args.setup_timeout, grace: args.grace },
    })
}

/// What is spoken: HTTP/2 over TLS, unless flags or the URLs of servers say otherwise.
fn protocol(args: &DriveArgs) -> Result<Protocol, Usage> {
    let by_url: Vec<bool> = args.servers.iter().filter_map(ServerArg::is_tls).collect();
    let mixed = || Usage("--servers: http:// and https:// cannot be mixed: all use one protocol".to_owned());
    let is_tls = match (args.plain_http, by_url.first()) {
        (true, _) => false,
        (false, first) => first.copied().unwrap_or(true),
    };
    let usual = if is_tls { Protocol::H2 } else { Protocol::H2c };
    let protocol = args.client.protocol.single(is_tls)?.unwrap_or(usual);
    if args.plain_http && protocol.is_tls() {
        return Err(Usage(format!("--plain-http and {protocol} contradict each other")));
    }
    args.client.protocol.check_mode(protocol)?;
    needs::check(&args.client, &[protocol])?;
    let upgrades = args.client.protocol.upgrades(protocol);
    if let Some(server) = args.servers.iter().find(|server| upgrades && !server.runs_already()) {
        return Err(Usage(format!(
            "--servers {}: an agent's server does not upgrade to h2c; give --http2-prior-knowledge",
            server.name()
        )));
    }
    if by_url.iter().any(|first| *first != by_url[0]) {
        return Err(mixed());
    }
    match by_url.first() {
        Some(url) if *url != protocol.is_tls() => {
            let scheme = if *url { "https://" } else { "http://" };
            let asked = if args.plain_http { "--plain-http".to_owned() } else { args.client.protocol.flag() };
            Err(Usage(format!("--servers: {asked} cannot be used with {scheme}")))
        }
        _ => Ok(protocol),
    }
}

/// The transports to all agents: clients first.
fn transport_kinds(args: &DriveArgs) -> Result<Vec<TransportKind>> {
    let remote = Remote { ssh: &args.ssh, agent_path: &args.agent_path };
    if let Some(program) = args.missing_ssh() {
        let words = "there is no such program, and agents at ssh:HOST are started with it";
        return Err(MissingRequirement(format!("--ssh {program}: {words}")).into());
    }
    let mut sessions = args.sessions()?.into_iter();
    let transport_kinds = args.agents().map(|place| match place.agent().and_then(|_| sessions.next()) {
        Some(session) => Ok(session),
        None => place.transport_kind(remote),
    });
    transport_kinds.collect::<Result<_, _>>().context(UNREACHED)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use h2lab_base::units::Time;
    use h2lab_model::fleet::testing;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        drive: DriveArgs,
    }

    fn job_of(line: &str) -> Result<FleetJob, String> {
        let words = ["x", "--clients=local"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        job(&line.drive).map_err(|error| error.to_string())
    }

    #[test]
    fn the_protocol_is_h2_unless_something_says_otherwise() {
        let of = |line: &str| job_of(line).unwrap().protocol;
        assert_eq!(of("--servers local"), Protocol::H2);
        assert_eq!(of("--servers local --plain-http"), Protocol::H2c);
        assert_eq!(of("--servers a:80 --plain-http --http1"), Protocol::H1);
        assert_eq!(of("--servers a:80 --http1.1"), Protocol::H1s);
        assert_eq!(of("--servers local --http3"), Protocol::H3);
        assert_eq!(of("--servers local --proto h1"), Protocol::H1);
        assert_eq!(of("--servers local --h2c"), Protocol::H2c);
        assert_eq!(of("--servers a:80 --h2c"), Protocol::H2c);
        assert!(!job_of("--servers https://a --http2").unwrap().upgrade, "TLS needs none");
        assert!(job_of("--servers http://a --http2").unwrap().upgrade);
        assert_eq!(of("--servers http://a"), Protocol::H2c);
        assert_eq!(of("--servers https://a --http1"), Protocol::H1s);
    }

    #[test]
    fn bytes_go_to_the_clients_unless_they_are_to_upload() {
        let of = |line: &str| job_of(line).unwrap().direction;
        assert_eq!(of("--servers local"), TransferDirection::Get);
        assert_eq!(of("--servers local --put"), TransferDirection::Put);
        assert_eq!(of("--servers http://a/ --put"), TransferDirection::Put);
    }

    #[cfg(feature = "nats")]
    #[test]
    fn agents_are_named_once_and_only_with_the_server_that_leads_to_them() {
        let job = job_of("--nats n --clients kek-1,kek-2 --servers lyon-1=192.0.2.7,local").unwrap();
        assert_eq!(job.clients, ["local", "kek-1", "kek-2"]);
        assert_eq!(job.servers[0].name, "lyon-1");
        for (line, word) in [
            ("--servers local --nats n", "--nats has no effect"),
            ("--nats n --servers lyon-1", "lyon-1=ADDRESS"),
            ("--nats n --servers kek-1=192.0.2.7 --clients kek-1", "one client or one server"),
            ("--nats n --servers local --clients kek-1,kek-1", "one client or one server"),
        ] {
            let error = job_of(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn a_drive_that_agents_refused_is_one_error_and_one_that_began_is_none() {
        let mut record = testing::record();
        assert!(not_begun(&record).is_none());
        record.start_at = Time::NEVER;
        let failure = not_begun(&record).expect("a pair was refused");
        assert_eq!(
            failure.to_string(),
            "the drive was not begun: ssh:kek-2: its agent ended: killed by signal 9"
        );
        assert!(matches!(failure.kind, FailureKind::Unreachable));
        record.interrupted = true;
        assert!(not_begun(&record).is_none(), "the user has ended it");
    }

    #[test]
    fn what_an_agent_cut_is_a_warning_unless_the_user_ended_it() {
        let mut record = testing::record();
        assert!(cut_by_agents(&record).is_empty());
        let PairEnd::Reported(figures) = &mut record.pairs[0].end else { panic!("it has figures") };
        figures.interrupted = true;
        let why = "the agent's --max-bytes of 300 KiB was reached";
        figures.endings[1].outcome = TransferOutcome::Partial { why: why.to_owned() };
        let told = format!("ssh:kek-1: {why}: its transfers ended before their time");
        assert_eq!(cut_by_agents(&record), [told]);
        record.interrupted = true;
        assert!(cut_by_agents(&record).is_empty());
    }

    #[test]
    fn what_does_not_go_together_is_refused_by_name() {
        for (line, word) in [
            ("--servers http://a,https://b", "mixed"),
            ("--servers http://a --proto h2", "cannot be used with http://"),
            ("--servers https://a --plain-http", "cannot be used with https://"),
            ("--servers local --plain-http --http3", "contradict"),
            ("--servers local --plain-http --proto h1s", "contradict"),
            ("--servers local --http1 -c 2", "--concurrency"),
            ("--servers netns:a", "netns:a=ADDRESS"),
            ("--servers local --concurrency 3 -c 2", "evenly"),
            ("--servers local --concurrency 0", "--concurrency"),
            ("--servers local -z 0s", "above 0"),
            ("--servers nowhere", "HOST:PORT"),
            ("--servers local --clients kek-1", "ssh:[USER@]HOST"),
            ("--servers local --clients local=127.0.0.1", "does not listen"),
            ("--servers http://a/x --put", "bulk put --memory"),
            ("--servers local --plain-http --http2", "--http2-prior-knowledge"),
            ("--servers local --resolve a:1:127.0.0.1", "PLACE=ADDRESS"),
            ("--servers http://a --http3", "--http3 cannot be used with http://"),
            ("--servers https://a --h2c-mode upgrade", "in clear"),
            ("--servers https://a --h2c", "--h2c cannot be used with https://"),
        ] {
            let error = job_of(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
