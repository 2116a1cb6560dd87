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
        &Report {
            run,
            analysis: &analysis,
            findings: &[],
            causes: &[],
            folder: Some("runs/1"),
            page: None,
            conditions: &[],
        },
        style,
    )
}

#[test]
fn what_others_do_not_show_is_there() {
    let text = rendered(&troubled(), TextStyle::default());
    for words in [
        "3,000 sent in 3s, 2,992 succeeded (99.7 %), 8 failed",
        "503: 5",
        "5 × status 503 (server error)",
        "3 × reset CANCEL (server error)",
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
fn what_was_sent_again_has_its_number_and_why() {
    let mut run = troubled();
    let again = |run: &mut RunRecord| {
        run.repetitions[0]
            .samples
            .edit()
            .iter_mut()
            .filter(|s| s.measured)
            .take(2)
            .for_each(|s| s.replays = 1);
        rendered(run, TextStyle::default())
    };
    let text = again(&mut run);
    assert!(
        text.contains("sent again  2 times, which the server left unprocessed (GOAWAY, REFUSED_STREAM)\n"),
        "{text}"
    );
    let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
    as_load(&mut record);
    let text = again(&mut self::run(vec![record]));
    assert!(
        text.contains("sent again  2 times, whose connection the server had closed before they arrived\n"),
        "{text}"
    );
}

#[test]
fn what_is_zero_is_left_out() {
    let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
    as_load(&mut record);
    let text = rendered(&run(vec![record]), TextStyle::default());
    for word in
        ["failed", "unfinished", "Errors", "GOAWAY", "RST_STREAM", "ended", "Waited", "Frames", "Warnings"]
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
fn a_load_ends_with_its_answer_and_failures_are_in_it() {
    let text = rendered(&troubled(), TextStyle::default());
    let from = text.find("\nAnswer: ").expect("it has one");
    let answer: Vec<&str> = text[from..].split_whitespace().collect();
    let answer = answer.join(" ");
    assert!(answer.starts_with("Answer: Serves 997 of 1,000 requests/s: p50 "), "{answer}");
    assert!(answer.ends_with("0.3 % of 3,000 requests failed (most: status 503)."), "{answer}");
}

#[test]
fn where_nothing_succeeded_no_latency_is_printed_and_the_answer_says_so() {
    let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
    as_load(&mut record);
    record
        .samples
        .edit()
        .iter_mut()
        .for_each(|sample| (sample.outcome, sample.status) = (Outcome::Status, 503));
    let text = rendered(&run(vec![record]), TextStyle::default());
    assert!(!text.contains("Latency, ms") && !text.contains("Response times"), "{text}");
    assert!(text.ends_with("Answer: No result: no response was a success: 3,000 × 503.\n"), "{text}");
}

#[test]
fn a_ramp_has_a_row_for_each_step_and_names_the_knee() {
    let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
    as_load(&mut record);
    let (phases, started) = (record.cell.work.phases, record.started_at);
    let over = phases.warmup + phases.measure;
    record.cell.work.arrival = Arrival::Ramp { from: 1000.0, to: 1001.0, over, steps: 0 };
    // From the second third on every other request is never answered.
    let (late, cut) = (phases.measure_from(started) + phases.measure / 3, phases.cut(started));
    let mut samples = record.samples.edit();
    let unanswered = samples.iter_mut().filter(|sample| sample.scheduled_at >= late).step_by(2);
    unanswered.for_each(|sample| (sample.outcome, sample.completed_at) = (Outcome::Unfinished, cut));
    drop(samples);
    let text = rendered(&run(vec![record]), TextStyle { width: 60, ..TextStyle::default() });
    let from = text.find("Each step of the rate").expect("it is there");
    let rows: Vec<&str> = text[from..].lines().skip(1).take(5).collect();
    assert!(rows[0].starts_with("from") && rows[0].contains("offered"), "{text}");
    assert!(
        !rows[2].contains("knee") && rows[3].ends_with("knee") && rows[4].ends_with("too much"),
        "{text}"
    );
    assert!(text.contains("Answer: Knee: carries 1,000 requests/s, but not "), "{text}");
}

#[test]
fn on_a_narrow_terminal_each_kind_of_latency_and_each_step_has_a_block_under_the_title() {
    let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
    as_load(&mut record);
    let phases = record.cell.work.phases;
    record.cell.work.arrival =
        Arrival::Ramp { from: 1000.0, to: 1001.0, over: phases.warmup + phases.measure, steps: 0 };
    let run = run(vec![record]);
    let text = rendered(&run, TextStyle { width: 40, ..TextStyle::default() });
    assert!(text.contains("\nLatency, ms\nresponse\n  min: "), "{text}");
    assert!(text.contains("\nservice\n  min: ") && text.contains("\nEach step of the rate\n"), "{text}");
    assert!(text.contains("\n  offered: 1,000/s\n  served: "), "{text}");
    assert!(!text.contains("Omitted"), "a block has all figures: {text}");
    let table = rendered(&run, TextStyle { width: 60, ..TextStyle::default() });
    assert!(!table.contains("  min: ") && !table.contains("offered: "), "{table}");
}

#[test]
fn no_line_is_wider_than_asked_for() {
    for width in [40, 59, 60, 80, 120] {
        let text = rendered(&troubled(), TextStyle { width, ..TextStyle::default() });
        let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= width, "{} characters: {widest}", widest.chars().count());
    }
}
