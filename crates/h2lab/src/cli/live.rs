//! `compare URL`: finds live servers, asks them which protocols they speak, and makes the scenario of what is sent.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::scenario::{Axis, LiveTarget, Scenario};
use h2lab_model::workload::{Protocol, RequestShape};

use super::compare::CompareArgs;
use super::exit::Usage;
use super::flags;
use super::reach::{self, ReachArgs, ResolveEntry, resolve_entry};
use super::tls::{IdentityArgs, authorities};
use crate::run::execute::{Live, LiveServer};
use crate::run::messages::{Failure, FailureKind};
use crate::run::spec::{GeneratorSpec, TlsTrust};
use h2lab_net::clock::Clock;
use h2lab_roles::client::url::Url;
use h2lab_roles::load::LoadSpec;
use h2lab_roles::load::discover::discover;

/// How live servers are reached.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Live servers")]
pub struct LiveArgs {
    /// Believe any certificate
    #[arg(short = 'k', long)]
    insecure: bool,
    /// Believe these certificates (PEM) instead of the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
    /// A full TLS handshake for every connection; later ones resume an earlier one's session otherwise
    #[arg(long)]
    no_tls_resumption: bool,
    /// Connect to ADDR for HOST:PORT, as curl does; repeatable
    #[arg(long, value_name = "HOST:PORT:ADDR", value_parser = resolve_entry)]
    pub resolve: Vec<ResolveEntry>,
}

impl LiveArgs {
    /// The first flag given, if any: behind the emulated link they mean nothing.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            (self.insecure, "-k/--insecure"),
            (self.cacert.is_some(), "--cacert"),
            (self.identity.is_given(), "--cert"),
            (self.no_tls_resumption, "--no-tls-resumption"),
            (!self.resolve.is_empty(), "--resolve"),
        ];
        flags::first_given(flags)
    }
}

/// What is sent to live servers unless more is asked for: nobody's service notices it.
pub fn gentle() -> Scenario {
    let mut scenario = Scenario {
        claim: "Is HTTP/2 faster or slower than HTTP/1.1 here?".to_owned(),
        ..Scenario::default()
    };
    "GET".clone_into(&mut scenario.work.method);
    scenario.work.shape = Axis::one(RequestShape::Bare);
    scenario.work.body_bytes = 0;
    scenario.work.rate = Axis::one(50.0);
    scenario.work.measure = Axis::one(Duration::from_secs(5));
    scenario.work.timeout = Duration::from_secs(10);
    scenario.matrix.warm_pool = 1;
    scenario.matrix.max_connections = 16;
    scenario
}

/// What is sent to the servers of `args`, and where they are: each was found and asked which protocols it speaks.
pub fn prepare(args: &CompareArgs) -> Result<(Scenario, Live)> {
    if let Some(flag) = args.link.given().or_else(|| args.servers.given()).or_else(|| args.capture.given()) {
        let why = "belongs to the emulated link; a live server is measured as it is";
        return Err(Usage(format!("{flag} {why}")).into());
    }
    let wanted = args.work.protocols.as_ref();
    let urls: Vec<Url> = args.urls.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    fitting(&urls, wanted)?;
    let mut live = Live { servers: Vec::new(), tls: trust(&args.live)? };
    let mut scenario = args.work.chosen(&gentle())?;
    args.work.apply(&mut scenario)?;
    args.engine.apply(&mut scenario.client.engine);
    // The servers are there before the check, so that what a live server rules out is refused before any of them is asked.
    scenario.matrix.live = args.urls.iter().zip(&urls).map(|(text, url)| unasked(text, url)).collect();
    flags::check(&scenario)?;
    for (place, (text, url)) in args.urls.iter().zip(&urls).enumerate() {
        let mut server = resolve(text, url, &args.live.resolve)?;
        scenario.matrix.live[place].protocols = asked(url, &mut server, &live.tls, &scenario, wanted)?;
        live.servers.push(server);
    }
    if wanted.is_none() {
        scenario.matrix.protocols = all_of(&scenario.matrix.live);
    }
    Ok((scenario, live))
}

/// A server that was not asked yet what it speaks: it has one protocol, which any has.
fn unasked(text: &str, url: &Url) -> LiveTarget {
    LiveTarget {
        url: text.to_owned(),
        path: url.path_and_query().to_owned(),
        protocols: Axis::one(Protocol::H1),
    }
}

/// The URL that `text` is.
pub fn parse(text: &str) -> Result<Url, Usage> {
    text.parse().map_err(|error| Usage(format!("{text}: {error}")))
}

/// Refuses a wanted protocol that no URL's scheme allows, and a URL whose scheme allows none of them: either would be
/// missing from the results without a word.
fn fitting(urls: &[Url], wanted: Option<&Axis<Protocol>>) -> Result<(), Usage> {
    const SCHEMES: &str = "https:// takes h1s, h2 and h3, http:// takes h1 and h2c";
    let Some(wanted) = wanted else { return Ok(()) };
    let fits = |protocol: &Protocol, url: &Url| protocol.is_tls() == url.is_tls();
    let astray = wanted.values().iter().find(|protocol| !urls.iter().any(|url| fits(protocol, url)));
    if let Some(protocol) = astray {
        return Err(Usage(format!("--proto {wanted}: {protocol} fits no URL here: {SCHEMES}")));
    }
    match urls.iter().find(|url| !wanted.values().iter().any(|protocol| fits(protocol, url))) {
        Some(url) => Err(Usage(format!("--proto {wanted}: nothing of it fits {url}: {SCHEMES}"))),
        None => Ok(()),
    }
}

/// Every protocol that has cells at any of the servers, in the order of the reports.
fn all_of(targets: &[LiveTarget]) -> Axis<Protocol> {
    let has = |protocol: &Protocol| targets.iter().any(|target| target.protocols.values().contains(protocol));
    Axis::new(Protocol::ALL.into_iter().filter(has).collect()).expect("each target speaks at least one")
}

/// The protocols that have cells at a server: what it speaks, or, of those wanted, what its scheme allows. Of these the
/// ones that it does not speak are noted in `server`. That it speaks none at all is an error that says what each attempt
/// met.
fn asked(
    url: &Url,
    server: &mut LiveServer,
    tls: &TlsTrust,
    scenario: &Scenario,
    wanted: Option<&Axis<Protocol>>,
) -> Result<Axis<Protocol>> {
    // HTTP/3 is asked for by name: a server without it stays silent, for which everybody would have to wait.
    let candidates = wanted.map_or(&Protocol::OVER_TCP[..], Axis::values);
    let fits = candidates.iter().copied().filter(|protocol| protocol.is_tls() == url.is_tls());
    let wants_h3 = candidates.contains(&Protocol::H3);
    let discovery = discover(&probe(url, server, tls, scenario), url.is_tls(), wants_h3);
    let (spoken, unspoken): (Vec<_>, Vec<_>) = fits.partition(|protocol| discovery.speaks(*protocol));
    if spoken.is_empty() {
        let wanted =
            wanted.map_or_else(|| "neither protocol".to_owned(), |wanted| format!("none of {wanted}"));
        let message = format!("{} speaks {wanted}: {discovery}", server.url);
        return Err(Failure { kind: FailureKind::Unreachable, message }.into());
    }
    eprintln!("{}: {discovery}", server.url);
    let protocols = match wanted {
        None => spoken,
        Some(_) => {
            let refusal = |protocol| discovery.refusal(protocol).map(|why| (protocol, why));
            server.refused = unspoken.iter().copied().filter_map(refusal).collect();
            [spoken, unspoken].concat()
        }
    };
    Ok(Axis::new(protocols).expect("it speaks at least one"))
}

/// The work of the comparison, as a single request.
fn probe(url: &Url, server: &LiveServer, tls: &TlsTrust, scenario: &Scenario) -> LoadSpec<'static> {
    let mut one = scenario.clone();
    one.matrix.live = vec![unasked(&server.url, url)];
    one.matrix.protocols = Axis::one(Protocol::H1);
    let cell = one.plan().swap_remove(0);
    GeneratorSpec {
        cell,
        address: server.address,
        authority: server.authority.clone(),
        server_name: server.server_name.clone(),
        tls: tls.clone(),
        clock_origin_ns: Clock::start().origin_ns(),
        cpu: None,
    }
    .load_spec()
}

/// A single GET over HTTP/2 that believes any certificate, for `h2lab __get`.
pub fn single(text: &str) -> Result<LoadSpec<'static>> {
    let url = parse(text)?;
    let server = resolve(text, &url, &[])?;
    let mut spec = probe(&url, &server, &TlsTrust { insecure: true, ..TlsTrust::default() }, &gentle());
    spec.cell.protocol = if url.is_tls() { Protocol::H2 } else { Protocol::H2c };
    Ok(spec)
}

/// The work of `scenario` as one cell at the server of `url`, reached as `args` say; what its protocol and its numbers are
/// is left to the caller.
pub fn one_cell(text: &str, url: &Url, args: &LiveArgs, scenario: &Scenario) -> Result<LoadSpec<'static>> {
    let server = resolve(text, url, &args.resolve)?;
    Ok(probe(url, &server, &trust(args)?, scenario))
}

/// How long one of several addresses of a name may take to accept a connection.
const ADDRESS_TRIAL: Duration = Duration::from_secs(2);

/// Finds the address: of several the first that answers. `localhost` is often `::1` first, while most services listen on
/// 127.0.0.1.
fn resolve(text: &str, url: &Url, entries: &[ResolveEntry]) -> Result<LiveServer> {
    let addresses = reach::addresses(text, url, entries, &ReachArgs::default())?;
    Ok(LiveServer {
        url: text.to_owned(),
        address: answering(&addresses),
        authority: url.authority().to_owned(),
        server_name: url.host().to_owned(),
        refused: Vec::new(),
    })
}

/// The first of `addresses`, which are not none, that accepts a connection; the first one, if none does.
pub fn answering(addresses: &[SocketAddr]) -> SocketAddr {
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, ADDRESS_TRIAL).is_ok();
    match addresses {
        [only] => *only,
        several => *several.iter().find(answers).unwrap_or(&several[0]),
    }
}

/// What the flags about TLS mean.
pub fn trust(args: &LiveArgs) -> Result<TlsTrust> {
    let ca_pem = args.cacert.as_deref().map(|path| authorities("--cacert", path)).transpose()?;
    let identity = args.identity.read()?;
    Ok(TlsTrust { insecure: args.insecure, ca_pem, identity, full_handshakes: args.no_tls_resumption })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_servers_are_measured_gently() {
        let scenario = gentle();
        assert_eq!(scenario.work.method, "GET");
        assert_eq!(scenario.work.rate.values(), [50.0]);
        assert_eq!(scenario.matrix.connections.values(), [1.into()]);
        assert!(scenario.matrix.max_connections <= 16);
        scenario.validate().unwrap();
    }

    #[test]
    fn a_protocol_must_fit_a_url_and_a_url_a_protocol() {
        let told = |wanted: &str, urls: &[&str]| {
            let urls: Vec<Url> = urls.iter().map(|url| url.parse().unwrap()).collect();
            fitting(&urls, Some(&wanted.parse().unwrap())).err().map(|error| error.to_string())
        };
        assert_eq!(told("h1s,h2", &["https://a/"]), None);
        assert_eq!(told("h1,h2", &["http://a/", "https://a/"]), None);
        let names = "https:// takes h1s, h2 and h3, http:// takes h1 and h2c";
        let astray = told("h1,h2", &["https://a/"]);
        assert_eq!(astray, Some(format!("--proto h1,h2: h1 fits no URL here: {names}")));
        let left_out = told("h1", &["http://a/", "https://b/"]);
        assert_eq!(left_out, Some(format!("--proto h1: nothing of it fits https://b/: {names}")));
    }
}
