//! What output does not show unless it is asked to, since output is kept, sent on and published: credentials in header
//! fields, and in URLs the user's password and the values of the query.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

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

/// Where a command has the server's URL, which ends with a path.
const PLACE: &str = "{url}";
const LOCATED: &str = "h2lab://{url}/";

/// A command for a shell, or a line of what it printed, without the secrets of [`without_secrets`] and without credentials: values of
/// header fields, after schemes of authentication, and of flags and variables whose names say so. Doing it twice changes nothing.
pub fn without_command_secrets(command: &str) -> String {
    let located = command.replace(PLACE, LOCATED);
    let text = without_secrets(&located).replace(LOCATED, PLACE);
    let is_curl = text.contains("curl");
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(value) = credential(rest, is_curl) {
        shown.push_str(&rest[..value.start]);
        shown.push_str(HIDDEN);
        rest = &rest[value.end..];
    }
    shown + rest
}

/// Where the first credential in `text` is. A short flag of curl may have its value in the same word.
fn credential(text: &str, is_curl: bool) -> Option<Range<usize>> {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    let mut at = 0;
    loop {
        let begin = at + text[at..].find(is_of_name)?;
        let length = text[begin..].find(|character: char| !is_of_name(character));
        at = length.map_or(text.len(), |length| begin + length);
        let (name, before, after) = (&text[begin..at], &text[..begin], &text[at..]);
        let is_attached = |flag: &usize| *flag < name.len() || !after.starts_with(char::is_whitespace);
        let attached = short_flag(name).filter(|flag| is_curl && is_attached(flag)).map(|flag| begin + flag);
        if let Some(value) = attached.and_then(|start| attached_value(before, text, start)) {
            return Some(value);
        }
        if let Some(value) = value_of(name, before, after) {
            return Some(at + value.start..at + value.end);
        }
    }
}

/// The length of a flag with credentials at the beginning of `name`: `-u`, `-U` and `-b` of curl, also behind flags that have no
/// value, as in `-su`, and `-a` of `HTTPie`.
fn short_flag(name: &str) -> Option<usize> {
    const SWITCHES: &str = "012346aBfgGiIjJklLMnNOpqRsSvVZ";
    let letters = name.strip_prefix('-')?;
    if letters == "a" {
        return Some(name.len());
    }
    let switches = letters.find(|letter: char| !SWITCHES.contains(letter))?;
    letters[switches..].starts_with(['u', 'U', 'b']).then_some(switches + "-u".len())
}

/// Where in `text` the value is that begins at `start`, in the word of its short flag, if it is a credential.
fn attached_value(before: &str, text: &str, start: usize) -> Option<Range<usize>> {
    let own = text[start..].starts_with(QUOTES).then(|| last_quote(&text[..=start])).flatten();
    let start = start + usize::from(own.is_some());
    let length = length_of(&text[start..], own.or(last_quote(before)), false);
    is_pair(&text[start..start + length]).then(|| start..start + length)
}

/// Where in `after` the value of `name` is, if it is a credential; `before` is what stands before the name.
fn value_of(name: &str, before: &str, after: &str) -> Option<Range<usize>> {
    const FLAGS: [&str; 5] = ["user", "proxy-user", "oauth2-bearer", "auth", "pass"];
    const ENDINGS: [&str; 9] =
        ["token", "secret", "password", "passwd", "passphrase", "apikey", "accesskey", "-key", "-pass"];
    let word = name.trim_start_matches('-');
    let dashes = name.len() - word.len();
    let field = if dashes == 1 { word.strip_prefix('H').unwrap_or(word) } else { word };
    let is_field = is_credential(&field.replace('_', "-"));
    // Variables have underscores.
    let lower = word.to_ascii_lowercase().replace('_', "-");
    let is_secret = is_field || word == "PASS" || ENDINGS.iter().any(|end| lower.ends_with(end));
    // A word of a sentence has no hyphen: "unexpected token: }".
    let is_header = is_field || (is_secret && lower.contains('-'));
    let is_flag = dashes == 2 && (is_secret || FLAGS.contains(&word));
    let is_scheme = lower == "bearer" || word == "Basic";
    let is_short = short_flag(name) == Some(name.len());
    // As in JSON and in programs, the name may be in quotes of its own.
    let unquoted = after.trim_start_matches(['"', '\'', '\\']);
    let is_key = unquoted.len() < after.len();
    let bare = unquoted.trim_start_matches(' ');
    let separator = bare.chars().next()?;
    let (has_value, is_separate) = match separator {
        ':' => (is_header || (is_secret && is_key), true),
        '=' => (is_secret || is_flag, true),
        ',' => (is_secret && is_key, true),
        _ => (!is_key && bare.len() < unquoted.len() && (is_flag || is_scheme || is_short), false),
    };
    if !has_value {
        return None;
    }
    let value = if is_separate { &bare[1..] } else { bare };
    let is_line = separator == ':' && value.starts_with([' ', '\\']);
    let bare_value = value.trim_start_matches([' ', '\\']);
    let lead = value.len() - bare_value.len();
    let own = bare_value.starts_with(QUOTES).then(|| last_quote(&value[..=lead])).flatten();
    let value = if own.is_some() { &bare_value[1..] } else { bare_value };
    let around = last_quote(before).filter(|_| !is_key);
    // The value of a field goes on behind a part of it that is in quotes.
    let quote = if separator == ':' { around.or(own) } else { own.or(around) };
    let length = length_of(value, quote, is_line);
    // These letters mean other things to other programs.
    let is_other = is_short && !is_pair(&value[..length]);
    let start = after.len() - value.len();
    (length > 0 && !is_other && !value.starts_with(URLS)).then(|| start..start + length)
}

/// What begins the server's URL in a command, and a list of them.
const URLS: &str = "{url";
const QUOTES: [char; 2] = ['"', '\''];

/// Whether it may be a name with its value: `user:password`, `cookie=value`.
fn is_pair(value: &str) -> bool {
    value.contains([':', '=']) && !value.starts_with(URLS)
}

/// How long a value is that is in these quotes, or in none. Without them it is a line, or a word.
fn length_of(value: &str, quote: Option<(char, usize)>, is_line: bool) -> usize {
    let end = match quote {
        // A quote that is escaped more often than the first one is part of the value.
        Some((mark, escapes)) => {
            let mut marks = value.match_indices(mark).map(|(at, _)| at);
            marks.find(|at| backslashes(&value[..*at]) <= escapes)
        }
        None if is_line => value.find('\n'),
        None => value.find(|character: char| {
            character.is_whitespace() || matches!(character, '"' | '\'' | '&' | ';' | '|' | ')')
        }),
    };
    end.unwrap_or(value.len())
}

/// The quote at the end of `text`, and how many backslashes escape it.
fn last_quote(text: &str) -> Option<(char, usize)> {
    let mark = text.chars().next_back().filter(|last| QUOTES.contains(last))?;
    Some((mark, backslashes(&text[..text.len() - 1])))
}

/// How many backslashes `text` ends with.
fn backslashes(text: &str) -> usize {
    text.len() - text.trim_end_matches('\\').len()
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
    fn credentials_in_commands_are_hidden_and_all_else_is_shown() {
        for (command, shown) in [
            (
                "curl -s -H \"Authorization: Bearer s3cret\" \"{url}status/404?token=s3cret\"; echo",
                "curl -s -H \"Authorization: ***\" \"{url}status/404?token=***\"; echo",
            ),
            ("curl '{url}?t=s3cret' {urls}", "curl '{url}?t=***' {urls}"),
            ("curl -H'Cookie: a=s3cret; b=s3cret' {url}", "curl -H'Cookie: ***' {url}"),
            ("curl \"-HCookie: s3cret\" {url}", "curl \"-HCookie: ***\" {url}"),
            ("curl -u me:s3cret -b a=s3cret {url}", "curl -u *** -b *** {url}"),
            (
                "curl --oauth2-bearer s3cret --user=me:s3cret {url}",
                "curl --oauth2-bearer *** --user=*** {url}",
            ),
            (
                "API_TOKEN=s3cret client --password 's3 cret' {url}",
                "API_TOKEN=*** client --password '***' {url}",
            ),
            ("get({'Authorization': 'Basic s3cret'}, {url})", "get({'Authorization': '***'}, {url})"),
            ("sh -c \"get {\\\"cookie\\\": \\\"s3cret", "sh -c \"get {\\\"cookie\\\": \\\"***"),
            ("http {url} X-API-Key:s3cret a=b", "http {url} X-API-Key:*** a=b"),
            ("> authorization: Bearer s3cret", "> authorization: ***"),
            ("auth is Bearer s3cret, as told", "auth is Bearer *** as told"),
            (
                "python3 -u client.py {url} -b 9 --cookie-jar a",
                "python3 -u client.py {url} -b 9 --cookie-jar a",
            ),
            ("SyntaxError: Unexpected token: }", "SyntaxError: Unexpected token: }"),
            (
                "curl -H 'accept: text/html' -w '%{http_code}' {url}",
                "curl -H 'accept: text/html' -w '%{http_code}' {url}",
            ),
        ] {
            assert_eq!(without_command_secrets(command), shown, "{command}");
            assert_eq!(without_command_secrets(shown), shown, "once is enough");
        }
    }

    #[test]
    fn credentials_are_hidden_in_every_spelling_of_a_flag_a_variable_and_a_field() {
        for (command, shown) in [
            (
                "curl -su me:s3cret -sku 'me:s3 cret' -U p:s3cret {url}",
                "curl -su *** -sku '***' -U *** {url}",
            ),
            (
                "curl -ume:s3cret -bsid=s3cret -skuMe_1:s3cret -u\"me:s3 cret\" {url}",
                "curl -u*** -b*** -sku*** -u\"***\" {url}",
            ),
            ("curl '-ume:s3 cret' {url}", "curl '-u***' {url}"),
            (
                "http -a me:s3cret --auth=me:s3cret --auth me:s3cret {url}",
                "http -a *** --auth=*** --auth *** {url}",
            ),
            (
                "API_KEY=s3cret AWS_SECRET_ACCESS_KEY=s3cret PASSWD=s3cret PASS=s3cret {url}",
                "API_KEY=*** AWS_SECRET_ACCESS_KEY=*** PASSWD=*** PASS=*** {url}",
            ),
            (
                "curl -H 'X-Token: s3cret' -H 'X-Client-Secret: s3cret' {url}",
                "curl -H 'X-Token: ***' -H 'X-Client-Secret: ***' {url}",
            ),
            ("DB_PASS=s3cret http {url} X-Token:s3cret a=b", "DB_PASS=*** http {url} X-Token:*** a=b"),
            ("get -num=5 --key a.pem -Ilib=1 key=1 {url}", "get -num=5 --key a.pem -Ilib=1 key=1 {url}"),
            ("curl -a {url}?a=*** --auth {url} -sS -b 9", "curl -a {url}?a=*** --auth {url} -sS -b 9"),
        ] {
            assert_eq!(without_command_secrets(command), shown, "{command}");
            assert_eq!(without_command_secrets(shown), shown, "once is enough");
        }
    }

    #[test]
    fn a_quote_that_is_escaped_in_a_value_does_not_end_it() {
        for (command, shown) in [
            (r#"curl -H "Cookie: a=\"x\"; b=s3cret" {url}"#, r#"curl -H "Cookie: ***" {url}"#),
            (r#"curl -H "Cookie: \"x\"; b=s3cret" {url}"#, r#"curl -H "Cookie: \"***" {url}"#),
            (
                r#"sh -c "get {\"cookie\": \"s3cret\", 1} {url}""#,
                r#"sh -c "get {\"cookie\": \"***", 1} {url}""#,
            ),
        ] {
            assert_eq!(without_command_secrets(command), shown, "{command}");
            assert_eq!(without_command_secrets(shown), shown, "once is enough");
        }
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
