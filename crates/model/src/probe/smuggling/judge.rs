//! Conclusions from what client and backend saw of an attempt.

use std::fmt::Write as _;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attempt::{AttemptProgress, Tunnel};
use super::backend::Switched;
use super::backend_request;
use super::offer::{OfferVariant, Strictness};

/// How an attempt ended, from harmless to harmful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptOutcome {
    /// The request neither reached the backend nor was refused, or no answer came at all: inconclusive.
    Unknown,
    /// The request was answered in HTTP/1.1 as if nothing had been offered, and no `Upgrade` reached the backend.
    Ignored,
    /// The proxy answered with an error of the request, or closed; nothing reached the backend.
    Rejected,
    /// The proxy itself switched, and its rules apply to what is sent there.
    EdgeUpgrade,
    /// `Upgrade` reached the backend, but no 101 followed.
    Forwarded,
    /// A 101 came through, but no HTTP/2 could be spoken after it.
    #[serde(rename = "101-without-http2")]
    EmptySwitch,
    /// HTTP/2 was spoken with the backend through the proxy, but the forbidden path was not answered.
    Tunnelled,
    /// The forbidden path was reached.
    Smuggled,
}

/// An attempt with all that was seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(clippy::struct_excessive_bools, reason = "the four questions that each attempt answers")]
pub struct Observation {
    /// The variant of the offer.
    pub offer: String,
    /// How careful the backend was.
    pub backend: Strictness,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// `Upgrade` with h2c reached the backend.
    pub forwards_upgrade: bool,
    /// `HTTP2-Settings` reached the backend.
    pub forwards_settings: bool,
    /// The client got a 101 that the backend had sent, and the HTTP/2 that it sent after that reached the backend.
    pub tunnels_101: bool,
    /// The proxy refused the forbidden path in the HTTP/2 that the client spoke after its 101.
    pub denies_forbidden: bool,
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
    /// The switch of the connection, if any.
    pub switched: Option<&'a Switched>,
}

/// Concludes from both sides.
pub fn observe(
    offer: &OfferVariant,
    backend: Strictness,
    progress: &AttemptProgress,
    arrived: &Arrived<'_>,
) -> Observation {
    let head = arrived.head.unwrap_or_default();
    let forwards_upgrade = backend_request::has_token(head, "upgrade", "h2c");
    let forwards_settings = !backend_request::values(head, "http2-settings").is_empty();
    let tunnel = match progress {
        AttemptProgress::Switched(tunnel) => Some(tunnel),
        AttemptProgress::Nothing | AttemptProgress::Closed | AttemptProgress::Answered { .. } => None,
    };
    // A proxy may forward the offer, drop the backend's 101, and switch by itself.
    let tunnels_101 = tunnel.is_some() && arrived.switched.is_some_and(|switched| switched.established);
    let reaches_forbidden = tunnel.and_then(|tunnel| tunnel.forbidden).is_some_and(|(_, ours)| ours);
    let outcome = match tunnel {
        Some(_) if reaches_forbidden => AttemptOutcome::Smuggled,
        Some(tunnel) if tunnels_101 => in_tunnel(tunnel),
        Some(tunnel) if tunnel.is_proved() => AttemptOutcome::EdgeUpgrade,
        Some(_) => AttemptOutcome::EmptySwitch,
        None if *progress == AttemptProgress::Nothing => AttemptOutcome::Unknown,
        None if forwards_upgrade => AttemptOutcome::Forwarded,
        None if arrived.head.is_some() => AttemptOutcome::Ignored,
        None if is_rejection(progress) => AttemptOutcome::Rejected,
        None => AttemptOutcome::Unknown,
    };
    Observation {
        offer: offer.id.to_owned(),
        backend,
        outcome,
        forwards_upgrade,
        forwards_settings,
        tunnels_101,
        denies_forbidden: tunnel.is_some_and(Tunnel::denies),
        reaches_forbidden,
        client_saw: client_saw(progress),
        backend_saw: arrived.head.map_or_else(Vec::new, backend_request::shown),
        tunnelled_paths: arrived.switched.map_or_else(Vec::new, |switched| switched.paths.clone()),
    }
}

/// Whether the proxy refused the request, which did not reach the backend. An answer from a cache is no refusal, and
/// neither is one about the connection to the backend or about a limit.
const fn is_rejection(progress: &AttemptProgress) -> bool {
    match progress {
        AttemptProgress::Closed => true,
        AttemptProgress::Answered { status, .. } => {
            *status >= 400 && !backend_request::is_gateway_trouble(*status)
        }
        AttemptProgress::Nothing | AttemptProgress::Switched(_) => false,
    }
}

const fn in_tunnel(tunnel: &Tunnel) -> AttemptOutcome {
    if tunnel.is_proved() { AttemptOutcome::Tunnelled } else { AttemptOutcome::EmptySwitch }
}

fn client_saw(progress: &AttemptProgress) -> String {
    let who = |from_backend| if from_backend { "from the backend" } else { "from the proxy" };
    match progress {
        AttemptProgress::Nothing => "no answer".to_owned(),
        AttemptProgress::Closed => "no answer, and the connection was closed".to_owned(),
        AttemptProgress::Answered { status, from_backend } => {
            format!("{status} in HTTP/1.1 {}", who(*from_backend))
        }
        AttemptProgress::Switched(tunnel) => {
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

    fn outcome(progress: &AttemptProgress, head: Option<&[u8]>, switched: bool) -> AttemptOutcome {
        outcome_where(progress, head, switched, true)
    }

    fn outcome_where(
        progress: &AttemptProgress,
        head: Option<&[u8]>,
        switched: bool,
        established: bool,
    ) -> AttemptOutcome {
        let switched = switched.then(|| Switched {
            attempt: "1-lax".to_owned(),
            established,
            paths: vec!["/".to_owned()],
        });
        let arrived = Arrived { head, switched: switched.as_ref() };
        observe(&OFFERS[0], Strictness::Lax, progress, &arrived).outcome
    }

    #[test]
    fn each_outcome_follows_from_what_both_sides_saw() {
        let answered = |status, from_backend| AttemptProgress::Answered { status, from_backend };
        let tunnel = |settings, allowed, forbidden| {
            AttemptProgress::Switched(Tunnel { settings, allowed, forbidden, ..Tunnel::default() })
        };
        let (ours, theirs) = (Some((200, true)), Some((403, false)));
        assert_eq!(outcome(&answered(200, true), Some(PLAIN), false), AttemptOutcome::Ignored);
        assert_eq!(outcome(&answered(403, false), None, false), AttemptOutcome::Rejected);
        assert_eq!(outcome(&AttemptProgress::Closed, None, false), AttemptOutcome::Rejected);
        assert_eq!(outcome(&answered(200, true), Some(OFFERED), false), AttemptOutcome::Forwarded);
        // Silence, an answer from a cache, and a backend that the proxy considers down decide nothing.
        assert_eq!(outcome(&AttemptProgress::Nothing, None, false), AttemptOutcome::Unknown);
        assert_eq!(outcome(&AttemptProgress::Nothing, Some(OFFERED), true), AttemptOutcome::Unknown);
        assert_eq!(outcome(&answered(200, true), None, false), AttemptOutcome::Unknown);
        assert_eq!(outcome(&answered(503, false), None, false), AttemptOutcome::Unknown);
        assert_eq!(outcome(&answered(502, false), Some(OFFERED), true), AttemptOutcome::Forwarded);
        assert_eq!(outcome(&tunnel(false, None, None), Some(OFFERED), true), AttemptOutcome::EmptySwitch);
        assert_eq!(outcome(&tunnel(true, None, None), Some(OFFERED), true), AttemptOutcome::EmptySwitch);
        assert_eq!(outcome(&tunnel(true, ours, None), Some(OFFERED), true), AttemptOutcome::Tunnelled);
        assert_eq!(outcome(&tunnel(true, ours, ours), Some(OFFERED), true), AttemptOutcome::Smuggled);
        // The proxy speaks HTTP/2 itself, and applies its rules there too.
        assert_eq!(outcome(&tunnel(true, ours, theirs), Some(PLAIN), false), AttemptOutcome::EdgeUpgrade);
        assert_eq!(outcome(&tunnel(true, ours, ours), Some(PLAIN), false), AttemptOutcome::Smuggled);
        assert_eq!(outcome(&tunnel(false, None, None), None, false), AttemptOutcome::EmptySwitch);
        // It does so although it forwarded the offer too, and the backend accepted it: no bytes of the tunnel reached the
        // backend.
        assert_eq!(
            outcome_where(&tunnel(true, ours, theirs), Some(OFFERED), true, false),
            AttemptOutcome::EdgeUpgrade
        );
        assert_eq!(
            outcome_where(&tunnel(false, None, None), Some(OFFERED), true, false),
            AttemptOutcome::EmptySwitch
        );
    }
}
