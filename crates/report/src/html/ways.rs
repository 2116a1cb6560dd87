//! How configurations look, the same in every report: a colour for each protocol, and a shape and dashes for each of several
//! configurations of one protocol. Nothing rests on colour alone.

use serde::Serialize;

use super::raster::Colour;
use super::svg::{Shape, Svg};
use super::template::render;
use crate::Report;
use h2lab_analysis::stats::CellSummary;
use h2lab_model::workload::Protocol;

/// The look of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub protocol: Protocol,
    /// Its place among those of its protocol.
    variant: usize,
}

/// The looks of all configurations of some runs.
#[derive(Debug, Default)]
pub(super) struct Ways {
    known: Vec<(String, Way)>,
}

impl Way {
    /// The only one of its protocol, or the first one.
    pub const fn of(protocol: Protocol) -> Self {
        Self { protocol, variant: 0 }
    }

    /// This one of several of its protocol.
    pub const fn variant(protocol: Protocol, variant: usize) -> Self {
        Self { protocol, variant }
    }

    /// The classes that set the colour: `way-h2c`, and for others of the protocol a darker or a paler one of the same hue.
    pub fn class(self) -> String {
        let tone = self.variant % TONES;
        let tone = if tone == 0 { String::new() } else { format!(" tone{tone}") };
        format!("way-{}{tone}", self.protocol.name())
    }

    /// The classes of a line: colour and dashes.
    pub fn line(self) -> String {
        format!("line {} dash{}", self.class(), self.variant % DASHES)
    }

    /// The shape of dots.
    pub fn shape(self) -> Shape {
        Shape::ALL[self.variant % Shape::ALL.len()]
    }
}

/// Kinds of lines in the style sheet.
pub(super) const DASHES: usize = 6;

/// Tones of each colour in the style sheet, the colour itself among them.
const TONES: usize = 3;

impl Ways {
    /// Those of one run. Configurations of one name look alike under all conditions.
    pub fn of(report: &Report<'_>) -> Self {
        let mut ways = Self::default();
        for summary in &report.analysis.cells {
            if ways.find(&summary.label).is_none() {
                let protocol = summary.cell.protocol;
                let variant = ways.known.iter().filter(|(_, way)| way.protocol == protocol).count();
                ways.known.push((summary.label.clone(), Way { protocol, variant }));
            }
        }
        ways
    }

    fn find(&self, label: &str) -> Option<Way> {
        self.known.iter().find(|(known, _)| known == label).map(|(_, way)| *way)
    }

    /// The look of a cell.
    pub fn way(&self, summary: &CellSummary) -> Way {
        self.find(&summary.label).unwrap_or(Way::of(summary.cell.protocol))
    }
}

/// The colour of a protocol in pictures of dots, on light and on dark paper alike. Those of lines are in the style sheet.
pub(super) const fn colour(protocol: Protocol) -> Colour {
    match protocol {
        Protocol::H1 => [0, 114, 178],
        Protocol::H1s => [61, 155, 212],
        Protocol::H2 => [0, 158, 115],
        Protocol::H2c => [213, 94, 0],
        Protocol::H3 => [176, 86, 138],
        Protocol::Tcp => [128, 128, 128],
    }
}

/// A legend whose entries are buttons: each hides or shows what is drawn of it in the same figure.
#[derive(Serialize)]
struct Legend {
    /// A sample, its name, and what else is known of it.
    entries: Vec<(String, String, String)>,
}

/// The legend of these configurations: look, name, what else there is to say.
pub(super) fn legend(entries: impl IntoIterator<Item = (Way, String, String)>) -> String {
    let entry = |(way, name, more): (Way, String, String)| (sample(way), name, more);
    render(include_str!("legend.html"), &Legend { entries: entries.into_iter().map(entry).collect() })
}

/// A piece of a line with a dot.
fn sample(way: Way) -> String {
    let mut svg = Svg::new(34.0, 12.0, "").sample();
    svg.line(&way.line(), (1.0, 6.0), (33.0, 6.0));
    svg.shape(&format!("dot {}", way.class()), way.shape(), ((17.0, 6.0), 4.0), "");
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;
    use std::collections::BTreeSet;

    #[test]
    fn configurations_of_one_protocol_have_a_tone_of_its_colour_and_a_shape_and_dashes_of_their_own() {
        let fixture = Fixture::new();
        let ways = Ways::of(&fixture.report());
        let of = |place: usize| ways.way(&fixture.analysis.cells[place]);
        assert_eq!(of(0), of(4), "h1 under both conditions");
        let shared = [of(1), of(2), of(3)];
        assert_eq!(shared.map(Way::class), ["way-h2c", "way-h2c tone1", "way-h2c tone2"]);
        assert_eq!(shared.iter().map(|way| way.line()).collect::<BTreeSet<_>>().len(), 3);
        assert!(shared[0].shape() != shared[1].shape() && shared[1].shape() != shared[2].shape());
    }

    #[test]
    fn every_protocol_has_a_colour_of_its_own_in_both_schemes_and_in_pictures_of_dots() {
        let css = include_str!("style.css");
        let all = || Protocol::ALL.into_iter().chain([Protocol::Tcp]);
        for scheme in css.split("@media (prefers-color-scheme: dark)").take(2) {
            let value = |protocol: Protocol| {
                let variable = format!("--{}: ", protocol.name());
                let rest = scheme.split(&variable).nth(1).unwrap_or_else(|| panic!("{variable} in {scheme}"));
                rest.split(';').next().unwrap().to_owned()
            };
            assert_eq!(all().map(value).collect::<BTreeSet<_>>().len(), 6);
        }
        for protocol in all() {
            let class = Way::of(protocol).class();
            assert!(css.contains(&format!(".{class} {{ --way: var(--{}); }}", protocol.name())), "{class}");
            for tone in 1..TONES {
                let own =
                    format!(".{class}.tone{tone} {{ --way: color-mix(in srgb, var(--{})", protocol.name());
                assert!(css.contains(&own), "{own}");
            }
        }
        assert_eq!(all().map(colour).collect::<BTreeSet<_>>().len(), 6);
        let dashes = (0..DASHES).filter(|k| css.contains(&format!(".dash{k} {{"))).count();
        assert_eq!(dashes, DASHES - 1, "the first one has none");
    }
}
