use super::*;
use crate::bulk::testing::record;
use crate::bulk::{Algorithm, Checksum, DigestRecord};
use crate::workload::Protocol;

fn told(record: &BulkRecord) -> String {
    bulk_text(record, TextStyle { colour: false, width: 110 })
}

/// The same in one line.
fn unwrapped(record: &BulkRecord) -> String {
    told(record).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_bulk_transfer_as_people_read_it() {
    insta::assert_snapshot!("bulk", told(&record()));
}

#[test]
fn what_was_carried_comes_first_and_streams_second() {
    let text = told(&record());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("62.9 MB in 5s: 101 Mbit/s over h2c"), "{text}");
    let streams = lines.iter().position(|line| line.starts_with("Streams")).unwrap();
    assert!(streams > 0 && lines[streams].contains("6 over 2 connections, 3 broken"), "{text}");
}

#[test]
fn every_file_that_is_not_complete_is_listed() {
    let mut record = record();
    let failed = record.transfers[1].clone();
    record.transfers.extend(vec![failed; 30]);
    let complete = record.transfers[0].clone();
    record.transfers.extend(vec![complete; LISTED]);
    let text = told(&record);
    assert_eq!(text.matches("failed: the server vanished (fault: sut)").count(), 31);
    assert_eq!(text.matches("partial: the time was over").count(), 1);
    assert_eq!(text.matches(" complete, ").count(), LISTED + 1, "those listed, and the count of all");
    assert!(text.contains("- and 1 more that are complete"), "{text}");
}

#[test]
fn frames_that_were_never_as_long_as_asked_are_told() {
    let mut record = record();
    let unused = "which the sender made no use of";
    assert!(unwrapped(&record).contains(unused));
    record.frames.largest_data = 1 << 20;
    assert!(!unwrapped(&record).contains(unused));
    record.protocol = Protocol::H1;
    assert!(!told(&record).contains("Frames"));
}

#[test]
fn a_checksum_that_differs_cannot_be_overlooked() {
    let mut record = record();
    let (ours, theirs) = (Checksum::crc32c(1), Checksum::crc32c(2));
    record.transfers[0].digest = DigestRecord::new(Algorithm::Crc32c, Some(theirs), Some(ours.clone()));
    let text = unwrapped(&record);
    assert!(text.contains("CHECKSUM MISMATCH: crc32c 00000001 here, 00000002 told"), "{text}");
    record.transfers[0].digest = DigestRecord::new(Algorithm::Crc32c, None, Some(ours));
    let text = unwrapped(&record);
    assert!(text.contains("crc32c 00000001 here, and the other end tells none"), "{text}");
}

#[test]
fn nothing_at_all_is_told_without_figures() {
    let record = BulkRecord::new(Protocol::H2, TransferDirection::Put, crate::units::Time::ZERO);
    let text = told(&record);
    for word in ["Limit", "Rate over time", "Frames", "Waited", "CPU", "Doubts"] {
        assert!(!text.contains(word), "{word}\n{text}");
    }
    assert!(text.starts_with("Sent          0 B in 0ms: nothing over h2"), "{text}");
}

#[test]
fn no_line_is_wider_than_asked_for() {
    for width in [80, 120] {
        let text = bulk_text(&record(), TextStyle { colour: false, width });
        let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= width, "{} characters: {widest}", widest.chars().count());
    }
}
