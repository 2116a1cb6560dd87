//! What a server did with interim responses, and with the response after them.

use super::super::summary::{StatusRuns, TimelineStream};
use super::super::waterfall::{ResetSender, WaterfallStream};
use super::leg::Leg;
use super::passage::{Passage, interims, passages, timing};
use super::verdict::{HopVerdict, Ruling, resources};

pub(super) fn early_hints(
    front: &Leg,
    before: &TimelineStream,
    back: &Leg,
    behind: &TimelineStream,
) -> Ruling {
    if front.headed < front.asked && back.headed == back.asked {
        let lost = front.lost.as_ref().unwrap_or(&before.stream);
        return Ruling::new(HopVerdict::Broken, breakage(front, lost, &behind.stream));
    }
    if let Some(evidence) = replacement(front, before, back, behind) {
        return Ruling::new(HopVerdict::Broken, evidence);
    }
    let mut ruling = interim_responses(front, before, behind);
    if front.headed - front.answered > back.headed - back.answered {
        // The response differs, which does not concern what came before it.
        let (went, came) = (before.stream.bytes, behind.stream.bytes);
        let body =
            format!("it forwarded the head of the response but not all of the body: {went} of {came} bytes");
        ruling.evidence =
            if ruling.evidence.is_empty() { body } else { format!("{}; {body}", ruling.evidence) };
    }
    ruling
}

/// The ruling if a server replaced the response of the one behind.
fn replacement(front: &Leg, before: &TimelineStream, back: &Leg, behind: &TimelineStream) -> Option<String> {
    let own = |one: &StatusRuns| {
        let own = one.runs.saturating_sub(behind.runs_with(one.status));
        (one.status >= 500 && own > 0).then_some((one.status, own))
    };
    let own: Vec<(u16, u32)> = before.statuses.iter().filter_map(own).collect();
    let times = own.iter().map(|(_, runs)| runs).sum::<u32>();
    // Without a response from upstream, the proxy must answer itself.
    if times <= back.asked - back.headed {
        return None;
    }
    let (status, _) = own.into_iter().max_by_key(|(_, runs)| *runs)?;
    let theirs = behind.stream.status.filter(|theirs| *theirs != status)?;
    let times = in_runs(front, times);
    Some(format!("it answered {status} itself; received {theirs} from upstream{times}"))
}

/// ` (in 1 of 11 runs)`; empty for a single run.
fn in_runs(front: &Leg, times: u32) -> String {
    if front.asked == 1 { String::new() } else { format!(" (in {times} of {} runs)", front.asked) }
}

/// What was done to interim responses whose response came through.
fn interim_responses(front: &Leg, before: &TimelineStream, behind: &TimelineStream) -> Ruling {
    let (went, came) = (interims(before), interims(behind));
    let response = before.stream.headers_ms;
    let Some(first) = behind.stream.interim.first() else {
        let Some(own) = before.stream.interim.first() else { return Ruling::none() };
        let ahead = response.map_or_else(String::new, |response| {
            format!(", {:.1} ms before the response", response - own.ms)
        });
        let evidence = format!("it sends {} itself at {:.1} ms{ahead}", own.status, own.ms);
        return Ruling::new(HopVerdict::Added, evidence);
    };
    let through = passages(went.clone(), &came, behind.stream.headers_ms);
    let own = match went.len() - through.len() {
        0 => String::new(),
        n => format!("; it sends {n} itself"),
    };
    let named = match came.len() {
        1 => first.status.to_string(),
        n => format!("{n} interim responses"),
    };
    let missed = through.iter().find(|one| one.runs.0 < one.runs.1);
    match missed {
        _ if through.is_empty() => {
            let instead = instead(front, response);
            Ruling::new(
                HopVerdict::Swallowed,
                format!("received {named} from upstream, forwarded none{own}; {instead}"),
            )
        }
        _ if through.len() < came.len() => {
            let evidence = format!("received {named} from upstream, forwarded {}{own}", through.len());
            Ruling::new(HopVerdict::Partly, evidence)
        }
        Some(Passage { what, runs: (went, came), .. }) => {
            let evidence =
                format!("received {what} from upstream in {came} runs, forwarded it in {went}{own}");
            Ruling::new(HopVerdict::Partly, evidence)
        }
        None => {
            let (verdict, evidence) = timing(&through);
            Ruling::new(verdict, evidence + &own)
        }
    }
}

/// What a client got instead of interim responses.
fn instead(front: &Leg, response_ms: Option<f64>) -> String {
    let promises = front.promises();
    match (promises.first(), response_ms) {
        (Some(first), Some(response)) => format!(
            "{} pushed instead, from {:.1} ms on, {:.1} ms before the response",
            resources(promises.len()),
            first.ms,
            response - first.ms
        ),
        (Some(first), None) => {
            format!("{} pushed instead, from {:.1} ms on", resources(promises.len()), first.ms)
        }
        (None, Some(response)) => format!("the response was received at {response:.1} ms"),
        (None, None) => "no response received".to_owned(),
    }
}

/// How a response from upstream was lost.
fn breakage(front: &Leg, before: &WaterfallStream, behind: &WaterfallStream) -> String {
    let times = in_runs(front, front.asked - front.headed);
    let response = format!("the response from upstream ({})", behind.status.unwrap_or_default());
    let interim = before.interim.first().or(behind.interim.first());
    let status = interim.map_or(103, |one| one.status);
    if before.ended_by_interim {
        return format!(
            "it treated the {status} as the response and ended the stream with it; {response} was not received{times}"
        );
    }
    match (&before.reset, before.interim.is_empty(), behind.interim.is_empty()) {
        (Some(reset), false, _) if reset.by == ResetSender::Server => {
            format!(
                "it forwarded {status}, and then reset the stream ({}); {response} was not received{times}",
                reset.error_code
            )
        }
        (Some(reset), _, _) if reset.by == ResetSender::Server => {
            format!("it reset the stream ({}); {response} was not received{times}", reset.error_code)
        }
        (_, false, _) => format!(
            "it treated the {status} as the response: nothing followed, {response} was not received{times}"
        ),
        (_, true, false) => {
            format!("received {status} from upstream and forwarded nothing, not even {response}{times}")
        }
        (_, true, true) => format!("{response} was not received{times}"),
    }
}
