//! When data waited for the congestion window, and when it did not.

use super::*;

#[test]
fn what_waited_for_a_window_of_http_did_not_wait_for_the_congestion_window() {
    // 17 KiB per round trip of 40 ms, by a window of HTTP.
    let mut figures =
        ConnectionFigures { wall: Duration::from_millis(13_800), bytes: 6_000_000, ..counted(0.0) };
    (figures.min_rtt, figures.rtt) = (Some(Duration::from_millis(40)), Some(Duration::from_millis(40)));
    let sender = &mut figures.sender;
    (sender.tcp_busy, sender.cwnd_bytes) = (Some(Duration::from_millis(13_700)), Some(29_000));
    sender.blocked_stream_window = Some(Duration::from_millis(13_700));
    assert_eq!(congestion_wait(&figures), Some(Duration::ZERO));
    // Nor did data wait that went through a window that had room.
    figures.sender.blocked_stream_window = Some(Duration::ZERO);
    assert_eq!(congestion_wait(&figures), Some(Duration::from_millis(13_700)), "17 of 28 KiB");
    figures.sender.cwnd_bytes = Some(60_000);
    assert_eq!(congestion_wait(&figures), Some(Duration::ZERO));
}

#[test]
fn a_short_transfer_ends_in_slow_start() {
    // 6 MB in 422 ms over 40 ms; 9 round trips open a window of that size. TCP is busy until the last acknowledgement.
    let mut figures =
        ConnectionFigures { wall: Duration::from_millis(422), bytes: 6_000_000, ..counted(0.0) };
    (figures.min_rtt, figures.rtt) = (Some(Duration::from_millis(40)), Some(Duration::from_millis(40)));
    let sender = &mut figures.sender;
    (sender.tcp_busy, sender.cwnd_bytes) = (Some(Duration::from_millis(500)), Some(3_000_000));
    sender.blocked_stream_window = Some(Duration::from_millis(50));
    assert_eq!(
        congestion_wait(&figures),
        Some(Duration::from_millis(372)),
        "all waits take no longer than it"
    );
    let found = binding(&figures);
    assert_eq!((found.kind, found.confidence), (BindingKind::CongestionWindow, Some(Confidence::Observed)));
    assert!(
        found.sentence.ends_with("still opening its congestion window (slow start)"),
        "{}",
        found.sentence
    );
    assert_eq!(found.fixes[0].setting, "one connection for several files");
    // 8.7 round trips are needed: with twice as many, or a segment lost, it is not slow start.
    for (wall, retransmits, is_it) in [(695, 0, true), (697, 0, false), (422, 1, false)] {
        figures.wall = Duration::from_millis(wall);
        figures.sender.retransmits = Some(retransmits);
        let is_named = binding(&figures).kind == BindingKind::CongestionWindow;
        assert_eq!(is_named, is_it, "{wall} ms, {retransmits}");
    }
}
