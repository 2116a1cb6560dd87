//! Text for a terminal that is no report: paragraphs and the pages of `explain`, wrapped to the width.

use std::fmt::Write as _;

use super::style::{TextStyle, paragraph};

/// `text` wrapped to the width behind `lead`; further lines are indented as far.
pub fn hanging(lead: &str, text: &str, style: TextStyle) -> String {
    let mut out = String::new();
    paragraph(&mut out, style, lead, text);
    out
}

/// A page of Markdown with its paragraphs and items wrapped to the width. Headings and fenced code stay as they are, and code in
/// a line is not broken: it is there to be copied.
pub fn prose(markdown: &str, style: TextStyle) -> String {
    let (mut out, mut open, mut is_fenced) = (String::new(), Open::default(), false);
    for line in markdown.lines() {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        if is_fenced || is_fence || text.is_empty() || text.starts_with('#') {
            open.close(&mut out, style);
            let _ = writeln!(out, "{line}");
            is_fenced ^= is_fence;
        } else if let Some(item) = text.strip_prefix("- ") {
            open.close(&mut out, style);
            let lead = format!("{}- ", &line[..line.len() - text.len()]);
            open = Open { lead, text: item.to_owned() };
        } else {
            open.text.push(' ');
            open.text.push_str(text);
        }
    }
    open.close(&mut out, style);
    style.printable(out)
}

/// The paragraph that is being read.
#[derive(Default)]
struct Open {
    lead: String,
    text: String,
}

impl Open {
    fn close(&mut self, out: &mut String, style: TextStyle) {
        let Self { lead, text } = std::mem::take(self);
        if !text.is_empty() {
            let mut wrapped = String::new();
            paragraph(&mut wrapped, style, &lead, &glued(&text));
            out.push_str(&wrapped.replace(GLUE, " "));
        }
    }
}

/// Stands for a space where a line must not be broken.
const GLUE: char = '\u{1}';

/// `text` with the spaces between backticks glued.
fn glued(text: &str) -> String {
    let mut is_code = false;
    text.chars()
        .map(|c| {
            is_code ^= c == '`';
            if is_code && c == ' ' { GLUE } else { c }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(width: usize) -> TextStyle {
        TextStyle { width, ..TextStyle::default() }
    }

    #[test]
    fn paragraphs_and_items_are_wrapped_and_headings_and_code_are_not() {
        let page = "## A heading that is longer than the line and yet stays whole, as it is\n\none two three\n\
                    four\n- an item that is wrapped behind its dash, as `code with spaces` is not broken\n  at all\n\
                    ```\nverbatim   line\n```\n";
        let expected = "## A heading that is longer than the line and yet stays whole, as it is\n\n\
                        one two three four\n- an item that is wrapped behind its dash, as\n  \
                        `code with spaces` is not broken at all\n```\nverbatim   line\n```\n";
        assert_eq!(prose(page, at(60)), expected);
    }

    #[test]
    fn no_page_of_a_cause_or_check_has_a_line_that_is_wider_than_the_terminal() {
        let causes = h2lab_analysis::diagnose::CAUSES.iter().map(|cause| cause.text());
        let checks = h2lab_model::probe::CHECKS.iter().map(|check| check.page());
        let pages: Vec<String> = causes.chain(checks).collect();
        for (page, width) in pages.iter().flat_map(|page| [(page, 60), (page, 80)]) {
            for line in prose(page, at(width)).lines() {
                // What is longer has nothing but a URL, or code to be copied.
                let is_whole = line.contains("://") || line.contains('`');
                assert!(line.chars().count() <= width || is_whole, "{width}: {line}");
            }
        }
    }

    #[test]
    fn what_ascii_takes_more_room_for_is_written_so_before_lines_are_broken() {
        let style = TextStyle { unicode: false, ..at(60) };
        for line in prose(&"§ … ".repeat(60), style).lines() {
            assert!(line.is_ascii() && line.len() <= 60, "{line}");
        }
    }
}
