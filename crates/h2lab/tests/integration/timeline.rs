//! `h2lab timeline`, and `h2lab run` of a study of timelines: at our origin, and along real proxies.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use h2lab_net::process::Child;
use serde_json::Value;

use crate::origin::Origin;
use crate::support::{DEADLINE, Finished, binary, folder, h2lab, need, workspace};

/// The one stream of a document that was asked for.
#[track_caller]
fn main_stream(document: &Value) -> &Value {
    let streams = document["streams"].as_array().expect("streams");
    let asked: Vec<&Value> = streams.iter().filter(|stream| stream["pushed"] == false).collect();
    assert_eq!(asked.len(), 1, "{document:#}");
    asked[0]
}

fn pushed(document: &Value) -> Vec<&Value> {
    let streams = document["streams"].as_array().expect("streams");
    streams.iter().filter(|stream| stream["pushed"] == true).collect()
}

/// Fails unless these times are present and in this order.
#[track_caller]
fn assert_in_order(stream: &Value, names: &[&str]) {
    let times: Vec<f64> = names
        .iter()
        .map(|name| stream[name].as_f64().unwrap_or_else(|| panic!("no {name}: {stream:#}")))
        .collect();
    assert!(times.is_sorted(), "{names:?}: {times:?}");
}

#[test]
fn each_thing_has_its_time_over_every_protocol() {
    let origin = Origin::start(&["--h3"]);
    for protocol in ["h1", "h2c", "h1s", "h2", "h3"] {
        let (scheme, address) =
            if matches!(protocol, "h1" | "h2c") { ("http", origin.clear) } else { ("https", origin.tls) };
        let url = format!("{scheme}://{address}/early?at=0,5&ms=30&bytes=10k&body=20&links=2");
        let finished = h2lab(&["timeline", "-k", "--json", "--proto", protocol, &url]);
        assert_eq!(finished.code, Some(0), "{}", finished.transcript());
        let document = finished.json();
        assert_eq!((&document["protocol"], &document["answered"]), (&protocol.into(), &1.into()));
        let main = main_stream(&document);
        let statuses: Vec<u64> =
            main["interim"].as_array().unwrap().iter().map(|one| one["status"].as_u64().unwrap()).collect();
        assert_eq!((statuses, &main["interim"][0]["links"]), (vec![103, 103], &2.into()), "{protocol}");
        assert_in_order(main, &["request_ms", "headers_ms", "first_data_ms", "last_data_ms", "end_ms"]);
        assert!(main["interim"][1]["ms"].as_f64() <= main["headers_ms"].as_f64(), "{protocol}");
        assert_eq!((&main["status"], &main["bytes"]), (&200.into(), &10_240.into()), "{protocol}");
        let connect = &document["connect"];
        assert!(connect["connected_ms"].as_f64() <= main["request_ms"].as_f64(), "{protocol}");
        assert_eq!(connect["tls_ms"].is_number(), matches!(protocol, "h1s" | "h2"), "{protocol}");
        assert_eq!(connect["settings_ms"].is_number(), !protocol.starts_with("h1"), "{protocol}");
    }
}

#[test]
fn a_server_without_http_2_is_asked_in_http_1() {
    let Some(python) = need("python3") else { return };
    let place = folder();
    fs::write(place.path().join("page"), "a page").unwrap();
    let mut command = Command::new(python);
    command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]).current_dir(place.path());
    let server = Child::spawn(command, None).unwrap();
    let port = |line: &str| line.split(" port ").nth(1)?.split(' ').next()?.parse::<u16>().ok();
    let port = server.wait_for_line(DEADLINE, port).unwrap();
    let finished = h2lab(&["timeline", "--json", &format!("http://127.0.0.1:{port}/page")]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    assert_eq!(finished.json()["protocol"], "h1");
    assert_eq!(main_stream(&finished.json())["bytes"], 6);
    assert!(finished.stderr.contains("trying h1"), "{}", finished.stderr);
}

#[test]
fn pushes_are_taken_with_their_promises_and_waited_for_or_refused() {
    let origin = Origin::start(&[]);
    for (query, because) in [
        ("/push?count=2", "request"),
        ("/early?links=2&ms=20&push=request&at=none", "request"),
        ("/early?links=2&ms=20&push=interim", "interim"),
        ("/early?links=2&ms=20&push=final&on=final&at=none", "final"),
    ] {
        let url = format!("http://{}{query}", origin.clear);
        let document = h2lab(&["timeline", "--json", &url]).json();
        let pushes = pushed(&document);
        assert_eq!(pushes.len(), 2, "{query}: {document:#}");
        for push in &pushes {
            assert_in_order(push, &["promise_ms", "headers_ms", "end_ms"]);
            assert_eq!(push["bytes"], 4096, "{query}");
        }
        let main = main_stream(&document);
        let promised = pushes[0]["promise_ms"].as_f64();
        assert!(promised <= main["headers_ms"].as_f64(), "{because}: {document:#}");
        if because == "interim" {
            assert!(promised <= main["interim"][0]["ms"].as_f64(), "a promise stands before what names it");
        }
        let refused = h2lab(&["timeline", "--json", "--no-push", &url]).json();
        assert_eq!((pushed(&refused).len(), &refused["push"]), (0, &false.into()), "{query}");
        assert_eq!(refused["each"][0]["refuses_push"], true, "{query}");
    }
}

#[test]
fn trailers_have_their_time() {
    let origin = Origin::start(&[]);
    for (protocol, base) in
        [("h2", format!("https://{}", origin.tls)), ("h1", format!("http://{}", origin.clear))]
    {
        let url = format!("{base}/early?ms=1&bytes=1k&trailers=2");
        let words = ["timeline", "-k", "--json", "--proto", protocol, "-H", "TE: trailers", &url];
        let document = h2lab(&words).json();
        let main = main_stream(&document);
        assert_in_order(main, &["headers_ms", "last_data_ms", "trailers_ms", "end_ms"]);
        assert_eq!(main["bytes"], 1024, "{protocol}");
    }
}

#[test]
fn a_request_behind_an_upgrade_that_is_never_answered_is_none_that_was() {
    let origin = Origin::start(&["--h2c-upgrade"]);
    let ask = |query: &str, timeout: &str| {
        let url = format!("http://{}/early?at=none&{query}", origin.clear);
        h2lab(&["timeline", "--h2c-mode", "upgrade", "--timeout", timeout, "--json", &url])
    };
    let never = ask("ms=60000", "2s");
    assert_eq!(never.code, Some(3), "{}", never.transcript());
    let answered = ask("ms=1", "60s");
    assert_eq!((answered.code, &answered.json()["answered"]), (Some(0), &1.into()));
}

#[test]
fn several_runs_give_medians_and_how_far_they_lie_apart() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/early?ms=5", origin.clear);
    let document = h2lab(&["timeline", "--json", "-n", "5", &url]).json();
    assert_eq!((document["each"].as_array().unwrap().len(), &document["runs"]), (5, &5.into()));
    let main = main_stream(&document);
    let spread = &main["spread"]["headers_ms"];
    let (low, high) = (spread["min"].as_f64().unwrap(), spread["max"].as_f64().unwrap());
    assert!((low..=high).contains(&main["headers_ms"].as_f64().unwrap()) && spread["runs"] == 5, "{main:#}");
    let text = h2lab(&["timeline", "-n", "5", &url]);
    assert!(
        text.stdout.contains("medians of 5 runs") && text.stdout.contains("HEADERS 200"),
        "{}",
        text.stdout
    );
}

#[test]
fn pictures_load_nothing() {
    let (origin, place) = (Origin::start(&[]), folder());
    let url = format!("http://{}/push?count=3", origin.clear);
    let file = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (page, picture, json) = (file("x.html"), file("x.svg"), file("x.json"));
    let finished = h2lab(&["timeline", "-o", &page, "-o", &picture, "-o", &json, &url]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let (page, picture) = (fs::read_to_string(page).unwrap(), fs::read_to_string(picture).unwrap());
    assert!(page.contains("PUSH_PROMISE") && !page.contains("<script src") && !page.contains("<link "));
    assert!(picture.starts_with("<?xml") && picture.contains("PUSH_PROMISE") && !picture.contains("var(--"));
    let document: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(pushed(&document).len(), 3);
}

/// How long the origin's 103 precedes its response, in milliseconds, in tests of whether a proxy forwards it at once:
/// the proxy may take half of that, which is more than a busy machine takes.
const LEAD: u32 = 6_000;

/// What the only proxy of a chain did to a 103 from its upstream with two links, `ms` before the response.
fn along(chain: &str, ms: u32, more: &[&str]) -> Option<Value> {
    let server = match chain.split('/').next().unwrap_or_default() {
        "apache" => "apache2",
        other => other,
    };
    need(server)?;
    let path = format!("/early?ms={ms}&links=2");
    let words = ["timeline", "--json", "--hops", chain, &path];
    let finished = h2lab(&[&words[..], more].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    Some(finished.json())
}

#[track_caller]
fn assert_verdicts(document: &Value, early_hints: &str, push: &str) {
    let hop = &document["hops"][0];
    let report = (&hop["early_hints"]["verdict"], &hop["push"]["verdict"]);
    assert_eq!(report, (&early_hints.into(), &push.into()), "{:#}", document["hops"]);
}

#[test]
fn nginx_takes_a_103_from_behind_for_the_response_and_is_found_broken() {
    for protocol in ["h2c", "h2", "h1"] {
        let Some(document) = along("nginx", 80, &["--proto", protocol, "--timeout", "5s"]) else { return };
        assert_verdicts(&document, "broken", "refused");
        let (front, behind) = (&document["legs"][0], &document["legs"][1]);
        assert_eq!((&front["answered"], &behind["answered"]), (&0.into(), &1.into()), "{protocol}");
        assert_eq!(main_stream(behind)["interim"][0]["status"], 103, "{protocol}");
        let text = h2lab(&["timeline", "--hops", "nginx", "--proto", protocol, "--timeout", "5s"]);
        assert!(text.stdout.contains("BROKEN"), "{}", text.stdout);
    }
}

#[test]
fn proxies_that_forward_a_103_at_once_are_distinguished_from_those_that_swallow_it() {
    let cases = [
        ("haproxy", &[][..], "forwarded", "refused"),
        ("caddy", &[], "forwarded", "refused"),
        ("nghttpx", &[], "forwarded", "added"),
        ("envoy", &[], "swallowed", "refused"),
        ("envoy", &["--early-hints"], "forwarded", "refused"),
        ("apache", &[], "swallowed", "added"),
        ("apache", &["--early-hints"], "forwarded", "added"),
        ("h2o", &[], "swallowed", "added"),
    ];
    // All at once, since each waits for most of its time.
    thread::scope(|scope| {
        for (chain, more, early_hints, push) in cases {
            scope.spawn(move || {
                let Some(document) = along(chain, LEAD, &[more, &["--timeout", "60s"]].concat()) else {
                    return;
                };
                assert_verdicts(&document, early_hints, push);
            });
        }
    });
}

#[test]
fn a_chain_of_several_shows_who_of_them_swallows() {
    let (Some(_), Some(_)) = (need("haproxy"), need("envoy")) else { return };
    let words = ["timeline", "--json", "--proto", "h2", "--hops", "haproxy,envoy/h2c,origin/h2c"];
    let path = "/early?ms=30&bytes=1k&trailers=1";
    let document = h2lab(&[&words[..], &[path]].concat()).json();
    let of = |hop: usize, what: &str| document["hops"][hop][what]["verdict"].clone();
    assert_eq!((of(0, "early_hints"), of(1, "early_hints")), ("none".into(), "swallowed".into()));
    assert_eq!((of(0, "trailers"), of(1, "trailers")), ("forwarded".into(), "forwarded".into()));
    let legs: Vec<(&str, &str)> = document["legs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|leg| (leg["server"].as_str().unwrap(), leg["protocol"].as_str().unwrap()))
        .collect();
    assert_eq!(legs, [("haproxy", "h2"), ("envoy", "h2c"), ("origin", "h2c")]);
}

#[test]
fn a_body_that_is_under_way_when_the_client_gives_up_breaks_nothing() {
    let slow = ["--timeout", "15s", "--proto", "h2c"];
    let path = format!("/early?ms={LEAD}&bytes=1M&body=60000");
    let words = ["timeline", "--json", "--hops", "haproxy", &path];
    if need("haproxy").is_none() {
        return;
    }
    let document = h2lab(&[&words[..], &slow].concat()).json();
    assert_verdicts(&document, "forwarded", "refused");
    for leg in document["legs"].as_array().unwrap() {
        assert_eq!((&leg["headed"], &leg["answered"]), (&1.into(), &0.into()), "{leg:#}");
    }
    assert_eq!(document["each"][0]["timed_out"], true);
    assert!(document["legs"][1]["connect"]["connected_ms"].is_number(), "{:#}", document["legs"][1]);
}

#[test]
fn a_chain_may_have_a_server_twice() {
    if need("nginx").is_none() {
        return;
    }
    let words = ["timeline", "--json", "--hops", "nginx,nginx", "-n", "2", "/early?at=none&ms=5"];
    let document = h2lab(&words).json();
    let legs: Vec<(&str, u64)> = document["legs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|leg| (leg["server"].as_str().unwrap(), leg["answered"].as_u64().unwrap()))
        .collect();
    assert_eq!(legs, [("nginx-proxy", 2), ("nginx-proxy-2", 2), ("origin", 2)]);
    let text = h2lab(&["timeline", "--hops", "nginx,nginx", "--timeout", "5s"]).stdout;
    let broken: Vec<&str> = text.lines().filter(|line| line.contains("BROKEN:")).collect();
    assert!(broken.len() == 1 && broken[0].contains("nginx-proxy-2"), "it is the one behind: {text}");
}

#[test]
fn trailers_from_behind_in_http_1_are_followed_through_a_proxy_asked_in_http_2() {
    if need("haproxy").is_none() {
        return;
    }
    let words = ["timeline", "--json", "--proto", "h2c", "--hops", "haproxy", "-H", "TE: trailers"];
    let document = h2lab(&[&words[..], &["/early?ms=5&bytes=1k&trailers=1"]].concat()).json();
    let (front, behind) = (&document["legs"][0], &document["legs"][1]);
    assert_eq!((&front["protocol"], &behind["protocol"]), (&"h2c".into(), &"h1".into()));
    assert!(main_stream(behind)["trailers_ms"].is_number(), "{behind:#}");
    assert_eq!(document["hops"][0]["trailers"]["verdict"], "forwarded", "{:#}", document["hops"]);
}

/// The shipped study with these servers, what is behind them, and 103, as a file in `place`.
fn study_file(place: &Path, servers: &str, backends: &str, early_hints: &str) -> String {
    let shipped = fs::read_to_string(workspace().join("scenarios/early-push.toml")).unwrap();
    let replaced = shipped.lines().map(|line| match line.split(" = ").next() {
        Some("servers") => format!("servers = [{servers}]"),
        Some("backends") => format!("backends = [{backends}]"),
        Some("early-hints") => format!("early-hints = [{early_hints}]"),
        _ => line.to_owned(),
    });
    let file = place.join("study.toml");
    fs::write(&file, replaced.collect::<Vec<_>>().join("\n")).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Runs such a study and checks its results.
fn study(servers: &str, backends: &str, early_hints: &str, more: &[&str]) -> Finished {
    let place = folder();
    let file = study_file(place.path(), servers, backends, early_hints);
    let (page, kept) = (place.path().join("study.html"), place.path().join("kept"));
    let files = ["-o", page.to_str().unwrap(), "--out", kept.to_str().unwrap()];
    let finished = h2lab(&[&["run", &file, "--json"], &files[..], more].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Original study: apache"));
    assert_eq!(fs::read_to_string(kept.join("report.html")).unwrap(), page);
    assert_eq!(fs::read_to_string(kept.join("study.json")).unwrap(), finished.stdout);
    finished
}

/// Asserts that the table has every row of Apache in front of these backends, with 103 set as given, with `runs`
/// answered runs each, and which promises come when.
#[track_caller]
fn assert_apache(table: &Value, backends: &[&str], early_hints: bool, runs: u64) {
    let rows = table["rows"].as_array().unwrap();
    let kind = |row: &Value| {
        let text = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
        (text("source"), text("announcement"), text("backend"))
    };
    let mut kinds: Vec<_> = rows.iter().map(kind).collect();
    kinds.sort();
    let mut expected = Vec::new();
    let mut expect = |source: &str, announcements: [&str; 2], backend: &str| {
        expected.extend(announcements.map(|one| (source.to_owned(), one.to_owned(), backend.to_owned())));
    };
    for source in ["file", "cgi"] {
        expect(source, ["link", "early"], "-");
    }
    for backend in backends {
        expect("proxy", ["link", "early"], backend);
        expect("slow-proxy", ["link", "early"], backend);
        expect("slow-proxy", ["backend-link", "backend-hints"], backend);
    }
    expected.sort();
    assert_eq!(kinds, expected);
    for row in rows {
        assert_eq!((&row["runs"], &row["answered"]), (&runs.into(), &runs.into()), "{row:#}");
        assert_eq!((&row["early_hints"], &row["server"]), (&early_hints.into(), &"apache".into()));
        let is_early = matches!(row["announcement"].as_str(), Some("early" | "backend-hints"));
        // `cargo xtask verify timeline --only early-push` shows how long before the response it comes.
        assert!(row["promise_lead_ms"].as_f64().expect("a promise") >= 0.0, "{row:#}");
        assert_eq!(row["early_hints_ms"].is_number(), is_early && early_hints, "{row:#}");
    }
}

#[test]
fn apache_promises_what_was_configured_long_before_a_slow_backend_or_program_answers() {
    if need("apache2").is_some() {
        let table = study("'apache'", "'h1', 'h2c'", "false", &[]).json();
        assert_apache(&table, &["h1", "h2c"], false, 11);
    }
}

#[test]
fn apache_sends_103_with_its_promises_where_it_is_configured() {
    if need("apache2").is_some() {
        let table = study("'apache'", "'h1'", "true", &["--quick"]).json();
        assert_apache(&table, &["h1"], true, 3);
    }
}

#[test]
fn what_a_study_has_no_use_for_is_refused() {
    let scenario = workspace().join("scenarios/early-push.toml");
    for (words, report) in [
        (&["-X", "POST"][..], "-X/--request is about load"),
        (&["-H", "a: b"], "-H/--header is about load"),
        (&["--repetitions", "3"], "--repetitions is about load"),
        (&["--reconnect-every", "3"], "--reconnect-every is about load"),
        (&["--keep-alive", "1s"], "--keep-alive is about load"),
        (&["--delay", "1ms"], "--delay is about load"),
        (&["--proto", "h1,h2"], "this command uses one protocol"),
        (&["--timeout", "80ms"], "`timeline.timeout` = 80ms"),
    ] {
        let finished = h2lab(&[&["run", scenario.to_str().unwrap()], words].concat());
        assert_eq!(finished.code, Some(2), "{}", finished.transcript());
        assert!(finished.stderr.contains(report), "{report}: {}", finished.transcript());
    }
}

#[test]
fn a_study_says_which_server_it_could_not_ask_and_goes_on() {
    if need("haproxy").is_none() {
        return;
    }
    let more = ["--quick", "--proto", "h2c", "--timeout", "60s"];
    let table = study("'haproxy', 'origin'", "'h1'", "false", &more).json();
    assert_eq!((&table["protocol"], &table["runs"]), (&"h2c".into(), &3.into()));
    let servers: Vec<&str> =
        table["rows"].as_array().unwrap().iter().map(|row| row["server"].as_str().unwrap()).collect();
    assert_eq!(servers, [vec!["haproxy"; 4], vec!["origin"; 3]].concat());
    let hints =
        table["rows"].as_array().unwrap().iter().find(|row| row["setting"] == "http-request early-hint Link");
    assert!(hints.unwrap()["early_hints_lead_ms"].as_f64().unwrap() >= 0.0, "{hints:#?}");
}

#[test]
fn a_handler_on_gos_net_http_promises_and_hints_before_it_answers() {
    if need("go").is_none() {
        return;
    }
    let table = study("'go'", "'h1'", "false", &["--quick"]).json();
    let lead = |setting: &str, time: &str| {
        let rows = table["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["setting"] == setting);
        let row = row.unwrap_or_else(|| panic!("no {setting}: {table:#}"));
        assert_eq!((&row["answered"], &row["backend"]), (&3.into(), &Value::Null), "{row:#}");
        row[time].as_f64()
    };
    assert!(lead("Pusher.Push", "promise_lead_ms") >= Some(0.0), "{table:#}");
    assert!(lead("WriteHeader(103)", "early_hints_lead_ms") >= Some(0.0), "{table:#}");
    let link = "Header().Add(Link)";
    assert_eq!((lead(link, "promise_lead_ms"), lead(link, "early_hints_lead_ms")), (None, None));
}

#[test]
fn a_server_that_does_not_start_costs_the_others_none_of_their_rows() {
    let place = folder();
    let broken = place.path().join("nghttpx");
    fs::write(&broken, "#!/bin/sh\necho a broken library\nexit 127\n").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |servers: &str| {
        let file = study_file(place.path(), servers, "'h1'", "false");
        let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
        Command::new(binary()).args(["run", &file, "--quick", "--json"]).env("PATH", path).output().unwrap()
    };
    let output = run("'nghttpx', 'origin'");
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), table["rows"].as_array().unwrap().len()), (Some(0), 3), "{table:#}");
    assert_eq!(table["missing"][0]["server"], "nghttpx");
    assert!(table["missing"][0]["why"].as_str().unwrap().contains("a broken library"), "{table:#}");
    let nobody = run("'nghttpx'");
    assert_eq!(nobody.status.code(), Some(4), "{}", String::from_utf8_lossy(&nobody.stderr));
    assert!(nobody.stdout.starts_with(b"{"), "the table is printed all the same");
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_do() {
    for (words, report) in [
        (&["timeline"][..], "<URL>"),
        (&["timeline", "--hops", "ngnix"], "`ngnix`"),
        (&["timeline", "--hops", "origin,nginx"], "must come last"),
        (&["timeline", "--hops", "haproxy", "http://h/"], "a path of our origin"),
        (&["timeline", "--early-hints", "http://h/"], "--hops"),
        (&["timeline", "-n", "0", "http://h/"], "-n"),
        (&["timeline", "-o", "x.gif", "http://h/"], ".html .svg .json"),
        (&["timeline", "-o", "x.png", "http://h/"], "write pictures as .svg"),
        (&["timeline", "--proto", "h2", "http://h/"], "does not fit"),
    ] {
        let finished = h2lab(words);
        assert_eq!(finished.code, Some(2), "{}", finished.transcript());
        assert!(finished.stderr.contains(report), "{}", finished.transcript());
    }
    let nobody = h2lab(&["timeline", "http://127.0.0.1:1/"]);
    assert_eq!(nobody.code, Some(3), "{}", nobody.transcript());
}
