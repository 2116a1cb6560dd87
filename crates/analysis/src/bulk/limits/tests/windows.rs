//! Both windows of HTTP together, and windows over a round trip that is too short to tell.

use super::*;

/// `get` of what 128 KiB lets through per 40 ms, with a connection window of this many bytes; both were closed for 72 %.
fn both(connection_window: u64, streams: u32) -> ConnectionFigures {
    let mut figures = blind(128.0 * 1024.0 * 8.0 / 0.04);
    figures.min_rtt = Some(Duration::from_millis(40));
    figures.streams = streams;
    figures.receiver.stream_window = Some((128 << 10) / u64::from(streams));
    figures.receiver.connection_window = Some(connection_window);
    figures.sender.blocked_stream_window = of_a_minute(0.72);
    figures.sender.blocked_connection_window = of_a_minute(0.72);
    figures
}

#[test]
fn two_windows_that_are_used_up_at_once_are_raised_together() {
    let found = binding(&both(128 << 10, 1));
    assert_eq!(found.kind, BindingKind::ConnectionWindow);
    let [fix] = found.fixes.as_slice() else { panic!("{:?}", found.fixes) };
    assert_eq!((fix.product.as_str(), fix.setting.as_str()), ("client", "-W 262144 -w 262144"));
    assert!(fix.why.starts_with("both, since both are used up at once; a connection window of 256 KiB here"));
    // Two streams of half the size each.
    assert!(fixes(&both(128 << 10, 2)).starts_with("client: -W 262144 -w 131072 - both"));
}

#[test]
fn a_window_is_raised_alone_where_the_other_one_has_room() {
    let stream = |connection_window: u64| {
        let mut figures = both(connection_window, 1);
        figures.sender.blocked_connection_window = of_a_minute(0.1);
        let found = binding(&figures);
        assert_eq!(found.kind, BindingKind::StreamWindow);
        found.fixes[0].setting.clone()
    };
    let edge = (AGREES_TO * f64::from(128 << 10)) as u64;
    assert_eq!(stream(edge), "-w 262144 -W 327680");
    assert_eq!(stream(edge + 1), "-w 262144");
    assert_eq!(stream(1 << 30), "-w 262144");
}

#[test]
fn both_windows_of_a_server_are_told_with_its_settings() {
    let mut figures = both(128 << 10, 1);
    figures.we_send = true;
    figures.server = Some("HAProxy/2.6.12".into());
    let told = fixes(&figures);
    assert!(told.contains("tune.h2.initial-window-size 262144"), "{told}");
    assert!(told.contains("a connection window of 256 KiB at the server"), "{told}");
}

/// `get` from a server near by whose CPU is not known, with windows that were closed for this share of the time.
fn near_by(closed: f64, rtt: Duration) -> ConnectionFigures {
    let mut figures = blind(5e9);
    figures.min_rtt = Some(rtt);
    figures.receiver.stream_window = Some(64 << 10);
    figures.receiver.connection_window = Some(64 << 10);
    figures.sender.blocked_stream_window = of_a_minute(closed);
    figures.sender.blocked_connection_window = of_a_minute(closed / 2.0);
    figures.receiver.cpu = of_a_minute(0.3);
    figures
}

#[test]
fn no_end_is_blamed_near_by_where_windows_stopped_the_sender_for_most_of_the_time() {
    let loopback = Duration::from_micros(20);
    let open = binding(&near_by(MOST_OF_THE_TIME, loopback));
    assert_eq!((open.kind, open.confidence, open.fixes), (BindingKind::Unknown, None, Vec::new()));
    let words = "our windows stopped the sender for 50 % of the time; over a round trip of ";
    assert!(open.sentence.starts_with(words), "{}", open.sentence);
    assert!(open.sentence.ends_with("larger ones (-w, -W) decide"), "{}", open.sentence);
    assert_eq!(kind(&near_by(MOST_OF_THE_TIME - 0.001, loopback)).0, BindingKind::Peer);
    // The receiver is busy, so that it is not the sender either: the same is said.
    let mut busy = near_by(0.83, loopback);
    busy.receiver.cpu = of_a_minute(0.7);
    assert!(binding(&busy).sentence.contains("for 83 % of the time; over"), "{}", binding(&busy).sentence);
    let edge = Duration::from_micros(LEAST_RTT_US);
    assert_eq!(kind(&near_by(0.83, Duration::from_micros(LEAST_RTT_US - 1))), NOTHING);
    assert_eq!(kind(&near_by(0.83, edge)).0, BindingKind::StreamWindow);
}

#[test]
fn nor_is_the_cpu_where_both_ends_are_seen() {
    let with = |closed| {
        let mut figures = counted(5e9);
        figures.min_rtt = Some(Duration::from_micros(20));
        figures.receiver.cpu = of_a_minute(0.3);
        figures.sender.blocked_stream_window = of_a_minute(closed);
        // TCP is idle while a window of HTTP is closed.
        figures.sender.tcp_busy = of_a_minute(1.0 - closed);
        kind(&figures)
    };
    assert_eq!(with(0.83), NOTHING);
    assert_ne!(with(0.3), NOTHING);
}
