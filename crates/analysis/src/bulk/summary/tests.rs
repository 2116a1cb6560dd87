use std::time::Duration;

use super::*;
use h2lab_base::units::Time;
use h2lab_model::bulk::testing::{PART, part, record};
use h2lab_model::bulk::{BindingKind, ByteMeter, TransferDirection};
use h2lab_model::workload::Protocol;

#[test]
fn every_byte_counts_whatever_became_of_its_file() {
    let record = record();
    let summary = BulkSummary::of(&record);
    assert_eq!(summary.bytes, PART * 15 / 4);
    assert_eq!(summary.bytes, record.meter.total());
    assert_eq!(
        (summary.tally, summary.tally.all()),
        (TransferTally { complete: 1, partial: 1, failed: 1 }, 3)
    );
    assert_eq!((summary.elapsed, summary.broken_streams), (Duration::from_secs(5), 2));
    assert_eq!(summary.aggregate, Some(PART as f64 * 15.0 / 4.0 * 8.0 / 5.0));
}

#[test]
fn where_no_byte_of_a_file_was_moved_nothing_limited_it() {
    let mut record = record();
    assert!(BulkSummary::of(&record).binding().is_some());
    record.transfers.iter_mut().for_each(|transfer| transfer.bytes = 0);
    assert_eq!(BulkSummary::of(&record).binding(), None);
}

#[test]
fn the_more_streams_the_faster_is_reported_neither_way() {
    // 4 GB over 1 Gbit/s: by one stream, and by 100 that take turns, each of them open all the time. A mean of rates
    // would make the second a hundredth of the first.
    let of = |streams: u64| {
        let mut record = BulkRecord::new(Protocol::H2c, TransferDirection::Get, Time::ZERO);
        let mut transfer = h2lab_model::bulk::testing::record().transfers.remove(0);
        transfer.bytes = 4_000_000_000;
        transfer.parts = (0..streams).map(|n| part(0, n, transfer.bytes / streams, 0, 32_000)).collect();
        record.transfers = vec![transfer];
        record.meter = ByteMeter::new(Time::ZERO);
        record.meter.add(Time::from_millis(32_000), 4_000_000_000);
        BulkSummary::of(&record)
    };
    let (one, hundred) = (of(1), of(100));
    assert_eq!((one.aggregate, hundred.aggregate), (Some(1e9), Some(1e9)));
    assert_eq!(one.per_stream.map(|spread| spread.median), Some(1e9));
    let spread = hundred.per_stream.unwrap();
    assert_eq!((spread.min, spread.median, spread.max, spread.n), (1e7, 1e7, 1e7, 100));
}

#[test]
fn streams_that_carried_nothing_are_in_the_spread() {
    let spread = BulkSummary::of(&record()).per_stream.unwrap();
    assert_eq!((spread.min, spread.n), (0.0, 6));
}

#[test]
fn the_last_half_minute_is_reported_of_transfers_that_are_longer() {
    let of = |ms: u64| {
        let mut record = record();
        record.meter = ByteMeter::new(Time::ZERO);
        (0..=ms / 100).for_each(|tick| record.meter.add(Time::from_millis(100 * tick), 12_500));
        BulkSummary::of(&record).at_speed
    };
    assert_eq!(of(30_000), None);
    assert_eq!(of(30_100), Some(1e6));
}

#[test]
fn cpu_time_is_per_gigabyte_that_was_transferred() {
    let summary = BulkSummary::of(&record());
    let gigabytes = summary.bytes as f64 / 1e9;
    assert_eq!(summary.cpu_per_gb, Some(0.012 / gigabytes));
    assert_eq!(summary.peer_cpu_per_gb, Some(0.009 / gigabytes));
    let mut none = record();
    none.transfers.clear();
    let summary = BulkSummary::of(&none);
    assert_eq!((summary.cpu_per_gb, summary.aggregate, summary.per_stream), (None, Some(0.0), None));
}

#[test]
fn what_could_not_be_seen_is_not_zero() {
    let mut record = record();
    assert_eq!(BulkSummary::of(&record).retransmits, Some(14));
    assert_eq!(BulkSummary::of(&record).stalls.send_buffer, Some(Duration::from_secs(8)));
    assert_eq!(BulkSummary::of(&record).stalls.congestion_window, Some(Duration::from_secs(2)));
    assert_eq!(BulkSummary::of(&record).congestion, ["cubic"]);
    for figures in &mut record.figures {
        figures.sender = h2lab_model::bulk::SenderFigures::default();
        figures.receiver.disk_wait = None;
    }
    let summary = BulkSummary::of(&record);
    assert_eq!((summary.retransmits, summary.stalls), (None, TransferStalls::default()));
}

#[test]
fn the_limit_of_most_bytes_is_that_of_the_transfer() {
    let mut record = record();
    assert_eq!(BulkSummary::of(&record).binding().unwrap().binding.kind, BindingKind::SendBuffer);
    // Two connections that carry less each hold back more in total.
    for connection in [2, 3] {
        let mut slow = record.figures[0].clone();
        slow.connection = connection;
        slow.bytes = PART * 2;
        slow.receiver.disk_wait = Some(slow.wall);
        record.figures.push(slow);
    }
    let summary = BulkSummary::of(&record);
    let binding = summary.binding().unwrap();
    assert_eq!((binding.connection, binding.binding.kind), (2, BindingKind::Disk));
    assert_eq!(summary.kinds(), [(BindingKind::SendBuffer, 2), (BindingKind::Disk, 2)]);
    assert_eq!(summary.bound[0].connection, 0);
    // The same number of bytes with an unknown limit.
    let mut unseen =
        h2lab_model::bulk::ConnectionFigures { connection: 4, bytes: PART * 4, ..record.figures[0].clone() };
    (unseen.min_rtt, unseen.rtt, unseen.sender) = (None, None, h2lab_model::bulk::SenderFigures::default());
    (unseen.receiver, unseen.bandwidth) = (h2lab_model::bulk::ReceiverFigures::default(), None);
    record.figures.push(unseen);
    let summary = BulkSummary::of(&record);
    assert_eq!(summary.bound[0].binding.kind, BindingKind::Unknown);
    assert_eq!(summary.binding().unwrap().binding.kind, BindingKind::Disk, "what can be named says more");
    record.figures.clear();
    assert_eq!(BulkSummary::of(&record).binding(), None);
}

#[test]
fn the_slow_start_of_a_connection_that_carried_all_is_not_its_speed() {
    let mut record = record();
    record.meter = ByteMeter::new(Time::ZERO);
    for tick in 0..60 {
        // 4 MiB per 250 ms in the second half, a hundredth of that in the first.
        let bytes = if tick < 30 { 16_777 } else { 1_677_722 };
        record.meter.add(Time::from_millis(100 * tick), bytes);
    }
    record.meter.add(Time::from_millis(6000), 1);
    let blind = ConnectionFigures {
        wall: Duration::from_secs(6),
        bytes: record.meter.total(),
        streams: 1,
        min_rtt: Some(Duration::from_millis(250)),
        ..ConnectionFigures::default()
    };
    record.figures = vec![blind.clone()];
    assert_eq!(BulkSummary::of(&record).bound[0].binding.kind, BindingKind::SendBuffer);
    // The meter does not show one connection among several.
    record.figures = vec![blind.clone(), blind];
    assert_eq!(BulkSummary::of(&record).bound[0].binding.kind, BindingKind::Unknown);
}
