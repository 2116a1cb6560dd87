//! What a server did with promises.

use super::super::waterfall::WaterfallStream;
use super::leg::Leg;
use super::passage::{Seen, passages, timing};
use super::verdict::{HopVerdict, Ruling, resources};

pub(super) fn push(front: &Leg, before: &WaterfallStream, back: &Leg, behind: &WaterfallStream) -> Ruling {
    let (went, came) = (front.promises(), back.promises());
    let rendered = |first: &Seen| {
        let lead = before.headers_ms.map_or_else(String::new, |response| {
            format!(", {:.1} ms before the response", response - first.ms)
        });
        format!("{} promised from {:.1} ms on{lead}", resources(went.len()), first.ms)
    };
    match went.first() {
        Some(first) if came.is_empty() => return Ruling::new(HopVerdict::Added, rendered(first)),
        None if came.is_empty() => return unpushed(back),
        _ => {}
    }
    let through = passages(went.clone(), &came, behind.headers_ms);
    let from_behind = format!("{} promised from upstream", resources(came.len()));
    let own = match went.len() - through.len() {
        0 => String::new(),
        n => format!("; it promises {n} itself"),
    };
    let is_lost = |path: &str| {
        let unfinished = |leg: &Leg| leg.pushed(path).is_some_and(|one| one.unfinished > 0);
        unfinished(front) && !unfinished(back)
    };
    if through.is_empty() {
        let why = if front.refuses_push { ": its client refuses push" } else { "" };
        return Ruling::new(HopVerdict::Swallowed, format!("{from_behind}, none forwarded{why}{own}"));
    }
    if let Some(lost) = through.iter().find(|one| is_lost(&one.what)) {
        let evidence =
            format!("it promised {} received from upstream and did not send all of it{own}", lost.what);
        return Ruling::new(HopVerdict::Broken, evidence);
    }
    if through.len() < came.len() || through.iter().any(|one| one.runs.0 < one.runs.1) {
        let whole = through.iter().filter(|one| one.runs.0 >= one.runs.1).count();
        return Ruling::new(
            HopVerdict::Partly,
            format!("{from_behind}, {whole} of them forwarded in every run{own}"),
        );
    }
    let (verdict, evidence) = timing(&through);
    Ruling::new(verdict, evidence + &own)
}

/// Why nothing was pushed from upstream.
fn unpushed(back: &Leg) -> Ruling {
    if !back.protocol.is_multiplexed() {
        Ruling::new(HopVerdict::Refused, "its upstream protocol is HTTP/1.1, which has no push")
    } else if back.refuses_push {
        Ruling::new(HopVerdict::Refused, "it sends SETTINGS_ENABLE_PUSH = 0 to the server behind")
    } else {
        Ruling::none()
    }
}
