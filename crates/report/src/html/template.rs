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
    environment.add_filter("plain", |text: &str| text.replace('`', ""));
    environment
        .render_str(template, Serde(data))
        .expect("the template is compiled in and tested with every kind of page")
}

/// Prose, escaped as the template engine does it, with what it has between backticks as code. A backtick without its pair stays one.
/// A line is not broken between a number and its unit.
fn prose(text: &str) -> String {
    let text = with_units(&escape(text)).replace('\'', "&#x27;").replace('/', "&#x2f;");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, (code, after))) =
        rest.split_once('`').and_then(|(before, from)| Some((before, from.split_once('`')?)))
    {
        // A URL stays whole where a line has room for it: broken within its port it would be read wrongly.
        let begin = if code.contains(":&#x2f;&#x2f;") { "<code class=\"url\">" } else { "<code>" };
        out.extend([before, begin, code, "</code>"]);
        rest = after;
    }
    out + rest
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
        assert_eq!(prose("use `-c` or `-m <N>`."), "use <code>-c</code> or <code>-m &lt;N&gt;</code>.");
        assert_eq!(prose("a ` alone, `<b>` & <i>"), "a <code> alone, </code>&lt;b&gt;` &amp; &lt;i&gt;");
        assert_eq!((prose("it's 1/2"), prose("`")), ("it&#x27;s 1&#x2f;2".to_owned(), "`".to_owned()));
        assert_eq!(prose("`h2c://a:1`"), "<code class=\"url\">h2c:&#x2f;&#x2f;a:1</code>");
        let data = std::collections::BTreeMap::from([("x", "`a` <b>")]);
        assert_eq!(render("{{ x|prose }}|{{ x|plain }}", &data), "<code>a</code> &lt;b&gt;|a &lt;b&gt;");
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
