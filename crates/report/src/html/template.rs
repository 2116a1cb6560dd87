//! Templates of pages and of their parts.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

/// A template, which is compiled in, with its data: what a server said is escaped.
pub(super) fn render(template: &str, data: &impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment
        .render_str(template, Serde(data))
        .expect("the template is compiled in and tested with every kind of page")
}
