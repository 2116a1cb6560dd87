//! What output does not show unless it is asked to, since output is kept, sent on and published: credentials in header
//! fields, and in URLs the user's password and the values of the query.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// What stands in a URL for a part that is not shown.
pub const HIDDEN: &str = "***";

/// Fields that carry credentials: by their definition (RFC 9110 §11.6.2 and §11.7.2, RFC 6265), or by wide use.
const CREDENTIALS: [&str; 14] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "api-key",
    "apikey",
    "x-api-key",
    "x-auth-token",
    "x-access-token",
    "x-csrf-token",
    "x-xsrf-token",
    "x-amz-security-token",
    "x-vault-token",
    "private-token",
];

/// Whether the value of the field `name` is a credential.
pub fn is_credential(name: &str) -> bool {
    CREDENTIALS.iter().any(|one| name.eq_ignore_ascii_case(one))
}

/// `text`, which may contain URLs and paths, with [`HIDDEN`] in place of whatever stands before an `@` in an authority,
/// of each value in a query, and of a fragment. A query without names is one value. Doing it twice changes nothing.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains(['?', '#', '@']) {
        return Cow::Borrowed(text);
    }
    let is_end = |character: char| character.is_whitespace() || matches!(character, '"' | '`' | '<' | '>');
    let words = text.split_inclusive(is_end).map(|word| {
        let end = word.trim_end_matches(is_end).len();
        let (word, end) = word.split_at(end);
        // Punctuation that ends a sentence or a quotation is not part of a URL in it.
        let url = word.trim_end_matches([':', ',', ';', '.', ')', '\'']);
        without_url_secrets(url).into_owned() + &word[url.len()..] + end
    });
    Cow::Owned(words.collect())
}

/// The same for a text that is one URL, or a path with its query, whatever characters it contains.
pub fn without_url_secrets(url: &str) -> Cow<'_, str> {
    let begin = url.find("://").map(|at| at + "://".len());
    let authority = begin.unwrap_or(0);
    let path = url[authority..].find(['/', '?', '#']).map_or(url.len(), |at| authority + at);
    let user = url[authority..path].rfind('@').filter(|_| begin.is_some()).map(|at| authority + at);
    let is_located = begin.is_some() || url[path..].starts_with('/');
    let rest = url[path..].find(['?', '#']).filter(|_| is_located).map_or(url.len(), |at| path + at);
    // A list of URLs, or a URL in the path of another.
    let tail = &url[user.unwrap_or(authority)..rest];
    let has_more = begin.is_some() && tail.contains("://");
    if user.is_none() && !has_more && rest == url.len() {
        return Cow::Borrowed(url);
    }
    let mut shown = url[..authority].to_owned();
    if user.is_some() {
        shown.push_str(HIDDEN);
    }
    shown.push_str(&if has_more { without_url_secrets(tail) } else { Cow::Borrowed(tail) });
    let (query, fragment) = url[rest..].split_once('#').unwrap_or((&url[rest..], ""));
    if let Some(query) = query.strip_prefix('?') {
        shown.push('?');
        shown.push_str(&query.split('&').map(without_value).collect::<Vec<_>>().join("&"));
    }
    if !fragment.is_empty() {
        shown.extend(["#", HIDDEN]);
    }
    Cow::Owned(shown)
}

/// One part of a query.
fn without_value(part: &str) -> Cow<'_, str> {
    match part.split_once('=') {
        Some((name, value)) if !value.is_empty() && !is_hidden(value) => {
            Cow::Owned(format!("{name}={HIDDEN}"))
        }
        None if !part.is_empty() && !is_hidden(part) => Cow::Borrowed(HIDDEN),
        _ => Cow::Borrowed(part),
    }
}

/// Whether it is [`HIDDEN`], perhaps with a number by which URLs are told apart: see [`distinct`].
fn is_hidden(value: &str) -> bool {
    let number = value.strip_prefix(HIDDEN);
    number.is_some_and(|number| number.len() <= 2 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// These URLs without their secrets. Those that differ only in what is hidden get numbers: `?q=***`, `?q=***2`.
pub fn distinct(urls: &[String]) -> Vec<String> {
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut shown_urls = Vec::with_capacity(urls.len());
    for url in urls {
        let shown = without_url_secrets(url).into_owned();
        let others = alike.entry(shown.clone()).or_default();
        let place = others.iter().position(|other| other == url).unwrap_or_else(|| {
            others.push(url);
            others.len() - 1
        });
        shown_urls.push(match shown.rfind(HIDDEN).map(|at| at + HIDDEN.len()) {
            Some(end) if place > 0 => format!("{}{}{}", &shown[..end], place + 1, &shown[end..]),
            _ => shown,
        });
    }
    shown_urls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_values_of_queries_and_fragments_are_hidden_and_all_else_is_shown() {
        for (url, shown) in [
            ("http://a/x?token=s3cret&b=&c", "http://a/x?token=***&b=&***"),
            ("https://me:s3cret@a:81/?q=1", "https://***@a:81/?q=***"),
            ("https://me@s3cret@a", "https://***@a"),
            ("http://a?s3cret", "http://a?***"),
            ("http://me:s3,cret@a", "http://***@a"),
            ("--to=http://u:s3cret@a,https://u:s3cret@b/x?c", "--to=http://***@a,https://***@b/x?***"),
            ("http://a/#access_token=s3cret", "http://a/#***"),
            ("/x?a=s3cret?\"'<s3cret", "/x?a=***"),
            ("http://a/x@y", "http://a/x@y"),
            ("http://a/x?", "http://a/x?"),
            ("me@host", "me@host"),
            ("what?", "what?"),
        ] {
            assert_eq!(without_url_secrets(url), shown, "{url}");
            assert_eq!(without_url_secrets(shown), shown, "once is enough");
        }
    }

    #[test]
    fn urls_and_paths_in_a_text_are_found() {
        let text = "http://a/x?t=s3cret: no (see 'http://u:s3cret@b/'), \"/p?s3cret\".\nGET /q?t=s3cret HTTP/1.1? #1 a@b";
        assert_eq!(
            without_secrets(text),
            "http://a/x?t=***: no (see 'http://***@b/'), \"/p?***\".\nGET /q?t=*** HTTP/1.1? #1 a@b"
        );
        assert!(matches!(without_secrets("no URL"), Cow::Borrowed(_)));
    }

    #[test]
    fn urls_that_differ_in_what_is_hidden_stay_different() {
        let urls = ["http://a/?q=1", "http://a/?q=2", "http://a/?q=1", "http://b/", "http://a/?q=3&r="];
        let shown = distinct(&urls.map(str::to_owned));
        assert_eq!(
            shown,
            ["http://a/?q=***", "http://a/?q=***2", "http://a/?q=***", "http://b/", "http://a/?q=***&r="]
        );
        assert_eq!(without_url_secrets(&shown[1]), shown[1], "once is enough");
    }

    #[test]
    fn credentials_are_known_by_name_in_any_case() {
        assert!(is_credential("Authorization") && is_credential("X-API-Key") && !is_credential("accept"));
    }
}
