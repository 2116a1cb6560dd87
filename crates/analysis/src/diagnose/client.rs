//! A user's client against our own server: what findings mean there.

mod busy;
mod doubted;

use std::time::Duration;

use super::causes::{abandoning, held_at_limit, single_requests, stampede_of_one_client, unkept};
use super::{Case, Evidence, Finding, cause, costliest_first};
use h2lab_base::counts::{count, plural};
use h2lab_model::Fix;
use h2lab_model::experiment::LARGE_WINDOW;
use h2lab_model::record::{CellRecord, ConnectionRecord};
use h2lab_model::scenario::labels;
use h2lab_model::settings::{Knob, Peer, Role, advise, first, known};
use h2lab_model::workload::Protocol;

/// What confirms a finding: no experiment of ours can change an unknown program.
const AGAIN: &str = "change the client, and run the same command of `h2lab diagnose --run` again";

/// The same if the server has a limit that the user asked for.
const LIMIT_AGAIN: &str =
    "change the server's limit, or the client, and run the same command of `h2lab diagnose --run` again";

/// The product name of our origin in fixes.
const OURS: &str = "h2lab";

/// The result of the findings about a client.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OfClient {
    /// What the client, or the network, can change.
    pub findings: Vec<Finding>,
    /// Observations about it beside the findings.
    pub remarks: Vec<String>,
    /// What only our own server could change: the client is not at fault.
    pub of_server: Vec<Finding>,
}

impl OfClient {
    /// The observations beside the findings, and a sentence for each finding about our own server.
    pub fn remarks(&self) -> Vec<String> {
        let remark = |finding: &Finding| {
            let symptom = finding.symptom.trim_end_matches('.');
            format!("h2lab's own server, not the client, is the cause of this ({}): {symptom}", finding.rule)
        };
        self.remarks.iter().cloned().chain(self.of_server.iter().map(remark)).collect()
    }
}

/// The command of a client, and the time that it took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Client<'a> {
    /// Its command line. If it names a product that we know, the spelling of settings in that product comes first.
    pub command: &'a str,
    /// For how long it ran.
    pub took: Duration,
    /// The CPU time that it used, including all processes that it started.
    pub cpu: Duration,
    /// Why the times of this run are not to be trusted: our link or our server was late; empty if they are.
    pub doubts: &'a [String],
    /// The ids of causes that our origin has only because it was asked to have the limits of another server: then its
    /// setting is the fix.
    pub asked_for: &'a [&'a str],
}

/// Turns findings of the rules into findings about the client. Its server is our origin: a fix there is no fix, and
/// findings with no other fix are kept apart. A client that did not offer HTTP/2 over TLS gets a finding about that. So
/// does a client that was busy itself; then the findings that a busy client causes are left out.
pub fn of_client(findings: Vec<Finding>, records: &[CellRecord], run: &Client<'_>) -> OfClient {
    let client = Peer::of_field(run.command);
    let is_asked_for = |finding: &Finding| run.asked_for.contains(&finding.rule.as_str());
    let is_ours = |finding: &Finding| {
        let has_others = finding.fixes.is_empty() || finding.fixes.iter().any(|fix| fix.product != OURS);
        !has_others && !is_asked_for(finding)
    };
    let (of_server, findings): (Vec<Finding>, Vec<Finding>) =
        with_those_of_one_client(findings, records, run).into_iter().partition(is_ours);
    let own = findings.into_iter().map(|mut finding| {
        let is_asked_for = is_asked_for(&finding);
        let is_of_quota = is_asked_for && finding.rule == "CONN103";
        finding.fixes.retain(|fix| (is_asked_for && !is_of_quota) || fix.product != OURS);
        let wishes = finding.fixes.iter().filter_map(|fix| fix.wish).filter(|wish| wish.role == Role::Client);
        let known = wishes.map(|wish| advise(&client, wish)).filter(Fix::has_setting);
        let known: Vec<Fix> = known.collect();
        let (server, client): (Vec<Fix>, Vec<Fix>) =
            finding.fixes.into_iter().partition(|fix| fix.product == OURS);
        let confirm = if server.is_empty() && !is_of_quota { AGAIN } else { LIMIT_AGAIN };
        let mut server: Vec<Fix> = server.into_iter().map(|fix| of_our_server(fix, &finding.rule)).collect();
        server.dedup_by(|a, b| a.setting == b.setting);
        let of_client = known.into_iter().chain(client.into_iter().map(of_any_client)).collect();
        let quota = is_of_quota.then(without_quota);
        finding.fixes = server.into_iter().chain(with_both_windows(of_client)).chain(quota).collect();
        Finding { confirm: confirm.to_owned(), ..finding }
    });
    let busy = busy::finding(records, run);
    let imitated = cause("HOST102").filter(|_| busy.is_some()).map_or(&[][..], |meta| meta.supersedes);
    let own = own.filter(|finding| !imitated.contains(&finding.rule.as_str()));
    let (own, withheld) = if run.doubts.is_empty() { (own.collect(), None) } else { doubted::of(own) };
    let idle = busy::remark(records).filter(|_| busy.is_none());
    let remarks = idle.into_iter().chain(stopped_at_goaway(records)).chain(withheld).collect();
    let findings = busy.into_iter().chain(without_offer(records)).chain(own).collect();
    OfClient { findings, remarks, of_server }
}

/// A fix at our server as a flag of the user's command, with the value that is tried, and where those of other servers are told.
fn of_our_server(fix: Fix, rule: &str) -> Fix {
    let Some(wish) = fix.wish.filter(|wish| wish.role == Role::Front) else { return fix };
    let setting = match (wish.knob, wish.value) {
        (Knob::MaxConcurrentStreams, Some(streams)) => format!("-m {streams}"),
        (Knob::StreamWindow | Knob::ConnectionWindow, value) => {
            let window = value.unwrap_or_default().max(u64::from(LARGE_WINDOW));
            format!("-w {window} -W {window}")
        }
        (Knob::H1Requests | Knob::H2Requests, _) => "--max-requests-per-connection unlimited".to_owned(),
        _ => return fix,
    };
    let why =
        format!("a flag of this command; for your own server, see its setting in `h2lab explain {rule}`");
    Fix { setting, why, ..fix }
}

/// What spares a client the GOAWAYs of a limit that our server was asked to have.
fn without_quota() -> Fix {
    Fix::new(
        OURS,
        "a larger `--max-requests-per-connection`",
        "the GOAWAYs come from this limit of the server: one of yours loses as many requests each time",
    )
}

/// The findings of a capture: its client is unknown, and our flags do not apply to it.
pub fn of_capture(mut findings: Vec<Finding>) -> Vec<Finding> {
    for finding in &mut findings {
        let fixes = std::mem::take(&mut finding.fixes).into_iter().map(of_any_client).collect();
        finding.fixes = with_both_windows(fixes);
    }
    findings
}

/// Adds the findings that hold only where all connections belong to one client: about those that it left unused, did not
/// keep, or filled.
fn with_those_of_one_client(
    mut findings: Vec<Finding>,
    records: &[CellRecord],
    run: &Client<'_>,
) -> Vec<Finding> {
    let labels = labels(records.iter().map(|record| &record.cell));
    for record in records {
        let case = Case::new(&labels[&record.cell.index], vec![record], None);
        if !record.cell.protocol.is_multiplexed() {
            // Our server keeps connections of HTTP/1.1, unless it was asked to end them.
            let is_kept = !run.asked_for.contains(&"CONN101");
            findings.extend(is_kept.then(|| unkept(&case)).flatten());
            continue;
        }
        let is_said = |rules: &[&str]| {
            findings.iter().any(|one| one.cell == record.cell.index && rules.contains(&one.rule.as_str()))
        };
        // A client that dials for each request is not reported as a stampede as well.
        let mut found = if is_said(&["CONN107"]) { None } else { abandoning(&case) };
        if found.is_none() && !is_said(&["CONN104", "CONN107"]) {
            found = stampede_of_one_client(&case).or_else(|| single_requests(&case));
        }
        let held = if is_said(&["MUX101"]) { None } else { held_at_limit(&case) };
        findings.extend(found.into_iter().chain(held));
    }
    findings.sort_by(costliest_first);
    findings
}

/// Both windows as one fix, if both must be larger: raising only one changes nothing.
fn with_both_windows(fixes: Vec<Fix>) -> Vec<Fix> {
    let is_of = |fix: &Fix, knob| fix.wish.is_some_and(|wish| (wish.role, wish.knob) == (Role::Client, knob));
    if !fixes.iter().any(|fix| is_of(fix, Knob::StreamWindow)) {
        return fixes;
    }
    let (connection, others): (Vec<Fix>, Vec<Fix>) =
        fixes.into_iter().partition(|fix| is_of(fix, Knob::ConnectionWindow));
    let joined = |mut fix: Fix| {
        // The spelling of this product, or what it must announce.
        let own = connection.iter().find(|other| other.product == fix.product).or(connection.last());
        if let Some(other) = own.filter(|_| is_of(&fix, Knob::StreamWindow)) {
            fix.setting = format!("{} and {}", fix.setting, other.setting);
        }
        fix
    };
    others.into_iter().map(joined).collect()
}

/// A fix for our client as one for any client: without our flags.
fn of_any_client(fix: Fix) -> Fix {
    let Some(wish) = fix.wish.filter(|wish| wish.role == Role::Client) else { return fix };
    let flag = advise(&Peer::started(OURS), wish).setting;
    let size = wish.value.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
    let setting = match wish.knob {
        Knob::StreamWindow => format!("a stream window{size} (SETTINGS_INITIAL_WINDOW_SIZE)"),
        Knob::ConnectionWindow => format!("a connection window{size} (WINDOW_UPDATE of stream 0)"),
        _ => fix.setting.replace(&format!(" ({flag})"), ""),
    };
    let elsewhere = known(wish).map(|known| first(&known)).filter(|_| fix.setting == flag);
    Fix { setting, why: elsewhere.unwrap_or(fix.why), ..fix }
}

/// CONN108: over TLS the server prefers h2, so that a client that gets HTTP/1.1 has not offered h2.
fn without_offer(records: &[CellRecord]) -> Option<Finding> {
    let (record, meta) = (only(records, Protocol::H1s)?, cause("CONN108")?);
    let (connections, requests) = (record.connections.len() as u64, record.samples.iter().count() as u64);
    Some(Finding {
        rule: meta.id.to_owned(),
        name: meta.name.to_owned(),
        cell: record.cell.index,
        label: Protocol::H1s.to_string(),
        symptom: format!(
            "the client did not offer h2 in its TLS handshakes (ALPN): {} of HTTP/1.1 on {}",
            plural(requests, "request"),
            plural(connections, "connection")
        ),
        evidence: vec![
            Evidence::new("connections over TLS, all of HTTP/1.1", connections as f64, "connections"),
            Evidence::new("requests of HTTP/1.1", requests as f64, "requests"),
        ],
        cost: "nothing is known of what HTTP/2 would cost or gain this client".to_owned(),
        fixes: vec![Fix::new(
            "client",
            "offer h2 before http/1.1 in ALPN",
            "a library without HTTP/2, or a TLS configuration of one's own that leaves ALPN out, cannot get it from any server",
        )],
        confirm: AGAIN.to_owned(),
        ..Finding::default()
    })
}

/// The remark about a client that spoke HTTP/1.1 in clear: most speak HTTP/2 over TLS only.
pub fn clear_http1(records: &[CellRecord]) -> Option<String> {
    only(records, Protocol::H1)?;
    let words = "the client spoke HTTP/1.1: in clear, HTTP/2 needs prior knowledge, which most clients have to be told; with --tls \
                 it can be negotiated";
    Some(words.to_owned())
}

/// The remark about a client that spoke HTTP in clear to a server of TLS alone.
pub fn clear_at_tls(records: &[CellRecord]) -> Option<String> {
    records.iter().any(|record| !record.cell.protocol.is_tls()).then(|| {
        "the client spoke HTTP in clear at a port where the server speaks TLS alone, and closes such connections: the URL must \
         begin with https://, as {url} does with --tls; without --tls the server speaks HTTP in clear"
            .to_owned()
    })
}

/// The remark about HTTP/2 connections that the server ended, after which no request was sent on any: no packet shows
/// how many requests the client may have had left.
pub fn stopped_at_goaway(records: &[CellRecord]) -> Option<String> {
    let h2 = || records.iter().filter(|record| record.cell.protocol.is_multiplexed());
    let used = |connection: &&ConnectionRecord| connection.requests > 0;
    let connections = || h2().flat_map(|record| &record.connections).filter(used);
    let learned =
        connections().flat_map(|connection| connection.goaways.iter().map(|goaway| goaway.at)).max()?;
    let sent = h2().flat_map(|record| record.samples.iter().map(|sample| sample.sent_at)).max()?;
    let ended = connections().filter(|connection| !connection.goaways.is_empty()).count();
    (sent <= learned && ended == connections().count()).then(|| {
        let samples = || h2().flat_map(|record| record.samples.iter());
        let requests = plural(samples().count() as u64, "request");
        let answered = samples().filter(|sample| sample.outcome.is_complete()).count();
        let after = if answered < samples().count() {
            format!("when it had answered {} of {requests}", count(answered as u64))
        } else {
            format!("after {requests} in all")
        };
        format!(
            "the server ended {} by GOAWAY, {after}, and the client sent none after the last of these: if it had more to send, it \
             gave that up, instead of opening another connection",
            if ended == 1 { "the connection".to_owned() } else { format!("all {ended} connections") },
        )
    })
}

/// The record of a client that spoke only this protocol.
fn only(records: &[CellRecord], protocol: Protocol) -> Option<&CellRecord> {
    let is_all = records.iter().all(|record| record.cell.protocol == protocol);
    records.first().filter(|_| is_all)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Scene;
    use super::*;
    use h2lab_model::record::Outcome;
    use h2lab_model::settings::{Knob, Wish};

    fn record(protocol: Protocol) -> CellRecord {
        let mut record = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 125).record();
        record.cell.protocol = protocol;
        record
    }

    fn with_fixes(products: &[&str]) -> Finding {
        let fixes = products.iter().map(|product| Fix::new(product, "x", "y")).collect();
        Finding { rule: "CONN111".to_owned(), fixes, ..Finding::default() }
    }

    #[test]
    fn a_fix_at_our_own_server_is_none() {
        let of = |finding| of_client(vec![finding], &[record(Protocol::H2)], &Client::default());
        let both = of(with_fixes(&["h2lab", "client"])).findings;
        let products: Vec<&str> = both[0].fixes.iter().map(|fix| fix.product.as_str()).collect();
        assert_eq!((products, both[0].confirm.as_str()), (vec!["client"], AGAIN));
        let ours = of(Finding { symptom: "windows were full.".to_owned(), ..with_fixes(&["h2lab"]) });
        assert!(ours.findings.is_empty(), "it is about our server");
        let said = "h2lab's own server, not the client, is the cause of this (CONN111): windows were full";
        assert_eq!(ours.remarks(), [said]);
        let without = of(with_fixes(&[]));
        assert_eq!((without.findings.len(), without.remarks().len()), (1, 0));
    }

    #[test]
    fn a_client_that_sends_nothing_after_a_goaway_is_told() {
        let scene = |next: bool| {
            let scene = Scene::new(Protocol::H2).request(0, 1, 100, 125, 125).goaway(0, 125, 1, 0);
            let scene = if next { scene.request(1, 1, 200, 225, 225) } else { scene };
            stopped_at_goaway(&[scene.record()])
        };
        let said = scene(false).expect("it stopped");
        assert!(
            said.starts_with("the server ended the connection by GOAWAY, after 1 request in all"),
            "{said}"
        );
        assert_eq!(scene(true), None);
        assert_eq!(stopped_at_goaway(&[record(Protocol::H2)]), None, "no GOAWAY");
        let lost = Scene::new(Protocol::H2).request(0, 1, 100, 125, 125).request(0, 3, 100, 125, 125);
        let mut lost = lost.goaway(0, 125, 1, 0).record();
        lost.samples.edit()[1].outcome = Outcome::Refused;
        let said = stopped_at_goaway(&[lost]).expect("it stopped");
        assert!(said.contains("by GOAWAY, when it had answered 1 of 2 requests, and the client"), "{said}");
    }

    #[test]
    fn http_in_clear_is_told_where_the_server_speaks_tls_alone() {
        for clear in [Protocol::H1, Protocol::H2c] {
            let said = clear_at_tls(&[record(Protocol::H2), record(clear)]).expect("one is in clear");
            assert!(said.contains("https://"), "{said}");
        }
        assert_eq!(clear_at_tls(&[record(Protocol::H2), record(Protocol::H1s)]), None);
    }

    #[test]
    fn requests_lost_by_the_quota_that_was_asked_for_name_it() {
        let of = |rule: &str, asked_for: &[&str]| {
            let finding = Finding { rule: rule.to_owned(), ..with_fixes(&["client"]) };
            let client = Client { asked_for, ..Client::default() };
            let found = of_client(vec![finding], &[record(Protocol::H2)], &client).findings;
            let last = found[0].fixes.last().expect("a fix").setting.clone();
            (last, found[0].confirm.contains("the server's limit"))
        };
        let quota = ("a larger `--max-requests-per-connection`".to_owned(), true);
        assert_eq!(of("CONN103", &["CONN101", "CONN103"]), quota);
        assert_eq!(of("CONN103", &["MUX101"]), ("x".to_owned(), false));
        assert_eq!(of("CONN101", &["CONN101", "CONN103"]), ("x".to_owned(), false));
    }

    #[test]
    fn connections_of_http1_that_our_server_was_asked_to_end_are_not_the_clients_fault() {
        let scene = (0..8).fold(Scene::new(Protocol::H1s), |scene, n| {
            let at = 100 + 200 * u64::from(n);
            scene.dialled(n, at, at + 50).waited(n, 1, [at, at + 50, at + 75])
        });
        let record = scene.record();
        let rules = |asked_for: &[&str]| {
            let client = Client { asked_for, ..Client::default() };
            let found = of_client(Vec::new(), std::slice::from_ref(&record), &client).findings;
            found.into_iter().map(|finding| finding.rule).collect::<Vec<_>>()
        };
        assert_eq!(rules(&[]), ["CONN108", "CONN107"]);
        assert_eq!(rules(&["CONN101"]), ["CONN108"]);
    }

    #[test]
    fn both_windows_are_one_fix() {
        let fix = |knob| {
            let wish = Wish { knob, role: Role::Client, value: Some(1 << 22) };
            Fix { wish: Some(wish), ..Fix::new("client", &advise(&Peer::started(OURS), wish).setting, "why") }
        };
        let of = |knobs: &[Knob], command: &str| {
            let fixes = knobs.iter().map(|knob| fix(*knob)).collect();
            let finding = Finding { fixes, ..Finding::default() };
            let client = Client { command, ..Client::default() };
            let found = of_client(vec![finding], &[record(Protocol::H2)], &client);
            found.findings[0].fixes.iter().map(|fix| fix.setting.clone()).collect::<Vec<_>>()
        };
        let both = [Knob::StreamWindow, Knob::ConnectionWindow];
        let connection = "a connection window of 4194304 bytes (WINDOW_UPDATE of stream 0)";
        let any = of(&both, "./mine {url}");
        assert_eq!(
            any,
            [format!("a stream window of 4194304 bytes (SETTINGS_INITIAL_WINDOW_SIZE) and {connection}")]
        );
        let node = of(&both, "node app.js {url}");
        assert!(node[0].contains("initialWindowSize: 4194304") && node[0].contains(" and "), "{node:?}");
        assert_eq!(of(&both[1..], "./mine {url}"), [connection]);
    }

    #[test]
    fn a_limit_that_our_server_was_asked_to_have_is_raised_there() {
        let asked = Client { asked_for: &["CONN101", "FLOW102"], ..Client::default() };
        let of = |rule: &str| {
            let finding = Finding { rule: rule.to_owned(), ..with_fixes(&["client", "h2lab"]) };
            let found = of_client(vec![finding], &[record(Protocol::H2)], &asked).findings;
            let products: Vec<String> = found[0].fixes.iter().map(|fix| fix.product.clone()).collect();
            (products, found[0].confirm.contains("the server's limit"))
        };
        assert_eq!(of("CONN101"), (vec!["h2lab".to_owned(), "client".to_owned()], true));
        assert_eq!(of("CONN105"), (vec!["client".to_owned()], false));
        let windows = Finding { rule: "FLOW102".to_owned(), ..with_fixes(&["h2lab"]) };
        let found = of_client(vec![windows], &[record(Protocol::H2)], &asked);
        assert_eq!((found.findings.len(), found.of_server.len()), (1, 0), "it is no defect of h2lab");
    }

    #[test]
    fn a_fix_at_our_server_is_a_flag_of_this_command_with_the_value_that_is_tried() {
        let of = |knob, value| {
            let wish = Wish { knob, role: Role::Front, value };
            let fix = Fix { wish: Some(wish), ..Fix::new(OURS, "x", "y") };
            let finding = Finding { rule: "MUX101".to_owned(), fixes: vec![fix], ..Finding::default() };
            let asked = Client { asked_for: &["MUX101"], ..Client::default() };
            let mut found = of_client(vec![finding], &[record(Protocol::H2)], &asked).findings;
            found.remove(0).fixes.remove(0)
        };
        let streams = of(Knob::MaxConcurrentStreams, Some(128));
        assert_eq!((streams.setting.as_str(), streams.wish.is_some()), ("-m 128", true));
        assert!(streams.why.contains("`h2lab explain MUX101`"), "{}", streams.why);
        assert_eq!(of(Knob::StreamWindow, Some(1 << 20)).setting, "-w 16777216 -W 16777216");
        assert_eq!(of(Knob::ConnectionWindow, Some(1 << 25)).setting, "-w 33554432 -W 33554432");
        assert_eq!(of(Knob::SessionResumption, None).setting, "x");
    }

    #[test]
    fn curl_has_no_flag_for_more_connections() {
        let wish = Wish { knob: Knob::UpstreamConnections, role: Role::Client, value: None };
        let fix = Fix { wish: Some(wish), ..Fix::new("client", "more connections", "y") };
        let finding = Finding { fixes: vec![fix], ..Finding::default() };
        let client = Client { command: "curl -s {urls}", ..Client::default() };
        let found = of_client(vec![finding], &[record(Protocol::H2)], &client).findings;
        assert_eq!(found[0].fixes.iter().map(|fix| fix.product.as_str()).collect::<Vec<_>>(), ["client"]);
    }

    #[test]
    fn the_setting_of_a_product_that_the_command_names_comes_first() {
        let wish = Wish { knob: Knob::StreamWindow, role: Role::Client, value: Some(1 << 20) };
        let fix = Fix { wish: Some(wish), ..Fix::new("client", "x", "y") };
        let of = |command| {
            let finding = Finding { fixes: vec![fix.clone()], ..Finding::default() };
            let found =
                of_client(vec![finding], &[record(Protocol::H2)], &Client { command, ..Client::default() });
            found.findings[0].fixes.iter().map(|fix| fix.product.clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("node app.js {url}"), ["Node", "client"]);
        assert_eq!(of("./mine {url}"), ["client"]);
    }

    #[test]
    fn a_capture_is_of_any_client() {
        let wish = Wish { knob: Knob::StreamWindow, role: Role::Client, value: Some(1 << 20) };
        let ours = advise(&Peer::started(OURS), wish).setting;
        let fix = Fix { wish: Some(wish), ..Fix::new("client", &ours, "y") };
        let found = of_capture(vec![Finding { fixes: vec![fix], ..Finding::default() }]);
        assert_eq!(
            found[0].fixes[0].setting,
            "a stream window of 1048576 bytes (SETTINGS_INITIAL_WINDOW_SIZE)"
        );
        assert_eq!(of_capture(found.clone()), found, "once is enough");
    }

    #[test]
    fn flags_of_ours_are_none_of_the_users_client() {
        let advised = |knob, words: &str| {
            let wish = Wish { knob, role: Role::Client, value: Some(1 << 22) };
            let ours = advise(&Peer::started(OURS), wish).setting;
            let setting = if words.is_empty() { ours } else { format!("{words} ({ours})") };
            of_any_client(Fix { wish: Some(wish), ..Fix::new("client", &setting, "why") })
        };
        let window = advised(Knob::StreamWindow, "");
        assert_eq!(window.setting, "a stream window of 4194304 bytes (SETTINGS_INITIAL_WINDOW_SIZE)");
        assert!(window.why.contains("Node") && !window.why.contains("h2lab `-w"), "{}", window.why);
        let more = advised(Knob::UpstreamConnections, "more connections");
        assert_eq!((more.setting.as_str(), more.why.as_str()), ("more connections", "why"));
        let other = Fix::new("kernel", "x (-c 16)", "y");
        assert_eq!(of_any_client(other.clone()), other);
    }

    #[test]
    fn only_a_client_that_spoke_nothing_but_http1_is_told_how_to_get_http2() {
        let rules = |protocols: &[Protocol]| {
            let records: Vec<CellRecord> = protocols.iter().map(|protocol| record(*protocol)).collect();
            let found = of_client(Vec::new(), &records, &Client::default())
                .findings
                .into_iter()
                .map(|finding| finding.rule);
            (found.collect::<Vec<_>>(), clear_http1(&records).is_some())
        };
        assert_eq!(rules(&[Protocol::H1s]), (vec!["CONN108".to_owned()], false));
        assert_eq!(rules(&[Protocol::H1]), (Vec::new(), true));
        for others in [&[Protocol::H2][..], &[Protocol::H1s, Protocol::H2], &[Protocol::H2c], &[]] {
            assert_eq!(rules(others), (Vec::new(), false), "{others:?}");
        }
    }
}
