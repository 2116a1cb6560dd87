//! Requests to live servers: how few are sent by default, where the servers are, and which protocols they speak.

use std::time::Duration;

use anyhow::Result;
use h2lab_analysis::stats::{doubt_of_status, is_too_long, longer_flags};
use h2lab_base::secrets;
use h2lab_base::units::measured_time;
use h2lab_model::fleet::Trust;
use h2lab_model::scenario::{Axis, Cell, LiveTarget, Scenario};
use h2lab_model::workload::{Protocol, RequestShape};

use super::exit::Usage;
use super::protocols::{ProtocolArgs, SCHEMES};
use super::reach::{self, ReachArgs};
use super::values::replace;
use super::{flags, note, quotable, rights};
use crate::run::execute::{Live, LiveServer};
use crate::run::messages::{Failure, FailureKind};
use crate::run::spec::GeneratorSpec;
use h2lab_net::clock::Clock;
use h2lab_net::privileges;
use h2lab_net::tcp::Endpoint;
use h2lab_roles::client::url::Url;
use h2lab_roles::load::LoadSpec;
use h2lab_roles::load::discover::discover;

/// What is sent to live servers by default: too little for a service to notice.
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

/// Finds the servers of `urls`, asks each which protocols it speaks, and enters both in `scenario`. `protocol` names those that
/// are wanted, if any are.
pub fn find(
    scenario: &mut Scenario,
    urls: &[String],
    protocol: &ProtocolArgs,
    reach: &ReachArgs,
) -> Result<Live> {
    let is_template = scenario.work.template;
    let parse = |text: &String| reach::template_url(text, is_template);
    let parsed: Vec<Url> = urls.iter().map(parse).collect::<Result<_, _>>()?;
    reach.check(protocol)?;
    let urls = if scenario.work.secrets { urls.to_vec() } else { secrets::distinct(urls) };
    // No lab is made, and each generator is a child with no more than this.
    rights::reduce(privileges::NONE)?;
    let wanted = wanted(&parsed, |is_tls| protocol.asked_at(is_tls));
    let wanted = wanted.as_ref();
    let has_clear = parsed.iter().any(|url| !url.is_tls());
    protocol.check_mode(if has_clear { Protocol::H2c } else { Protocol::H2 })?;
    fitting(&parsed, wanted).map_err(|why| Usage(format!("{}: {why}", protocol.flag())))?;
    replace(&mut scenario.matrix.protocols, wanted);
    // The servers are entered before the check, so that what a live server rules out is refused before any request to one.
    scenario.matrix.live = urls.iter().zip(&parsed).map(|(text, url)| unasked(text, url)).collect();
    flags::check(scenario)?;
    // If the cells have the setting, their records contain it, and an experiment can change it.
    scenario.client.policy.no_tls_resumption |= reach.tls.no_tls_resumption;
    let mut live = Live { servers: Vec::new(), tls: Trust { full_handshakes: false, ..reach.tls.trust()? } };
    for (place, (text, url)) in urls.iter().zip(&parsed).enumerate() {
        let mut server = resolve(text, url, reach)?;
        scenario.matrix.live[place].protocols = asked(url, &mut server, &live.tls, scenario, wanted)?;
        live.servers.push(server);
    }
    if wanted.is_none() {
        scenario.matrix.protocols = all_of(&scenario.matrix.live);
    }
    Ok(live)
}

/// A server that was not asked yet which protocols it speaks: it gets the one that every server speaks.
fn unasked(text: &str, url: &Url) -> LiveTarget {
    LiveTarget {
        url: text.to_owned(),
        path: url.path_and_query().to_owned(),
        protocols: Axis::one(Protocol::H1),
    }
}

/// The protocols that `asked` names for servers with or without TLS, as far as `urls` has such servers.
fn wanted(urls: &[Url], asked: impl Fn(bool) -> Option<Axis<Protocol>>) -> Option<Axis<Protocol>> {
    let schemes = [true, false].into_iter().filter(|is_tls| urls.iter().any(|url| url.is_tls() == *is_tls));
    let mut all: Vec<Protocol> = Vec::new();
    for axis in schemes.filter_map(asked) {
        // A protocol named twice is an A/A run; one that both schemes have is not.
        let new: Vec<Protocol> = axis.values().iter().copied().filter(|one| !all.contains(one)).collect();
        all.extend(new);
    }
    Axis::new(all)
}

/// Refuses a wanted protocol that no URL's scheme allows, and a URL whose scheme allows none of them: either would be
/// missing from the results silently.
fn fitting(urls: &[Url], wanted: Option<&Axis<Protocol>>) -> Result<(), String> {
    let Some(wanted) = wanted else { return Ok(()) };
    let fits = |protocol: &Protocol, url: &Url| protocol.is_tls() == url.is_tls();
    let astray = wanted.values().iter().find(|protocol| !urls.iter().any(|url| fits(protocol, url)));
    if let Some(protocol) = astray {
        return Err(format!("{protocol} fits no URL here: {SCHEMES}"));
    }
    match urls.iter().find(|url| !wanted.values().iter().any(|protocol| fits(protocol, url))) {
        Some(url) => Err(format!("none of {wanted} fits {url}: {SCHEMES}")),
        None => Ok(()),
    }
}

/// Every protocol that has cells at any of the servers, in the order of the reports.
fn all_of(targets: &[LiveTarget]) -> Axis<Protocol> {
    let has = |protocol: &Protocol| targets.iter().any(|target| target.protocols.values().contains(protocol));
    Axis::new(Protocol::ALL.into_iter().filter(has).collect()).expect("each target speaks at least one")
}

/// The protocols that have cells at a server: those that it speaks, or, of those wanted, those that its scheme allows.
/// Wanted ones that it does not speak are noted in `server`. If it speaks none at all, that is an error with the result
/// of each attempt.
fn asked(
    url: &Url,
    server: &mut LiveServer,
    tls: &Trust,
    scenario: &Scenario,
    wanted: Option<&Axis<Protocol>>,
) -> Result<Axis<Protocol>> {
    // HTTP/3 must be named: a server without it does not answer, which would cost every run a timeout.
    let candidates = wanted.map_or(&Protocol::OVER_TCP[..], Axis::values);
    let fits = candidates.iter().copied().filter(|protocol| protocol.is_tls() == url.is_tls());
    // A protocol named twice is an A/A run.
    let tried: Vec<Protocol> =
        Protocol::ALL.into_iter().filter(|protocol| fits.clone().any(|one| one == *protocol)).collect();
    let discovery = discover(&probe(url, server, tls, scenario), url.is_tls(), &tried);
    let (spoken, unspoken): (Vec<_>, Vec<_>) = fits.partition(|protocol| discovery.speaks(*protocol));
    if spoken.is_empty() {
        let message = format!("{} cannot be measured: {discovery}", server.url);
        return Err(Failure { kind: FailureKind::Unreachable, message }.into());
    }
    say!("{}", quotable(&format!("{}: {discovery}", server.url)));
    let statuses = || discovery.answers().map(|(_, answer)| answer.status);
    if let Some(doubt) = doubt(&server.url, statuses()) {
        note(&quotable(&doubt));
        server.refuses = statuses().next();
    }
    server.takes = discovery.answers().map(|(_, answer)| answer.time_to_last_byte).min();
    let refusal = |protocol: &Protocol| discovery.refusal(*protocol).map(|why| (*protocol, why));
    server.refused = tried.iter().filter_map(refusal).collect();
    let protocols = if wanted.is_none() { spoken } else { [spoken, unspoken].concat() };
    Ok(Axis::new(protocols).expect("it speaks at least one"))
}

/// The warning to print at once about a server that answers with success in no protocol; it is measured all the same.
fn doubt(url: &str, mut statuses: impl Iterator<Item = u16>) -> Option<String> {
    let first = statuses.next()?;
    let doubt =
        doubt_of_status(first).filter(|_| statuses.all(|status| doubt_of_status(status).is_some()))?;
    Some(format!("{url} answers {doubt}"))
}

/// Why the measured time of `scenario` is too short for the response time of `live`, if it is: reported before anything
/// is measured.
pub fn too_long(scenario: &Scenario, live: &Live) -> Option<String> {
    let takes = live.takes()?;
    let plan = scenario.plan();
    let phases = &plan.first()?.work.phases;
    is_too_long(takes, phases).then(|| {
        format!(
            "a single response takes {}, and {} are measured each time: too short for figures of it; measure for longer ({})",
            measured_time(takes),
            measured_time(phases.measure),
            longer_flags(takes)
        )
    })
}

/// The work of the comparison, as a single request.
fn probe(url: &Url, server: &LiveServer, tls: &Trust, scenario: &Scenario) -> LoadSpec<'static> {
    let cell = in_one_protocol(&server.url, url, scenario).plan().swap_remove(0);
    spec(cell, url, server.address.clone(), tls)
}

/// The work of `scenario` at the server of `url` alone, in one protocol.
fn in_one_protocol(text: &str, url: &Url, scenario: &Scenario) -> Scenario {
    let mut one = scenario.clone();
    one.matrix.live = vec![unasked(text, url)];
    one.matrix.protocols = Axis::one(Protocol::H1);
    one
}

/// The work of `cell` at `address`, the server of `url`.
fn spec(cell: Cell, url: &Url, address: Endpoint, tls: &Trust) -> LoadSpec<'static> {
    let spec = GeneratorSpec {
        cell,
        address,
        authority: url.authority().to_owned(),
        server_name: url.host().to_owned(),
        tls: tls.clone(),
        clock_origin_ns: Clock::start().origin_ns(),
        cpu: None,
    };
    spec.load_spec()
}

/// A single GET over HTTP/2 that accepts any certificate, for `h2lab __get`.
pub fn single(text: &str) -> Result<LoadSpec<'static>> {
    let url = reach::url(text)?;
    let mut reach = ReachArgs::default();
    reach.tls.insecure = true;
    let mut spec = one_cell(text, &url, &reach, &gentle())?;
    spec.cell.protocol = if url.is_tls() { Protocol::H2 } else { Protocol::H2c };
    Ok(spec)
}

/// The work of `scenario` as one cell at the server of `url`, reached as `args` say; the caller sets the protocol and
/// the numbers.
pub fn one_cell(text: &str, url: &Url, args: &ReachArgs, scenario: &Scenario) -> Result<LoadSpec<'static>> {
    let cell = flags::only_cell(&in_one_protocol(text, url, scenario))?;
    let address = reach::answering(&args.endpoints(text, url)?);
    Ok(spec(cell, url, address, &args.tls.trust()?))
}

/// Finds the address: of several, the first that answers.
fn resolve(text: &str, url: &Url, args: &ReachArgs) -> Result<LiveServer> {
    Ok(LiveServer {
        url: text.to_owned(),
        address: reach::answering(&args.endpoints(text, url)?),
        authority: url.authority().to_owned(),
        server_name: url.host().to_owned(),
        refused: Vec::new(),
        takes: None,
        refuses: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_answers_no_success_is_told_of_and_one_that_does_in_a_protocol_is_not() {
        let told = |statuses: &[u16]| doubt("http://a/x", statuses.iter().copied());
        assert_eq!(
            told(&[404, 404]).as_deref(),
            Some("http://a/x answers 404 Not Found: measured as it is; is the path right?")
        );
        assert!(told(&[401]).unwrap().contains("-H 'authorization: …'"));
        assert_eq!([told(&[200]), told(&[302, 404]), told(&[404, 200]), told(&[])], [const { None }; 4]);
    }

    #[test]
    fn a_response_that_takes_more_than_half_of_the_measured_time_is_told_of_before_it() {
        let mut scenario = gentle();
        scenario.work.measure = Axis::one(Duration::from_secs(3));
        scenario.matrix.live =
            vec![unasked("http://127.0.0.1/", &"http://127.0.0.1/".parse().expect("a URL"))];
        let told = |millis: Option<u64>| {
            let server = LiveServer {
                url: String::new(),
                address: Endpoint::Unix(std::path::Path::new("/x").into()),
                authority: String::new(),
                server_name: String::new(),
                refused: Vec::new(),
                takes: millis.map(Duration::from_millis),
                refuses: None,
            };
            too_long(&scenario, &Live { servers: vec![server], tls: Trust::default() })
        };
        assert_eq!([told(None), told(Some(1_500))], [None, None]);
        let why = told(Some(3_900)).unwrap();
        assert!(
            why.contains("takes 3.90 s, and 3 s are measured") && why.contains("-z 20s --drain 5s"),
            "{why}"
        );
    }

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
        let reported = |wanted: &str, urls: &[&str]| {
            let urls: Vec<Url> = urls.iter().map(|url| url.parse().unwrap()).collect();
            fitting(&urls, Some(&wanted.parse().unwrap())).err()
        };
        assert_eq!(reported("h1s,h2", &["https://a/"]), None);
        assert_eq!(reported("h1,h2", &["http://a/", "https://a/"]), None);
        let astray = reported("h1,h2", &["https://a/"]);
        assert_eq!(astray, Some(format!("h1 fits no URL here: {SCHEMES}")));
        let left_out = reported("h1", &["http://a/", "https://b/"]);
        assert_eq!(left_out, Some(format!("none of h1 fits https://b/: {SCHEMES}")));
    }

    #[test]
    fn a_version_of_http_is_wanted_of_each_scheme_in_its_own_way() {
        let of = |urls: &[&str]| {
            let urls: Vec<Url> = urls.iter().map(|url| url.parse().unwrap()).collect();
            let version = |is_tls| Some(Axis::one(if is_tls { Protocol::H1s } else { Protocol::H1 }));
            let named = |is_tls: bool| {
                let axis = if is_tls { "h1s,h1s,h2" } else { "h1,h1,h2" };
                axis.parse::<Axis<Protocol>>().ok()
            };
            let reported = |wanted: Option<Axis<Protocol>>| wanted.unwrap().to_string();
            (reported(wanted(&urls, version)), reported(wanted(&urls, named)))
        };
        // An A/A run remains one; a protocol that both schemes have is listed once.
        assert_eq!(of(&["http://a/"]), ("h1".to_owned(), "h1,h1,h2".to_owned()));
        assert_eq!(of(&["http://a/", "https://a/"]), ("h1s,h1".to_owned(), "h1s,h1s,h2,h1,h1".to_owned()));
    }
}
