mod full_path;
mod remedies;
mod slow_start;
mod windows;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use h2lab_base::text::PeerText;
use h2lab_base::units::Bandwidth;
use h2lab_model::Fix;
use h2lab_model::bulk::testing::small_buffer;
use h2lab_model::bulk::{ReceiverFigures, SenderFigures};

/// A minute over 250 ms at `rate` bits per second, with only that known.
fn blind(rate: f64) -> ConnectionFigures {
    let wall = Duration::from_secs(60);
    ConnectionFigures {
        wall,
        bytes: (rate / 8.0 * 60.0).round() as u64,
        streams: 1,
        min_rtt: Some(Duration::from_millis(250)),
        ..ConnectionFigures::default()
    }
}

/// The same with a sender that counted no waits.
fn counted(rate: f64) -> ConnectionFigures {
    let zero = Some(Duration::ZERO);
    let sender = SenderFigures {
        blocked_stream_window: zero,
        blocked_connection_window: zero,
        tcp_busy: Some(Duration::from_secs(60)),
        tcp_rwnd_limited: zero,
        tcp_sndbuf_limited: zero,
        retransmits: Some(0),
        congestion_control: Some("cubic".to_owned()),
        disk_wait: zero,
        cpu: zero,
        ..SenderFigures::default()
    };
    ConnectionFigures { sender, ..blind(rate) }
}

fn gigabit(figures: ConnectionFigures) -> ConnectionFigures {
    ConnectionFigures { bandwidth: Bandwidth::from_bits_per_second(1_000_000_000), ..figures }
}

/// What lifts the limit of this connection, a line each.
fn fixes(figures: &ConnectionFigures) -> String {
    binding(figures).fixes.iter().map(Fix::line).collect::<Vec<_>>().join("\n")
}

fn kind(figures: &ConnectionFigures) -> (BindingKind, Option<Confidence>) {
    let binding = binding(figures);
    (binding.kind, binding.confidence)
}

/// `share` of a minute.
#[expect(clippy::unnecessary_wraps, reason = "figures are optional")]
fn of_a_minute(share: f64) -> Option<Duration> {
    Some(Duration::from_secs_f64(60.0 * share))
}

const NOTHING: (BindingKind, Option<Confidence>) = (BindingKind::Unknown, None);

#[test]
fn four_mebibytes_per_quarter_second_name_the_send_buffer() {
    let figures =
        ConnectionFigures { bandwidth: Bandwidth::from_bits_per_second(1_000_000_000), ..small_buffer() };
    let binding = binding(&figures);
    assert_eq!((binding.kind, binding.confidence), (BindingKind::SendBuffer, Some(Confidence::Observed)));
    assert_eq!(
        binding.sentence,
        "4 MiB in flight per round trip of 250 ms is 134 Mbit/s, and the sender's socket buffer of 4 MiB was full for \
         97 % of the time"
    );
    assert_eq!(
        fixes(&figures),
        "Linux: sysctl -w net.ipv4.tcp_wmem='4096 16384 62914560' - at the sender: twice the 29.8 MiB needed to fill \
         1gbit for 250 ms"
    );
}

#[test]
fn a_rate_with_less_than_a_segment_in_flight_is_not_explained_by_the_round_trip() {
    let sentence = |bytes| {
        let min_rtt = Some(Duration::from_millis(1));
        binding(&ConnectionFigures { bytes, min_rtt, rtt: min_rtt, ..small_buffer() }).sentence
    };
    // A minute has 60,000 round trips.
    let (less, more) = (sentence(1_400 * 60_000), sentence(1_500 * 60_000));
    assert!(!less.contains("in flight") && more.contains("in flight"), "{less}; {more}");
}

#[test]
fn a_sender_that_cannot_be_seen_is_taken_for_a_usual_one_if_that_agrees() {
    let usual = USUAL_SEND_BUFFER as f64 * 8.0 / 0.25;
    let guessed = (BindingKind::SendBuffer, Some(Confidence::Guessed));
    assert_eq!(kind(&blind(usual)), guessed);
    assert_eq!(kind(&blind(usual * (AGREES_FROM + 0.001))), guessed);
    assert_eq!(kind(&blind(usual * (AGREES_FROM - 0.001))), NOTHING);
    assert_eq!(kind(&blind(usual * (AGREES_TO - 0.001))), guessed);
    assert_eq!(kind(&blind(usual * (AGREES_TO + 0.001))), NOTHING);
    // A buffer size that is known is not guessed.
    let mut raised = blind(usual);
    raised.sender.send_buffer = Some(128 << 20);
    assert_eq!(kind(&raised), NOTHING);
    let sentence = binding(&blind(usual));
    assert!(sentence.sentence.ends_with("the other end's buffer is not known"), "{}", sentence.sentence);
    assert!(fixes(&blind(usual)).contains("net.ipv4.tcp_wmem='4096 16384 8388608'"));
}

#[test]
fn sizes_that_agree_with_what_was_on_its_way_are_named() {
    let rate = 8e8; // 25 MB per round trip
    let with = |receiver, send_buffer| {
        let mut figures = blind(rate);
        figures.receiver = receiver;
        figures.sender.send_buffer = send_buffer;
        kind(&figures)
    };
    let none = ReceiverFigures::default();
    let likely = |kind| (kind, Some(Confidence::Inferred));
    for size in [20_000_001, 25_000_000, 27_777_777, 27_777_779, 37_499_999] {
        // 25 MB of a larger window: it may not have been used up.
        let sure = if size > 27_777_778 { Confidence::Guessed } else { Confidence::Inferred };
        let window = |kind| (kind, Some(sure));
        let receiver = ReceiverFigures { stream_window: Some(size), ..none.clone() };
        assert_eq!(with(receiver, None), window(BindingKind::StreamWindow), "{size}");
        let receiver = ReceiverFigures { connection_window: Some(size), ..none.clone() };
        assert_eq!(with(receiver, None), window(BindingKind::ConnectionWindow), "{size}");
        assert_eq!(with(none.clone(), Some(size)), likely(BindingKind::SendBuffer), "{size}");
    }
    // Only half of a window may pass in a round trip.
    let window = |size| ReceiverFigures { stream_window: Some(size), ..none.clone() };
    let guessed = (BindingKind::StreamWindow, Some(Confidence::Guessed));
    assert_eq!(with(window(49_999_999), Some(49_999_999)), guessed);
    for (window_size, buffer) in [(19_999_999, 19_999_999), (50_000_001, 37_500_001)] {
        assert_eq!(with(window(window_size), Some(buffer)), NOTHING, "{window_size}, {buffer}");
    }
    // At least half of a receive buffer is offered, and at most all of it.
    for (size, expected) in [
        (19_999_999, NOTHING),
        (20_000_001, likely(BindingKind::ReceiveBuffer)),
        (55_555_553, likely(BindingKind::ReceiveBuffer)),
        // Its window may not have been used up.
        (55_555_557, (BindingKind::ReceiveBuffer, Some(Confidence::Guessed))),
        (74_999_997, (BindingKind::ReceiveBuffer, Some(Confidence::Guessed))),
        (75_000_003, NOTHING),
    ] {
        assert_eq!(
            with(ReceiverFigures { receive_buffer: Some(size), ..none.clone() }, None),
            expected,
            "{size}"
        );
    }
}

#[test]
fn of_several_sizes_that_agree_the_least_is_in_the_way() {
    let mut figures = blind(8e8);
    figures.receiver.stream_window = Some(30_000_000);
    figures.receiver.connection_window = Some(26_000_000);
    figures.sender.send_buffer = Some(28_000_000);
    assert_eq!(kind(&figures).0, BindingKind::ConnectionWindow);
    // Each of two streams has a window of its own.
    figures.receiver = ReceiverFigures { stream_window: Some(12_500_000), ..ReceiverFigures::default() };
    figures.streams = 2;
    assert_eq!(kind(&figures).0, BindingKind::StreamWindow);
    assert!(binding(&figures).sentence.contains("of each of 2 streams matches that"));
}

#[test]
fn what_the_sender_counted_goes_before_what_sizes_say() {
    type Field = fn(&mut SenderFigures) -> &mut Option<Duration>;
    let waits: [(BindingKind, Field); 4] = [
        (BindingKind::StreamWindow, |sender| &mut sender.blocked_stream_window),
        (BindingKind::ConnectionWindow, |sender| &mut sender.blocked_connection_window),
        (BindingKind::SendBuffer, |sender| &mut sender.tcp_sndbuf_limited),
        (BindingKind::ReceiveBuffer, |sender| &mut sender.tcp_rwnd_limited),
    ];
    for (expected, field) in waits {
        let with = |share| {
            let mut figures = counted(1e8);
            figures.we_send = true;
            figures.receiver.stream_window = Some(3_125_000); // agrees, but was counted and did not block
            *field(&mut figures.sender) = of_a_minute(share);
            kind(&figures)
        };
        assert_eq!(with(MOST_OF_THE_TIME), (expected, Some(Confidence::Observed)));
        assert_eq!(with(MOST_OF_THE_TIME - 0.001), (expected, Some(Confidence::Inferred)));
        assert_eq!(with(MUCH_OF_THE_TIME), (expected, Some(Confidence::Inferred)));
        assert_eq!(with(MUCH_OF_THE_TIME - 0.001), NOTHING);
    }
}

#[test]
fn an_end_that_is_slow_closes_windows_and_is_named_instead_of_them() {
    let closed = || {
        let mut figures = counted(1e8);
        figures.sender.blocked_stream_window = of_a_minute(0.9);
        figures
    };
    for is_sender in [true, false] {
        let with = |disk: f64, cpu: f64| {
            let mut figures = closed();
            let (sender, receiver) = (&mut figures.sender, &mut figures.receiver);
            let (of_disk, of_cpu) = if is_sender {
                (&mut sender.disk_wait, &mut sender.cpu)
            } else {
                (&mut receiver.disk_wait, &mut receiver.cpu)
            };
            (*of_disk, *of_cpu) = (of_a_minute(disk), of_a_minute(cpu));
            let binding = binding(&figures);
            let end = if is_sender { "sender" } else { "receiver" };
            let is_reported = matches!(binding.kind, BindingKind::Disk | BindingKind::Cpu);
            assert!(!is_reported || binding.sentence.contains(end), "{}", binding.sentence);
            (binding.kind, binding.confidence)
        };
        assert_eq!(with(0.0, BUSY), (BindingKind::Cpu, Some(Confidence::Observed)));
        assert_eq!(with(0.0, BUSY - 0.001).0, BindingKind::StreamWindow);
        assert_eq!(with(MOST_OF_THE_TIME, 0.0), (BindingKind::Disk, Some(Confidence::Observed)));
        assert_eq!(with(MUCH_OF_THE_TIME, 0.0), (BindingKind::Disk, Some(Confidence::Inferred)));
        assert_eq!(with(MUCH_OF_THE_TIME - 0.001, 0.0).0, BindingKind::StreamWindow);
    }
}

#[test]
fn a_window_of_the_receiver_that_is_closed_without_being_used_is_the_receivers_doing() {
    let with = |in_flight: f64, we_send, rtt: Duration| {
        let size = 10_000_000.0;
        let mut figures = counted(in_flight * size * 8.0 / rtt.as_secs_f64());
        figures.min_rtt = Some(rtt);
        figures.we_send = we_send;
        figures.receiver.stream_window = Some(10_000_000);
        figures.sender.blocked_stream_window = of_a_minute(0.9);
        kind(&figures)
    };
    let (quarter, least) = (Duration::from_millis(250), Duration::from_micros(LEAST_RTT_US));
    assert_eq!(with(HELD_BACK - 0.001, true, quarter), (BindingKind::Peer, Some(Confidence::Inferred)));
    assert_eq!(
        with(HELD_BACK + 0.001, true, quarter),
        (BindingKind::StreamWindow, Some(Confidence::Observed))
    );
    // Our own late reading would be known; and over a short path the processing at the ends takes as long as the round
    // trip.
    assert_eq!(with(HELD_BACK - 0.001, false, quarter).0, BindingKind::StreamWindow);
    assert_eq!(with(HELD_BACK - 0.001, true, least).0, BindingKind::Peer);
    assert_eq!(
        with(HELD_BACK - 0.001, true, Duration::from_micros(LEAST_RTT_US - 1)).0,
        BindingKind::StreamWindow
    );
}

#[test]
fn an_upload_that_the_receivers_tcp_stops_with_little_in_flight_is_read_late() {
    let with = |in_flight: f64| {
        let mut figures = counted(in_flight * 8.0 / 0.25);
        figures.we_send = true;
        figures.sender.tcp_rwnd_limited = of_a_minute(0.9);
        binding(&figures)
    };
    let usual = USUAL_RECEIVE_BUFFER as f64 / 2.0;
    let late = with(HELD_BACK * usual - 1_000.0);
    assert_eq!((late.kind, late.confidence), (BindingKind::Peer, Some(Confidence::Inferred)));
    assert!(
        late.sentence.ends_with("or its receive buffer is small (net.ipv4.tcp_rmem there)"),
        "{}",
        late.sentence
    );
    let full = with(HELD_BACK * usual + 1_000.0);
    assert_eq!((full.kind, full.confidence), (BindingKind::ReceiveBuffer, Some(Confidence::Observed)));
}

#[test]
fn a_sender_that_has_nothing_to_send_is_the_peer() {
    let with = |busy, we_send| {
        let mut figures = counted(1e7);
        figures.sender.tcp_busy = of_a_minute(busy);
        figures.we_send = we_send;
        kind(&figures)
    };
    assert_eq!(with(MOST_OF_THE_TIME - 0.001, false), (BindingKind::Peer, Some(Confidence::Inferred)));
    assert_eq!(with(MOST_OF_THE_TIME, false), NOTHING);
    assert_eq!(with(MOST_OF_THE_TIME - 0.001, true), NOTHING);
}

#[test]
fn a_full_congestion_window_binds_where_no_buffer_does() {
    let with = |used: f64, limited: f64| {
        let mut figures = counted(1e8); // 3.125 MB per round trip
        figures.sender.cwnd_bytes = Some((3_125_000.0 / used) as u64);
        figures.sender.tcp_rwnd_limited = of_a_minute(limited);
        figures.sender.retransmits = Some(12);
        kind(&figures)
    };
    let found = |confidence| (BindingKind::CongestionWindow, confidence);
    assert_eq!(with(1.0, 0.0), found(Some(Confidence::Observed)));
    assert_eq!(with(CWND_USED + 0.001, 0.0), found(Some(Confidence::Observed)));
    assert_eq!(with(CWND_USED - 0.001, 0.0), NOTHING);
    assert_eq!(with(1.0, MUCH_OF_THE_TIME - 0.001), found(Some(Confidence::Observed)));
    assert_eq!(with(1.0, MUCH_OF_THE_TIME).0, BindingKind::ReceiveBuffer);
    let mut figures = counted(1e8);
    figures.sender.cwnd_bytes = Some(3_125_000);
    let fix = fixes(&figures);
    assert!(fix.contains("congestion_control=bbr (--congestion bbr of h2lab) - at the sender"), "{fix}");
    assert_eq!(fix.lines().count(), 2, "{fix}");
    figures.sender.congestion_control = Some("bbr".to_owned());
    let fix = fixes(&figures);
    let no_gain = "; no gain if the path is full already";
    assert!(fix.starts_with("client: more connections (-c)") && fix.ends_with(no_gain), "{fix}");
    let of_a_link = fixes(&gigabit(figures));
    assert!(!of_a_link.contains(no_gain), "its capacity is known: {of_a_link}");
}

#[test]
fn a_link_is_full_by_its_capacity_or_by_the_queue_that_stands_before_it() {
    let of_all = |share: f64| kind(&gigabit(counted(share * 1e9)));
    assert_eq!(of_all(FULL + 0.001), (BindingKind::Link, Some(Confidence::Observed)));
    assert_eq!(of_all(FULL - 0.001), NOTHING);
    // Other connections carry the rest.
    let mut shared = gigabit(counted(0.1e9));
    shared.bytes_beside = shared.bytes * 9;
    assert_eq!(kind(&shared), (BindingKind::Link, Some(Confidence::Observed)));
    let queued = |factor: f64, figures: ConnectionFigures| {
        let mut figures = figures;
        figures.rtt = figures.min_rtt.map(|rtt| rtt.mul_f64(factor));
        figures.sender.cwnd_bytes = Some(3_125_000);
        kind(&figures)
    };
    assert_eq!(queued(QUEUE_STANDS, counted(1e8)), (BindingKind::Link, Some(Confidence::Inferred)));
    assert_eq!(queued(QUEUE_STANDS - 0.001, counted(1e8)).0, BindingKind::CongestionWindow);
    // The capacity of our own link is known, and is not the limit here.
    assert_eq!(queued(QUEUE_STANDS, gigabit(counted(1e8))).0, BindingKind::CongestionWindow);
}

#[test]
fn sizes_are_compared_with_the_speed_that_was_reached_in_the_end() {
    // Five seconds, two of which TCP took to open its window.
    let figures = ConnectionFigures { wall: Duration::from_secs(5), bytes: 50_000_000, ..blind(0.0) };
    assert_eq!(kind(&figures), NOTHING);
    let binding = binding_at_speed(&figures, 134_217_728.0);
    assert_eq!((binding.kind, binding.confidence), (BindingKind::SendBuffer, Some(Confidence::Guessed)));
    assert!(binding.sentence.starts_with("4 MiB in flight"), "{}", binding.sentence);
}

#[test]
fn over_loopback_tcp_is_busy_with_its_work_and_waits_for_no_window_that_is_not_full() {
    let mut figures = small_buffer();
    figures.sender.tcp_sndbuf_limited = Some(Duration::from_secs(15));
    let wait = congestion_wait(&figures);
    assert_eq!(wait, Some(Duration::from_secs(45)), "a round trip of 250 ms");
    // 40 Gbit/s over 80 µs: 400 kB are in flight.
    (figures.min_rtt, figures.rtt) = (Some(Duration::from_micros(20)), Some(Duration::from_micros(80)));
    figures.bytes = 300_000_000_000;
    figures.sender.cwnd_bytes = Some(1_100_000);
    assert_eq!(congestion_wait(&figures), Some(Duration::ZERO));
    figures.sender.cwnd_bytes = Some(500_000);
    assert_eq!(congestion_wait(&figures), wait, "it was full");
    figures.sender.cwnd_bytes = None;
    assert_eq!(congestion_wait(&figures), wait, "whether it was full is not known");
    figures.sender.tcp_busy = None;
    assert_eq!(congestion_wait(&figures), None);
}

#[test]
fn over_loopback_a_window_is_blamed_only_if_it_was_full() {
    let mut figures = small_buffer();
    figures.sender.tcp_sndbuf_limited = Some(Duration::ZERO);
    (figures.min_rtt, figures.rtt) = (Some(Duration::from_micros(20)), Some(Duration::from_micros(80)));
    figures.bytes = 300_000_000_000;
    // More than half of 700 kB is in flight: slow start leaves that much of a window that is never filled.
    for (cwnd, is_blamed) in [(700_000, false), (500_000, true)] {
        figures.sender.cwnd_bytes = Some(cwnd);
        let kind = binding(&figures).kind;
        assert_eq!(kind == BindingKind::CongestionWindow, is_blamed, "{kind:?}");
    }
}

#[test]
fn a_small_window_of_http_is_not_taken_for_the_congestion_window_that_follows_it() {
    // 64 KiB per 250 ms, all that TCP was given to send.
    let window = 65_536.0;
    let seen = |cwnd: f64, speed: f64| {
        let mut figures = gigabit(counted(speed));
        figures.sender.blocked_stream_window = None;
        figures.sender.blocked_connection_window = None;
        figures.sender.cwnd_bytes = Some(cwnd.round() as u64);
        figures.receiver.stream_window = Some(65_536);
        figures.receiver.connection_window = Some(1 << 30);
        kind(&figures)
    };
    let rate = window * 8.0 / 0.25;
    let stream = (BindingKind::StreamWindow, Some(Confidence::Inferred));
    let guessed = (BindingKind::StreamWindow, Some(Confidence::Guessed));
    let congestion = (BindingKind::CongestionWindow, Some(Confidence::Observed));
    assert_eq!(seen(window, rate), stream);
    assert_eq!(seen(window * 1.9, rate), stream);
    // A smaller congestion window is the limit.
    assert_eq!(seen(window * AGREES_FROM + 1.0, rate * 0.7), guessed);
    assert_eq!(seen(window * AGREES_FROM - 1.0, rate * 0.7), congestion);
    // So is one filled with a different number of bytes than the window of HTTP holds.
    assert_eq!(seen(window * AGREES_TO, rate * (AGREES_TO + 0.01)), congestion);
    assert_eq!(seen(window, rate * (WINDOW_AGREES_FROM - 0.01)), NOTHING, "nor is either full");
    // If credit is returned by halves, between a half and all of a window passes in a round trip.
    for share in [WINDOW_AGREES_FROM + 0.01, 0.65, 0.8, WINDOW_FILLED_FROM - 0.001] {
        assert_eq!(seen(window, rate * share), guessed, "{share}");
    }
    assert_eq!(seen(window, rate * (WINDOW_FILLED_FROM + 0.001)), stream);
}

#[test]
fn the_kernels_counts_name_the_buffer_that_was_in_the_way() {
    let seen = |sndbuf: f64, rwnd: f64| {
        let mut figures = gigabit(counted(134e6));
        figures.sender.tcp_sndbuf_limited = of_a_minute(sndbuf);
        figures.sender.tcp_rwnd_limited = of_a_minute(rwnd);
        figures.sender.send_buffer = Some(4 << 20);
        figures.receiver.receive_buffer = Some(32 << 20);
        kind(&figures)
    };
    assert_eq!(seen(MOST_OF_THE_TIME, 0.1), (BindingKind::SendBuffer, Some(Confidence::Observed)));
    assert_eq!(seen(MOST_OF_THE_TIME - 0.01, 0.1), (BindingKind::SendBuffer, Some(Confidence::Inferred)));
    assert_eq!(seen(MUCH_OF_THE_TIME, 0.1), (BindingKind::SendBuffer, Some(Confidence::Inferred)));
    assert_eq!(seen(0.1, 0.6), (BindingKind::ReceiveBuffer, Some(Confidence::Observed)));
    assert_eq!(seen(MUCH_OF_THE_TIME - 0.01, 0.1), NOTHING);
}

#[test]
fn without_a_round_trip_no_buffer_is_to_blame_but_an_end() {
    let at = |micros: u64| {
        let mut figures = counted(10e9);
        figures.min_rtt = Some(Duration::from_micros(micros));
        figures.sender.tcp_rwnd_limited = of_a_minute(0.9);
        figures.receiver.cpu = of_a_minute(0.6);
        binding(&figures)
    };
    assert_eq!(
        (at(LEAST_RTT_US).kind, at(LEAST_RTT_US).confidence),
        (BindingKind::ReceiveBuffer, Some(Confidence::Observed))
    );
    let near = at(LEAST_RTT_US - 1);
    assert_eq!((near.kind, near.confidence), (BindingKind::Cpu, Some(Confidence::Inferred)));
    assert_eq!(
        near.sentence,
        "the round trip is too short for a window or a buffer to matter at 10.0 Gbit/s: the CPUs of both ends, and \
         other load on them, limit the rate (the receiver was busy for 60 % of the time, the receive buffer was full \
         for 90 %: the receiver is the slower end)"
    );
    // No limit was hit, and both ends were visible.
    let mut figures = counted(10e9);
    figures.min_rtt = Some(Duration::from_micros(LEAST_RTT_US - 1));
    figures.receiver.cpu = of_a_minute(0.6);
    assert_eq!(kind(&figures), (BindingKind::Cpu, Some(Confidence::Inferred)));
    figures.receiver.cpu = None;
    assert_eq!(kind(&figures), NOTHING);
}

#[test]
fn a_fix_that_one_connection_cannot_have_says_so() {
    let mut figures = counted(1e9);
    figures.bandwidth = Bandwidth::from_bits_per_second(100_000_000_000);
    figures.sender.blocked_stream_window = of_a_minute(0.9);
    let fix = fixes(&figures);
    assert!(
        fix.contains("-w 2147483647") && fix.contains("add connections too (-c); that much memory"),
        "{fix}"
    );
    figures.bandwidth = Bandwidth::from_bits_per_second(1_000_000_000);
    figures.bytes /= 2;
    let fix = fixes(&figures);
    assert!(
        fix.contains("-w 62914560")
            && fix.contains("needed to fill 1gbit for 250 ms; that much memory, at most, for each stream"),
        "{fix}"
    );
    figures.bandwidth = None;
    figures.receiver.stream_window = Some(65_535);
    assert!(fixes(&figures).contains("client: -w 131072 - "));
}

#[test]
fn nothing_is_said_of_a_transfer_that_was_none() {
    for figures in
        [ConnectionFigures::default(), ConnectionFigures { wall: Duration::ZERO, ..small_buffer() }]
    {
        let binding = binding(&figures);
        assert_eq!((binding.kind, binding.fixes), (BindingKind::Unknown, Vec::new()));
        assert_eq!(binding.sentence, "no data received");
    }
}

#[test]
fn every_kind_has_a_name_and_a_sentence() {
    for &kind in BindingKind::ALL {
        let sentence = sentence::sentence(kind, Some(Confidence::Inferred), &small_buffer(), 1e8);
        assert!(sentence.len() > 20 && !kind.words().is_empty(), "{sentence}");
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        let has_fix = !matches!(kind, BindingKind::Link | BindingKind::Unknown);
        assert_eq!(!remedy::fixes(kind, &small_buffer(), 1e8).is_empty(), has_fix);
    }
}

/// Any time up to two minutes, for a transfer of one minute: counters of a kernel may disagree with our clock.
fn time() -> impl Strategy<Value = Option<Duration>> {
    prop::option::of((0_u64..120_000).prop_map(Duration::from_millis))
}

fn size() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(prop_oneof![Just(0), Just(u64::MAX), 1_u64..1 << 32])
}

proptest! {
    #[test]
    fn some_limit_is_named_of_any_figures(
        (wall, bytes, streams, we_send) in (0_u64..120_000, any::<u64>(), any::<u32>(), any::<bool>()),
        (min_rtt, rtt, bits) in (time(), time(), prop::option::of(any::<u64>())),
        times in prop::collection::vec(time(), 9),
        sizes in prop::collection::vec(size(), 5),
    ) {
        let figures = ConnectionFigures {
            connection: 0,
            we_send,
            wall: Duration::from_millis(wall),
            bytes,
            bytes_beside: bytes,
            streams,
            min_rtt,
            rtt,
            mean_data: sizes.first().copied().flatten(),
            is_clear: false,
            bandwidth: bits.and_then(Bandwidth::from_bits_per_second),
            server: None,
            sender: SenderFigures {
                blocked_stream_window: times[0],
                blocked_connection_window: times[1],
                tcp_busy: times[2],
                tcp_rwnd_limited: times[3],
                tcp_sndbuf_limited: times[4],
                bytes_acked: None,
                retransmits: None,
                cwnd_bytes: sizes[0],
                congestion_control: None,
                send_buffer: sizes[1],
                disk_wait: times[5],
                cpu: times[6],
            },
            receiver: ReceiverFigures {
                stream_window: sizes[2],
                connection_window: sizes[3],
                receive_buffer: sizes[4],
                disk_wait: times[7],
                cpu: times[8],
            },
        };
        let binding = binding(&figures);
        prop_assert!(!binding.sentence.is_empty());
        prop_assert_eq!(binding.confidence.is_none(), binding.kind == BindingKind::Unknown);
    }
}

#[test]
fn longer_frames_are_a_remedy_only_where_frames_are_short() {
    let mut figures = small_buffer();
    figures.receiver.cpu = Some(figures.wall);
    for (mean, is_named) in [(None, false), (Some(16_384), true), (Some(65_536), false)] {
        figures.mean_data = mean;
        let binding = binding(&figures);
        assert_eq!(binding.kind, BindingKind::Cpu);
        assert_eq!(fixes(&figures).contains("client: -f 1048576 - frames larger"), is_named, "{mean:?}");
    }
}

#[test]
fn a_sender_near_by_that_feeds_an_idle_receiver_slowly_is_the_limit() {
    // A rate limit of 1 MiB/s over loopback, as nginx's limit_rate.
    let fed = |busy: f64, rtt: Duration| {
        let mut figures = blind(8_388_608.0);
        figures.min_rtt = Some(rtt);
        figures.receiver.cpu = of_a_minute(busy);
        binding(&figures)
    };
    let loopback = Duration::from_micros(5);
    let slow = fed(0.01, loopback);
    assert_eq!((slow.kind, slow.confidence), (BindingKind::Peer, Some(Confidence::Inferred)));
    assert!(
        slow.sentence.contains("busy for only 1 % of the time: the sender gave no more"),
        "{}",
        slow.sentence
    );
    assert!(slow.fixes[0].setting.contains("rate limits"));
    assert_eq!(fed(0.5, loopback).kind, BindingKind::Unknown, "the receiver is too busy to blame the sender");
    assert_eq!(fed(0.01, Duration::from_millis(1)).kind, BindingKind::Unknown, "a window may be the limit");
}

#[test]
fn a_window_that_was_not_seen_to_be_used_up_is_a_guess_and_says_so() {
    // 24 Mbit/s by the application over 100 ms, with a stream window of 512 KiB: 293 KiB are in flight.
    let mut figures = blind(24e6);
    figures.min_rtt = Some(Duration::from_millis(100));
    figures.receiver.stream_window = Some(512 << 10);
    let slow = binding(&figures);
    assert_eq!((slow.kind, slow.confidence), (BindingKind::StreamWindow, Some(Confidence::Guessed)));
    assert!(slow.sentence.contains("one with no more to give looks alike"), "{}", slow.sentence);
    assert!(slow.fixes.is_empty(), "a larger window may change nothing");
    // 512 KiB per round trip: it was used up.
    let full = binding_at_speed(&figures, 524_288.0 * 8.0 / 0.1);
    assert_eq!(full.confidence, Some(Confidence::Inferred));
    assert!(!full.fixes.is_empty());
    assert!(!full.sentence.contains("no more to give"), "{}", full.sentence);
}

#[test]
fn clear_text_is_advised_of_tls_alone() {
    let mut figures = small_buffer();
    figures.receiver.cpu = Some(figures.wall);
    let fix = fixes(&figures);
    assert!(fix.contains("more connections") && fix.contains(": cleartext where permitted - TLS"), "{fix}");
    figures.is_clear = true;
    let fix = fixes(&figures);
    assert!(fix.contains("more connections") && !fix.contains("TLS"), "{fix}");
}

#[test]
fn a_slow_end_near_by_is_told_by_the_buffer_that_was_full() {
    let mut figures = counted(10e9);
    figures.min_rtt = Some(Duration::from_micros(20));
    figures.receiver.cpu = of_a_minute(0.6);
    figures.sender.tcp_rwnd_limited = of_a_minute(0.83);
    let sentence = binding(&figures).sentence;
    assert!(
        sentence.contains("the receive buffer was full for 83 %: the receiver is the slower end"),
        "{sentence}"
    );
    figures.sender.tcp_rwnd_limited = of_a_minute(0.1);
    assert!(!binding(&figures).sentence.contains("buffer was full"));
}

/// `get` of 24 Mbit/s over 100 ms with a stream window of 512 KiB, of which 293 KiB are in flight; the engine saw the
/// window closed for this share of the time.
fn slow_sender(closed: f64) -> ConnectionFigures {
    let mut figures = blind(24e6);
    figures.min_rtt = Some(Duration::from_millis(100));
    figures.receiver.stream_window = Some(512 << 10);
    figures.receiver.connection_window = Some(1 << 30);
    figures.sender.blocked_stream_window = of_a_minute(closed);
    figures.sender.blocked_connection_window = Some(Duration::ZERO);
    figures
}

#[test]
fn a_window_that_was_seen_open_is_not_the_limit_of_a_slow_sender() {
    // Credit by halves: 256 KiB are left when it is returned, so that the sender stops for a moment and catches up.
    for closed in [0.0, 0.17, MUCH_OF_THE_TIME - 0.001] {
        let slow = binding(&slow_sender(closed));
        assert_eq!(
            (slow.kind, slow.confidence, slow.fixes),
            (BindingKind::Unknown, None, Vec::new()),
            "{closed}"
        );
        assert!(slow.sentence.contains("our windows stopped the sender for"), "{}", slow.sentence);
        assert!(slow.sentence.contains("larger ones change little"), "{}", slow.sentence);
    }
    assert_eq!(kind(&slow_sender(MUCH_OF_THE_TIME)), (BindingKind::StreamWindow, Some(Confidence::Guessed)));
    assert_eq!(kind(&slow_sender(MOST_OF_THE_TIME)), (BindingKind::StreamWindow, Some(Confidence::Inferred)));
}

#[test]
fn a_window_that_stops_bursts_is_not_the_limit_of_a_sender_with_pauses() {
    // Seen: 1 MB every 800 ms over 100 ms, a window of 512 KiB closed for 27 % of the time, 1 MiB changed nothing.
    let filled = |share: f64| share * 524_288.0 * 8.0 / 0.1;
    for closed in [MUCH_OF_THE_TIME, 0.27, MOST_OF_THE_TIME - 0.001] {
        let bursts = binding_at_speed(&slow_sender(closed), filled(HELD_BACK - 0.001));
        assert_eq!((bursts.kind, bursts.fixes), (BindingKind::Unknown, Vec::new()), "{closed}");
        assert!(bursts.sentence.contains("of the time in bursts"), "{}", bursts.sentence);
        let window = binding_at_speed(&slow_sender(closed), filled(HELD_BACK + 0.001));
        assert_eq!(window.kind, BindingKind::StreamWindow, "{closed}");
    }
}

#[test]
fn a_window_that_was_seen_closed_with_all_of_it_in_flight_is_the_limit() {
    let with = |closed: f64, filled: f64| {
        let speed = filled * 524_288.0 * 8.0 / 0.1;
        let found = binding_at_speed(&slow_sender(closed), speed);
        (found.kind, found.confidence)
    };
    let stream = |confidence| (BindingKind::StreamWindow, confidence);
    assert_eq!(with(MOST_OF_THE_TIME, WINDOW_FILLED_FROM + 0.001), stream(Some(Confidence::Observed)));
    assert_eq!(
        with(MOST_OF_THE_TIME - 0.001, WINDOW_FILLED_FROM + 0.001),
        stream(Some(Confidence::Inferred))
    );
    assert_eq!(
        with(SELDOM, WINDOW_FILLED_FROM + 0.001),
        stream(Some(Confidence::Inferred)),
        "the path is hardly faster"
    );
    assert_eq!(with(SELDOM - 0.001, WINDOW_FILLED_FROM + 0.001), NOTHING);
    assert_eq!(with(SELDOM, WINDOW_FILLED_FROM - 0.001), NOTHING);
    // Over a negligible round trip no window is the limit.
    let mut near = slow_sender(0.9);
    near.min_rtt = Some(Duration::from_micros(LEAST_RTT_US - 1));
    assert_ne!(kind(&near).0, BindingKind::StreamWindow);
}

#[test]
fn a_receive_buffer_that_was_not_seen_to_be_used_up_is_a_guess() {
    // 24 Mbit/s over 100 ms and 768 KiB of buffer, of which at least half is offered: 293 KiB of 384 are in flight.
    let mut figures = slow_sender(0.0);
    figures.receiver.stream_window = Some(1 << 30);
    figures.receiver.receive_buffer = Some(768 << 10);
    let slow = binding(&figures);
    assert_eq!((slow.kind, slow.confidence), (BindingKind::ReceiveBuffer, Some(Confidence::Guessed)));
    assert!(slow.sentence.contains("one with no more to give looks alike"), "{}", slow.sentence);
    assert!(slow.fixes.is_empty(), "a larger buffer may change nothing");
    let full = binding_at_speed(&figures, 384.0 * 1024.0 * 8.0 / 0.1);
    assert_eq!(full.confidence, Some(Confidence::Inferred));
    assert!(full.fixes[0].setting.contains("net.ipv4.tcp_rmem"));
}

#[test]
fn only_a_guess_that_a_sender_with_nothing_more_to_send_explains_too_has_no_fix() {
    let of = |closed| {
        let found = binding(&slow_sender(closed));
        (found.confidence, !found.fixes.is_empty())
    };
    assert_eq!(of(MUCH_OF_THE_TIME), (Some(Confidence::Guessed), false));
    assert_eq!(of(MOST_OF_THE_TIME), (Some(Confidence::Inferred), true));
}
