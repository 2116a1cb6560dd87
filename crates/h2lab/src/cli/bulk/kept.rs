//! The folder of `bulk --out`: one file with the record of a transfer, of which its report is made again.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use h2lab_model::bulk::BulkRecord;
use h2lab_model::bulk::record::RECORD_VERSION;
use h2lab_model::fleet::FleetRecord;
use h2lab_report::TextStyle;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::documents::{Form, json};
use super::super::exit::Usage;
use super::super::{files, signals};
use crate::run::folder;

/// A record of which a report is made.
pub trait Moved {
    /// The report in this form.
    fn render(&self, form: Form, style: TextStyle) -> Result<String>;
}

impl Moved for BulkRecord {
    fn render(&self, form: Form, style: TextStyle) -> Result<String> {
        Ok(match form {
            Form::Html => h2lab_report::bulk_page(self),
            Form::Text => h2lab_report::bulk_text(self, style),
            Form::Markdown => fenced(&h2lab_report::bulk_text(self, style)),
            Form::Json => json(&h2lab_report::bulk_document(self))?,
            Form::Sarif => json(&h2lab_report::bulk_sarif(self))?,
            Form::Junit => h2lab_report::bulk_junit(self),
        })
    }
}

impl Moved for FleetRecord {
    fn render(&self, form: Form, style: TextStyle) -> Result<String> {
        Ok(match form {
            Form::Html => h2lab_report::fleet_page(self),
            Form::Text => h2lab_report::fleet_text(self, style),
            Form::Markdown => fenced(&h2lab_report::fleet_text(self, style)),
            Form::Json => json(&h2lab_report::fleet_document(self))?,
            Form::Sarif => json(&h2lab_report::fleet_sarif(self))?,
            Form::Junit => h2lab_report::fleet_junit(self),
        })
    }
}

/// Text whose columns stay as they are in Markdown.
fn fenced(text: &str) -> String {
    format!("```text\n{}\n```\n", text.trim_end().replace("```", "` ` `"))
}

/// The file with the record of `bulk get` and `bulk put`.
const TRANSFER: &str = "bulk.json";
/// That of `bulk drive`.
const DRIVE: &str = "drive.json";

/// The folder of `--out`, made before anything is transferred. Without a result it is removed again.
#[derive(Debug, Default)]
pub struct KeptFolder(Option<PathBuf>);

impl KeptFolder {
    /// Makes it, if one is named. It must be empty.
    pub fn make(named: Option<&Path>) -> Result<Self> {
        let path = named.map(|named| folder::choose(Some(named), SystemTime::now(), 0)).transpose()?;
        if let Some(path) = &path {
            signals::remove_if_empty(path);
        }
        Ok(Self(path))
    }

    /// Keeps the record of a transfer.
    pub fn keep_transfer(&self, record: &BulkRecord) -> Result<()> {
        self.keep(TRANSFER, record)
    }

    /// Keeps the record of a drive.
    pub fn keep_drive(&self, record: &FleetRecord) -> Result<()> {
        self.keep(DRIVE, record)
    }

    fn keep(&self, name: &str, record: &impl Serialize) -> Result<()> {
        let Some(folder) = &self.0 else { return Ok(()) };
        files::put(&folder.join(name), json(record)?)?;
        say!("run folder: {}", folder.display());
        Ok(())
    }
}

impl Drop for KeptFolder {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // One that holds a record is not empty, and stays.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// What every record has.
#[derive(Deserialize)]
struct Head {
    schema: u32,
}

/// The record in a folder of `bulk --out`; `None` if it is another folder.
pub fn read(folder: &Path) -> Result<Option<Box<dyn Moved>>> {
    if let Some(record) = record::<BulkRecord>(&folder.join(TRANSFER))? {
        return Ok(Some(Box::new(record)));
    }
    Ok(record::<FleetRecord>(&folder.join(DRIVE))?.map(|record| Box::new(record) as Box<dyn Moved>))
}

fn record<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if !path.is_file() {
        return Ok(None);
    }
    let cannot = || format!("cannot read {}", path.display());
    let text = std::fs::read_to_string(path).with_context(cannot)?;
    let head: Head = serde_json::from_str(&text).with_context(cannot)?;
    if head.schema > RECORD_VERSION {
        let why = format!("it has version {} of the format, this h2lab reads {RECORD_VERSION}", head.schema);
        return Err(Usage(format!("{}: {why}; use a newer h2lab", path.display())).into());
    }
    Ok(Some(serde_json::from_str(&text).with_context(cannot)?))
}

#[cfg(test)]
mod tests {
    use h2lab_model::{bulk, fleet};

    use super::*;

    fn text(moved: &dyn Moved) -> String {
        moved.render(Form::Text, TextStyle::default()).unwrap()
    }

    #[test]
    fn a_record_that_was_kept_is_reported_as_it_was_at_its_end() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (transfer, drive) = (bulk::testing::record(), fleet::testing::record());
        KeptFolder::make(Some(&at("transfer"))).unwrap().keep_transfer(&transfer).unwrap();
        KeptFolder::make(Some(&at("drive"))).unwrap().keep_drive(&drive).unwrap();
        for (name, moved) in [("transfer", &transfer as &dyn Moved), ("drive", &drive as &dyn Moved)] {
            let read = read(&at(name)).unwrap().expect("it was kept");
            assert_eq!(text(&*read), text(moved), "{name}");
            for form in [Form::Json, Form::Sarif, Form::Junit, Form::Html, Form::Markdown] {
                let style = TextStyle::default();
                assert_eq!(read.render(form, style).unwrap(), moved.render(form, style).unwrap(), "{form:?}");
            }
        }
        assert!(read(place.path()).unwrap().is_none(), "another folder");
    }

    #[test]
    fn a_folder_without_a_record_is_removed_and_one_with_anything_in_it_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let folder = KeptFolder::make(Some(&path)).unwrap();
        assert!(path.is_dir());
        drop(folder);
        assert!(!path.exists());
        let folder = KeptFolder::make(Some(&path)).unwrap();
        folder.keep_transfer(&bulk::testing::record()).unwrap();
        drop(folder);
        let again = KeptFolder::make(Some(&path)).unwrap_err().to_string();
        assert!(again.contains("not empty"), "{again}");
        KeptFolder::make(None).unwrap().keep_transfer(&bulk::testing::record()).unwrap();
    }

    #[test]
    fn a_record_of_a_newer_format_is_refused_and_says_so() {
        let place = tempfile::tempdir().unwrap();
        for (version, is_read) in [(RECORD_VERSION, true), (RECORD_VERSION + 1, false)] {
            let record = BulkRecord { schema: version, ..bulk::testing::record() };
            std::fs::write(place.path().join(TRANSFER), json(&record).unwrap()).unwrap();
            let read = read(place.path());
            assert_eq!(read.is_ok(), is_read, "{version}");
            let why = read.err().map(|error| error.to_string());
            assert!(why.is_none_or(|why| why.contains("use a newer h2lab")), "{version}");
        }
    }
}
