//! A picture as SVG text. Colours, widths and fonts are in the page's style sheet; here are only shapes and classes.

use std::fmt::Write;

/// Which end of a text is at its point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A dot that is a button.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark<'a> {
    pub class: &'a str,
    pub at: (f64, f64),
    /// Its number among the marks of the picture; Tab focuses the first.
    pub index: usize,
    /// Its description.
    pub label: &'a str,
}

/// The outline of a dot: what distinguishes dots of one colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
}

impl Shape {
    /// All of them, in the order in which they are used.
    pub const ALL: [Self; 4] = [Self::Circle, Self::Square, Self::Triangle, Self::Diamond];

    /// Its outline around a point, as the data of a path.
    fn outline(self, (x, y): (f64, f64), r: f64) -> String {
        let through = |points: &[(f64, f64)]| {
            let corner = |(k, (dx, dy)): (usize, &(f64, f64))| {
                format!("{}{:.1} {:.1}", if k == 0 { "M" } else { "L" }, x + dx * r, y + dy * r)
            };
            points.iter().enumerate().map(corner).collect::<String>() + "Z"
        };
        match self {
            Self::Circle => format!(
                "M{:.1} {y:.1}a{r} {r} 0 1 0 {:.1} 0a{r} {r} 0 1 0 -{:.1} 0Z",
                x - r,
                2.0 * r,
                2.0 * r
            ),
            Self::Square => through(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Self::Triangle => through(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
            Self::Diamond => through(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]),
        }
    }
}

/// A picture being drawn.
#[derive(Debug)]
pub(super) struct Svg {
    text: String,
}

/// Text that is safe between tags and in attributes. Characters that XML 1.0 does not allow become spaces.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

impl Svg {
    /// An empty picture of this size, in CSS pixels, with `label` as its description.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        let label = escape(label);
        let text = format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\n");
        Self { text }
    }

    /// The same for a picture with buttons in it: with the role `img`, screen readers would not announce them.
    pub fn with_buttons(width: f64, height: f64, label: &str) -> Self {
        let picture = Self::new(width, height, label);
        Self { text: picture.text.replacen("role=\"img\"", "role=\"group\"", 1) }
    }

    /// The same as a sample in a line of text, which says what it is.
    pub fn sample(self) -> Self {
        let hidden = "class=\"sample\" aria-hidden=\"true\"";
        Self { text: self.text.replacen("role=\"img\" aria-label=\"\"", hidden, 1) }
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.text,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// A line through points.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let _ = write!(self.text, "<path class=\"{class}\" d=\"");
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(self.text, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        }
        self.text.push_str("\"/>\n");
    }

    /// A rectangle with a note that shows on hover.
    pub fn rectangle(&mut self, class: &str, at: (f64, f64), size: (f64, f64), note: &str) {
        let ((x, y), (width, height), note) = (at, size, escape(note));
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             data-note=\"{note}\"/>"
        );
    }

    /// A dot with a note that shows on hover.
    pub fn dot(&mut self, class: &str, (x, y): (f64, f64), note: &str) {
        let note = escape(note);
        let _ = writeln!(
            self.text,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" data-note=\"{note}\"/>"
        );
    }

    /// A dot of this shape and size with a note that shows on hover.
    pub fn shape(&mut self, class: &str, shape: Shape, (at, r): ((f64, f64), f64), note: &str) {
        let (outline, note) = (shape.outline(at, r), escape(note));
        let _ = writeln!(self.text, "<path class=\"{class}\" d=\"{outline}\" data-note=\"{note}\"/>");
    }

    /// A dot that is a button.
    pub fn mark(&mut self, mark: &Mark<'_>) {
        let (Mark { class, at: (x, y), index, .. }, label) = (mark, escape(mark.label));
        let tab = if *index == 0 { 0 } else { -1 };
        let _ = writeln!(
            self.text,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" tabindex=\"{tab}\" role=\"button\" \
             data-breakdown=\"{index}\" data-note=\"{label}\" aria-label=\"{label}\"/>"
        );
    }

    /// A piece of text; nothing if it is empty.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        if text.is_empty() {
            return;
        }
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        let _ = writeln!(
            self.text,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// A raster picture, given as a `data:` URI.
    pub fn image(&mut self, at: (f64, f64), size: (f64, f64), uri: &str) {
        let ((x, y), (width, height)) = (at, size);
        let _ = writeln!(
            self.text,
            "<image x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             preserveAspectRatio=\"none\" href=\"{uri}\"/>"
        );
    }

    /// Begins a group of marks.
    pub fn begin(&mut self, class: &str) {
        let _ = writeln!(self.text, "<g class=\"{class}\">");
    }

    /// Begins what the entry of this number in a legend shows or hides.
    pub fn begin_entry(&mut self, entry: usize) {
        let _ = writeln!(self.text, "<g data-entry=\"{entry}\">");
    }

    /// Ends the innermost group.
    pub fn end(&mut self) {
        self.text.push_str("</g>\n");
    }

    /// The finished picture.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>");
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_never_markup() {
        let mut svg = Svg::new(10.0, 10.0, "a \"b\"");
        svg.text("tick", (0.0, 0.0), Anchor::Start, "</text><script>alert(1)</script>\u{0}&");
        let text = svg.finish();
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;") && text.contains(" &amp;"));
        assert!(text.contains("aria-label=\"a &quot;b&quot;\""));
    }
}
