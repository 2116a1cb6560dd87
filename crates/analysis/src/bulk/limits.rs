//! Which limit a transfer ran into, how sure that is, and which setting lifts it.
//!
//! Three kinds of evidence, best first. First, counters of the sender: the time in which data waited for a window, a
//! buffer or a disk. Second, sizes: a limit lets a fixed number of bytes through per round trip, so its size is about
//! that of the data in flight. Last, TCP's congestion window, if nothing else explains it.

pub use sentence::BUSY;
use std::time::Duration;

use crate::diagnose;
use h2lab_base::counters::INITIAL_WINDOW;
use h2lab_model::Confidence;
use h2lab_model::bulk::{Binding, BindingKind, ConnectionFigures};

mod remedy;
mod sentence;

/// The link counts as full from this share of its capacity: headers of TCP, IP and TLS take up to 5 % of it.
pub const FULL: f64 = 0.9;
/// A wait of this share of the time is the limit.
pub const MOST_OF_THE_TIME: f64 = 0.5;
/// A wait of this share of the time is likely the limit.
pub const MUCH_OF_THE_TIME: f64 = 0.25;
/// A buffer matches the data in flight from this share of its size, since none is always full: Linux wakes the writer of
/// a socket when a third of its buffer is free.
pub const AGREES_FROM: f64 = 2.0 / 3.0;
/// A window of HTTP matches from this share of its size. Credit is usually returned by halves of the window, as it is
/// by our default, and the timing of the reads decides whether one half passes in a round trip or two.
pub const WINDOW_AGREES_FROM: f64 = 0.5;
/// Below this share a full window looks the same as a sender that had no more data to send: the window is guessed,
/// unless its sender counted how long it was closed. Above it, less than a frame of the window was left.
pub const WINDOW_FILLED_FROM: f64 = 0.9;
/// A window that was closed for less of the time than this did not hold the data back, whatever its size.
pub const SELDOM: f64 = 0.05;
/// A size also matches up to this share: the round-trip time is the lowest that was seen, and the data took a little
/// longer.
pub const AGREES_TO: f64 = 1.25;
/// If less than this share of a closed window is in flight, the cause is not the round trip but an end that does not
/// read what has arrived, or one that sends in bursts.
/// Not a half: credit that comes in pieces too small for a frame waits for the next piece (seen with `HAProxy` 2.6:
/// 0.47 of its window).
pub const HELD_BACK: f64 = 1.0 / 3.0;
/// If less than this share of the congestion window was used, something else limited the sender.
pub const CWND_USED: f64 = 0.5;
/// A transfer that took more than this many times the round trips of slow start did not end in slow start.
const OPENING: f64 = 2.0;
/// A smoothed round-trip time of this many times the lowest one indicates a standing queue in the path.
pub const QUEUE_STANDS: f64 = 1.5;
/// Over round trips that are shorter than [`LEAST_RTT_US`], a smoothed one from this on indicates a standing queue: the
/// processing at the ends takes less.
const QUEUE_STANDS_FROM: Duration = Duration::from_millis(4);
/// Shorter round trips are not a limit: the processing at the ends takes as long.
pub const LEAST_RTT_US: u64 = 1_000;
/// The largest send buffer that Linux auto-tunes to (`net.ipv4.tcp_wmem`), in bytes: assumed for an end whose settings
/// are unknown and not raised.
pub const USUAL_SEND_BUFFER: u64 = 4 << 20;
/// The largest receive buffer that Linux auto-tunes to (`net.ipv4.tcp_rmem`), in bytes, for a receiver whose settings
/// are unknown.
pub const USUAL_RECEIVE_BUFFER: u64 = 6 << 20;

/// The limit of this connection. A pure function of the figures, so that a report can be made again from a record.
pub fn binding(figures: &ConnectionFigures) -> Binding {
    binding_at_speed(figures, figures.rate())
}

/// The same with a rate that excludes TCP's slow start: `speed` is the rate after it, in bits per second. Sizes are
/// compared with what is in flight at that rate.
pub fn binding_at_speed(figures: &ConnectionFigures, speed: f64) -> Binding {
    let found = decide(figures, speed);
    let (kind, confidence) =
        found.map_or((BindingKind::Unknown, None), |(kind, confidence)| (kind, Some(confidence)));
    let is_unseen = found.is_some_and(|(kind, confidence)| is_unseen(kind, confidence));
    Binding {
        kind,
        cause: diagnose::of_limit(kind, figures.we_send).map(|cause| cause.id.to_owned()),
        confidence,
        sentence: sentence::sentence(kind, confidence, figures, speed),
        fixes: if is_unseen { Vec::new() } else { remedy::fixes(kind, figures, speed) },
    }
}

/// Whether this is a window of the receiver that may have had room left: a larger one changes nothing if the sender had
/// nothing more to send.
fn is_unseen(kind: BindingKind, confidence: Confidence) -> bool {
    confidence == Confidence::Guessed && (is_window(kind) || kind == BindingKind::ReceiveBuffer)
}

/// The limit, and how sure it is; `None` if nothing that was seen explains the rate.
fn decide(figures: &ConnectionFigures, speed: f64) -> Option<(BindingKind, Confidence)> {
    if figures.wall.is_zero() || figures.bytes == 0 {
        return None;
    }
    let found = full(figures, speed)
        .or_else(|| exhausted(figures))
        .or_else(|| waited(figures, speed))
        .or_else(|| windowed(figures, speed))
        .or_else(|| congested(figures, speed))
        .or_else(|| sized(figures, speed));
    if found.is_some() || is_stopped_near(figures) {
        return found;
    }
    starved(figures).or_else(|| near(figures)).or_else(|| fed_slowly(figures))
}

/// Whether our windows stopped the sender for most of the time over a round trip that is too short to tell why: a larger
/// one may let more through, or an end is late to process. Neither end is blamed then.
fn is_stopped_near(figures: &ConnectionFigures) -> bool {
    let sender = &figures.sender;
    let closed =
        figures.share(sender.blocked_stream_window).max(figures.share(sender.blocked_connection_window));
    !figures.we_send && is_near(figures) && closed >= MOST_OF_THE_TIME
}

/// The link is full.
fn full(figures: &ConnectionFigures, speed: f64) -> Option<(BindingKind, Confidence)> {
    let capacity = figures.bandwidth?.bits_per_second() as f64;
    (speed * figures.company() >= FULL * capacity).then_some((BindingKind::Link, Confidence::Observed))
}

/// The confidence that a wait of this `share` of the time gives; `None` if it is small.
fn confidence(share: f64) -> Option<Confidence> {
    match share {
        s if s >= MOST_OF_THE_TIME => Some(Confidence::Observed),
        s if s >= MUCH_OF_THE_TIME => Some(Confidence::Inferred),
        _ => None,
    }
}

/// An end without CPU time left, or waiting for its disk. Checked before windows and buffers: a slow end closes those
/// too.
fn exhausted(figures: &ConnectionFigures) -> Option<(BindingKind, Confidence)> {
    let (sender, receiver) = (&figures.sender, &figures.receiver);
    if figures.share(sender.cpu).max(figures.share(receiver.cpu)) >= BUSY {
        return Some((BindingKind::Cpu, Confidence::Observed));
    }
    let disk = figures.share(sender.disk_wait).max(figures.share(receiver.disk_wait));
    confidence(disk).map(|confidence| (BindingKind::Disk, confidence))
}

/// The waits that the sender counted.
fn waited(figures: &ConnectionFigures, speed: f64) -> Option<(BindingKind, Confidence)> {
    let sender = &figures.sender;
    let waits = [
        (BindingKind::StreamWindow, sender.blocked_stream_window),
        (BindingKind::ConnectionWindow, sender.blocked_connection_window),
        (BindingKind::SendBuffer, sender.tcp_sndbuf_limited),
        (BindingKind::ReceiveBuffer, sender.tcp_rwnd_limited),
    ];
    let (kind, share) = waits
        .map(|(kind, time)| (kind, figures.share(time)))
        .into_iter()
        .max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let confidence =
        if figures.we_send { confidence(share)? } else { seen_closed(kind, share, figures, speed)? };
    if sender.tcp_busy.is_some() && is_path_full(figures) {
        // What a larger window or buffer let in would only lengthen the queue.
        return Some((BindingKind::Link, Confidence::Inferred));
    }
    let is_buffer = matches!(kind, BindingKind::SendBuffer | BindingKind::ReceiveBuffer);
    if is_buffer && is_near(figures) {
        // Data is not in flight for that long: one end waits for the other's processing.
        return Some((BindingKind::Cpu, Confidence::Inferred));
    }
    Some(if is_held_back(kind, figures, speed) {
        (BindingKind::Peer, confidence.max(Confidence::Inferred))
    } else {
        (kind, confidence)
    })
}

/// How certain a limit is if a receiver saw its window closed for this `share` of the time. A sender whose traffic
/// needs less than the window also stops if credit comes late (by halves: half of a window passes before any comes
/// back), and catches up afterwards. So only a window whose bytes were all in flight is certain. A window that is open
/// for most of the time, and of which less than [`HELD_BACK`] is in flight on average, only stops the bursts of a
/// sender that pauses.
fn seen_closed(kind: BindingKind, share: f64, figures: &ConnectionFigures, speed: f64) -> Option<Confidence> {
    if !is_window(kind) {
        return confidence(share);
    }
    let in_flight = figures.in_flight(speed).zip(window(kind, figures));
    let is_filled = in_flight.is_none_or(|(bytes, size)| bytes >= WINDOW_FILLED_FROM * size);
    let is_of_bursts = in_flight.is_some_and(|(bytes, size)| bytes < HELD_BACK * size);
    match confidence(share) {
        _ if is_near(figures) => None,
        Some(confidence) if is_filled => Some(confidence),
        Some(Confidence::Observed) => Some(Confidence::Inferred),
        Some(_) if is_of_bursts => None,
        Some(_) => Some(Confidence::Guessed),
        None => (is_filled && in_flight.is_some() && share >= SELDOM).then_some(Confidence::Inferred),
    }
}

/// Whether this kind is a window of HTTP.
const fn is_window(kind: BindingKind) -> bool {
    matches!(kind, BindingKind::StreamWindow | BindingKind::ConnectionWindow)
}

/// Whether packets queue in the path, as the smoothed round-trip time of the sender shows.
fn is_queued(figures: &ConnectionFigures) -> bool {
    let (Some(least), Some(rtt)) = (figures.min_rtt, figures.rtt) else { return false };
    let from = if has_round_trip(figures) { least.mul_f64(QUEUE_STANDS) } else { QUEUE_STANDS_FROM };
    rtt >= from
}

/// Whether a standing queue shows that the path is full. It is the only sign on a path that we do not emulate; of one that
/// we do, the capacity is known.
fn is_path_full(figures: &ConnectionFigures) -> bool {
    figures.bandwidth.is_none() && is_queued(figures)
}

/// Whether the round trip is long enough for a limit of bytes per round trip.
fn has_round_trip(figures: &ConnectionFigures) -> bool {
    figures.min_rtt.is_some_and(|rtt| rtt.as_micros() >= LEAST_RTT_US.into())
}

/// Whether the round trip is known and too short for one.
fn is_near(figures: &ConnectionFigures) -> bool {
    figures.min_rtt.is_some() && !has_round_trip(figures)
}

/// Whether a window of the other end is closed for a reason other than the round trip.
fn is_held_back(kind: BindingKind, figures: &ConnectionFigures, speed: f64) -> bool {
    let usual = (kind == BindingKind::ReceiveBuffer).then_some(USUAL_RECEIVE_BUFFER as f64 / 2.0);
    let (Some(in_flight), Some(size)) = (figures.in_flight(speed), window(kind, figures).or(usual)) else {
        return false;
    };
    figures.we_send && has_round_trip(figures) && in_flight < HELD_BACK * size
}

/// The size of a window of the receiving end, in bytes.
fn window(kind: BindingKind, figures: &ConnectionFigures) -> Option<f64> {
    let receiver = &figures.receiver;
    match kind {
        BindingKind::StreamWindow => {
            receiver.stream_window.map(|size| size as f64 * f64::from(figures.streams.max(1)))
        }
        BindingKind::ConnectionWindow => receiver.connection_window.map(|size| size as f64),
        BindingKind::ReceiveBuffer => receiver.receive_buffer.map(|size| size as f64 / 2.0),
        _ => None,
    }
}

/// A window of HTTP whose waits the sender did not count, whose size matches the data in flight and for which TCP had
/// room. Checked before the congestion window: TCP counts as busy whether HTTP or its own window limits the data, and
/// it does not grow its window beyond what is used (RFC 7661). So a small window of HTTP looks like a full one of TCP.
fn windowed(figures: &ConnectionFigures, speed: f64) -> Option<(BindingKind, Confidence)> {
    let has_room = |size: f64| match figures.sender.cwnd_bytes {
        Some(cwnd) => cwnd as f64 >= AGREES_FROM * size,
        None => false, // nothing is known of the sender's TCP: there are only sizes
    };
    let (kind, size) = agreeing_windows(figures, speed)?;
    let is_it = kind != BindingKind::ReceiveBuffer && has_room(size);
    is_it.then(|| (kind, by_size(kind, figures, speed, size)))
}

/// How certain a size makes a limit: a window of the receiver that may have had room left is guessed.
fn by_size(kind: BindingKind, figures: &ConnectionFigures, speed: f64, size: f64) -> Confidence {
    let is_window = is_window(kind) || kind == BindingKind::ReceiveBuffer;
    let is_filled = figures.in_flight(speed).is_some_and(|bytes| bytes >= WINDOW_FILLED_FROM * size);
    if is_window && !is_filled { Confidence::Guessed } else { Confidence::Inferred }
}

/// For how long data waited for the congestion window, which the kernel does not count: TCP was busy, nothing else
/// limited it, and that window was full. Data that waited for a window of HTTP had not reached TCP, which is busy
/// meanwhile with what is in flight. `None` if TCP's times are unknown.
pub(super) fn congestion_wait(figures: &ConnectionFigures) -> Option<Duration> {
    let sender = &figures.sender;
    let limited = [
        sender.tcp_rwnd_limited,
        sender.tcp_sndbuf_limited,
        sender.blocked_stream_window,
        sender.blocked_connection_window,
    ];
    // TCP is busy until the last byte is acknowledged, which may be after the transfer.
    let wait = sender.tcp_busy?.min(figures.wall).saturating_sub(limited.into_iter().flatten().sum());
    Some(if has_room(figures) && !is_opening(figures) { Duration::ZERO } else { wait })
}

/// Whether the congestion window was larger than what was in flight, as far as that is known. Over a very short round
/// trip, as on loopback, TCP is busy with its own processing, and slow start leaves a window that is never filled.
fn has_room(figures: &ConnectionFigures) -> bool {
    let is_short = is_near(figures) && !is_queued(figures);
    let used = if is_short { AGREES_FROM } else { CWND_USED };
    let in_flight = round_trip(figures).map(|rtt| figures.rate() / 8.0 * rtt);
    in_flight.zip(figures.sender.cwnd_bytes).is_some_and(|(bytes, cwnd)| bytes < used * cwnd as f64)
}

/// Whether the transfer was over before TCP had opened its congestion window: without a loss the window doubles in each
/// round trip, from ten segments (RFC 6928 §2), and the transfer took hardly more round trips than that needs.
pub(super) fn is_opening(figures: &ConnectionFigures) -> bool {
    let Some(rtt) = round_trip(figures).filter(|_| has_round_trip(figures)) else { return false };
    let rounds = (figures.bytes as f64 / f64::from(INITIAL_WINDOW)).ln_1p() / std::f64::consts::LN_2;
    figures.sender.retransmits == Some(0) && figures.wall.as_secs_f64() <= OPENING * rounds * rtt
}

/// The smoothed round-trip time, or the lowest, in seconds.
fn round_trip(figures: &ConnectionFigures) -> Option<f64> {
    Some(figures.rtt.or(figures.min_rtt)?.as_secs_f64())
}

/// TCP was busy, no buffer limited it, and its congestion window was full.
fn congested(figures: &ConnectionFigures, speed: f64) -> Option<(BindingKind, Confidence)> {
    let confidence = confidence(figures.share(congestion_wait(figures)))?;
    let rtt = round_trip(figures)?;
    let is_used = speed / 8.0 * rtt >= CWND_USED * figures.sender.cwnd_bytes? as f64 || is_opening(figures);
    let found = if is_path_full(figures) {
        (BindingKind::Link, Confidence::Inferred)
    } else {
        (BindingKind::CongestionWindow, confidence)
    };
    is_used.then_some(found)
}

/// Without counts: the smallest of the limits whose size matches the data in flight.
fn sized(figures: &ConnectionFigures, speed: f64) -> Option<(BindingKind, Confidence)> {
    let sender = &figures.sender;
    let buffer = sender.send_buffer.filter(|_| sender.tcp_sndbuf_limited.is_none());
    let buffer = buffer.map(|size| (BindingKind::SendBuffer, size as f64));
    let found = agreeing_windows(figures, speed)
        .into_iter()
        .chain(buffer.filter(|(_, size)| agrees(figures, speed, AGREES_FROM * size, *size)))
        .min_by(|(_, a), (_, b)| a.total_cmp(b));
    if let Some((kind, size)) = found {
        return Some((kind, by_size(kind, figures, speed, size)));
    }
    let usual = USUAL_SEND_BUFFER as f64;
    let is_unseen = sender.send_buffer.is_none() && sender.tcp_sndbuf_limited.is_none();
    (is_unseen && agrees(figures, speed, AGREES_FROM * usual, usual))
        .then_some((BindingKind::SendBuffer, Confidence::Guessed))
}

/// Whether the data in flight per round trip is at least `least` bytes, and not much more than `most`.
fn agrees(figures: &ConnectionFigures, speed: f64, least: f64, most: f64) -> bool {
    let in_flight = figures.in_flight(speed).filter(|_| has_round_trip(figures));
    in_flight.is_some_and(|bytes| (least..=most * AGREES_TO).contains(&bytes))
}

/// The smallest of the receiver's windows whose waits the sender did not count and that match the data in flight, and
/// its size.
fn agreeing_windows(figures: &ConnectionFigures, speed: f64) -> Option<(BindingKind, f64)> {
    let sender = &figures.sender;
    let http = (WINDOW_AGREES_FROM, 1.0);
    let candidates = [
        (BindingKind::StreamWindow, sender.blocked_stream_window.is_some(), http),
        (BindingKind::ConnectionWindow, sender.blocked_connection_window.is_some(), http),
        // Linux offers half of a receive buffer as a window, or more if packets are well filled (tcp_adv_win_scale).
        (BindingKind::ReceiveBuffer, sender.tcp_rwnd_limited.is_some(), (AGREES_FROM, 2.0)),
    ];
    let windows = candidates.into_iter().filter_map(|(kind, is_counted, shares)| {
        let size = window(kind, figures).filter(|_| !is_counted)?;
        Some((kind, size, shares))
    });
    windows
        .filter(|&(_, size, (from, to))| agrees(figures, speed, size * from, size * to))
        .map(|(kind, size, _)| (kind, size))
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// TCP had nothing to send for most of the time, and no limit of ours explains it.
fn starved(figures: &ConnectionFigures) -> Option<(BindingKind, Confidence)> {
    let busy = figures.share(Some(figures.sender.tcp_busy?));
    (!figures.we_send && busy < MOST_OF_THE_TIME).then_some((BindingKind::Peer, Confidence::Inferred))
}

/// Both ends are visible, and nothing between them is a limit.
fn near(figures: &ConnectionFigures) -> Option<(BindingKind, Confidence)> {
    (is_near(figures)
        && figures.sender.tcp_busy.is_some()
        && figures.sender.cpu.is_some()
        && figures.receiver.cpu.is_some())
    .then_some((BindingKind::Cpu, Confidence::Inferred))
}

/// Only this end is visible. It receives, was idle for most of the time, and the round trip is too short for a window
/// or a buffer to be a limit: the sender had no more data to send.
fn fed_slowly(figures: &ConnectionFigures) -> Option<(BindingKind, Confidence)> {
    let is_idle = figures.share(Some(figures.receiver.cpu?)) < MOST_OF_THE_TIME;
    (!figures.we_send && is_near(figures) && is_idle && figures.sender.tcp_busy.is_none())
        .then_some((BindingKind::Peer, Confidence::Inferred))
}

#[cfg(test)]
mod tests;
