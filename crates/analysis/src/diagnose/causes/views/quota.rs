//! The number of requests after which a server ends its connections, if it counts them.

use std::time::Duration;

use super::ends::{self, End, SHORTEST_AGE, has_several_moments};
use crate::diagnose::Repetition;
use h2lab_wire::trace::ServerEnd;

/// A quota ends a connection within this time, or within a quarter of a round trip, after the request that fills it: a
/// server ends it when that request arrives or is answered, and a busy machine takes a few milliseconds.
const PROMPT: Duration = Duration::from_millis(5);
/// At least this many connections that end at one moment after exactly the same number of requests may have met a
/// limit: an even load is hardly that even by chance.
const AT_ONCE: usize = 4;
/// Lifetimes that differ by less than this, or by less than the longest divided by [`AGE_STEP`], may be those of a
/// timer.
const TIMER: Duration = Duration::from_millis(5);
/// A timer may be inexact by a lifetime divided by this number.
const AGE_STEP: u32 = 100;
/// At least this many HTTP/2 connections that end after their only request indicate a server that keeps none open.
const LEAST_SINGLE: usize = 5;
/// A range no wider than its upper end divided by this may be reported as a number.
const NARROW: u32 = 20;

/// A number of requests after which connections end.
#[derive(Debug)]
pub(in crate::diagnose::causes) struct Quota<'a> {
    /// The number, or the most that it can be.
    pub requests: u32,
    /// It is not smaller than this: where several requests were in flight, the server may have decided before the last
    /// of them.
    pub least: u32,
    /// Whether the server said which request was the last.
    pub is_named: bool,
    /// The age at which all connections ended, if a maximum age explains their ends as well.
    pub age: Option<Duration>,
    /// Whether all ended at one moment, as in a restart.
    pub is_at_once: bool,
    /// Connections that ended after exactly this number.
    pub agreeing: usize,
    /// Connections that the server ended in all.
    pub ends: usize,
    /// One of them.
    pub first: &'a ServerEnd,
}

/// The quota, if there is one: two or more connections ended after the same number of requests, right after the last of
/// them, not all at one moment, and they are more than half of those that the server ended.
///
/// A maximum age ends a connection some time after its last request. A reload ends all connections at once. If these
/// share an even load, they have then had about as many requests, some of them exactly as many: only if all of them had
/// exactly as many is a quota as likely. A "quota" of one request means a server that keeps no connection open; over
/// HTTP/1.1 the cause of that is its idle timeout.
///
/// A server that announces the end without naming the last request leaves a range on each connection: the quota lies
/// where most ranges overlap. The largest number there is reported, since the client receives the announcement late.
pub(in crate::diagnose::causes) fn quota<'a>(repetitions: &'a [Repetition<'_>]) -> Option<Quota<'a>> {
    let mut prompt = ends::all(repetitions);
    let ends = prompt.len();
    prompt.retain(|(repetition, end)| end.idle <= PROMPT.max(repetition.facts().rtt / 4));
    let requests = shared_by_most(&prompt)?;
    let agreeing: Vec<End<'a>> = prompt.iter().filter(|(_, end)| end.allows(requests)).copied().collect();
    let is_named = agreeing.iter().all(|(_, end)| end.least == end.requests);
    // A request that had been answered did not make the server end the connection.
    let least = |end: &ServerEnd| if is_named { requests.min(end.answered + 1) } else { end.least };
    let quota = Quota {
        requests,
        least: agreeing.iter().map(|(_, end)| least(end)).max()?,
        is_named,
        age: maximum_age(repetitions, &prompt).filter(|_| is_named),
        is_at_once: !has_several_moments(&agreeing),
        agreeing: agreeing.len(),
        ends,
        first: agreeing.first()?.1,
    };
    // With a maximum age, connections have had different numbers of requests, and some the same by chance.
    let is_age = quota.age.is_some() && agreeing.len() < prompt.len();
    let is_single = requests == 1 && quota.first.goaway && agreeing.len() >= LEAST_SINGLE;
    let all_agree = is_named && agreeing.len() == ends && ends >= AT_ONCE;
    let is_quota = (requests >= 2 || is_single)
        && agreeing.len() * 2 > ends
        && (!quota.is_at_once || all_agree)
        && !is_age
        && (is_named || quota.is_reported_by_ranges(&agreeing));
    is_quota.then_some(quota)
}

/// The shortest and the longest lifetime of connections that ended, and how inexact a timer for the longest may be.
fn lifetimes(ends: &[End<'_>]) -> Option<(Duration, Duration, Duration)> {
    let ages = || ends.iter().map(|(_, end)| end.age);
    let longest = ages().max()?;
    Some((ages().min()?, longest, TIMER.max(longest / AGE_STEP)))
}

/// The age at which all of `ends` may have come: they differ by no more than the inexactness of a timer plus the
/// interval between requests, with which a server notices that the age is reached. `None` if a connection sent a
/// request at a greater age.
fn maximum_age(repetitions: &[Repetition<'_>], ends: &[End<'_>]) -> Option<Duration> {
    let (shortest, longest, inexact) = lifetimes(ends)?;
    let inexact = inexact + ends.iter().map(|(_, end)| end.age / end.requests.max(1)).max()?;
    let is_one_age = shortest >= SHORTEST_AGE && longest <= shortest + inexact;
    let is_older = |repetition: &Repetition<'_>| {
        let record = repetition.record;
        record.samples.iter().filter(|sample| sample.sent_at.happened()).any(|sample| {
            let connection = record.connection(sample.connection);
            connection.is_some_and(|one| sample.sent_at.since(one.connected_at) > longest + inexact)
        })
    };
    (is_one_age && !repetitions.iter().any(is_older)).then_some(longest)
}

/// The number of requests that is in most of the ranges of `ends`; the largest if several are. There may be an end for
/// each request.
fn shared_by_most(ends: &[End<'_>]) -> Option<u32> {
    let (mut least, mut most): (Vec<u32>, Vec<u32>) =
        ends.iter().map(|(_, end)| (end.least, end.requests)).unzip();
    least.sort_unstable();
    most.sort_unstable();
    let containing = |requests: u32| {
        let begun = least.partition_point(|least| *least <= requests);
        begun - most.partition_point(|most| *most < requests)
    };
    most.iter().copied().max_by_key(|&requests| (containing(requests), requests))
}

impl Quota<'_> {
    /// Whether only one number is possible.
    pub const fn is_exact(&self) -> bool {
        self.least == self.requests
    }

    /// The number, as closely as it is known: `1000`, `306 to 310`, `about 1000`, `between 101 and 200`.
    pub fn words(&self) -> String {
        let Self { requests, least, .. } = *self;
        match requests.saturating_sub(least) {
            0 => requests.to_string(),
            _ if self.is_named => format!("{least} to {requests}"),
            width if width * NARROW <= requests => format!("about {requests}"),
            _ => format!("between {least} and {requests}"),
        }
    }

    /// Whether the ranges are enough to report a quota: three or more overlap in an interval no wider than half of the
    /// number, and the lifetimes of the connections do not all agree as with a timer.
    fn is_reported_by_ranges(&self, agreeing: &[End<'_>]) -> bool {
        let is_timer = lifetimes(agreeing)
            .is_some_and(|(shortest, longest, inexact)| longest.saturating_sub(shortest) <= inexact);
        self.agreeing >= 3 && self.least >= self.requests / 2 && !is_timer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::Scene;
    use h2lab_base::units::measured_time;

    /// What is known of the quota of a repetition, if it has one.
    fn known(scene: Scene) -> Option<String> {
        let record = scene.record();
        let repetitions = [Repetition::new(&record)];
        quota(&repetitions).map(|quota| {
            let exactly = if quota.is_named && quota.is_exact() { "exactly " } else { "" };
            let age = quota.age.map_or(String::new(), |age| format!(" or {}", measured_time(age)));
            let at_once = if quota.is_at_once { " at once" } else { "" };
            format!("{exactly}{}{age}{at_once}", quota.words())
        })
    }

    /// Connections that ended one second apart after so many requests.
    fn after(requests: &[u32]) -> Scene {
        Scene::ended((1..).zip(requests).map(|(second, &requests)| (0, 1_000 * second, requests)))
    }

    /// So many connections that ended 30 ms after they began, each after a few requests.
    fn young(count: u64, requests: u32) -> Scene {
        Scene::ended((1..=count).map(|second| (1_000 * second - 30, 1_000 * second, requests)))
    }

    /// Connections that ended at these times, each after 1,000 requests.
    fn at(times: &[u64]) -> Scene {
        Scene::ended(times.iter().map(|&at| (0, at, 1_000)))
    }

    /// Connections that ended `after` ms after the last request of each was answered.
    fn idle(after: u64) -> Scene {
        let scene = at(&[900 + after, 1_900 + after]);
        scene.request(0, 1_999, 870, 895, 900).request(1, 1_999, 1_870, 1_895, 1_900)
    }

    /// Connections that ended at these ages in ms, one after the other, each after the given number of requests.
    fn aged(ends: &[(u64, u32)]) -> Scene {
        let begins = (0..).map(|n| 10_000 * n);
        Scene::ended(begins.zip(ends).map(|(begin, &(age, requests))| (begin, begin + age, requests)))
    }

    /// Two connections that end after 310 requests. For the last five: how many ms before the end each is sent, and how
    /// many ms later it is answered.
    fn with_last_five(of: impl Fn(u32) -> (u64, u64)) -> Scene {
        let all = [0, 1].into_iter().flat_map(|connection| (306..=310).map(move |n| (connection, n)));
        all.fold(after(&[310, 310]), |scene, (connection, n)| {
            let (before, takes) = of(n);
            let sent = 1_000 * (u64::from(connection) + 1) - before;
            scene.request(connection, 2 * n - 1, sent, sent + takes, sent + takes)
        })
    }

    #[test]
    fn a_quota_is_what_most_ends_agree_on_unless_something_else_explains_them() {
        for (scene, expected, why) in [
            (after(&[1_000]), None, "one connection alone"),
            (after(&[1_000, 1_001, 976]), None, "different streams: a reload or a maximum age"),
            (after(&[1_000, 1_000, 501, 389]), None, "two of four agree by chance"),
            (after(&[1_000, 1_000, 501]), Some("exactly 1000"), "two of three do not"),
            (young(4, 1), None, "few that ended after their only request"),
            (young(5, 1), Some("exactly 1"), "enough that did"),
            (young(2, 2), Some("exactly 2"), "two are enough where it was not the only one"),
            (at(&[1_000, 1_050, 1_020]), None, "one moment, 50 ms: a reload that finds an even load"),
            (at(&[1_000, 1_051, 1_020]), Some("exactly 1000"), "several moments"),
            (at(&[1_000, 1_010, 1_020, 1_030]), Some("exactly 1000 at once"), "many, and just as many"),
            (at(&[1_000, 1_010, 1_020]), None, "three may be chance"),
            (at(&[1_000, 1_010, 1_020, 1_030]).goaway(4, 1_015, 2_001, 0), None, "one differs"),
            (idle(0), Some("exactly 1000"), "right after the last request"),
            (idle(6), Some("exactly 1000"), "the slack is a quarter of the round trip of 25 ms"),
            (idle(7), None, "a maximum age that ends connections after as many requests"),
            (Scene::closed(0, [3, 3]), Some("exactly 3"), "HTTP/1.1"),
            (Scene::closed(0, [3, 4]), None, "different numbers over HTTP/1.1"),
            (Scene::closed(60, [3, 3]), None, "an idle timeout"),
        ] {
            assert_eq!(known(scene).as_deref(), expected, "{why}");
        }
    }

    #[test]
    fn announced_ends_have_the_quota_that_all_of_them_allow() {
        let third = |third| Scene::announced(&[(27, 17, 100), (20, 11, 120), third]);
        let wide = |answered| Scene::announced(&[(20, answered, 100), (25, 9, 120), (30, 9, 140)]);
        let narrow = |answered| Scene::announced(&[(40, answered, 100), (45, 20, 120), (50, 20, 140)]);
        let alike = |age| Scene::announced(&[(27, 17, 100), (20, 11, 102), (25, 16, age)]);
        for (scene, expected, why) in [
            (third((30, 20, 140)), Some("20"), "20 fits all three"),
            (third((30, 21, 140)), None, "only two agree"),
            (Scene::announced(&[(27, 17, 100), (20, 11, 120)]), None, "two are too few"),
            (wide(10), Some("between 10 and 20"), "half of 20 is open"),
            (wide(9), None, "more than half of 20 is open"),
            (narrow(38), Some("about 40"), "a range of a twentieth is a number"),
            (narrow(37), Some("between 37 and 40"), "a wider one is not"),
            (alike(105), None, "equal lifetimes are a maximum age"),
            (alike(106), Some("between 17 and 20"), "they differ by more than 5 ms"),
        ] {
            assert_eq!(known(scene).as_deref(), expected, "{why}");
        }
    }

    #[test]
    fn equal_lifetimes_may_be_a_maximum_age() {
        // 200 requests in 2 s are one in 10 ms, with which a server notices that the age is reached; 1 % of 2 s is
        // 20 ms: 30 ms in total.
        let alike = || aged(&[(2_000, 200), (2_010, 200), (2_020, 200)]);
        let older = |sent: u64| alike().request(3, 1, sent, sent + 20, sent + 20);
        for (scene, expected, why) in [
            (alike(), Some("exactly 200 or 2.02 s"), "both fit"),
            (aged(&[(2_000, 200), (2_010, 200), (2_032, 200)]), Some("exactly 200"), "they differ"),
            (aged(&[(499, 200), (499, 200), (500, 200)]), Some("exactly 200"), "no maximum age is so short"),
            (older(2_050), Some("exactly 200 or 2.02 s"), "a request at an age within the inexactness"),
            (older(2_051), Some("exactly 200"), "a request at a greater age"),
            (aged(&[(2_000, 200), (2_005, 200), (2_010, 201)]), None, "other numbers of requests"),
            (aged(&[(1_000, 200), (2_005, 200), (3_010, 201)]), Some("exactly 200"), "other lifetimes, too"),
        ] {
            assert_eq!(known(scene).as_deref(), expected, "{why}");
        }
    }

    #[test]
    fn where_several_requests_were_in_flight_the_limit_is_a_range() {
        // The server may have ended the connection for any of them, also for one that was answered before the GOAWAY.
        let together = with_last_five(|n| (30, if n == 306 { 29 } else { 50 }));
        assert_eq!(known(together).as_deref(), Some("306 to 310"));
        let apart = |ms: u64| known(with_last_five(|n| (30 + u64::from(310 - n) * ms, 25)));
        assert_eq!(apart(2).as_deref(), Some("exactly 310"), "one by one");
        assert_eq!(apart(1).as_deref(), Some("309 to 310"), "the last two may have come together");
    }
}
