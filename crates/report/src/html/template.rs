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
    environment
        .render_str(template, Serde(data))
        .expect("the template is compiled in and tested with every kind of page")
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
    fn a_url_may_be_broken_behind_its_slashes_and_is_escaped() {
        assert_eq!(breakable("h1 at http://a:80/b?<c>&d/"), "h1 at http://<wbr>a:80/<wbr>b?&lt;c&gt;&amp;d/");
        assert_eq!(
            render("{{ x|breakable }}", &std::collections::BTreeMap::from([("x", "a/b")])),
            "a/<wbr>b"
        );
    }
}
