//! Both sides of every threshold.

use crate::diagnose::testing::Scene;
use crate::diagnose::{Finding, run};
use h2lab_base::counters::{TcpSummary, TlsRecords};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;

/// DATA frames of the transfer.
const FRAMES: u64 = 1_000;

fn findings(record: CellRecord) -> Vec<Finding> {
    run(&[record]).into_iter().filter(|finding| finding.rule == "FRAME101").collect()
}

/// A download of one second over a link of 16 Mbit/s, in `records` records of `length` bytes, after records of the same
/// length in the first mebibyte.
fn record(records: u64, length: u64) -> CellRecord {
    let mut record = Scene::new(Protocol::H2).request(0, 1, 0, 25, 1_025).record();
    let early = (1_u64 << 20).div_ceil(length + 21);
    let tls_records = TlsRecords {
        early_records: early,
        early_bytes: early * (length + 21),
        records,
        bytes: records * (length + 21),
    };
    let connection = &mut record.connections[0];
    connection.tls_records = tls_records;
    connection.counters.frames_received[0] = FRAMES;
    connection.bytes_received = (early + records) * length;
    let segments = (tls_records.early_bytes + tls_records.bytes).div_ceil(1_448);
    connection.tcp_client = Some(TcpSummary { segments_in: segments as u32, ..TcpSummary::default() });
    record.cell.link.as_mut().unwrap().downlink.bandwidth = "16mbit".parse().ok();
    record
}

/// The same over a link of this bandwidth.
fn used(mut record: CellRecord, bandwidth: &str) -> CellRecord {
    record.cell.link.as_mut().unwrap().downlink.bandwidth = bandwidth.parse().ok();
    record
}

#[test]
fn small_records_on_a_full_link_cost_the_time_of_their_bytes() {
    let found = findings(record(3_000, 300)).remove(0);
    assert!(!found.is_observation());
    assert!(found.symptom.contains("records of 300 bytes on average"), "{}", found.symptom);
    // 21 of 321 bytes, and 52 of each 1,448 beside them; a second of 1,025 ms.
    assert!(
        (found.cost_share - 21.0 / 321.0 * 1_448.0 / 1_500.0 / 1.025).abs() < 0.002,
        "{}",
        found.cost_share
    );
}

#[test]
fn a_server_of_ours_is_told_how_its_records_become_longer() {
    let mut nginx = record(3_000, 300);
    nginx.connections[0].server_software = Some("nginx/1.22.1".into());
    assert_eq!(findings(nginx).remove(0).fixes[0].setting, "ssl_buffer_size 16k;");
}

#[test]
fn a_twentieth_of_the_bytes_is_wanted() {
    // 5.03 % and 4.97 % of what is on the wire.
    assert_eq!(findings(record(3_000, 372)).len(), 1);
    assert_eq!(findings(record(3_000, 377)), []);
    assert_eq!(findings(record(3_000, 1_370)), [], "records of a segment");
    assert_eq!(findings(record(3_000, 16_384)), []);
}

#[test]
fn a_thousand_records_after_the_first_mebibyte_are_wanted() {
    assert_eq!(findings(record(1_000, 300)).len(), 1);
    assert_eq!(findings(record(999, 300)), []);
    let mut warm = record(3_000, 300);
    warm.connections[0].tls_records.bytes = 3_000 * 16_405;
    warm.connections[0].bytes_received = 3_000 * 16_384 + (1 << 20);
    assert_eq!(findings(warm), [], "small ones at the start are dynamic sizing");
}

#[test]
fn a_record_for_each_frame_is_a_stream_of_small_messages() {
    let with_frames = |frames| {
        let mut record = record(3_000, 300);
        record.connections[0].counters.frames_received[0] = frames;
        findings(record)
    };
    let records = 3_000 + (1_u64 << 20).div_ceil(321);
    assert_eq!(with_frames(records / 2).len(), 1);
    assert_eq!(with_frames(records / 2 + 2), []);
}

#[test]
fn it_is_an_observation_where_the_link_is_not_known_to_be_full() {
    let wire = |record: &CellRecord| {
        let connection = &record.connections[0];
        let tls = connection.tls_records;
        tls.early_bytes + tls.bytes + 52 * u64::from(connection.tcp_client.as_ref().unwrap().segments_in)
    };
    let full = record(3_000, 300);
    // Of one second.
    let bits = wire(&full) * 8;
    let at = |percent: u64| findings(used(full.clone(), &format!("{}bit", bits * 100 / percent))).remove(0);
    assert!(!at(81).is_observation());
    let idle = at(79);
    assert!(idle.is_observation() && idle.cost.contains("the link was not full"), "{}", idle.cost);
    let mut live = full;
    live.cell.link = None;
    assert!(findings(live).remove(0).is_observation(), "nothing is known of the link");
}

#[test]
fn responses_that_come_at_once_share_the_time() {
    let mut record = record(3_000, 300);
    let one = record.samples.iter().next().unwrap();
    let mut other = one;
    (other.first_byte_at, other.completed_at) = (Time::from_millis(100), Time::from_millis(1_025));
    record.samples.push(&other);
    assert!(!findings(record.clone()).remove(0).is_observation());
    // One after the other, they leave the link half empty.
    (other.first_byte_at, other.completed_at) = (Time::from_millis(1_025), Time::from_millis(2_025));
    record.samples.push(&other);
    assert!(findings(record).remove(0).is_observation());
}

#[test]
fn nothing_is_said_in_clear_or_over_http_1_1() {
    let mut h1 = record(3_000, 300);
    h1.cell.protocol = Protocol::H1s;
    assert_eq!(findings(h1), []);
    let mut clear = record(3_000, 300);
    clear.connections[0].tls_records = TlsRecords::default();
    assert_eq!(findings(clear), []);
}
