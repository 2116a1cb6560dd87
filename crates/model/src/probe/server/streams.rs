//! How many streams a server serves concurrently, by holding streams open together.

use crate::probe::{Bound, Check, Verdict, id};

/// The results of streams that were held open together by a closed window.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// How many were opened.
    pub tried: u64,
    /// Streams whose response began while all were open: served concurrently.
    pub served: u64,
    /// Streams that were reset.
    pub refused: u64,
    /// Streams whose response has no body, so that they were not held open.
    pub early: u64,
    /// Why the connection ended, if it did.
    pub ended: Option<String>,
}

/// The conclusion, where `announced` is the server's limit, `range` the largest number ever tried, and `stopped` the reason for
/// trying fewer.
pub fn concurrency(
    announced: Option<u64>,
    held: &Held,
    range: u64,
    stopped: Option<&str>,
) -> (Option<Bound>, Check) {
    let Held { tried, served, refused, early, ref ended } = *held;
    let declared = announced.map_or_else(|| "no limit".to_owned(), |n| n.to_string());
    let at_least = |why: &str| Some(Bound::between(Some(served), None, "streams", why));
    let check = |verdict, summary: String| Check::new(id::LIMT104, verdict, summary);
    let is_refused = refused > 0 || ended.is_some();
    let why = ended.clone().unwrap_or_else(|| format!("{refused} were refused"));
    if early > 0 {
        let summary = format!(
            "{early} responses have no body, so that their streams end at once; give a path with one"
        );
        return (None, check(Verdict::Undecided, summary));
    }
    match announced {
        Some(n) if tried > n && served == n && is_refused => {
            let summary = format!("{served} concurrently, as announced; one more is refused");
            (Some(Bound::exact(served, "streams", "one more was refused")), check(Verdict::Pass, summary))
        }
        Some(n) if served > n => {
            let summary =
                format!("{served} concurrently although {n} are announced: the limit is not enforced");
            (at_least("more than announced"), check(Verdict::Pass, summary))
        }
        _ if served < tried && is_refused => {
            let summary = format!(
                "only {served} of {tried} concurrent streams are served, but {declared} is announced: {why}"
            );
            (Some(Bound::exact(served, "streams", why)), check(Verdict::Fail, summary))
        }
        Some(n) if served == n && tried > n => {
            let summary = format!("{served} concurrently, as announced; one more waits");
            (Some(Bound::exact(served, "streams", "one more waits")), check(Verdict::Pass, summary))
        }
        _ if served < tried => {
            let summary = format!("only {served} of {tried} concurrent streams had a response in time");
            (at_least("the others had none in time"), check(Verdict::Undecided, summary))
        }
        // All opened streams were served: conclusive if they were enough.
        limit => {
            let is_all = tried >= range || limit.is_some_and(|n| tried >= n);
            let verdict = if is_all { Verdict::Pass } else { Verdict::Undecided };
            let more = if is_all { None } else { stopped };
            let more = more.map(|why| format!("; {why}")).unwrap_or_default();
            let summary = format!("{served} concurrently; {declared} announced{more}");
            (at_least("no more were opened"), check(verdict, summary))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_announced_and_what_is_served_are_compared() {
        let is = |announced, tried, served, refused| {
            let held = Held { tried, served, refused, ..Held::default() };
            let why = Some("--i-own-this-host allows more");
            let (bound, check) = concurrency(announced, &held, 1_030, why);
            let bound = bound.unwrap();
            (bound.value, bound.at_least, check.verdict)
        };
        assert_eq!(is(Some(128), 129, 128, 1), (Some(128), Some(128), Verdict::Pass));
        assert_eq!(is(Some(128), 129, 129, 0), (None, Some(129), Verdict::Pass));
        assert_eq!(is(Some(128), 129, 100, 29), (Some(100), Some(100), Verdict::Fail));
        assert_eq!(is(Some(128), 129, 128, 0), (Some(128), Some(128), Verdict::Pass));
        assert_eq!(is(Some(128), 129, 100, 0), (None, Some(100), Verdict::Undecided));
        assert_eq!(is(Some(1_000), 70, 70, 0), (None, Some(70), Verdict::Undecided));
        assert_eq!(is(Some(5_000), 1_030, 1_030, 0), (None, Some(1_030), Verdict::Pass));
        assert_eq!(is(None, 70, 60, 0), (None, Some(60), Verdict::Undecided));
        assert_eq!(is(None, 70, 70, 0), (None, Some(70), Verdict::Undecided));
        assert_eq!(is(None, 1_030, 1_030, 0), (None, Some(1_030), Verdict::Pass));
    }

    #[test]
    fn a_budget_that_ended_says_what_allows_more() {
        let held = Held { tried: 70, served: 70, ..Held::default() };
        let (_, check) = concurrency(Some(100), &held, 1_030, Some("--i-own-this-host allows more"));
        assert!(check.summary.ends_with("--i-own-this-host allows more"), "{}", check.summary);
        let early = Held { early: 3, ..held };
        assert_eq!(concurrency(Some(70), &early, 1_030, None).1.verdict, Verdict::Undecided);
    }
}
