//! `h2lab probe smuggling`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use h2lab_base::secrets::without_url_secrets;
use h2lab_model::probe::{Budget, ProbeReport, ServerLimits, Subject};
use h2lab_model::workload::Protocol;

use super::host::{HostArgs, kind_of};
use super::output::ProbeReportArgs;
use crate::cli::client::ClientArgs;
use crate::cli::exit::Usage;
use crate::cli::flags::{FlagRefusal, Flags};
use crate::cli::output::{print, show, style};
use crate::cli::reach;
use crate::cli::values::duration;
use crate::cli::{Exit, help, signals, tls};
use crate::run::messages::{Failure, FailureKind};
use h2lab_lab::sut::{StartedSut, SutError};
use h2lab_net::clock::Clock;
use h2lab_net::resources;
use h2lab_net::scratch::ScratchFolder;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::TlsOptions;
use h2lab_report::hanging;
use h2lab_roles::probe::smuggling;
use h2lab_roles::probe::smuggling::fixture;
use h2lab_roles::probe::smuggling::fixture::{FORBIDDEN, Fixture};
use h2lab_roles::probe::smuggling::{BackendListener, Paths, SmugglingError};
use h2lab_roles::probe::{Host, ProbeError, Prober};
use h2lab_wire::trace::detail::Secrets;

/// Check whether a proxy lets clients tunnel past its rules, or forwards malformed requests
///
/// Acts on both sides of the proxy: as a client that offers `Upgrade: h2c` in eight ways and sends malformed HTTP/2, and as the
/// backend (--backend-listen), once strict and once lax, which records every byte received.
/// Configure the proxy to forward to that address first, or use a --fixture.
///
/// This is an attack on a proxy, if a small one: it needs --i-own-this-host, unless the proxy is a fixture.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab probe smuggling --fixture haproxy-default", "what a vulnerable proxy looks like"),
        (
            "h2lab probe smuggling --proxy http://127.0.0.1:8080 --backend-listen 127.0.0.1:9000 --forbidden /admin --i-own-this-host",
            "a proxy of yours that forwards to port 9000 and denies /admin",
        ),
        ("h2lab probe smuggling --fixtures", "proxies that it can configure and start itself"),
    ],
))]
pub struct SmugglingArgs {
    /// The proxy: where clients reach it
    #[arg(long, value_name = "URL", required_unless_present_any = ["fixture", "fixtures", "config"], value_parser = reach::url_text())]
    proxy: Option<String>,
    /// Where the proxy forwards to: our backend listens there
    #[arg(long, value_name = "ADDR", conflicts_with = "fixture", required_unless_present_any = ["fixture", "fixtures", "config"])]
    backend_listen: Option<SocketAddr>,
    /// Where the proxy speaks HTTP/2, if that is another port [default: that of --proxy]
    #[arg(long, value_name = "URL", requires = "proxy", value_parser = reach::url_text())]
    h2_proxy: Option<String>,
    /// A path that the proxy forwards [default: the path of --proxy]
    #[arg(long, value_name = "PATH", value_parser = path)]
    allowed: Option<String>,
    /// A path that the proxy denies
    #[arg(long, value_name = "PATH", default_value = FORBIDDEN, value_parser = path)]
    forbidden: String,
    /// Start this proxy and check it; several with commas
    #[arg(long, value_name = "NAME", conflicts_with = "proxy", value_delimiter = ',', value_parser = fixture_called)]
    fixture: Vec<&'static Fixture>,
    /// Print the configuration of a fixture, as an example of what to do or avoid
    #[arg(long, value_name = "NAME", exclusive = true, value_parser = fixture_called)]
    config: Option<&'static Fixture>,
    /// List the fixtures
    #[arg(long, exclusive = true)]
    fixtures: bool,
    /// Only offers of h2c, no malformed HTTP/2
    #[arg(long, conflicts_with = "downgrade_only")]
    upgrade_only: bool,
    /// Only malformed HTTP/2, no offers of h2c
    #[arg(long)]
    downgrade_only: bool,
    /// Timeout: time without a response from the proxy
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    _client: Flags<ClientArgs, ChecksRequests>,
    #[command(flatten)]
    report: ProbeReportArgs,
}

/// Both sides of the proxy are ours: what arrives is compared with what was sent.
#[derive(Debug, Clone, Default)]
struct ChecksRequests;

impl FlagRefusal for ChecksRequests {
    fn why(id: &str) -> Option<&'static str> {
        Some(match id {
            "protocols" | "http1" | "http2" | "http2_prior_knowledge" | "h2c" | "http3" | "h2c_mode" => {
                "is not for probes of a proxy, which need HTTP/1.1 and HTTP/2; use --upgrade-only or --downgrade-only"
            }
            _ => {
                "is not for probes of a proxy: each check sends exact bytes and compares them with what the backend \
                 received"
            }
        })
    }
}

fn path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path { Ok(text.to_owned()) } else { Err(format!("`{text}` is not a path (such as /admin)")) }
}

fn fixture_called(name: &str) -> Result<&'static Fixture, String> {
    fixture::find(name).ok_or_else(|| {
        let names = fixture::ALL.map(|fixture| fixture.name).join(", ");
        format!("there is no fixture `{name}`: {names}")
    })
}

/// What is probed: where it is reached, and over which protocols.
struct Edge {
    /// Its name in the report.
    target: String,
    /// HTTP/1.1.
    clear: (Host, Protocol),
    /// HTTP/2.
    h2: (Host, Protocol),
    /// A path that it forwards, and one that it denies.
    paths: Paths,
}

/// What the runs of one command line have in common.
struct Run<'a> {
    args: &'a SmugglingArgs,
    clock: Clock,
    stop: Arc<AtomicBool>,
}

/// Probes a proxy, or fixtures one after the other.
pub fn main(args: &SmugglingArgs) -> Result<Exit> {
    if args.fixtures {
        return list();
    }
    if let Some(fixture) = args.config {
        print(&fixture.text(SocketAddr::from(([127, 0, 0, 1], 9000))))?;
        return Ok(Exit::Done);
    }
    args.report.validate()?;
    tls::announce_key_log()?;
    if args.fixture.len() > 1 && args.report.is_one_document() {
        return Err(Usage("--json, --sarif, --junit and -o take only one --fixture".to_owned()).into());
    }
    // Before the first child and the first folder: from now on a signal cleans up what it interrupts.
    let run = Run { args, clock: Clock::start(), stop: signals::stop_flag()? };
    resources::raise_open_files();
    if args.fixture.is_empty() {
        return run.of_the_user();
    }
    let mut worst = Exit::Done;
    for fixture in &args.fixture {
        match run.of_fixture(fixture)? {
            Exit::Done => {}
            Exit::Interrupted => return Ok(Exit::Interrupted),
            exit => worst = exit,
        }
    }
    Ok(worst)
}

fn list() -> Result<Exit> {
    let mut text = String::new();
    for fixture in fixture::ALL {
        let safe = if fixture.safe { "safe" } else { "unsafe" };
        text.push_str(&hanging(&format!("{:18} {safe:6}  ", fixture.name), fixture.about, style()));
    }
    show(&text)?;
    Ok(Exit::Done)
}

impl Run<'_> {
    /// The proxy of the command line.
    fn of_the_user(&self) -> Result<Exit> {
        let args = self.args;
        args.host.safety.require("a smuggling probe")?;
        let proxy = args.proxy.as_deref().unwrap_or_default();
        let clear = self.edge(proxy)?;
        let h2 = self.edge(args.h2_proxy.as_deref().unwrap_or(proxy))?;
        let h2 = if h2.1 == Protocol::H1s { (h2.0, Protocol::H2) } else { (h2.0, Protocol::H2c) };
        let listen = args.backend_listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let backend_listener = BackendListener::open(listen, self.clock)
            .with_context(|| format!("--backend-listen {listen}: cannot listen"))?;
        say!("backend: listening on {}", backend_listener.address());
        let paths = self.paths(&clear.0.path);
        let target = without_url_secrets(proxy).into_owned();
        self.probe(&backend_listener, Edge { target, clear, h2, paths }, None)
    }

    /// The paths to request; `of_url` is that of the proxy's URL.
    fn paths(&self, of_url: &str) -> Paths {
        let allowed = self.args.allowed.clone().unwrap_or_else(|| of_url.to_owned());
        Paths { allowed, forbidden: self.args.forbidden.clone() }
    }

    /// Where a URL leads, and over which form of HTTP/1.1.
    fn edge(&self, text: &str) -> Result<(Host, Protocol)> {
        let url = reach::url(text)?;
        let host = self.args.host.at(text, &url)?;
        Ok((host, if url.is_tls() { Protocol::H1s } else { Protocol::H1 }))
    }

    /// A fixture, started for it.
    fn of_fixture(&self, fixture: &'static Fixture) -> Result<Exit> {
        let backend_listener = BackendListener::open((Ipv4Addr::LOCALHOST, 0).into(), self.clock)
            .context("cannot listen on loopback")?;
        let folder = ScratchFolder::create("h2lab-fixture").map_err(|error| {
            let message = format!("cannot make a temporary folder: {error}");
            Failure { kind: FailureKind::Environment, message }
        })?;
        let sut = start(fixture, &backend_listener, folder.path().to_owned())?;
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        let paths = self.paths("/");
        let host = |protocol| {
            let address = sut.endpoint(protocol).context("a fixture listens for both versions")?;
            let host = Host {
                endpoint: Endpoint::Tcp(address),
                server_name: "localhost".to_owned(),
                authority: address.to_string(),
                path: paths.allowed.clone(),
                tls: TlsOptions::default(),
                fields: Vec::new(),
                protocols: Vec::new(),
                hidden: Secrets::default(),
            };
            Ok::<_, anyhow::Error>((host, protocol))
        };
        let target = format!("{} ({})", fixture.name, fixture.about);
        let (clear, h2) = (host(Protocol::H1)?, host(Protocol::H2c)?);
        self.probe(&backend_listener, Edge { target, clear, h2, paths }, Some(&sut))
    }

    fn probe(
        &self,
        backend_listener: &BackendListener,
        edge: Edge,
        fixture: Option<&StartedSut>,
    ) -> Result<Exit> {
        let safety = &self.args.host.safety;
        // A fixture is ours.
        let allowance = if fixture.is_some() { safety.owning().allowance()? } else { safety.allowance()? };
        let budget = Budget::new(allowance, self.clock.now());
        let (host, stop) = (edge.clear.0.clone(), Arc::clone(&self.stop));
        let mut prober = Prober::new(host, budget, self.clock, self.args.timeout, stop);
        match self.examine(backend_listener, &mut prober, &edge) {
            Ok(found) => {
                let software = fixture
                    .map(|sut| format!("{}/{}", sut.name.split('-').next().unwrap_or_default(), sut.version))
                    .or(found.software);
                // `nginx` of `nginx/1.22.1 (Debian)`.
                let product = software.as_deref().and_then(|software| software.split(['/', ' ']).next());
                let checks = found.checks.into_iter().map(|check| check.for_product(product)).collect();
                let report = ProbeReport {
                    target: edge.target,
                    subject: Subject::Proxy,
                    software,
                    checks,
                    limits: ServerLimits::default(),
                    checklist: Vec::new(),
                    attempts: found.attempts,
                    spent: prober.budget.spent(prober.now()),
                    warnings: found.warnings,
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                };
                self.args.report.notify(&report)
            }
            Err(SmugglingError::Probe(ProbeError::Interrupted)) => Ok(Exit::Interrupted),
            Err(error) => {
                let kind = match &error {
                    SmugglingError::NotBehind { .. } => FailureKind::Unreachable,
                    SmugglingError::Probe(error) => kind_of(error),
                };
                Err(Failure { kind, message: format!("{}: {error}", edge.target) }.into())
            }
        }
    }

    fn examine(
        &self,
        backend_listener: &BackendListener,
        prober: &mut Prober,
        edge: &Edge,
    ) -> Result<smuggling::SmugglingResults, SmugglingError> {
        let mut found = if self.args.downgrade_only {
            smuggling::SmugglingResults::default()
        } else {
            say!("offers of h2c …");
            smuggling::upgrades(prober, backend_listener, edge.clear.1, &edge.paths)?
        };
        if !self.args.upgrade_only {
            say!("malformed HTTP/2 …");
            let more = smuggling::downgrades(prober, backend_listener, edge.h2.clone(), &edge.paths.allowed)?;
            found.checks.extend(more.checks);
            found.software = found.software.or(more.software);
        }
        Ok(found)
    }
}

fn start(fixture: &'static Fixture, backend_listener: &BackendListener, logs: PathBuf) -> Result<StartedSut> {
    fixture.start(backend_listener.address(), logs).map_err(|error| {
        let kind = match error {
            SutError::Unknown { .. } | SutError::Unsupported { .. } => FailureKind::Usage,
            _ => FailureKind::Environment,
        };
        Failure { kind, message: error.to_string() }.into()
    })
}
