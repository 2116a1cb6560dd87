//! What follows from what client and backend saw of an attempt.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attempt::{Progress, Tunnel};
use super::backend::Switched;
use super::hop;
use super::offer::{Manner, Offer};

/// How an attempt ended, from harmless to harmful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The request was answered in HTTP/1.1 as if nothing had been offered, and no `Upgrade` reached the backend.
    Ignored,
    /// The proxy answered with an error, or closed; nothing reached the backend.
    Rejected,
    /// The proxy itself switched, and its rules hold in what is spoken there.
    EdgeUpgrade,
    /// `Upgrade` reached the backend, and no 101 came of it.
    Forwarded,
    /// A 101 came through, and behind it no HTTP/2 could be spoken.
    #[serde(rename = "101-without-http2")]
    EmptySwitch,
    /// HTTP/2 was spoken with the backend through the proxy, but the forbidden path was not answered.
    Tunnelled,
    /// The forbidden path was reached.
    Smuggled,
}

impl Outcome {
    /// As it stands in reports.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Ignored => "ignored",
            Self::Rejected => "rejected",
            Self::EdgeUpgrade => "the proxy's own upgrade",
            Self::Forwarded => "forwarded, not taken",
            Self::EmptySwitch => "101 but no HTTP/2",
            Self::Tunnelled => "tunnelled",
            Self::Smuggled => "SMUGGLED",
        }
    }

    /// Whether the proxy's rules can be passed by.
    pub const fn is_vulnerable(self) -> bool {
        matches!(self, Self::Tunnelled | Self::Smuggled)
    }
}

/// An attempt with all that was seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(clippy::struct_excessive_bools, reason = "the four questions that each attempt answers")]
pub struct Observation {
    /// The variant of the offer.
    pub offer: String,
    /// How careful the backend was.
    pub backend: Manner,
    /// How it ended.
    pub outcome: Outcome,
    /// `Upgrade` with h2c reached the backend.
    pub forwards_upgrade: bool,
    /// `HTTP2-Settings` reached the backend.
    pub forwards_settings: bool,
    /// The client got a 101 that the backend had sent.
    pub tunnels_101: bool,
    /// The client got an answer to the forbidden path from the backend.
    pub reaches_forbidden: bool,
    /// What the client got, in a sentence.
    pub client_saw: String,
    /// The request as the backend got it, byte for byte, in lines, escaped; empty if none came.
    pub backend_saw: Vec<String>,
    /// The paths that the backend was asked for in HTTP/2.
    pub tunnelled_paths: Vec<String>,
}

/// What the backend saw of an attempt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrived<'a> {
    /// The head of the first request that it got.
    pub head: Option<&'a [u8]>,
    /// What became of the connection if it switched.
    pub switched: Option<&'a Switched>,
}

/// Concludes from both sides.
pub fn observe(offer: &Offer, backend: Manner, progress: &Progress, arrived: &Arrived<'_>) -> Observation {
    let head = arrived.head.unwrap_or_default();
    let forwards_upgrade = hop::has_token(head, "upgrade", "h2c");
    let forwards_settings = !hop::values(head, "http2-settings").is_empty();
    let tunnel = match progress {
        Progress::Switched(tunnel) => Some(tunnel),
        Progress::Nothing | Progress::Answered { .. } => None,
    };
    let tunnels_101 = tunnel.is_some() && arrived.switched.is_some();
    let reaches_forbidden = tunnel.and_then(|tunnel| tunnel.forbidden).is_some_and(|(_, ours)| ours);
    let outcome = match tunnel {
        Some(_) if reaches_forbidden => Outcome::Smuggled,
        Some(tunnel) if tunnels_101 => in_tunnel(tunnel),
        Some(tunnel) if tunnel.is_proved() => Outcome::EdgeUpgrade,
        Some(_) => Outcome::EmptySwitch,
        None if forwards_upgrade => Outcome::Forwarded,
        None if arrived.head.is_some() => Outcome::Ignored,
        None => Outcome::Rejected,
    };
    Observation {
        offer: offer.id.to_owned(),
        backend,
        outcome,
        forwards_upgrade,
        forwards_settings,
        tunnels_101,
        reaches_forbidden,
        client_saw: client_saw(progress),
        backend_saw: arrived.head.map_or_else(Vec::new, hop::shown),
        tunnelled_paths: arrived.switched.map_or_else(Vec::new, |switched| switched.paths.clone()),
    }
}

const fn in_tunnel(tunnel: &Tunnel) -> Outcome {
    if tunnel.is_proved() { Outcome::Tunnelled } else { Outcome::EmptySwitch }
}

fn client_saw(progress: &Progress) -> String {
    let who = |from_backend| if from_backend { "from the backend" } else { "from the proxy" };
    match progress {
        Progress::Nothing => "no answer".to_owned(),
        Progress::Answered { status, from_backend } => {
            format!("{status} in HTTP/1.1 {}", who(*from_backend))
        }
        Progress::Switched(tunnel) => {
            let mut words = "101".to_owned();
            if tunnel.settings {
                words += ", SETTINGS";
            }
            for (what, answer) in [("allowed", tunnel.allowed), ("forbidden", tunnel.forbidden)] {
                if let Some((status, from_backend)) = answer {
                    let _ = write!(words, ", {status} for the {what} path {}", who(from_backend));
                }
            }
            if let Some(error) = &tunnel.error {
                let _ = write!(words, "; then {error}");
            }
            words
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::smuggling::offer::OFFERS;

    const OFFERED: &[u8] = b"GET / HTTP/1.1\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n";
    const PLAIN: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    fn outcome(progress: &Progress, head: Option<&[u8]>, switched: bool) -> Outcome {
        let switched = switched.then(|| Switched {
            attempt: "1-lax".to_owned(),
            established: true,
            paths: vec!["/".to_owned()],
        });
        let arrived = Arrived { head, switched: switched.as_ref() };
        observe(&OFFERS[0], Manner::Lax, progress, &arrived).outcome
    }

    #[test]
    fn each_outcome_follows_from_what_both_sides_saw() {
        let answered = |status, from_backend| Progress::Answered { status, from_backend };
        let tunnel = |settings, allowed, forbidden| {
            Progress::Switched(Tunnel { settings, allowed, forbidden, error: None })
        };
        let (ours, theirs) = (Some((200, true)), Some((403, false)));
        assert_eq!(outcome(&answered(200, true), Some(PLAIN), false), Outcome::Ignored);
        assert_eq!(outcome(&answered(403, false), None, false), Outcome::Rejected);
        assert_eq!(outcome(&Progress::Nothing, None, false), Outcome::Rejected);
        assert_eq!(outcome(&answered(200, true), Some(OFFERED), false), Outcome::Forwarded);
        assert_eq!(outcome(&answered(502, false), Some(OFFERED), true), Outcome::Forwarded);
        assert_eq!(outcome(&tunnel(false, None, None), Some(OFFERED), true), Outcome::EmptySwitch);
        assert_eq!(outcome(&tunnel(true, None, None), Some(OFFERED), true), Outcome::EmptySwitch);
        assert_eq!(outcome(&tunnel(true, ours, None), Some(OFFERED), true), Outcome::Tunnelled);
        assert_eq!(outcome(&tunnel(true, ours, ours), Some(OFFERED), true), Outcome::Smuggled);
        // The proxy speaks HTTP/2 itself, and denies in it what it denies elsewhere.
        assert_eq!(outcome(&tunnel(true, ours, theirs), Some(PLAIN), false), Outcome::EdgeUpgrade);
        assert_eq!(outcome(&tunnel(true, ours, ours), Some(PLAIN), false), Outcome::Smuggled);
        assert_eq!(outcome(&tunnel(false, None, None), None, false), Outcome::EmptySwitch);
    }
}
