//! Statuses that are not a success: what is probably not as intended.

use std::collections::BTreeMap;

use h2lab_base::counts::count;
use h2lab_wire::h1::reason_phrase;

/// `404 Not Found: measured as it is; is the path right?`; `None` for a success.
pub fn doubt_of_status(status: u16) -> Option<String> {
    (!(200..400).contains(&status))
        .then(|| format!("{}: measured as it is{}", words(status), question(status)))
}

/// A sentence that no response of a cell was a success, and what the figures therefore describe: `http://a/ answers 404
/// Not Found to every request: all times are of that answer; is the path right?` `statuses` has the number of responses
/// by status.
pub fn refusal(target: &str, statuses: &BTreeMap<u16, u64>) -> Option<String> {
    let (&most, _) = statuses.iter().max_by_key(|(_, n)| **n)?;
    if statuses.len() == 1 {
        let words = words(most);
        return Some(format!(
            "{target} answers {words} to every request: all times are of that answer{}",
            question(most)
        ));
    }
    let each: Vec<String> = statuses.iter().map(|(status, n)| format!("{} × {status}", count(*n))).collect();
    let each = each.join(", ");
    Some(format!(
        "{target} answers no request with a success ({each}): all times are of such answers{}",
        question(most)
    ))
}

/// Redirects to another URL (RFC 9110 §15.4). 304 is none: it says that the client's copy is current.
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// The most frequent redirect, if most responses are redirects. `statuses` as in [`refusal`].
pub fn redirect(statuses: &BTreeMap<u16, u64>) -> Option<u16> {
    let redirects = || REDIRECTS.iter().filter_map(|status| Some((*status, *statuses.get(status)?)));
    let n: u64 = redirects().map(|(_, n)| n).sum();
    let (most, _) = redirects().max_by_key(|(_, n)| *n)?;
    (n * 2 > statuses.values().sum()).then_some(most)
}

/// `404 Not Found`.
fn words(status: u16) -> String {
    let reason = reason_phrase(status);
    let space = if reason.is_empty() { "" } else { " " };
    format!("{status}{space}{reason}")
}

/// What may be wrong with the request.
const fn question(status: u16) -> &'static str {
    match status {
        400 => "; is the request complete (-H, -d), and is it no port for TLS (https://)?",
        422 => "; is the request complete (-H, -d)?",
        401 | 403 | 407 => "; are credentials missing (-H 'authorization: …')?",
        404 | 410 => "; is the path right?",
        405 => "; is the method right (-X)?",
        421 => "; is the host right?",
        429 => "; the server limits requests",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_no_success_is_named_with_what_may_be_wrong() {
        assert_eq!([200, 204, 304, 399].map(doubt_of_status), [const { None }; 4]);
        let told = |status| doubt_of_status(status).unwrap();
        assert_eq!(told(404), "404 Not Found: measured as it is; is the path right?");
        assert!(told(405).ends_with("; is the method right (-X)?"));
        assert_eq!(told(599), "599: measured as it is");
    }

    #[test]
    fn most_responses_are_redirects_where_they_lead_elsewhere() {
        let of = |statuses: &[(u16, u64)]| redirect(&statuses.iter().copied().collect());
        assert_eq!(of(&[(200, 4), (301, 3), (308, 2)]), Some(301));
        assert_eq!(of(&[(200, 5), (301, 3), (308, 2)]), None, "a half");
        assert_eq!([of(&[(304, 9)]), of(&[(300, 9)]), of(&[])], [None; 3], "they lead nowhere");
    }

    #[test]
    fn where_no_response_is_a_success_the_times_are_of_what_was_answered() {
        let told = |statuses: &[(u16, u64)]| refusal("http://a/", &statuses.iter().copied().collect());
        let one = "http://a/ answers 404 Not Found to every request: all times are of that answer; is the path right?";
        assert_eq!(told(&[(404, 9)]).as_deref(), Some(one));
        let several = told(&[(404, 1), (500, 1_200)]).unwrap();
        assert_eq!(
            several,
            "http://a/ answers no request with a success (1 × 404, 1,200 × 500): all times are of such answers"
        );
        assert_eq!(told(&[]), None);
    }
}
