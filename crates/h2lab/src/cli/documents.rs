//! Documents of a diagnosis or a probe for people, scripts, code scanning (SARIF) and CI (`JUnit`): flags, endings, files.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use h2lab_report::TextStyle;

use super::exit::Usage;
use super::files;
use super::output::{print, show, style};

/// In which form results are printed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct FormArgs {
    /// One JSON document on stdout instead of text
    #[arg(long, group = "form")]
    json: bool,
    /// SARIF 2.1.0 on stdout, for code scanning
    #[arg(long, group = "form")]
    sarif: bool,
    /// `JUnit`'s XML on stdout, for CI
    #[arg(long, group = "form")]
    junit: bool,
}

impl FormArgs {
    /// Whether stdout is to be one document for programs.
    pub const fn is_document(self) -> bool {
        self.json || self.sarif || self.junit
    }

    /// The form on stdout.
    pub const fn form(self) -> Form {
        match (self.json, self.sarif, self.junit) {
            (true, ..) => Form::Json,
            (_, true, _) => Form::Sarif,
            (.., true) => Form::Junit,
            _ => Form::Text,
        }
    }
}

/// In which form results are printed, and the files they go to.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct DocumentArgs {
    #[command(flatten)]
    form: FormArgs,
    /// Also write a report; the extension sets the format: .html .json .sarif .xml (`JUnit`) .md .txt; repeatable
    #[arg(short = 'o', long = "output", visible_alias = "html", value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// A form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A page.
    Html,
    /// As on a terminal.
    Text,
    /// To paste into an issue.
    Markdown,
    /// For scripts.
    Json,
    /// For code scanning.
    Sarif,
    /// For CI.
    Junit,
}

/// The ending of each form.
const ENDINGS: [(&str, Form); 6] = [
    ("html", Form::Html),
    ("json", Form::Json),
    ("sarif", Form::Sarif),
    ("xml", Form::Junit),
    ("md", Form::Markdown),
    ("txt", Form::Text),
];

impl Form {
    /// The form that the ending of `path` means.
    fn of(path: &Path) -> Result<Self, Usage> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let known = ENDINGS.iter().find(|(known, _)| Some(*known) == ending);
        known.map(|(_, form)| *form).ok_or_else(|| {
            let endings: Vec<String> = ENDINGS.iter().map(|(ending, _)| format!(".{ending}")).collect();
            Usage(format!("-o {}: the ending must be one of {}", path.display(), endings.join(" ")))
        })
    }
}

impl DocumentArgs {
    /// Refuses report files with an unknown ending or that cannot be written, before any request.
    pub fn validate(&self) -> Result<()> {
        self.files.iter().try_for_each(|path| {
            Form::of(path)?;
            files::check_place("-o", path)
        })
    }

    /// Whether stdout is to be one document for programs.
    pub const fn is_document(&self) -> bool {
        self.form.is_document()
    }

    /// Whether report files are to be written.
    pub const fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Prints the report that `write` makes in the form asked for, then writes its files: what is printed needs no disk.
    pub fn notify(&self, write: impl Fn(Form, TextStyle) -> Result<String>) -> Result<()> {
        let form = self.form.form();
        let text = write(form, style())?;
        if form == Form::Text { show(&text) } else { print(&text) }?;
        let plain = TextStyle { colour: false, ..style() };
        self.files.iter().try_for_each(|path| files::put(path, write(Form::of(path)?, plain)?))
    }
}

/// A document for scripts.
pub fn json(document: &impl serde::Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_means_a_form() {
        assert_eq!(Form::of(Path::new("a/b.sarif")).unwrap(), Form::Sarif);
        assert_eq!(Form::of(Path::new("junit.xml")).unwrap(), Form::Junit);
        assert_eq!(Form::of(Path::new("page.html")).unwrap(), Form::Html);
        for bad in ["a", "a.pdf", ".xml"] {
            assert!(Form::of(Path::new(bad)).unwrap_err().0.contains(".sarif"), "{bad}");
        }
    }
}
