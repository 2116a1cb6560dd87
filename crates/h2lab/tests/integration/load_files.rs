//! What `load -o` writes, read by programs that are not ours: each must find the requests, statuses and percentiles that `--json`
//! states.

use std::path::Path;

use serde_json::Value;

use crate::origin::Origin;
use crate::support::{binary, folder, need, run_program};

/// Requests of the load whose files are read.
const REQUESTS: u64 = 400;

/// The forms of `-o`.
const ENDINGS: [&str; 8] = ["csv", "json", "html", "md", "parquet", "hgrm", "hlog", "vegeta.csv"];

/// A load with a report in every form; one in four of its requests is answered 503.
struct Reports {
    folder: tempfile::TempDir,
    document: Value,
}

impl Reports {
    fn load(more: &[&str]) -> Self {
        let (origin, folder) = (Origin::start(&[]), folder());
        let files = ENDINGS.map(|ending| format!("-o=run.{ending}"));
        let urls = ["/delay/3 weight=3", "/status/503"].map(|path| format!("http://{}{path}", origin.clear));
        let number = format!("-n={REQUESTS}");
        let mut arguments = vec!["load", "--json", "--quiet", "--no-store", "-c=4", &number];
        arguments.extend(files.iter().chain(&urls).map(String::as_str));
        arguments.extend(more);
        let finished = run_program(&binary(), folder.path(), &arguments);
        finished.assert_measured();
        Self { document: finished.json(), folder }
    }

    fn text(&self, ending: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("run.{ending}"))).expect("it was written")
    }

    /// A number of the document.
    #[track_caller]
    fn number(&self, pointer: &str) -> f64 {
        self.document
            .pointer(pointer)
            .and_then(Value::as_f64)
            .unwrap_or_else(|| panic!("{pointer} is no number"))
    }

    /// A percentile of the response times, in nanoseconds.
    #[track_caller]
    fn response_ns(&self, name: &str) -> f64 {
        self.number(&format!("/latency_us/response/{name}")) * 1e3
    }
}

/// Fails unless `theirs` differs from `ours` by at most `share` of it.
#[track_caller]
fn assert_near(what: &str, theirs: f64, ours: f64, share: f64) {
    assert!((theirs - ours).abs() <= ours.abs() * share, "{what}: {theirs} where --json has {ours}");
}

/// What a query of `DuckDB` answers, a line for each row, values with commas between them.
fn query(folder: &Path, sql: &str) -> Option<Vec<String>> {
    let program = need("duckdb")?;
    let finished = run_program(&program, folder, &["-csv", "-noheader", "-c", sql]);
    assert_eq!(finished.code, Some(0), "{sql}\n{}", finished.transcript());
    Some(finished.stdout.lines().map(|line| line.trim().to_owned()).collect())
}

#[test]
fn vegeta_reads_the_requests_in_its_columns_and_counts_the_same() {
    let Some(vegeta) = need("vegeta") else { return };
    let reported = Reports::load(&[]);
    let report = |arguments: &[&str]| -> Value {
        let finished = run_program(&vegeta, reported.folder.path(), arguments);
        assert_eq!(finished.code, Some(0), "{}", finished.transcript());
        finished.json()
    };
    let all = report(&["report", "--type=json", "run.vegeta.csv"]);
    assert_eq!(
        (&all["requests"], &all["status_codes"]),
        (&REQUESTS.into(), &reported.document["status"]),
        "{all}"
    );
    let succeeded = reported.number("/requests/succeeded") / REQUESTS as f64;
    assert_near("success", all["success"].as_f64().expect("a share"), succeeded, 1e-9);
    // Their latencies include failures, one of which may be the slowest; ours are of successes only.
    let slowest = all["latencies"]["max"].as_f64().expect("ns");
    assert!(slowest >= reported.response_ns("max") * 0.999, "{slowest}");
    let from = reported.folder.path().join("run.vegeta.csv");
    let rows = std::fs::read_to_string(&from).expect("it is there");
    let succeeded: Vec<&str> = rows.lines().filter(|row| row.split(',').nth(1) == Some("200")).collect();
    std::fs::write(reported.folder.path().join("200.csv"), succeeded.join("\n") + "\n").expect("room");
    let latencies = &report(&["report", "--type=json", "200.csv"])["latencies"];
    let theirs = |name: &str| latencies[name].as_f64().expect("ns");
    assert_near("mean", theirs("mean"), reported.response_ns("mean"), 1e-3);
    assert_near("max", theirs("max"), reported.response_ns("max"), 1e-3);
    // Its percentiles are estimates of a t-digest; with so few results they are off by a few ranks.
    for (name, low, high) in [("50th", "min", "p90"), ("95th", "p90", "p99"), ("99th", "p95", "max")] {
        let (low, high) = (reported.response_ns(low), reported.response_ns(high));
        assert!((low..=high).contains(&theirs(name)), "{name}: {} in {low}..{high}", theirs(name));
    }
}

#[test]
fn duckdb_reads_the_requests_as_parquet_and_as_a_table_and_finds_the_same_figures() {
    let reported = Reports::load(&[]);
    let of = |sql: &str| query(reported.folder.path(), sql);
    let Some(counted) = of("SELECT status, count(*) FROM 'run.parquet' GROUP BY 1 ORDER BY 1") else {
        return;
    };
    let status = |name: &str| reported.number(&format!("/status/{name}"));
    assert_eq!(counted, [format!("200,{}", status("200")), format!("503,{}", status("503"))]);
    let response = "completed_at_ns - scheduled_at_ns";
    let sql = format!(
        "SELECT min({response}), quantile_disc({response}, 0.5), quantile_disc({response}, 0.99), max({response}), count(*) \
         FROM 'run.parquet' WHERE outcome = 'succeeded'"
    );
    let rows = of(&sql).expect("it is there");
    let values: Vec<f64> = rows[0].split(',').map(|value| value.parse().expect("a number")).collect();
    // `--json` has tenths of microseconds.
    for (value, name) in values.iter().zip(["min", "p50", "p99", "max"]) {
        assert!((value - reported.response_ns(name)).abs() <= 100.0, "{name}: {rows:?}");
    }
    assert_near("n", values[4], reported.number("/latency_us/response/n"), 0.0);
    let cells = of("SELECT sent, succeeded, failed, n, protocol, round(p50_us - 0.0, 1) FROM 'run.csv'")
        .expect("it is there");
    let [sent, succeeded, failed] =
        ["sent", "succeeded", "failed"].map(|name| reported.number(&format!("/requests/{name}")));
    let p50 = reported.number("/latency_us/response/p50");
    let expected: Vec<String> = [sent, succeeded, failed, succeeded].iter().map(f64::to_string).collect();
    assert!(cells[0].starts_with(&(expected.join(",") + ",h1,")), "{cells:?}");
    let reported_p50: f64 =
        cells[0].rsplit(',').next().and_then(|value| value.parse().ok()).expect("a number");
    assert_near("p50_us", reported_p50, p50, 1e-3);
}

/// A percentile distribution in `HdrHistogram`'s text: its rows, and the number of results that it states.
struct Distribution {
    /// (value, share of the results up to it)
    rows: Vec<(f64, f64)>,
    total: f64,
}

impl Distribution {
    #[track_caller]
    fn parse(text: &str) -> Self {
        let columns = |line: &str| -> Vec<f64> { line.split_whitespace().flat_map(str::parse).collect() };
        let rows =
            text.lines().map(columns).filter(|row| row.len() >= 3).map(|row| (row[0], row[1])).collect();
        let total = text
            .lines()
            .filter(|line| line.starts_with("#[Max"))
            .find_map(|line| line.rsplit('=').next()?.trim().trim_end_matches(']').parse().ok());
        Self { rows, total: total.unwrap_or_else(|| panic!("no total\n{text}")) }
    }

    /// The value below which at least this share of the results lies.
    fn at(&self, share: f64) -> f64 {
        self.rows.iter().find(|(_, up_to)| *up_to >= share).expect("it goes up to 1").0
    }
}

#[test]
fn the_histograms_hold_every_success_and_its_percentiles() {
    let reported = Reports::load(&[]);
    let succeeded = reported.number("/requests/succeeded");
    let log = reported.text("hlog");
    let interval = |tag: &str| {
        let line =
            log.lines().find(|line| line.starts_with(&format!("Tag=h1.{tag},"))).expect("it has a line");
        line.rsplit(',').next().expect("the histogram is last").to_owned()
    };
    let plotted = Distribution::parse(&reported.text("hgrm"));
    assert_near("results of .hgrm", plotted.total, succeeded, 0.0);
    assert_near("p100 of .hgrm, ms", plotted.at(1.0) * 1e6, reported.response_ns("max"), 2e-3);
    let Some(reader) = need("dump_hdrh") else { return };
    for kind in ["response", "service", "ttfb"] {
        let finished = run_program(&reader, reported.folder.path(), &[interval(kind)]);
        assert_eq!(finished.code, Some(0), "{}", finished.transcript());
        let decoded = Distribution::parse(&finished.stdout);
        assert_near(kind, decoded.total, succeeded, 0.0);
        let ns = |name: &str| reported.number(&format!("/latency_us/{kind}/{name}")) * 1e3;
        assert_near("max", decoded.at(1.0), ns("max"), 2e-3);
        // Its rows are at values of its own: the nearest row below and the nearest one above must enclose our value.
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let below =
                decoded.rows.iter().rev().find(|(_, up_to)| *up_to < share).expect("it begins at 0").0;
            let (low, high) = (below * 0.998, decoded.at(share) * 1.002);
            assert!((low..=high).contains(&ns(name)), "{kind} {name}: {} in {low}..{high}", ns(name));
        }
    }
}

#[test]
fn reports_for_people_and_scripts_hold_the_figures_of_json() {
    let reported = Reports::load(&[]);
    let written: Value = serde_json::from_str(&reported.text("json")).expect("JSON");
    assert_eq!(written, reported.document, "the file is what stdout has");
    let failed = reported.document["requests"]["failed"].to_string();
    let row = reported.text("md").lines().find(|line| line.starts_with("| h1 |")).map(str::to_owned);
    let row = row.expect("a row of the cell");
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    // If the machine was too busy, a description replaces the figures, here and in the document alike.
    match reported.document["state"].as_str().expect("a word") {
        "ok" => {
            let p50 = reported.response_ns("p50") / 1e6;
            assert_near("p50 of .md", cells[4].parse().expect("ms"), p50, 0.01);
        }
        state => assert_eq!(cells[4], state),
    }
    assert_eq!(
        (cells[8], cells[9]),
        (reported.document["requests"]["succeeded"].to_string().as_str(), failed.as_str())
    );
    for (ending, words) in
        [("md", "- recorded: full"), ("html", "full: every request"), ("json", "\"record\": \"full\"")]
    {
        assert!(reported.text(ending).contains(words), "{ending}: {words}");
    }
    let page = reported.text("html");
    assert!(page.contains(&failed) && page.contains("</html>"));
}

/// Below `full` the counts are complete, and single requests are a sample or missing; each file says so, or the note
/// does.
#[test]
fn what_was_not_kept_one_by_one_is_counted_all_the_same_and_said_to_be_missing() {
    for (level, share) in [("tail", 0.5), ("hist", 0.0)] {
        let reported = Reports::load(&["--record", level]);
        assert_eq!(
            (&reported.document["record"], &reported.document["requests"]["sent"]),
            (&level.into(), &REQUESTS.into())
        );
        let status: u64 =
            ["200", "503"].iter().map(|code| reported.document["status"][code].as_u64().unwrap_or(0)).sum();
        assert_eq!(status, REQUESTS);
        let kept = reported.text("vegeta.csv").lines().count() as f64;
        assert!(kept <= REQUESTS as f64 * share && (share == 0.0 || kept > 0.0), "{level}: {kept}");
        assert!(reported.text("md").contains(&format!("- recorded: {level}")), "{}", reported.text("md"));
        assert!(reported.text("html").contains(&format!("{level}: all requests are counted")));
    }
}

/// Memory per connection and per request is reported only where there are so many that the rest of the process does not matter.
#[test]
fn the_memory_of_the_generator_is_in_the_document() {
    let memory = |connections: &str, streams: &str| {
        let (origin, folder) = (Origin::start(&[]), folder());
        let url = format!("http://{}/delay/50", origin.clear);
        let arguments = [
            "load",
            "--json",
            "--quiet",
            "--no-store",
            "--proto=h2c",
            "-n=2000",
            "-c",
            connections,
            "-m",
            streams,
            &url,
        ];
        let finished = run_program(&binary(), folder.path(), &arguments);
        finished.assert_measured();
        finished.json()["generator"]["memory_bytes"].clone()
    };
    let many = memory("100", "10");
    let [peak, connection, request] =
        ["peak", "per_connection", "per_request_in_flight"].map(|name| many[name].as_u64().unwrap_or(0));
    assert!(
        peak > 1 << 20 && connection > 1_000 && connection * 100 < peak && request * 1_000 < peak,
        "{many}"
    );
    let few = memory("99", "10");
    assert!(few["per_connection"].is_null() && few["per_request_in_flight"].is_null(), "{few}");
}
