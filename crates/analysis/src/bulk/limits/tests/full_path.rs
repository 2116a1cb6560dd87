//! A path that is full, as the queue that stands in it shows.

use super::*;

/// Makes a sender wait for one thing.
type Wait = fn(&mut SenderFigures);

#[test]
fn a_buffer_that_only_lets_more_packets_queue_is_not_the_limit() {
    // Over a full path: a send buffer, a receive buffer, a window of the server.
    let waits: [(BindingKind, Wait); 3] = [
        (BindingKind::SendBuffer, |sender| sender.tcp_sndbuf_limited = of_a_minute(0.97)),
        (BindingKind::ReceiveBuffer, |sender| sender.tcp_rwnd_limited = of_a_minute(0.97)),
        (BindingKind::StreamWindow, |sender| sender.blocked_stream_window = of_a_minute(0.97)),
    ];
    for (buffer, wait) in waits {
        let with = |factor: f64, figures: ConnectionFigures| {
            let mut figures = ConnectionFigures { we_send: true, ..figures };
            figures.rtt = figures.min_rtt.map(|rtt| rtt.mul_f64(factor));
            wait(&mut figures.sender);
            binding(&figures)
        };
        let full = with(QUEUE_STANDS, counted(1e8));
        assert_eq!((full.kind, full.confidence), (BindingKind::Link, Some(Confidence::Inferred)));
        assert!(full.fixes.is_empty());
        assert!(full.sentence.contains("so the path is full at 100 Mbit/s"), "{}", full.sentence);
        assert_eq!(with(QUEUE_STANDS - 0.001, counted(1e8)).kind, buffer);
        assert_eq!(with(QUEUE_STANDS, gigabit(counted(1e8))).kind, buffer, "that link is not full");
    }
}

#[test]
fn packets_queue_between_neighbours_if_their_round_trips_take_longer_than_processing() {
    let with = |rtt: Duration| {
        let mut figures = counted(1e8);
        (figures.min_rtt, figures.rtt) = (Some(Duration::from_micros(200)), Some(rtt));
        // All of it is in flight.
        figures.sender.cwnd_bytes = Some((1e8 / 8.0 * rtt.as_secs_f64()) as u64);
        kind(&figures)
    };
    assert_eq!(with(QUEUE_STANDS_FROM), (BindingKind::Link, Some(Confidence::Inferred)));
    assert_eq!(with(QUEUE_STANDS_FROM.mul_f64(0.999)).0, BindingKind::CongestionWindow);
}
