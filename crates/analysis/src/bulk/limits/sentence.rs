//! The evidence for a limit, in a sentence with figures.

use std::time::Duration;

use h2lab_base::counts::plural;
use h2lab_base::units::{format_bytes, measured_time};
use h2lab_model::Confidence;
use h2lab_model::bulk::rate::bits_text;
use h2lab_model::bulk::{BindingKind, ConnectionFigures};

/// A thread busy for this share of the time is saturated; the same bound makes a measurement doubtful.
pub const BUSY: f64 = 0.95;

/// Bytes of a segment on Ethernet: with less in flight on average, the sender waited for something other than a round
/// trip.
const SEGMENT: f64 = 1_460.0;

/// Over shorter round trips, those of a loopback or of a bridge in one machine, the data in flight says nothing.
const NO_PATH: Duration = Duration::from_micros(100);

/// The observation, and the conclusion.
pub(super) fn sentence(
    kind: BindingKind,
    confidence: Option<Confidence>,
    figures: &ConnectionFigures,
    speed: f64,
) -> String {
    let rate = bits_text(speed);
    let on_the_way = per_round_trip(figures, speed);
    let (sender, receiver) = (&figures.sender, &figures.receiver);
    match kind {
        BindingKind::StreamWindow => {
            let each = match figures.streams {
                0 | 1 => String::new(),
                n => format!(" of each of {n} streams"),
            };
            let what = sized("stream window", receiver.stream_window) + &each;
            was_full(&on_the_way, &what, figures, sender.blocked_stream_window) + unseen(confidence)
        }
        BindingKind::ConnectionWindow => {
            let what = sized("connection window", receiver.connection_window);
            was_full(&on_the_way, &what, figures, sender.blocked_connection_window) + unseen(confidence)
        }
        BindingKind::SendBuffer if confidence == Some(Confidence::Guessed) => format!(
            "{on_the_way}: what Linux's default send buffer allows; the other end's buffer is not known"
        ),
        BindingKind::SendBuffer => {
            let what = sized("sender's socket buffer", sender.send_buffer);
            was_full(&on_the_way, &what, figures, sender.tcp_sndbuf_limited)
        }
        BindingKind::ReceiveBuffer => {
            let what = sized("receiver's socket buffer", receiver.receive_buffer);
            was_full(&on_the_way, &what, figures, sender.tcp_rwnd_limited) + unseen(confidence)
        }
        BindingKind::CongestionWindow => congestion(figures, &on_the_way),
        BindingKind::Disk => {
            let (end, wait) = worse(figures, sender.disk_wait, receiver.disk_wait);
            format!("the {end}'s disk kept it waiting for {} of the time, at {rate}", percent(wait))
        }
        BindingKind::Cpu => {
            let (end, busy) = worse(figures, sender.cpu, receiver.cpu);
            let bound = percent(BUSY);
            if busy < BUSY {
                return format!(
                    "the round trip is too short for a window or a buffer to matter at {rate}: the CPUs of both \
                     ends, and other load on them, limit the rate (the {end} was busy for {} of the time{})",
                    percent(busy),
                    buffers(figures)
                );
            }
            format!(
                "a thread of the {end} was busy for {} of the time (saturated from {bound}), at {rate}",
                percent(busy)
            )
        }
        BindingKind::Peer if figures.we_send => {
            let is_tcp = figures.share(sender.tcp_rwnd_limited) >= super::MUCH_OF_THE_TIME;
            let or = match receiver.receive_buffer {
                None if is_tcp => ", or its receive buffer is small (net.ipv4.tcp_rmem there)",
                _ => "",
            };
            format!("the receiver's windows were closed although only {on_the_way}: it read data late{or}")
        }
        BindingKind::Peer if sender.tcp_busy.is_none() => format!(
            "the round trip is too short for a window or a buffer to matter at {rate}, and the receiver was busy for \
             only {} of the time: the sender gave no more",
            percent(figures.share(receiver.cpu))
        ),
        BindingKind::Peer => format!(
            "the sender had something to send for only {} of the time, at {rate}, and no window of ours limited it",
            percent(figures.share(sender.tcp_busy))
        ),
        BindingKind::Link => link(figures, speed),
        BindingKind::Unknown => unknown(figures, &on_the_way),
    }
}

/// `98 %`.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The end that waited more, and its share of the time.
fn worse(
    figures: &ConnectionFigures,
    sender: Option<Duration>,
    receiver: Option<Duration>,
) -> (&'static str, f64) {
    let (sender, receiver) = (figures.share(sender), figures.share(receiver));
    if sender > receiver { ("sender", sender) } else { ("receiver", receiver) }
}

/// `4 MiB on the way per round trip of 250ms is 134 Mbit/s`.
fn per_round_trip(figures: &ConnectionFigures, speed: f64) -> String {
    let rate = bits_text(speed);
    match (figures.in_flight(speed), figures.min_rtt) {
        (Some(bytes), Some(rtt)) if bytes >= SEGMENT => {
            format!(
                "{} in flight per round trip of {} is {rate}",
                format_bytes(bytes.round() as u64),
                measured_time(rtt)
            )
        }
        _ => format!("the rate was {rate}"),
    }
}

/// `send buffer of 4 MiB`, if its size is known.
fn sized(name: &str, size: Option<u64>) -> String {
    size.map_or_else(|| name.to_owned(), |size| format!("{name} of {}", format_bytes(size)))
}

/// `, the receive buffer was full for 83 %`: which end waits for which, where the round trip is too short to matter.
fn buffers(figures: &ConnectionFigures) -> String {
    let full = |name: &str, time: Option<Duration>, whose: &str| {
        let share = figures.share(time);
        let is_much = share >= super::MUCH_OF_THE_TIME;
        is_much
            .then(|| format!(", the {name} was full for {}: the {whose} is the slower end", percent(share)))
    };
    let sender = &figures.sender;
    let receives = full("receive buffer", sender.tcp_rwnd_limited, "receiver");
    receives
        .or_else(|| full("send buffer", sender.tcp_sndbuf_limited, "path or the receiver"))
        .unwrap_or_default()
}

/// Something that was full for `waited`; if that was not counted, it is inferred from its size.
fn was_full(on_the_way: &str, what: &str, figures: &ConnectionFigures, waited: Option<Duration>) -> String {
    let shown = match waited {
        Some(_) => format!("was full for {} of the time", percent(figures.share(waited))),
        None => "matches that".to_owned(),
    };
    format!("{on_the_way}, and the {what} {shown}")
}

/// What makes a window doubtful if its size is the only evidence.
const fn unseen(confidence: Option<Confidence>) -> &'static str {
    match confidence {
        Some(Confidence::Guessed) => {
            "; that the sender had more to send was not seen, and one with no more to give looks alike: \
             a larger one decides"
        }
        _ => "",
    }
}

fn congestion(figures: &ConnectionFigures, on_the_way: &str) -> String {
    let sender = &figures.sender;
    if super::is_opening(figures) {
        let wall = measured_time(figures.wall);
        return format!(
            "{on_the_way}; the transfer was short ({wall}): TCP was still opening its congestion window (slow start)"
        );
    }
    let window = sized("congestion window", sender.cwnd_bytes);
    let name = sender.congestion_control.as_ref().map_or(String::new(), |name| format!(" ({name})"));
    let again = match sender.retransmits {
        Some(0) => ", no retransmits".to_owned(),
        Some(n) => format!(", {} retransmitted", plural(n, "segment")),
        None => String::new(),
    };
    format!("{on_the_way}, and the {window}{name} was full{again}")
}

fn link(figures: &ConnectionFigures, speed: f64) -> String {
    match (figures.bandwidth, figures.rtt, figures.min_rtt) {
        (Some(bandwidth), ..) => {
            let of_all = speed * figures.company();
            let (rate, share) = (bits_text(of_all), of_all / bandwidth.bits_per_second() as f64);
            format!("the link is full: {rate} of data is {} of its {bandwidth}", percent(share))
        }
        (None, Some(rtt), Some(least)) => format!(
            "packets queue in the path (round trips of {} instead of {}), so the path is full at {}",
            measured_time(rtt),
            measured_time(least),
            bits_text(speed * figures.company())
        ),
        _ => format!("the link is full at {}", bits_text(speed)),
    }
}

/// For how much of the time the windows of HTTP were closed, if that was counted.
fn window_share(figures: &ConnectionFigures) -> Option<f64> {
    let sender = &figures.sender;
    let waits = [sender.blocked_stream_window, sender.blocked_connection_window];
    waits.into_iter().flatten().map(|wait| figures.share(Some(wait))).max_by(f64::total_cmp)
}

fn unknown(figures: &ConnectionFigures, on_the_way: &str) -> String {
    if figures.wall.is_zero() || figures.bytes == 0 {
        return "no data received".to_owned();
    }
    if super::is_stopped_near(figures) {
        return format!(
            "our windows stopped the sender for {} of the time; over a round trip of {} that may be because of their \
             size, or because an end is late to process: larger ones (-w, -W) decide",
            percent(window_share(figures).unwrap_or(0.0)),
            measured_time(figures.min_rtt.unwrap_or_default())
        );
    }
    let unseen = figures.sender.tcp_busy.is_none() && !figures.we_send;
    let why = match window_share(figures) {
        Some(share) if unseen => format!(
            "our windows stopped the sender for {} of the time{}, so larger ones change little; no other limit of this \
             end matches the rate, and what the sender waited for (its source, its disk, its CPU, the path) cannot be \
             seen from here",
            percent(share),
            if share < super::MUCH_OF_THE_TIME {
                ""
            } else {
                " in bursts, and let more than this rate through"
            }
        ),
        None if unseen => {
            "no limit of this end matches the rate, and what the sender waited for cannot be seen from here"
                .to_owned()
        }
        _ if figures.min_rtt.is_some_and(|rtt| rtt < NO_PATH) => {
            return "nothing that h2lab sees limited it for long".to_owned();
        }
        _ => "no window, buffer, disk or CPU limited it for long".to_owned(),
    };
    format!("{on_the_way}: {why}")
}

#[cfg(test)]
mod tests {
    use h2lab_model::bulk::testing::small_buffer;

    use super::*;

    #[test]
    fn without_a_path_between_the_ends_the_data_in_flight_is_not_told() {
        let mut figures = small_buffer();
        let mut of = |min_rtt| {
            figures.min_rtt = Some(min_rtt);
            sentence(BindingKind::Unknown, None, &figures, 11.7e9)
        };
        assert_eq!(of(Duration::from_micros(3)), "nothing that h2lab sees limited it for long");
        assert_eq!(of(NO_PATH.mul_f64(0.999)), "nothing that h2lab sees limited it for long");
        let over_a_path = of(NO_PATH);
        assert!(over_a_path.contains(" in flight per round trip of "), "{over_a_path}");
    }
}
