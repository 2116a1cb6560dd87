//! The files of `timeline -o`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use h2lab_report::{TimelineDocument, timeline_page, timeline_svg};

use super::super::command_line;
use super::super::exit::Usage;
use super::super::files;

/// A form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Html,
    Svg,
    Json,
}

fn format_of(path: &Path) -> Result<Format, Usage> {
    let reported = |why: &str| Usage(format!("-o {}: {why}", path.display()));
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html") => Ok(Format::Html),
        Some("svg") => Ok(Format::Svg),
        Some("json") => Ok(Format::Json),
        Some("png") => Err(reported("write pictures as .svg; a browser or rsvg-convert converts it to PNG")),
        _ => Err(reported("the ending must be one of .html .svg .json")),
    }
}

/// Refuses unknown extensions and paths that cannot be written, before any request.
pub(super) fn check(paths: &[PathBuf]) -> Result<()> {
    paths.iter().try_for_each(|path| {
        format_of(path)?;
        files::check_place("-o", path)
    })
}

/// Writes the document in each of the forms.
pub(super) fn write(paths: &[PathBuf], document: &TimelineDocument) -> Result<()> {
    paths.iter().try_for_each(|path| {
        let content = match format_of(path)? {
            Format::Html => timeline_page(document, command_line()),
            Format::Svg => timeline_svg(document),
            Format::Json => serde_json::to_string_pretty(document)? + "\n",
        };
        files::put(path, content)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_is_the_form() {
        assert_eq!(format_of(Path::new("a/b.svg")).unwrap(), Format::Svg);
        assert_eq!(format_of(Path::new("x.html")).unwrap(), Format::Html);
        assert!(format_of(Path::new("x.png")).unwrap_err().to_string().contains("write pictures as .svg"));
        assert!(format_of(Path::new("x")).unwrap_err().to_string().contains(".html .svg .json"));
    }
}
