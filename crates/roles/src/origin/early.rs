//! `/early` and `/push`: a handler that imitates what servers send before the response, and after it.
//!
//! | query | means |
//! |---|---|
//! | `ms=80` | when the response's head goes, after the request |
//! | `at=0,20,40` | when interim responses go; `none`: there is none |
//! | `status=103,102` | their statuses, in turn |
//! | `links=2` | how many resources Link fields name (`/bytes/4k?pushed=1` …) |
//! | `on=interim` | which responses have Link fields: `interim`, `final`, `both`, `none` |
//! | `push=request` | when the server promises these resources itself: `request` (early push by resource), `interim` (with the first interim response), `final` (with the response), `no` |
//! | `bytes=4k` | how large the body is; 10k by default if it takes time |
//! | `body=200` | how long the body takes, in ten pieces, after its head: a proxy whose upstream is slow |
//! | `trailers=1` | trailer fields behind the body |
//!
//! Without `at` and `push`, `ms` alone is a slow CGI program: it sends nothing until it has everything.

use std::collections::VecDeque;
use std::time::Duration;

use h2lab_base::units::{Time, parse_bytes};

use super::plan::{Drip, MAX_BYTES, MAX_DELAY, Moment, PlannedInterim, Push, ResponsePlan};

/// Most interim responses, resources and trailer fields that a path may ask for.
const MOST: u64 = 16;
/// Pieces of a slow body.
const PIECES: u64 = 10;
/// Default bytes of such a body: an empty one takes no time.
const SLOW_BYTES: u64 = 10 << 10;

/// The path of the `n`-th resource that a response names or pushes, counted from 1.
pub fn resource(n: u32) -> String {
    format!("/bytes/4k?pushed={n}")
}

/// The values of Link fields that name so many resources, in one field.
pub fn links(count: u32) -> String {
    let link = |n| format!("<{}>; rel=preload; as=style", resource(n));
    (1..=count).map(link).collect::<Vec<_>>().join(", ")
}

/// The defaults of the query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unsaid {
    /// `ms`.
    pub ms: u64,
    /// `at`.
    pub at: &'static str,
    /// `push`.
    pub push: &'static str,
    /// `bytes`.
    pub bytes: u64,
    /// The name of the parameter for the number of resources.
    pub count: &'static str,
}

/// `/early`.
pub(super) const EARLY: Unsaid = Unsaid { ms: 80, at: "0", push: "no", bytes: 0, count: "links" };
/// `/push`.
pub(super) const PUSH: Unsaid = Unsaid { ms: 0, at: "none", push: "request", bytes: 1024, count: "count" };

/// The plan of the query, if it is valid. Parameters without effect are described in the answer.
pub(super) fn plan(now: Time, query: &str, authority: &[u8], unsaid: Unsaid) -> Option<ResponsePlan> {
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let number = |name, or| value(name).map_or(Some(or), |text| text.parse::<u64>().ok());
    let after = |ms: u64| now + Duration::from_millis(ms).min(MAX_DELAY);
    let count = number(unsaid.count, 1)?.min(MOST) as u32;
    let (on_interim, on_final) = match value("on").unwrap_or("interim") {
        "interim" => (true, false),
        "final" => (false, true),
        "both" => (true, true),
        "none" => (false, false),
        _ => return None,
    };
    let moment = match value("push").unwrap_or(unsaid.push) {
        "no" => None,
        "request" => Some(Moment::Request),
        "interim" => Some(Moment::Interim),
        "final" => Some(Moment::Final),
        _ => return None,
    };
    let body = number("body", 0)?;
    let least = if body > 0 { SLOW_BYTES } else { 0 };
    let bytes = value("bytes").map_or(Some(unsaid.bytes.max(least)), |text| {
        parse_bytes(text).ok().filter(|bytes| *bytes <= MAX_BYTES)
    })?;
    let links_of = |is_on: bool| if is_on { count } else { 0 };
    let interim = interims(value("at").unwrap_or(unsaid.at), value("status").unwrap_or("103"))?;
    let ms = number("ms", unsaid.ms)?;
    if let Some((at, _)) = interim.back().filter(|(at, _)| *at > ms) {
        let text = format!("at={at}: the response goes at ms={ms}, and no interim response after it\n");
        return Some(ResponsePlan::text(now, 400, text));
    }
    if moment == Some(Moment::Interim) && interim.is_empty() {
        let text = "push=interim: there is no interim response to promise with; give at=0, or push=request\n";
        return Some(ResponsePlan::text(now, 400, text));
    }
    let mut plan = ResponsePlan::filler(now, bytes);
    plan.due = after(ms);
    plan.interim = interim
        .into_iter()
        .map(|(ms, status)| PlannedInterim { due: after(ms), status, links: links_of(on_interim) })
        .collect();
    if on_final && count > 0 {
        plan.fields.push(("link", links(count)));
    }
    plan.push = moment.filter(|_| count > 0).map(|moment| {
        let authority = String::from_utf8_lossy(authority).into_owned();
        Push { count, moment, authority }
    });
    plan.drip = match body {
        0 => None,
        ms => {
            let piece = bytes.div_ceil(PIECES).max(1);
            let pieces = bytes.div_ceil(piece).max(1) as u32; // at most ten
            Some(Drip { piece, every: Duration::from_millis(ms).min(MAX_DELAY) / pieces })
        }
    };
    let trailers = number("trailers", 0)?.min(MOST);
    plan.trailers = (1..=trailers).map(|n| (format!("trailer-{n}"), n.to_string())).collect();
    Some(plan)
}

/// When interim responses go, in milliseconds, with their statuses; in the order of time.
fn interims(at: &str, status: &str) -> Option<VecDeque<(u64, u16)>> {
    if at == "none" || at.is_empty() {
        return Some(VecDeque::new());
    }
    let statuses: Vec<u16> = status
        .split(',')
        .map(|text| text.parse().ok().filter(|status| matches!(status, 100 | 102..=199)))
        .collect::<Option<_>>()?;
    let mut times: Vec<u64> = at.split(',').map(|text| text.parse().ok()).collect::<Option<_>>()?;
    times.sort_unstable();
    times.truncate(MOST as usize);
    Some(times.into_iter().zip(statuses.into_iter().cycle()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(500);

    fn early(query: &str) -> Option<ResponsePlan> {
        plan(NOW, query, b"server", EARLY)
    }

    #[test]
    fn unless_asked_one_103_goes_at_once_and_the_response_after_80_ms() {
        let plan = early("").unwrap();
        assert_eq!(Vec::from(plan.interim), [PlannedInterim { due: NOW, status: 103, links: 1 }]);
        assert_eq!((plan.due, plan.push, plan.fields.len()), (Time::from_millis(580), None, 0));
    }

    #[test]
    fn interim_responses_go_in_the_order_of_time_with_statuses_in_turn() {
        let plan = early("at=40,0,20&status=103,102&links=2").unwrap();
        let declared: Vec<_> = plan.interim.iter().map(|one| (one.due, one.status, one.links)).collect();
        let at = |ms: u64| Time::from_millis(500 + ms);
        assert_eq!(declared, [(at(0), 103, 2), (at(20), 102, 2), (at(40), 103, 2)]);
        assert!(early("at=none").unwrap().interim.is_empty());
        assert_eq!(early(&format!("at={}", ["1"; 99].join(","))).unwrap().interim.len(), 16);
    }

    #[test]
    fn link_fields_stand_where_they_are_wanted() {
        let of = |query: &str| {
            let plan = early(query).unwrap();
            (plan.interim[0].links, plan.fields.iter().any(|(name, _)| *name == "link"))
        };
        assert_eq!(of("on=interim"), (1, false));
        assert_eq!(of("on=final"), (0, true));
        assert_eq!(of("on=both"), (1, true));
        assert_eq!(of("on=none"), (0, false));
        assert_eq!(links(2).matches("rel=preload").count(), 2);
    }

    #[test]
    fn pushes_have_their_moment_and_a_bound() {
        let of = |query: &str| early(query).unwrap().push.map(|push| (push.moment, push.count));
        assert_eq!(of("push=request&links=3"), Some((Moment::Request, 3)));
        assert_eq!(of("push=final"), Some((Moment::Final, 1)));
        assert_eq!(of("push=interim&links=99"), Some((Moment::Interim, 16)));
        assert_eq!((of("push=no"), of("push=request&links=0")), (None, None));
    }

    #[test]
    fn a_slow_body_is_ten_pieces_and_trailers_follow_it() {
        let plan = early("bytes=1000&body=500&trailers=2").unwrap();
        assert_eq!(plan.drip, Some(Drip { piece: 100, every: Duration::from_millis(50) }));
        let names: Vec<&str> = plan.trailers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((plan.body.length(), names), (1000, vec!["trailer-1", "trailer-2"]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for query in
            ["at=x", "status=200", "status=101", "on=top", "push=now", "ms=-1", "bytes=x", "trailers=y"]
        {
            assert!(early(query).is_none(), "{query}");
        }
    }

    #[test]
    fn what_would_do_nothing_is_refused_with_a_sentence() {
        for (query, declared) in [
            ("at=0,100&ms=80", "at=100: the response goes at ms=80"),
            ("push=interim&at=none", "push=interim: there is no interim response"),
        ] {
            let mut plan = early(query).unwrap();
            let text = String::from_utf8_lossy(plan.body.piece(1_000).unwrap()).into_owned();
            assert!(plan.status == 400 && text.starts_with(declared), "{query}: {text}");
        }
        assert_eq!(early("at=0,80&ms=80").unwrap().interim.len(), 2);
    }

    #[test]
    fn a_body_that_takes_its_time_is_not_empty() {
        let of = |query: &str| early(query).map(|plan| (plan.body.length(), plan.drip.is_some())).unwrap();
        assert_eq!((of("body=200"), of("body=200&bytes=0")), ((10_240, true), (0, true)));
        assert_eq!((of(""), of("body=0&bytes=5")), ((0, false), (5, false)));
    }
}
