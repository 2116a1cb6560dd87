use super::*;
use h2lab_base::units::Time;
use h2lab_model::record::Outcome;
use h2lab_model::record::testing::{Model, cell, one_repetition, run};
use h2lab_model::record::{CellRecord, CloseReason, GoAwayRecord, RunRecord};
use h2lab_model::workload::{Arrival, Protocol};

/// A load over HTTP/2: two of its connections have ended, and some of its requests have failed.
fn troubled() -> RunRecord {
    let mut record = one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN);
    as_load(&mut record);
    let goaway = GoAwayRecord { at: Time::ZERO, code: 0, last_stream: 1999, debug: "bye".into() };
    record.connections[0].goaways.push(goaway);
    record.connections[0].closed = CloseReason::Server;
    record.connections[1].closed = CloseReason::Broken { why: "connection reset".to_owned() };
    for (k, sample) in record.samples.edit().iter_mut().filter(|s| s.measured).take(8).enumerate() {
        (sample.outcome, sample.status) = (Outcome::Status, 503);
        sample.stall_open_ns = 1_000_000;
        if k < 3 {
            (sample.outcome, sample.status, sample.code) = (Outcome::Reset, 0, 8);
        }
    }
    run(vec![record])
}

fn as_load(record: &mut CellRecord) {
    record.cell.link = None;
    record.link = None;
    record.cell.work.arrival = Arrival::Constant { rate: 1000.0 };
}

fn rendered(run: &RunRecord, style: TextStyle) -> String {
    let analysis = h2lab_analysis::stats::analyse(run);
    load_text(
        &Report { run, analysis: &analysis, findings: &[], causes: &[], folder: Some("runs/1"), page: None },
        style,
    )
}

#[test]
fn what_others_do_not_show_is_there() {
    let text = rendered(&troubled(), TextStyle::default());
    for words in [
        "3,000 sent in 3s, 2,992 succeeded (99.7 %), 8 failed",
        "503: 5",
        "5 × status 503 (fault: origin)",
        "3 × reset CANCEL (fault: origin)",
        "by the server's GOAWAY",
        "1 × NO_ERROR last stream 1999 `bye`",
        "broken (connection reset)",
        "HPACK saves",
        "a connection or stream: 0.003 ms a request",
        "run folder: runs/1",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn what_is_zero_is_left_out() {
    let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
    as_load(&mut record);
    let text = rendered(&run(vec![record]), TextStyle::default());
    for word in
        ["failed", "unfinished", "Errors", "GOAWAY", "RST_STREAM", "ended", "Waited", "Frames", "Doubts"]
    {
        assert!(!text.contains(word), "{word}\n{text}");
    }
    for word in
        ["Requests", "Throughput", "Latency, ms", "Response times", "Status", "Connections", "Generator"]
    {
        assert!(text.contains(word), "{word}\n{text}");
    }
}

#[test]
fn no_line_is_wider_than_asked_for() {
    for width in [80, 120] {
        let text = rendered(&troubled(), TextStyle { colour: false, width });
        let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= width, "{} characters: {widest}", widest.chars().count());
    }
}
