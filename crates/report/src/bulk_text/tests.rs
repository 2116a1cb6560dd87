use super::*;
use h2lab_model::bulk::testing::{PART, record};
use h2lab_model::bulk::{DigestRecord, SenderFigures};
use h2lab_model::workload::Protocol;
use h2lab_transfer::{Algorithm, Checksum};

fn rendered(record: &BulkRecord) -> String {
    bulk_text(record, TextStyle { width: 110, ..TextStyle::default() })
}

/// The same in one line.
fn unwrapped(record: &BulkRecord) -> String {
    rendered(record).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_bulk_transfer_as_people_read_it() {
    insta::assert_snapshot!("bulk", rendered(&record()));
}

#[test]
fn what_was_carried_comes_first_and_streams_second() {
    let text = rendered(&record());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("62.9 MB in 5 s: 101 Mbit/s over h2c"), "{text}");
    let streams = lines.iter().position(|line| line.starts_with("Streams")).unwrap();
    assert!(streams > 0 && lines[streams].contains("6 over 2 connections, 2 broken"), "{text}");
}

#[test]
fn files_that_are_not_complete_were_cut_by_the_time_or_by_the_user() {
    let mut record = record();
    record.transfers.retain(|transfer| !matches!(transfer.outcome, TransferOutcome::Failed { .. }));
    assert!(unwrapped(&record).contains("complete, the others until the time was over."));
    record.interrupted = true;
    assert!(unwrapped(&record).contains("complete, the others until it was interrupted."));
}

#[test]
fn every_file_that_is_not_complete_is_listed() {
    let mut record = record();
    let (failed, complete) = (record.transfers[1].clone(), record.transfers[0].clone());
    let named = |of: &TransferRecord, n: usize| {
        let url = format!("{}/{n}", of.url);
        TransferRecord { url, ..of.clone() }
    };
    record.transfers.extend((0..30).map(|n| named(&failed, n)));
    record.transfers.extend((0..LISTED).map(|n| named(&complete, n)));
    let text = rendered(&record);
    assert_eq!(text.matches("failed: the server vanished (server error)").count(), 31);
    assert_eq!(text.matches("partial: the time was over").count(), 1);
    assert_eq!(
        text.matches(" complete, ").count(),
        LISTED + 2,
        "those listed, the count of all, and the answer"
    );
    assert!(text.contains("- and 1 more complete"), "{text}");
}

#[test]
fn a_file_that_was_fetched_over_and_over_is_listed_once() {
    let mut record = record();
    let complete = record.transfers[0].clone();
    assert!(!unwrapped(&record).contains(" times"));
    record.transfers.extend(vec![complete; LISTED + 1]);
    let text = unwrapped(&record);
    assert_eq!(text.matches("files/0 complete, ").count(), 1, "{text}");
    assert!(text.contains("as declared, 10 times"), "{text}");
    assert!(!text.contains("more complete"), "{text}");
    // Another outcome is another line.
    record.transfers.last_mut().expect("there are some").bytes -= 1;
    let text = unwrapped(&record);
    assert!(text.matches("files/0 complete, ").count() == 2 && text.contains(", 9 times"), "{text}");
}

#[test]
fn frames_that_were_never_as_long_as_asked_are_reported() {
    let mut record = record();
    let (none, some) = ("not used by the sender", "not fully used by the sender");
    for (largest, most, rendered) in [
        (16_384, Some(65_536), Some(none)),
        (16_385, Some(65_536), Some(some)),
        (65_536, Some(1 << 20), Some(some)),
        (65_536, Some(65_536), None),
        (16_384, Some(16_384), None),
        (16_384, None, None),
    ] {
        (record.frames.largest_data, record.asked.max_frame_size) = (largest, most);
        let text = unwrapped(&record);
        assert_eq!(text.contains(none), rendered == Some(none), "{largest} {most:?}: {text}");
        assert_eq!(text.contains(some), rendered == Some(some), "{largest} {most:?}: {text}");
    }
    (record.frames.largest_data, record.asked.max_frame_size) = (10_000, Some(65_536));
    for (bytes, is_reported) in [(10_000, false), (10_001, true)] {
        let parts = record.transfers.iter_mut().flat_map(|transfer| &mut transfer.parts);
        parts.for_each(|part| part.bytes = bytes);
        assert_eq!(unwrapped(&record).contains(none), is_reported, "no response has more than {bytes}");
    }
    record.protocol = Protocol::H1;
    assert!(!rendered(&record).contains("Frames"));
}

#[test]
fn a_file_that_is_not_there_took_a_stream_of_a_connection_all_the_same() {
    let mut record = record();
    record.transfers.truncate(1);
    record.transfers[0].parts.truncate(1);
    record.transfers[0].parts[0].bytes = 0;
    record.figures.clear();
    assert!(unwrapped(&record).contains("Streams 1 over 1 connection"), "{}", rendered(&record));
    record.transfers[0].parts.clear();
    assert!(unwrapped(&record).contains("Streams 0 "), "{}", rendered(&record));
}

#[test]
fn congestion_control_of_ours_is_not_taken_for_the_senders() {
    let mut record = record();
    assert!(!unwrapped(&record).contains("at this end"));
    for figures in &mut record.figures {
        figures.sender.congestion_control = None;
    }
    assert!(unwrapped(&record).contains("TCP cubic at this end"), "{}", rendered(&record));
    record.direction = TransferDirection::Put;
    assert!(!unwrapped(&record).contains("at this end"));
}

#[test]
fn a_short_last_interval_has_no_bar_of_its_own() {
    let mut record = record();
    record.meter = ByteMeter::new(h2lab_base::units::Time::ZERO);
    for tick in 0..10 {
        record.meter.add(h2lab_base::units::Time::from_millis(20 + 20 * tick), 100_000);
    }
    // 40 Mbit/s throughout; the last interval ends with its last byte.
    record.meter.add(h2lab_base::units::Time::from_millis(240), 200_000);
    let text = rendered(&record);
    let bars: Vec<&str> = text.lines().filter(|line| line.starts_with("  from ")).collect();
    assert!(bars.len() == 2, "{text}");
}

#[test]
fn a_last_part_of_a_curve_has_the_rate_of_its_own_time_or_is_shown_with_the_one_before_if_it_is_short() {
    let ended = |millis: u64| {
        let mut meter = ByteMeter::new(h2lab_base::units::Time::ZERO);
        (1..=millis).for_each(|at| meter.add(h2lab_base::units::Time::from_millis(at), 1_000));
        crate::bulk_cells::rates(&meter, 10).1
    };
    // 8 Mbit/s throughout. Of 1,050 ms the parts are two intervals each.
    for (millis, parts) in
        [(999, 10), (1_000, 5), (1_050, 5), (1_019, 5), (1_020, 5), (1_100, 6), (5, 1), (105, 1)]
    {
        let rates = ended(millis);
        assert_eq!(rates.len(), parts, "{millis} ms: {rates:?}");
        let expected = |rate: &f64| (7.9e6..9.0e6).contains(rate) || millis == 5;
        assert!(rates.iter().all(expected), "{millis} ms: {rates:?}");
    }
}

#[test]
fn a_checksum_that_differs_cannot_be_overlooked() {
    let mut record = record();
    let (ours, theirs) = (Checksum::crc32c(1), Checksum::crc32c(2));
    record.transfers[0].digest = DigestRecord::new(Algorithm::Crc32c, Some(theirs), Some(ours.clone()));
    let text = unwrapped(&record);
    assert!(text.contains("CHECKSUM MISMATCH: crc32c 00000001 here, 00000002 declared"), "{text}");
    record.transfers[0].digest = DigestRecord::new(Algorithm::Crc32c, None, Some(ours));
    let text = unwrapped(&record);
    assert!(text.contains("crc32c 00000001; server sent no checksum"), "{text}");
}

#[test]
fn nothing_at_all_is_reported_without_figures() {
    let record = BulkRecord::new(Protocol::H2, TransferDirection::Put, h2lab_base::units::Time::ZERO);
    let text = rendered(&record);
    for word in ["Limit", "Rate over time", "Frames", "Waited", "CPU", "Warnings"] {
        assert!(!text.contains(word), "{word}\n{text}");
    }
    assert!(text.starts_with("Sent          0 B in 0 ms: nothing over h2"), "{text}");
}

#[test]
fn no_line_is_wider_than_asked_for() {
    for width in [80, 120] {
        let text = bulk_text(&record(), TextStyle { width, ..TextStyle::default() });
        let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= width, "{} characters: {widest}", widest.chars().count());
    }
}

#[test]
fn a_transfer_of_which_every_file_failed_is_answered_with_the_reason_and_no_rate() {
    let mut record = record();
    let why = "the server answers 404".to_owned();
    for transfer in &mut record.transfers {
        transfer.outcome =
            TransferOutcome::Failed { why: why.clone(), fault: h2lab_model::record::Fault::Sut };
    }
    let answer = |record: &BulkRecord| parts(record).answer;
    assert_eq!(answer(&record), ["Failed: no file was received: the server answers 404."]);
    record.direction = TransferDirection::Put;
    assert_eq!(answer(&record), ["Failed: no file was sent: the server answers 404."]);
    record.transfers[0].outcome = TransferOutcome::Complete;
    assert!(answer(&record)[0].contains("bit/s over h2c"), "{:?}", answer(&record));
}

#[test]
fn a_guess_says_that_there_may_have_been_no_more_to_send_and_a_window_that_is_one_has_no_fix() {
    // Of the sender nothing is known; 2 MiB per round trip of a window of 3 MiB.
    let mut record = record();
    for figures in &mut record.figures {
        figures.sender = SenderFigures::default();
        figures.receiver.stream_window = Some(3 << 20);
    }
    let window = unwrapped(&record);
    assert!(window.contains("Limit the stream window (FLOW101), guessed: "), "{window}");
    let perhaps = |what: &str| format!("Perhaps limited by {what}, or the sender had nothing more to send.");
    assert!(window.ends_with(&perhaps("the stream window (FLOW101)")), "{window}");
    assert!(!window.contains(" fix ") && !window.contains("-w "), "{window}");
    // 4 MiB, as a usual send buffer allows.
    for figures in &mut record.figures {
        figures.bytes = 5 * PART;
        figures.receiver.stream_window = None;
    }
    let buffer = unwrapped(&record);
    let change = perhaps("the send buffer") + " A change that decides it: sysctl -w net.ipv4.tcp_wmem=";
    assert!(buffer.ends_with(" (Linux)."), "{buffer}");
    assert!(buffer.contains(&change), "{buffer}");
}

#[test]
fn one_operation_is_singular() {
    let mut record = record();
    record.io.file_reads = 1;
    record.io.socket_writes = Some(1);
    let text = unwrapped(&record);
    assert!(text.contains(" 1 file read,") && text.contains(" 1 socket write,"), "{text}");
}
