//! Templates of pages and of their parts.

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use super::svg::escape;

/// A template, which is compiled in, with its data: what a server said is escaped.
pub(super) fn render(template: &str, data: &impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("breakable", |text: &str| Value::from_safe_string(breakable(text)));
    environment.add_filter("prose", |text: &str| Value::from_safe_string(prose(text)));
    environment.add_filter("code", |text: &str| Value::from_safe_string(code(text)));
    environment.add_filter("setting", |text: &str| Value::from_safe_string(setting(text)));
    environment.add_filter("unbroken", |text: &str| Value::from_safe_string(unbroken(text, has_flag)));
    environment.add_filter("plain", |text: &str| text.replace('`', ""));
    environment
        .render_str(template, Serde(data))
        .expect("the template is compiled in and tested with every kind of page")
}

/// Prose, escaped as the template engine does it, with what it has between backticks as code. A backtick without its pair stays one.
/// A line is not broken between a number and its unit, nor within a flag.
fn prose(text: &str) -> String {
    let text = with_units(text);
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, (quoted, after))) =
        rest.split_once('`').and_then(|(before, from)| Some((before, from.split_once('`')?)))
    {
        // A URL stays whole where a line has room for it: broken within its port it would be read wrongly.
        let begin = if quoted.contains("://") { "<code class=\"url\">" } else { "<code>" };
        out.extend([unbroken(before, has_flag).as_str(), begin, code(quoted).as_str(), "</code>"]);
        rest = after;
    }
    out + &unbroken(rest, has_flag)
}

/// Code, escaped: its lines are broken at spaces, but for words that are longer than a line of a phone.
fn code(text: &str) -> String {
    unbroken(text, |word| word.contains('-'))
}

/// What a user is to set or to run: prose where it has code between backticks, else all of it is code.
fn setting(text: &str) -> String {
    if text.contains('`') { prose(text) } else { format!("<code>{}</code>", code(text)) }
}

/// `text`, escaped, in which the words that `is_whole` accepts are not broken at their hyphens. Those that are longer than a line
/// of a phone are. It is markup that keeps them whole: another character for the hyphen would be copied with them.
fn unbroken(text: &str, is_whole: fn(&str) -> bool) -> String {
    const FITS: usize = 32;
    let marked = |word: &str| {
        let escaped = escape(word).replace('\'', "&#x27;").replace('/', "&#x2f;");
        let fits = word.chars().count() <= FITS;
        if fits && is_whole(word) { format!("<span class=\"whole\">{escaped}</span>") } else { escaped }
    };
    text.split(' ').map(marked).collect::<Vec<String>>().join(" ")
}

/// Whether a word is a flag, or has one behind a bracket or quote: `-c`, `(--fix)`.
fn has_flag(word: &str) -> bool {
    word.match_indices('-').any(|(at, _)| {
        let (before, flag) = word.split_at(at);
        let is_named = flag.trim_start_matches('-').starts_with(|first: char| first.is_ascii_alphabetic());
        is_named && !before.ends_with(char::is_alphanumeric)
    })
}

/// `text` with a no-break space before `%` and `ms` behind a digit.
fn with_units(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (place, c) in text.char_indices() {
        let (before, after) = text.split_at(place);
        let is_ms = || after.strip_prefix(" ms").is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        let is_unit = || after.starts_with(" %") || is_ms();
        let joins = c == ' ' && before.ends_with(|last: char| last.is_ascii_digit()) && is_unit();
        out.push(if joins { '\u{a0}' } else { c });
    }
    out
}

/// `text`, escaped, that may be broken behind the slashes of a URL: where it has no room on a phone it would be broken within a
/// port otherwise.
fn breakable(text: &str) -> String {
    let text = escape(text);
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        out.push(c);
        if c == '/' && rest.peek().is_some_and(|next| *next != '/') {
            out.push_str("<wbr>");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_backticks_is_code_and_nothing_is_markup() {
        assert_eq!(prose("use `c` or `m <N>`."), "use <code>c</code> or <code>m &lt;N&gt;</code>.");
        assert_eq!(prose("a ` alone, `<b>` & <i>"), "a <code> alone, </code>&lt;b&gt;` &amp; &lt;i&gt;");
        assert_eq!((prose("it's 1/2"), prose("`")), ("it&#x27;s 1&#x2f;2".to_owned(), "`".to_owned()));
        assert_eq!(prose("`h2c://a:1`"), "<code class=\"url\">h2c:&#x2f;&#x2f;a:1</code>");
        let data = std::collections::BTreeMap::from([("x", "`a` <b>")]);
        assert_eq!(render("{{ x|prose }}|{{ x|plain }}", &data), "<code>a</code> &lt;b&gt;|a &lt;b&gt;");
    }

    #[test]
    fn a_flag_is_not_broken_and_other_words_with_hyphens_are_where_they_are_not_code() {
        let whole = |word: &str| format!("<span class=\"whole\">{word}</span>");
        let flags = format!("a run-to-run {} of {} - 1", whole("-c"), whole("(--max-requests)"));
        assert_eq!(prose("a run-to-run -c of (--max-requests) - 1"), flags);
        let in_code = format!("<code>a {} {} 64k</code>", whole("http1-a.toml"), whole("-w"));
        assert_eq!(prose("`a http1-a.toml -w 64k`"), in_code);
        assert_eq!(code("x -w \"<\""), format!("x {} &quot;&lt;&quot;", whole("-w")));
    }

    #[test]
    fn of_what_is_to_be_set_only_what_stands_between_backticks_is_code_if_anything_does() {
        assert_eq!(setting("connections = 16"), "<code>connections = 16</code>");
        assert_eq!(setting("a larger `limit`"), "a larger <code>limit</code>");
        let data = std::collections::BTreeMap::from([("x", "a larger `limit` <b>")]);
        assert_eq!(render("{{ x|setting }}", &data), "a larger <code>limit</code> &lt;b&gt;");
    }

    #[test]
    fn a_word_is_kept_whole_where_a_phone_has_room_for_it() {
        let [fits, longer] = [30, 31].map(|letters| format!("--{}", "a".repeat(letters)));
        assert_eq!(prose(&fits), format!("<span class=\"whole\">{fits}</span>"));
        assert_eq!((prose(&longer), code(&longer)), (longer.clone(), longer));
    }

    #[test]
    fn a_number_keeps_its_unit_on_its_line() {
        assert_eq!(prose("10 % of 25.1 ms, 3 msgs, a %"), "10\u{a0}% of 25.1\u{a0}ms, 3 msgs, a %");
    }

    #[test]
    fn a_url_may_be_broken_behind_its_slashes_and_is_escaped() {
        assert_eq!(breakable("h1 at http://a:80/b?<c>&d/"), "h1 at http://<wbr>a:80/<wbr>b?&lt;c&gt;&amp;d/");
        assert_eq!(
            render("{{ x|breakable }}", &std::collections::BTreeMap::from([("x", "a/b")])),
            "a/<wbr>b"
        );
    }
}
