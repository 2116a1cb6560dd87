//! The checks that follow from all attempts.

use super::attempt::AttemptProgress;
use super::backend_request;
use super::judge::{AttemptOutcome, Observation};
use super::offer::Strictness;
use crate::probe::{Check, CheckMeta, EvidenceItem, Verdict, id};
use h2lab_wire::trace::Direction;

/// An attempt and the frames or bytes that crossed the client's connection.
#[derive(Debug, Clone)]
pub struct Tried {
    /// What was seen.
    pub observation: Observation,
    /// The items between client and proxy.
    pub items: Vec<EvidenceItem>,
    /// When the request reached the backend, in ms since the client's connection was dialled.
    pub arrived_ms: Option<f64>,
}

/// The result of a plain request for the forbidden path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// The proxy refused it with this status; `None`: it closed.
    Refused(Option<u16>),
    /// It reached the backend: the proxy forbids nothing there.
    Reached,
    /// Neither reached nor refused: the proxy answered with this status, or not at all.
    Unclear(Option<u16>),
}

impl Baseline {
    /// The baseline by a request that did not reach the backend.
    pub const fn of(progress: &AttemptProgress) -> Self {
        match progress {
            AttemptProgress::Answered { status, .. }
                if *status < 300 || backend_request::is_gateway_trouble(*status) =>
            {
                Self::Unclear(Some(*status))
            }
            AttemptProgress::Answered { status, .. } => Self::Refused(Some(*status)),
            AttemptProgress::Closed => Self::Refused(None),
            AttemptProgress::Nothing | AttemptProgress::Switched(_) => Self::Unclear(None),
        }
    }

    fn words(self, forbidden: &str) -> String {
        match self {
            Self::Refused(Some(status)) => format!("{forbidden}, which the proxy answers with {status}"),
            Self::Refused(None) => format!("{forbidden}, for which the proxy closes the connection"),
            Self::Reached => {
                format!("{forbidden} (which the proxy does not deny: it has no such rule)")
            }
            Self::Unclear(Some(status)) => {
                format!(
                    "{forbidden} (which the proxy answers with {status}: it is unknown whether it denies it)"
                )
            }
            Self::Unclear(None) => format!("{forbidden} (to which the proxy does not respond)"),
        }
    }

    /// Why conclusions about forbidden paths are impossible; `None` if they are possible.
    pub fn doubt(self, forbidden: &str) -> Option<String> {
        let why = match self {
            Self::Refused(_) => return None,
            Self::Reached => {
                format!("the proxy forwards {forbidden}, so no denied path could be reached")
            }
            Self::Unclear(Some(status)) => {
                format!(
                    "the proxy answers {forbidden} with {status} itself, which does not prove that it denies it"
                )
            }
            Self::Unclear(None) => format!("the proxy does not answer {forbidden}"),
        };
        Some(format!("{why}: name a path that it denies with --forbidden"))
    }
}

/// An attempt that could not be made.
#[derive(Debug, Clone)]
pub struct Missed {
    /// The variant of the offer.
    pub offer: &'static str,
    /// How careful the backend would have been.
    pub backend: Strictness,
    /// Why.
    pub why: String,
}

/// All checks on h2c smuggling, the most important first. `forbidden` is the path.
pub fn checks(tried: &[Tried], missed: &[Missed], forbidden: &str, baseline: Baseline) -> Vec<Check> {
    let mut checks: Vec<Check> =
        tried.iter().map(|tried| tunnel(tried, &baseline.words(forbidden))).collect();
    checks.extend(missed.iter().map(|missed| {
        let why = format!("not tested: {}", missed.why);
        Check::new(meta(missed.backend), Verdict::Undecided, why).of(missed.offer)
    }));
    checks.sort_by_key(|check| check.id.clone());
    let mut general = [forwarded(tried), own_upgrade(tried, forbidden, baseline)];
    for check in &mut general {
        let decides = |tried: &Tried| tried.observation.outcome != AttemptOutcome::Unknown;
        if check.verdict != Verdict::Fail && (!missed.is_empty() || !tried.iter().any(decides)) {
            *check = unknown(check, tried, missed);
        }
    }
    checks.extend(general);
    checks
}

/// The check as undecided, since not all that could contradict it was seen.
fn unknown(check: &Check, tried: &[Tried], missed: &[Missed]) -> Check {
    let meta = if check.id == id::SMUG103.id { id::SMUG103 } else { id::SMUG104 };
    let (seen, all) = (tried.len(), tried.len() + missed.len());
    let said = if missed.is_empty() {
        "none was answered or reached the backend".to_owned()
    } else {
        format!("so far: {}", check.summary)
    };
    Check::new(meta, Verdict::Undecided, format!("{seen} of {all} offers could be made; {said}"))
}

const fn meta(strictness: Strictness) -> &'static CheckMeta {
    match strictness {
        Strictness::Strict => id::SMUG101,
        Strictness::Lax => id::SMUG102,
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
        AttemptOutcome::Smuggled if is_ours(&tried.observation) => {
            (Verdict::Fail, format!("smuggled: HTTP/2 was spoken with the backend, and it answered {what}"))
        }
        AttemptOutcome::Tunnelled => (
            Verdict::Fail,
            format!("tunnelled: HTTP/2 was spoken with the backend through the proxy ({client_saw})"),
        ),
        AttemptOutcome::Smuggled | AttemptOutcome::EdgeUpgrade => {
            (Verdict::Pass, "no tunnel: the proxy took the upgrade itself (SMUG104)".to_owned())
        }
        AttemptOutcome::EmptySwitch => (Verdict::Undecided, format!("101 but no HTTP/2: {client_saw}")),
        AttemptOutcome::Forwarded => {
            // Its paths in HTTP/2 begin with that of the request that switched.
            let did = if tried.observation.tunnelled_paths.is_empty() {
                "did not accept it"
            } else {
                "accepted it, but its 101 was not forwarded"
            };
            (Verdict::Pass, format!("no tunnel: the backend got the offer and {did} ({client_saw})"))
        }
        AttemptOutcome::Ignored => {
            (Verdict::Ignored, format!("no offer reached the backend; the client received {client_saw}"))
        }
        AttemptOutcome::Unknown => {
            let arrived = if tried.observation.backend_saw.is_empty() {
                "nothing reached the backend"
            } else {
                "it reached the backend"
            };
            (
                Verdict::Undecided,
                format!(
                    "neither refused nor answered by the backend: {arrived}; the client received {client_saw}"
                ),
            )
        }
        AttemptOutcome::Rejected => (
            Verdict::Pass,
            format!("no tunnel: nothing reached the backend; the client received {client_saw}"),
        ),
    };
    let check = Check::new(meta(*backend), verdict, summary).of(tried.observation.offer.clone());
    with_both_sides(check, tried)
}

/// Adds the items of both ends.
fn with_both_sides(check: Check, tried: &Tried) -> Check {
    let check = if tried.items.is_empty() {
        check
    } else {
        check.with("between client and proxy", tried.items.clone())
    };
    let seen = &tried.observation.backend_saw;
    if seen.is_empty() {
        return check;
    }
    let paths = &tried.observation.tunnelled_paths;
    let what = if paths.is_empty() {
        "the request as the backend received it".to_owned()
    } else {
        format!(
            "the request as the backend received it; it was then sent an HTTP/2 request for {}",
            paths.join(", ")
        )
    };
    check.with(what, items_of(seen, tried.arrived_ms.unwrap_or_default()))
}

/// Lines that reached the backend.
pub(in crate::probe) fn items_of(lines: &[String], at_ms: f64) -> Vec<EvidenceItem> {
    lines.iter().map(|line| EvidenceItem { direction: Direction::Up, at_ms, seen: line.clone() }).collect()
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

/// Whether the proxy switches by itself, and which rules hold then.
fn own_upgrade(tried: &[Tried], forbidden: &str, baseline: Baseline) -> Check {
    let own = |is_it: fn(&Observation) -> bool| {
        tried.iter().find(|tried| !is_ours(&tried.observation) && is_it(&tried.observation))
    };
    let check = |verdict, summary: String| Check::new(id::SMUG104, verdict, summary);
    let smuggled = own(|seen| seen.outcome == AttemptOutcome::Smuggled);
    let switched = own(|seen| seen.outcome == AttemptOutcome::EdgeUpgrade);
    let Some(shown) = smuggled.or(switched) else {
        // The sender of the 101 is unknown.
        if let Some(tried) =
            own(|seen| seen.outcome == AttemptOutcome::EmptySwitch && seen.tunnelled_paths.is_empty())
        {
            let summary = "the proxy answers 101 itself, and behind it no HTTP/2 could be spoken".to_owned();
            return with_both_sides(check(Verdict::Undecided, summary), tried);
        }
        return check(Verdict::Unsupported, "the proxy never switches to HTTP/2 itself".to_owned());
    };
    let began = "the proxy switches to HTTP/2 itself";
    if let Some(doubt) = baseline.doubt(forbidden) {
        return with_both_sides(check(Verdict::Undecided, format!("{began}; {doubt}")), shown);
    }
    if let Some(tried) = smuggled {
        let summary = format!("{began}, and in it the backend answered {}", baseline.words(forbidden));
        return with_both_sides(check(Verdict::Fail, summary), tried);
    }
    if let Some(tried) = own(|seen| seen.outcome == AttemptOutcome::EdgeUpgrade && seen.denies_forbidden) {
        let summary = format!("{began}, and forbids in it what it forbids elsewhere");
        return with_both_sides(check(Verdict::Pass, summary), tried);
    }
    let summary = format!("{began}, and in it {forbidden} was neither refused nor answered by the backend");
    with_both_sides(check(Verdict::Undecided, summary), shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(outcome: AttemptOutcome, backend: Strictness, ours: bool) -> Tried {
        let observation = Observation {
            offer: "both-tokens".to_owned(),
            backend,
            outcome,
            forwards_upgrade: ours,
            forwards_settings: ours,
            tunnels_101: ours,
            denies_forbidden: outcome == AttemptOutcome::EdgeUpgrade,
            reaches_forbidden: outcome == AttemptOutcome::Smuggled,
            client_saw: "something".to_owned(),
            backend_saw: if ours { vec!["GET".to_owned()] } else { Vec::new() },
            tunnelled_paths: Vec::new(),
        };
        Tried { observation, items: Vec::new(), arrived_ms: None }
    }

    fn verdicts(tried: &[Tried]) -> Vec<(String, Verdict)> {
        verdicts_with(tried, &[], Baseline::Refused(Some(403)))
    }

    fn verdicts_with(tried: &[Tried], missed: &[Missed], baseline: Baseline) -> Vec<(String, Verdict)> {
        let checks = checks(tried, missed, "/flag", baseline);
        checks.into_iter().map(|check| (check.id, check.verdict)).collect()
    }

    #[test]
    fn a_tunnel_fails_for_the_backend_that_it_leads_to() {
        let found = verdicts(&[
            tried(AttemptOutcome::Forwarded, Strictness::Strict, false),
            tried(AttemptOutcome::Smuggled, Strictness::Lax, true),
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
    fn the_proxys_own_upgrade_is_distinguished_from_the_backends() {
        for (outcome, verdict) in
            [(AttemptOutcome::EdgeUpgrade, Verdict::Pass), (AttemptOutcome::Smuggled, Verdict::Fail)]
        {
            let found = verdicts(&[tried(outcome, Strictness::Strict, false)]);
            assert_eq!(found[0].1, Verdict::Pass, "no tunnel");
            assert_eq!(found[2], ("SMUG104".to_owned(), verdict));
        }
    }

    #[test]
    fn what_is_ignored_and_what_ends_behind_the_101_are_verdicts_of_their_own() {
        let one = |outcome| verdicts(&[tried(outcome, Strictness::Strict, false)])[0].1;
        assert_eq!(one(AttemptOutcome::Ignored), Verdict::Ignored);
        assert_eq!(one(AttemptOutcome::EmptySwitch), Verdict::Undecided);
    }
    #[test]
    fn the_proxys_own_upgrade_passes_only_if_the_forbidden_path_was_refused_in_it() {
        let mut silent = tried(AttemptOutcome::EdgeUpgrade, Strictness::Strict, false);
        silent.observation.denies_forbidden = false;
        assert_eq!(verdicts(&[silent])[2].1, Verdict::Undecided);
        for outcome in [AttemptOutcome::EdgeUpgrade, AttemptOutcome::Smuggled] {
            for baseline in [Baseline::Reached, Baseline::Unclear(Some(200)), Baseline::Unclear(None)] {
                let found = verdicts_with(&[tried(outcome, Strictness::Strict, false)], &[], baseline);
                assert_eq!(found[2], ("SMUG104".to_owned(), Verdict::Undecided), "{outcome:?} {baseline:?}");
            }
        }
    }

    #[test]
    fn what_was_not_seen_is_undecided() {
        let found = verdicts(&[tried(AttemptOutcome::Unknown, Strictness::Strict, false)]);
        assert!(found.iter().all(|(_, verdict)| *verdict == Verdict::Undecided), "{found:?}");
        let missed = Missed { offer: "split", backend: Strictness::Lax, why: "the budget".to_owned() };
        let found = verdicts_with(
            &[tried(AttemptOutcome::Rejected, Strictness::Strict, false)],
            std::slice::from_ref(&missed),
            Baseline::Refused(None),
        );
        let verdicts: Vec<Verdict> = found.into_iter().map(|(_, verdict)| verdict).collect();
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Undecided, Verdict::Undecided, Verdict::Undecided]);
        // Earlier findings stay.
        let found = verdicts_with(
            &[tried(AttemptOutcome::Smuggled, Strictness::Lax, true)],
            &[missed],
            Baseline::Refused(None),
        );
        assert!(found.contains(&("SMUG103".to_owned(), Verdict::Fail)), "{found:?}");
    }

    #[test]
    fn only_a_refusal_makes_a_path_a_forbidden_one() {
        let answered = |status| AttemptProgress::Answered { status, from_backend: false };
        for (progress, baseline) in [
            (answered(403), Baseline::Refused(Some(403))),
            (answered(302), Baseline::Refused(Some(302))),
            (answered(200), Baseline::Unclear(Some(200))),
            (answered(503), Baseline::Unclear(Some(503))),
            (AttemptProgress::Closed, Baseline::Refused(None)),
            (AttemptProgress::Nothing, Baseline::Unclear(None)),
        ] {
            assert_eq!(Baseline::of(&progress), baseline);
        }
    }
}
