//! A bulk transfer as a page: its rate and what limited it, the rate over time, each file.

use super::bulk::{RateCurve, rates_over_time};
use super::parts;
use super::shell::{Repeat, Section, Shell};
use super::ways::Way;
use crate::bulk_cells::rates;
use crate::bulk_text;
use crate::format::plural;
use h2lab_model::bulk::{BulkRecord, TransferDirection};

/// Points of the rate over time.
const POINTS: usize = 120;
/// Files that are listed unfolded.
const FILES: usize = 10;

/// A bulk transfer as a page that loads nothing.
pub fn bulk_page(record: &BulkRecord) -> String {
    let of = bulk_text::parts(record);
    let mut sections = Vec::new();
    let (span, rates) = rates(&record.meter, POINTS);
    if rates.len() > 1 {
        let curve =
            RateCurve { way: Way::of(record.protocol), name: record.protocol.name().to_owned(), span, rates };
        let body = format!("<figure class=\"wide\" data-legend>{}</figure>", rates_over_time(&[curve]));
        sections.push(Section::new("rate", "Rate over time", body));
    }
    sections.push(Section::new("figures", "Figures", parts::lines(&of.lines)));
    let rest = match record.overflow.files {
        0 => String::new(),
        more => format!("{}, not listed.", plural(more, "more complete file")),
    };
    sections.push(Section::new("files", "Each file", parts::list(&of.files, FILES, &rest)));
    let kind = if record.direction == TransferDirection::Get { "bulk get" } else { "bulk put" };
    Shell {
        kind: kind.to_owned(),
        answer: of.answer,
        warnings: record.warnings.clone(),
        sections,
        repeat: Repeat {
            command: record.command.clone(),
            version: record.version.clone(),
            started: record.started.clone(),
            machine: record.machine.clone(),
            ..Repeat::default()
        },
        ..Shell::default()
    }
    .render()
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_sound;
    use super::*;

    #[test]
    fn a_page_of_a_transfer_has_its_rate_over_time_its_figures_and_each_file() {
        let record = h2lab_model::bulk::testing::record();
        let page = bulk_page(&record);
        assert_sound(&page);
        for (place, words) in [("figures", "Streams"), ("files", "http")] {
            let section = page.split(&format!("<section id=\"{place}\">")).nth(1).expect(place);
            assert!(section.contains(words), "{place}: {section}");
        }
        assert_eq!(page.matches("aria-label=\"Rates over time\"").count(), 2, "in both forms");
    }
}
