//! The checks that follow from all attempts.

use super::judge::{Observation, Outcome};
use super::offer::Manner;
use crate::probe::{Check, CheckMeta, Exhibit, Verdict, id};
use crate::trace::Direction;

/// An attempt and the frames or bytes that crossed the client's connection.
#[derive(Debug, Clone)]
pub struct Tried {
    /// What was seen.
    pub observation: Observation,
    /// What crossed between client and proxy.
    pub exhibits: Vec<Exhibit>,
    /// When the request reached the backend, in ms since the client's connection was dialled.
    pub arrived_ms: Option<f64>,
}

/// What a plain request for the forbidden path came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// The proxy refused it with this status; none: it closed.
    Refused(Option<u16>),
    /// It reached the backend: the proxy forbids nothing there.
    Reached,
}

impl Baseline {
    fn words(self, forbidden: &str) -> String {
        match self {
            Self::Refused(Some(status)) => format!("{forbidden}, which the proxy answers with {status}"),
            Self::Refused(None) => format!("{forbidden}, for which the proxy closes the connection"),
            Self::Reached => {
                format!("{forbidden} (which the proxy does not forbid: no rule of its could have)")
            }
        }
    }
}

/// All checks on h2c smuggling, those that matter most first. `forbidden` is the path.
pub fn checks(tried: &[Tried], forbidden: &str, baseline: Baseline) -> Vec<Check> {
    let mut checks: Vec<Check> =
        tried.iter().map(|tried| tunnel(tried, &baseline.words(forbidden))).collect();
    checks.sort_by_key(|check| check.id.clone());
    checks.push(forwarded(tried));
    checks.push(own_upgrade(tried, &baseline.words(forbidden)));
    checks
}

const fn meta(manner: Manner) -> &'static CheckMeta {
    match manner {
        Manner::Strict => id::SMUG101,
        Manner::Lax => id::SMUG102,
    }
}

/// Whether the other end of the tunnel is our backend.
const fn is_ours(observation: &Observation) -> bool {
    observation.tunnels_101
}

/// One variant of the offer against one backend.
fn tunnel(tried: &Tried, what: &str) -> Check {
    let Observation { outcome, backend, client_saw, .. } = &tried.observation;
    let (verdict, summary) = match outcome {
        Outcome::Smuggled if is_ours(&tried.observation) => {
            (Verdict::Fail, format!("smuggled: HTTP/2 was spoken with the backend, and it answered {what}"))
        }
        Outcome::Tunnelled => (
            Verdict::Fail,
            format!("tunnelled: HTTP/2 was spoken with the backend through the proxy ({client_saw})"),
        ),
        Outcome::Smuggled | Outcome::EdgeUpgrade => {
            (Verdict::Pass, "no tunnel: the proxy took the upgrade itself (SMUG104)".to_owned())
        }
        Outcome::EmptySwitch => (Verdict::Undecided, format!("101 but no HTTP/2: {client_saw}")),
        Outcome::Forwarded => {
            // What it was asked for in HTTP/2 begins with the request that it switched for.
            let did = if tried.observation.tunnelled_paths.is_empty() {
                "did not take it"
            } else {
                "took it, but its 101 did not come through"
            };
            (Verdict::Pass, format!("no tunnel: the backend got the offer and {did} ({client_saw})"))
        }
        Outcome::Ignored => {
            (Verdict::Ignored, format!("no offer reached the backend; the request got {client_saw}"))
        }
        Outcome::Rejected => {
            (Verdict::Pass, format!("no tunnel: nothing reached the backend; the request got {client_saw}"))
        }
    };
    let check = Check::new(meta(*backend), verdict, summary).of(tried.observation.offer.clone());
    with_both_sides(check, tried)
}

/// Adds what crossed at both ends.
fn with_both_sides(check: Check, tried: &Tried) -> Check {
    let check = if tried.exhibits.is_empty() {
        check
    } else {
        check.with("between client and proxy", tried.exhibits.clone())
    };
    let seen = &tried.observation.backend_saw;
    if seen.is_empty() {
        return check;
    }
    let paths = &tried.observation.tunnelled_paths;
    let what = if paths.is_empty() {
        "the request as the backend got it".to_owned()
    } else {
        format!("the request as the backend got it, which was then asked in HTTP/2 for {}", paths.join(", "))
    };
    check.with(what, exhibits_of(seen, tried.arrived_ms.unwrap_or_default()))
}

/// Lines that came up to the backend.
pub(in crate::probe) fn exhibits_of(lines: &[String], at_ms: f64) -> Vec<Exhibit> {
    lines.iter().map(|line| Exhibit { direction: Direction::Up, at_ms, seen: line.clone() }).collect()
}

/// Whether an offer reaches the backend in any variant.
fn forwarded(tried: &[Tried]) -> Check {
    let names = |has: fn(&Observation) -> bool| {
        let mut names: Vec<&str> = Vec::new();
        for tried in tried.iter().filter(|tried| has(&tried.observation)) {
            if !names.contains(&tried.observation.offer.as_str()) {
                names.push(&tried.observation.offer);
            }
        }
        names
    };
    let upgrades = names(|observation| observation.forwards_upgrade);
    let settings = names(|observation| observation.forwards_settings);
    let settings_words = match settings.len() {
        0 => "no HTTP2-Settings".to_owned(),
        _ => format!("HTTP2-Settings ({})", settings.join(", ")),
    };
    let check = if upgrades.is_empty() {
        let harmless = if settings.is_empty() { "" } else { ", which alone does no harm" };
        Check::new(
            id::SMUG103,
            Verdict::Pass,
            format!("no Upgrade reaches the backend; {settings_words} does{harmless}"),
        )
    } else {
        Check::new(
            id::SMUG103,
            Verdict::Fail,
            format!("Upgrade reaches the backend ({}), and {settings_words}", upgrades.join(", ")),
        )
    };
    let shown = tried.iter().find(|tried| tried.observation.forwards_upgrade);
    shown.into_iter().fold(check, with_both_sides)
}

/// Whether the proxy switches by itself, and what holds then.
fn own_upgrade(tried: &[Tried], what: &str) -> Check {
    let own = |outcome| {
        tried.iter().find(|tried| tried.observation.outcome == outcome && !is_ours(&tried.observation))
    };
    if let Some(tried) = own(Outcome::Smuggled) {
        let summary = format!("the proxy switches to HTTP/2 itself, and in it the backend answered {what}");
        return with_both_sides(Check::new(id::SMUG104, Verdict::Fail, summary), tried);
    }
    if let Some(tried) = own(Outcome::EdgeUpgrade) {
        let summary = "the proxy switches to HTTP/2 itself, and forbids in it what it forbids elsewhere";
        return with_both_sides(Check::new(id::SMUG104, Verdict::Pass, summary), tried);
    }
    Check::new(id::SMUG104, Verdict::Unsupported, "the proxy never switches to HTTP/2 itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(outcome: Outcome, backend: Manner, ours: bool) -> Tried {
        let observation = Observation {
            offer: "both-tokens".to_owned(),
            backend,
            outcome,
            forwards_upgrade: ours,
            forwards_settings: ours,
            tunnels_101: ours,
            reaches_forbidden: outcome == Outcome::Smuggled,
            client_saw: "something".to_owned(),
            backend_saw: if ours { vec!["GET".to_owned()] } else { Vec::new() },
            tunnelled_paths: Vec::new(),
        };
        Tried { observation, exhibits: Vec::new(), arrived_ms: None }
    }

    fn verdicts(tried: &[Tried]) -> Vec<(String, Verdict)> {
        let checks = checks(tried, "/flag", Baseline::Refused(Some(403)));
        checks.into_iter().map(|check| (check.id, check.verdict)).collect()
    }

    #[test]
    fn a_tunnel_fails_for_the_backend_that_it_leads_to() {
        let found = verdicts(&[
            tried(Outcome::Forwarded, Manner::Strict, false),
            tried(Outcome::Smuggled, Manner::Lax, true),
        ]);
        let expected = [
            ("SMUG101", Verdict::Pass),
            ("SMUG102", Verdict::Fail),
            ("SMUG103", Verdict::Fail),
            ("SMUG104", Verdict::Unsupported),
        ];
        assert_eq!(found, expected.map(|(id, verdict)| (id.to_owned(), verdict)));
    }

    #[test]
    fn the_proxys_own_upgrade_is_told_from_the_backends() {
        for (outcome, verdict) in [(Outcome::EdgeUpgrade, Verdict::Pass), (Outcome::Smuggled, Verdict::Fail)]
        {
            let found = verdicts(&[tried(outcome, Manner::Strict, false)]);
            assert_eq!(found[0].1, Verdict::Pass, "no tunnel");
            assert_eq!(found[2], ("SMUG104".to_owned(), verdict));
        }
    }

    #[test]
    fn what_is_ignored_and_what_ends_behind_the_101_are_verdicts_of_their_own() {
        let one = |outcome| verdicts(&[tried(outcome, Manner::Strict, false)])[0].1;
        assert_eq!(one(Outcome::Ignored), Verdict::Ignored);
        assert_eq!(one(Outcome::EmptySwitch), Verdict::Undecided);
    }
}
