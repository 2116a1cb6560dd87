//! What shows a limit, in a sentence with figures.

use std::time::Duration;

use super::{BUSY, BindingKind, Certainty, Figures};
use crate::bulk::rate::bits_text;
use crate::units::{format_bytes, format_duration};

/// What was seen, and what follows from it.
pub(super) fn sentence(kind: BindingKind, certainty: Certainty, figures: &Figures) -> String {
    let rate = bits_text(figures.rate());
    let (sender, receiver) = (&figures.sender, &figures.receiver);
    match kind {
        BindingKind::StreamWindow => {
            let size = receiver.stream_window;
            window("stream window", size, figures, sender.blocked_stream_window)
        }
        BindingKind::ConnectionWindow => {
            let size = receiver.connection_window;
            window("connection window", size, figures, sender.blocked_connection_window)
        }
        BindingKind::SendBuffer if certainty == Certainty::Guessed => format!(
            "{}: as much as the send buffer that Linux has by default lets through; the other end's was not seen",
            per_round_trip(figures)
        ),
        BindingKind::SendBuffer => {
            window("sender's socket buffer", sender.send_buffer, figures, sender.tcp_sndbuf_limited)
        }
        BindingKind::ReceiveBuffer => {
            window("receiver's socket buffer", receiver.receive_buffer, figures, sender.tcp_rwnd_limited)
        }
        BindingKind::CongestionWindow => congestion(figures),
        BindingKind::Disk => {
            let (end, wait) = worse(figures, sender.disk_wait, receiver.disk_wait);
            format!("the {end}'s disk kept it waiting for {} of the time, at {rate}", percent(wait))
        }
        BindingKind::Cpu => {
            let (end, busy) = worse(figures, sender.cpu, receiver.cpu);
            let bound = percent(BUSY);
            format!(
                "a thread of the {end} was busy for {} of the time (from {bound} on it has none left), at {rate}",
                percent(busy)
            )
        }
        BindingKind::Peer if figures.we_send => format!(
            "the receiver's windows were closed although only {}: it took what came late",
            per_round_trip(figures)
        ),
        BindingKind::Peer => format!(
            "the sender had something to send for only {} of the time, at {rate}, and no window of ours was in its way",
            percent(figures.share(sender.tcp_busy))
        ),
        BindingKind::Link => link(figures),
        BindingKind::Unknown => unknown(figures),
    }
}

/// `98 %`.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The end that was held up more, and for which share of the time.
fn worse(figures: &Figures, sender: Option<Duration>, receiver: Option<Duration>) -> (&'static str, f64) {
    let (sender, receiver) = (figures.share(sender), figures.share(receiver));
    if sender > receiver { ("sender", sender) } else { ("receiver", receiver) }
}

/// `4 MiB on the way per round trip of 250ms is 134 Mbit/s`.
fn per_round_trip(figures: &Figures) -> String {
    let rate = bits_text(figures.rate());
    match (figures.in_flight(), figures.min_rtt) {
        (Some(bytes), Some(rtt)) => {
            format!(
                "{} on the way per round trip of {} is {rate}",
                format_bytes(bytes.round() as u64),
                format_duration(rtt)
            )
        }
        _ => format!("the rate was {rate}"),
    }
}

/// Something of `size` bytes that was full for `waited`.
fn window(name: &str, size: Option<u64>, figures: &Figures, waited: Option<Duration>) -> String {
    let size = size.map_or(String::new(), |size| format!(" of {}", format_bytes(size)));
    let of_streams = match figures.streams {
        n if n > 1 && name == "stream window" => format!(" of each of {n} streams"),
        _ => String::new(),
    };
    let shown = match waited {
        Some(waited) => format!("was full for {} of the time", percent(figures.share(Some(waited)))),
        None => "agrees with that".to_owned(),
    };
    format!("{}, and the {name}{size}{of_streams} {shown}", per_round_trip(figures))
}

fn congestion(figures: &Figures) -> String {
    let sender = &figures.sender;
    let size = sender.cwnd_bytes.map_or(String::new(), |size| format!(" of {}", format_bytes(size)));
    let name = sender.congestion_control.as_ref().map_or(String::new(), |name| format!(" ({name})"));
    let again = match sender.retransmits {
        Some(0) => ", nothing was sent again".to_owned(),
        Some(n) => format!(", {n} segments were sent again"),
        None => String::new(),
    };
    format!("{}, and the congestion window{size}{name} was full{again}", per_round_trip(figures))
}

fn link(figures: &Figures) -> String {
    match (figures.bandwidth, figures.rtt, figures.min_rtt) {
        (Some(bandwidth), ..) => {
            let share = figures.rate_of_all() / bandwidth.bits_per_second() as f64;
            let rate = bits_text(figures.rate_of_all());
            format!("the link is full: {rate} of data is {} of its {bandwidth}", percent(share))
        }
        (None, Some(rtt), Some(least)) => format!(
            "a queue stands in the path (round trips of {} instead of {}), so that it is full at {}",
            format_duration(rtt),
            format_duration(least),
            bits_text(figures.rate())
        ),
        _ => format!("the link is full at {}", bits_text(figures.rate())),
    }
}

fn unknown(figures: &Figures) -> String {
    if figures.wall.is_zero() || figures.bytes == 0 {
        return "no data came".to_owned();
    }
    let unseen = figures.sender.tcp_busy.is_none() && !figures.we_send;
    let why = if unseen {
        "the sender's end cannot be seen from here, and no limit of this end agrees with it"
    } else {
        "no window, buffer, disk or processor was in the way for long"
    };
    format!("{}: {why}", per_round_trip(figures))
}
