//! Defects that users of hey, its live fork, h2load and vegeta have found in them. Each has a test here that shows that
//! `load` does not have it. The comment names the tool and, if there is one, its public issue.
//!
//! Shown elsewhere:
//! - errors in every level of recording (hey): `load::tests::threads::errors_are_counted_as_errors_in_every_level_…`;
//! - no coordinated omission (hey has a closed loop only), the generator's lateness is in the latency (vegeta):
//!   `load::tests::an_open_loop_yields_one_sample_per_scheduled_request`, `requests_beyond_the_last_connection_wait_and_say_so`;
//! - streams per connection can be set (vegeta #513): `load::tests::a_closed_loop_keeps_its_number_in_flight_and_never_more`;
//! - a server that closes is dialled again (h2load after nginx's "http2 flood detected"):
//!   `load::tests::a_connection_that_breaks_fails_what_it_carried_and_nothing_is_lost`;
//! - impossible figures (the study's 145 busy of 100 workers):
//!   `stats::checks::tests::the_figures_of_the_study_are_found_out`.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use h2lab::run::store;
use h2lab_base::units::Time;
use h2lab_model::record::tally::Tallier;
use h2lab_model::record::{CellRecord, Outcome, Sample};
use h2lab_model::workload::Phases;
use serde_json::Value;

use crate::origin::Origin;
use crate::support::{binary, folder, h2lab, run_program};

/// The document of a closed loop.
#[track_caller]
fn load(arguments: &[&str]) -> Value {
    let finished = h2lab(&[&["load", "--json", "--quiet", "--no-store"], arguments].concat());
    finished.assert_measured();
    finished.json()
}

/// What the run folder of a load holds.
#[track_caller]
fn record(arguments: &[&str]) -> CellRecord {
    let folder = folder();
    let arguments = [&["load", "--quiet", "--record=full", "--out=run"], arguments].concat();
    let finished = run_program(&binary(), folder.path(), &arguments);
    finished.assert_measured();
    let mut run = store::read(&folder.path().join("run")).expect("the run can be read");
    run.repetitions.pop().expect("one repetition")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// hey: "Requests/sec" counts what failed.
#[test]
fn what_fails_is_no_throughput() {
    let origin = Origin::start(&[]);
    let url = |path: &str| format!("http://{}{path}", origin.clear);
    let failed =
        h2lab(&["load", "--json", "--quiet", "--no-store", "-n200", "-c4", &url("/status/503")]).json();
    assert_eq!((number(&failed["throughput_rps"]), number(&failed["requests"]["failed"])), (0.0, 200.0));
    assert!(failed["latency_us"]["response"].is_null(), "a quick error is no quick answer");
    let mixed = load(&["-n400", "-c4", &url("/"), &url("/status/503")]);
    let served = number(&mixed["throughput_rps"]) * number(&mixed["duration_s"]);
    let succeeded = number(&mixed["requests"]["succeeded"]);
    assert!(succeeded < 400.0 && (served - succeeded).abs() <= 2.0, "{served} of {succeeded}");
}

/// hey #112, #227: results beyond the first million are not counted, and averages are wrong.
#[test]
fn counts_and_averages_are_exact_above_a_million_results() {
    const RESULTS: u64 = 1_396_881;
    let phases =
        Phases { warmup: Duration::ZERO, measure: Duration::from_secs(60), drain: Duration::from_secs(1) };
    let mut tallier = Tallier::new(phases, Time::ZERO);
    let mut sum = Duration::ZERO;
    for n in 0..RESULTS {
        let at = Time::from_micros(n * 40);
        let took = Duration::from_micros(100 + n % 1_000);
        sum += took;
        tallier.add(&Sample {
            connection: 0,
            sent_at: at,
            first_byte_at: at + took,
            completed_at: at + took,
            outcome: if n % 10 == 0 { Outcome::Status } else { Outcome::Succeeded },
            status: if n % 10 == 0 { 503 } else { 200 },
            body_bytes: 7,
            ..Sample::due(at, true)
        });
    }
    let all = tallier.finish(0);
    let total = |status: u16| {
        let of = all.iter().filter(|tally| tally.class.status == status);
        of.map(|tally| tally.counts.requests).sum::<u64>()
    };
    assert_eq!((total(200), total(503)), (RESULTS - 139_689, 139_689));
    let bytes: u64 = all.iter().map(|tally| tally.counts.body_bytes).sum();
    assert_eq!(bytes, RESULTS * 7);
    let counted: u128 = all.iter().map(|tally| tally.response.sum_ns()).sum();
    assert_eq!(counted, sum.as_nanos(), "so that the average is exact too");
}

/// hey #266: percentiles of small runs are "0% in 0.0000 secs".
#[test]
fn percentiles_of_a_tiny_run_are_those_of_its_requests() {
    let origin = Origin::start(&[]);
    for n in 1..=4 {
        let document = load(&["-n", &n.to_string(), "-c1", &format!("http://{}/delay/3", origin.clear)]);
        for kind in ["response", "service", "ttfb"] {
            let latency = &document["latency_us"][kind];
            let of = |name: &str| number(&latency[name]);
            let times = ["min", "p50", "p90", "p95", "p99", "p999", "max"].map(of);
            assert!(times[0] >= 3_000.0 && times.is_sorted(), "{kind}: {latency}");
            assert_eq!(latency["n"], n);
        }
    }
}

/// hey: over HTTP/2 "resp wait" exceeds the whole; its fork's CSV sorts each column by itself, so that rows do not belong
/// together.
#[test]
fn the_phases_of_each_request_add_up() {
    let origin = Origin::start(&[]);
    for (protocol, streams) in [("h1", "1"), ("h2c", "10")] {
        let url = format!("http://{}/delay/2", origin.clear);
        let cell =
            record(&["--proto", protocol, "-c3", "-m", streams, "-n300", "-X", "POST", "-d", "{}", &url]);
        assert_eq!(cell.samples.len(), 300);
        for sample in &cell.samples {
            let times = [sample.scheduled_at, sample.sent_at, sample.first_byte_at, sample.completed_at];
            assert!(times.is_sorted(), "{protocol}: {sample:?}");
            let to_first_byte = sample.time_to_first_byte().expect("it was answered");
            assert!(to_first_byte >= Duration::from_millis(2), "{sample:?}");
            assert!(
                to_first_byte <= sample.service_time() && sample.service_time() <= sample.response_time()
            );
        }
    }
}

/// hey: a body cannot be sent again, so that each GOAWAY costs the requests in flight. h2load: after a GOAWAY it never connects
/// again, and three of five requests fail.
#[test]
fn a_quota_on_connections_costs_no_request_with_or_without_a_body() {
    let origin = Origin::start(&["--max-requests-per-connection=97"]);
    let url = format!("http://{}/echo", origin.clear);
    for more in [&["-X", "POST", "-d", "a body"][..], &[]] {
        let document = load(&[&["--proto=h2c", "-n1000", "-c2", "-m10", &url], more].concat());
        assert_eq!(document["requests"]["succeeded"], 1_000, "{}", document["errors"]);
        assert!(number(&document["connections_opened"]) >= 10.0);
        assert!(number(&document["requests"]["replayed"]) > 0.0, "some were under way at a GOAWAY");
    }
}

/// hey's fork: each refresh of the live report divides the averages again, down to 0.0000.
#[test]
fn averages_do_not_depend_on_how_often_progress_is_reported() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/delay/20", origin.clear);
    let finished = h2lab(&["load", "--json", "--no-store", "-c2", "-z", "4s", &url]);
    assert!(finished.stderr.contains("answered"), "progress was reported\n{}", finished.transcript());
    let document = finished.json();
    for kind in ["response", "service", "ttfb"] {
        let latency = &document["latency_us"][kind];
        let of = |name: &str| number(&latency[name]);
        assert!(of("mean") >= 20_000.0 && of("min") <= of("mean") && of("mean") <= of("max"), "{latency}");
    }
}

/// hey's fork: -t is ignored, and a silent server holds it for ever.
#[test]
fn a_timeout_ends_requests_to_a_silent_server_and_the_run_with_them() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {});
        }
    });
    let finished = h2lab(&["load", "--json", "--quiet", "--no-store", "-n6", "-c2", "--timeout=3s", &url]);
    let document = finished.json();
    assert_eq!(document["requests"]["failed"], 6, "{}", finished.transcript());
    let errors = document["errors"].as_array().expect("a list");
    assert!(errors.iter().all(|error| error["kind"] == "timeout"), "{errors:?}");
    // It received all requests, as its TCP acknowledged.
    assert!(errors.iter().any(|error| error["fault"] == "sut"), "{errors:?}");
    // Its SETTINGS do not arrive either: our client would wait 10 s for them.
    let prior = ["load", "--no-store", "-n6", "--http2-prior-knowledge", "--timeout=3s", &url];
    let finished = h2lab(&prior);
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    assert!(finished.stderr.contains("does not respond within 3s"), "{}", finished.transcript());
}

/// hey: if the connections do not divide the number of requests, the rest is not sent. Its fork: the last results are
/// lost.
#[test]
fn each_request_is_sent_and_reported_whatever_divides_their_number() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    for (n, c) in [("1001", "7"), ("2000", "200"), ("13", "12")] {
        assert_eq!(record(&["-n", n, "-c", c, &url]).samples.len().to_string(), n, "over {c}");
    }
}

/// hey's fork: each refresh prints the whole CSV again, header and all.
#[test]
fn a_table_has_one_header_however_often_progress_was_reported() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let url = format!("http://{}/delay/5", origin.clear);
    let finished = run_program(
        &binary(),
        folder.path(),
        &["load", "--no-store", "-c2", "-z", "4s", "-o", "r.csv", &url],
    );
    assert!(finished.stderr.contains("answered"), "{}", finished.transcript());
    let table = std::fs::read_to_string(folder.path().join("r.csv")).expect("it was written");
    let header = table.lines().next().expect("a header");
    assert_eq!(table.lines().filter(|line| *line == header).count(), 1);
}

/// hey's fork: -c above 500 is 500.
#[test]
fn more_than_500_connections_are_so_many() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/delay/20", origin.clear);
    let document = load(&["-c", "600", "-n", "1200", &url]);
    assert_eq!(
        (&document["connections_opened"], &document["requests"]["succeeded"]),
        (&600.into(), &1200.into())
    );
}

/// vegeta #660: connections of HTTP/2 are invisible, and at full speed their number is not kept; no row says which
/// connection or protocol it was.
#[test]
fn connections_are_as_many_as_asked_for_and_each_row_says_which_it_was() {
    let origin = Origin::start(&[]);
    // It lasts long enough that every connection is established before the others have had all requests.
    let url = format!("http://{}/delay/200", origin.clear);
    let cell = record(&["--proto=h2c", "-c3", "-m5", "-n300", &url]);
    assert_eq!((cell.connections.len(), cell.cell.protocol.to_string()), (3, "h2c".to_owned()));
    for connection in &cell.connections {
        let rows = cell.samples.iter().filter(|sample| sample.connection == connection.index);
        assert_eq!(rows.count() as u32, connection.requests);
        assert!(connection.requests > 0);
    }
    let mut streams: Vec<_> = cell.samples.iter().map(|sample| (sample.connection, sample.stream)).collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), 300, "each request has a stream of its own");
}
