//! Pictures in two forms, for wide and for narrow screens: the style sheet shows one of them. Text is never smaller than 11 px in
//! either, so that a picture of rows has its labels beside them in the one and above them in the other.

use super::axis::{PlotArea, Scale};
use super::svg::{Anchor, Svg};

/// A form of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Wide,
    Narrow,
}

impl Form {
    /// The width of a picture, in CSS pixels where it is shown smallest.
    pub const fn width(self) -> f64 {
        match self {
            Self::Wide => 720.0,
            Self::Narrow => 380.0,
        }
    }
}

/// A picture in both forms.
pub(super) fn both(draw: impl Fn(Form) -> String) -> String {
    format!(
        "<div class=\"on-wide\">{}</div>\n<div class=\"on-narrow\">{}</div>",
        draw(Form::Wide),
        draw(Form::Narrow)
    )
}

/// A label that fits beside its row: of a long one the beginning stays, which has the protocol, and the end, which distinguishes
/// a URL from the others.
pub(super) fn short(label: &str) -> String {
    const FITS: usize = 36;
    const BEGINNING: usize = 13;
    let length = label.chars().count();
    if length <= FITS {
        return label.to_owned();
    }
    let beginning: String = label.chars().take(BEGINNING).collect();
    let end: String = label.chars().skip(length - (FITS - BEGINNING - 1)).collect();
    format!("{beginning}…{end}")
}

/// The rows of a picture, one below the other, each with its label and a text about its marks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub form: Form,
    pub left: f64,
    right: f64,
}

/// The width of a character of small text.
const CHARACTER: f64 = 6.9;

impl Rows {
    /// Rows with these labels, and texts of up to `text` characters behind their marks.
    pub fn new<'a>(form: Form, labels: impl Iterator<Item = &'a str>, text: usize) -> Self {
        let (left, right) = match form {
            Form::Wide => {
                let longest = labels.map(|label| short(label).chars().count()).max().unwrap_or(0);
                ((18.0 + CHARACTER * longest as f64).max(90.0), 16.0 + CHARACTER * text as f64)
            }
            Form::Narrow => (12.0, 22.0),
        };
        Self { form, left, right }
    }

    /// The height of a row.
    pub const fn height(self) -> f64 {
        match self.form {
            Form::Wide => 26.0,
            Form::Narrow => 42.0,
        }
    }

    /// The plotting area of rows that are `height` high together.
    pub fn area(self, height: f64, x: Scale) -> PlotArea {
        let width = self.form.width() - self.left - self.right;
        PlotArea { left: self.left, top: 4.0, width, height, x, y: Scale::Linear { from: 0.0, to: 1.0 } }
    }

    /// Where the marks of the row at `y` are.
    pub const fn middle(self, y: f64) -> f64 {
        match self.form {
            Form::Wide => y + 13.0,
            Form::Narrow => y + 30.0,
        }
    }

    /// Draws the label of the row at `y`, whose class is `class`.
    pub fn label(self, svg: &mut Svg, class: &str, y: f64, label: &str) {
        match self.form {
            Form::Wide => svg.text(class, (self.left - 9.0, y + 17.0), Anchor::End, &short(label)),
            Form::Narrow => svg.text(class, (self.left - 8.0, y + 15.0), Anchor::Start, &short(label)),
        }
    }

    /// Draws the text about the marks of the row at `y`, the last of which ends at `x`.
    pub fn value(self, svg: &mut Svg, y: f64, x: f64, text: &str) {
        match self.form {
            Form::Wide => svg.text("value", (x + 9.0, y + 17.0), Anchor::Start, text),
            Form::Narrow => svg.text("value", (self.form.width() - 6.0, y + 15.0), Anchor::End, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_label_keeps_its_protocol_and_the_end_of_its_url() {
        assert_eq!(short("h2c × 16"), "h2c × 16");
        let url = "h1 at http://proxy.service.example:8080/";
        assert_eq!(short(url), "h1 at http://….service.example:8080/");
        assert_eq!(short(&url[4..]), url[4..], "36 characters fit");
    }
}
