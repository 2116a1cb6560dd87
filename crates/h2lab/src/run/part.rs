//! A part: a run folder as one file, on its way from the agent that measured it to the driver.
//!
//! The file is a tar archive with what [`store`](super::store) writes: `run.json`, the tables, captured packets. Who unpacks one trusts
//! nothing in it: only regular files with plain names are made, only in an empty folder, and no more of them, nor more bytes,
//! rows or text, than were agreed.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use h2lab_base::units::format_bytes;
use tar::{Archive, Builder, Entry, EntryType, Header};

use super::store::table;

/// The most bytes of a part, packed and unpacked: 64 GiB.
pub const MOST_BYTES: u64 = 64 << 30;
/// The most files of a part: a table each, and a file of packets for each repetition.
const MOST_FILES: usize = 100_000;
/// The file with all but the tables, and the most bytes of it: who takes a part over has it in memory as a whole.
const HEAD: &str = "run.json";
const MOST_HEAD: u64 = 256 << 20;
/// The most rows of all tables of a part, for the same reason.
const MOST_ROWS: u64 = 100_000_000;
/// The most bytes of text in all tables of a part once they are decoded, for the same reason: 4 GiB. Names, of which most rows have
/// one to three, are 30 bytes a row; histograms, which are text as well, are of slices of time and not of requests.
const MOST_TEXT: u64 = 4 << 30;
/// The longest name in a part; ustar has no room for a longer one without extensions, which are refused.
const LONGEST_NAME: usize = 100;
/// Bytes that are written or read at once.
const PIECE: usize = 1 << 18;

/// Packs the run folder `folder`, which is finished, into the file `to`. Logs of servers stay where they are.
pub fn pack(folder: &Path, to: &Path) -> Result<()> {
    let file = File::create_new(to).with_context(|| format!("cannot create {}", to.display()))?;
    let mut builder = Builder::new(BufWriter::with_capacity(PIECE, file));
    for (name, path) in files(folder)? {
        append(&mut builder, &name, &path)
            .with_context(|| format!("cannot pack {} into {}", path.display(), to.display()))?;
    }
    let written = builder.into_inner().and_then(|mut file| file.flush());
    written.with_context(|| format!("cannot write {}", to.display()))
}

/// The files of a run folder with their names in a part, in the order of names.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for within in ["", "pcap"] {
        let parent = folder.join(within);
        if !within.is_empty() && !parent.is_dir() {
            continue;
        }
        let cannot = || format!("cannot read {}", parent.display());
        for entry in parent.read_dir().with_context(cannot)? {
            let path = entry.with_context(cannot)?.path();
            let ending = path.extension().and_then(|ending| ending.to_str());
            let is_data = match within {
                "" => ending == Some("parquet") || path.file_name().is_some_and(|name| name == HEAD),
                _ => ending == Some("pcapng"),
            };
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.filter(|_| is_data) {
                let name = if within.is_empty() { name.to_owned() } else { format!("{within}/{name}") };
                found.push((name, path));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn append(builder: &mut Builder<BufWriter<File>>, name: &str, path: &Path) -> Result<()> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    ensure!(about.is_file(), "it is no regular file");
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(EntryType::Regular);
    header.set_size(about.len());
    header.set_mode(0o600);
    header.set_cksum();
    // A file that changed its size meanwhile, which its checksum shows, must not shift those behind it.
    Ok(builder.append(&header, file.chain(io::repeat(0)).take(about.len()))?)
}

/// Unpacks the file `part` into `into`, an empty folder or none yet. Fails with what is wrong with it if it has more than `most` bytes
/// of files, or anything that [`pack`] does not make; what was unpacked until then is left to the caller to remove.
pub fn unpack(part: &Path, into: &Path, most: u64) -> Result<()> {
    fs::create_dir_all(into).with_context(|| format!("cannot create {}", into.display()))?;
    let mut there = into.read_dir().with_context(|| format!("cannot read {}", into.display()))?;
    ensure!(
        there.next().is_none(),
        "{} is not empty: a part is unpacked into an empty folder",
        into.display()
    );
    let file = File::open(part).with_context(|| format!("cannot open {}", part.display()))?;
    let mut archive = Archive::new(BufReader::with_capacity(PIECE, file));
    let damaged = || format!("the part {} is damaged", part.display());
    let (mut left, mut rows, mut text) = (most, 0, 0);
    // Raw: names of any length and other attributes are entries of their own, and refused as such.
    for (n, entry) in archive.entries().with_context(damaged)?.raw(true).enumerate() {
        let mut entry = entry.with_context(damaged)?;
        ensure!(n < MOST_FILES, "a part has at most {MOST_FILES} files, this one has more");
        let (name, size) = plain_file(&entry).with_context(damaged)?;
        ensure!(
            name != HEAD || size <= MOST_HEAD,
            "{HEAD} has {}, and may have {}",
            format_bytes(size),
            format_bytes(MOST_HEAD)
        );
        left = match left.checked_sub(size) {
            Some(left) => left,
            None => bail!("the part has more than {most} bytes of files"),
        };
        let path = into.join(&name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        let mut file =
            File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let copied = io::copy(&mut entry, &mut file)
            .with_context(|| format!("cannot unpack {name} into {}", into.display()))?;
        ensure!(copied == size, "{}: {name} ends after {copied} of {size} bytes", damaged());
        if path.extension().is_some_and(|ending| ending == "parquet") {
            rows = with_rows_of(&path, rows)?;
            text = with_text_of(&path, text)?;
        }
    }
    ensure!(into.join(HEAD).is_file(), "{}: it has no {HEAD}", damaged());
    Ok(())
}

/// The rows of the table `path`, and `others`, if a part may have so many.
fn with_rows_of(path: &Path, others: u64) -> Result<u64> {
    let rows = others.saturating_add(table::count_rows(path)?);
    ensure!(rows <= MOST_ROWS, "the part has more than {MOST_ROWS} rows in its tables");
    Ok(rows)
}

/// The bytes of text in the table `path`, and `others`, if a part may have so many.
fn with_text_of(path: &Path, others: u64) -> Result<u64> {
    let bytes = others.saturating_add(table::count_text(path, MOST_TEXT.saturating_sub(others))?);
    ensure!(bytes <= MOST_TEXT, "the part has more than {} of text in its tables", format_bytes(MOST_TEXT));
    Ok(bytes)
}

/// Name and size of an entry, if it is a regular file below the folder.
fn plain_file<R: Read>(entry: &Entry<'_, R>) -> Result<(String, u64)> {
    let kind = entry.header().entry_type();
    let name = entry.path_bytes();
    let shown = h2lab_base::text::made_printable(&String::from_utf8_lossy(&name)).into_owned();
    ensure!(kind == EntryType::Regular, "`{shown}` is no regular file");
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-/".contains(byte);
    ensure!(
        !name.is_empty() && name.len() <= LONGEST_NAME && name.iter().all(is_allowed),
        "`{shown}` is no name of a file in a run folder"
    );
    let path = Path::new(&shown);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(is_below && !shown.ends_with('/'), "`{shown}` is not below the folder");
    Ok((shown, entry.size()))
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;
    use h2lab_model::record::Sample;

    use super::*;

    /// A table of so many rows.
    fn write_table(path: &Path, rows: usize) {
        let samples: Vec<Sample> = (0..rows).map(|_| Sample::due(Time::from_millis(1), true)).collect();
        table::write_all::<Sample>(path, [(0, &samples[..])]).unwrap();
    }

    /// A file with this archive, unpacked into a new folder.
    fn unpacked(archive: &[u8], most: u64) -> (tempfile::TempDir, Result<()>) {
        let parent = tempfile::tempdir().unwrap();
        let part = parent.path().join("part");
        fs::write(&part, archive).unwrap();
        let done = unpack(&part, &parent.path().join("into"), most);
        (parent, done)
    }

    /// An archive of these entries: type, name and content. Names are written as they are.
    fn archive(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (kind, name, content) in entries {
            let mut header = Header::new_ustar();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            if *kind == EntryType::Symlink {
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn refusal(entries: &[(EntryType, &str, &[u8])]) -> String {
        let (parent, done) = unpacked(&archive(entries), 1 << 20);
        let outside = parent.path().join("outside");
        assert!(!outside.exists(), "nothing is made outside of the folder");
        format!("{:#}", done.unwrap_err())
    }

    const RUN: (EntryType, &str, &[u8]) = (EntryType::Regular, "run.json", b"{}");

    #[test]
    fn a_run_folder_comes_out_as_it_was_packed_without_logs_and_pages() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("run");
        for inner in ["pcap", "logs"] {
            fs::create_dir_all(folder.join(inner)).unwrap();
        }
        let kept = ["run.json", "samples.parquet", "pcap/0000-h1.pcapng"];
        for name in kept.iter().chain(&["report.html", "logs/nginx.log", "x.parquet.partial"]) {
            fs::write(folder.join(name), name.repeat(1000)).unwrap();
        }
        write_table(&folder.join("samples.parquet"), 1000);
        let part = parent.path().join("part");
        pack(&folder, &part).unwrap();
        let into = parent.path().join("into");
        unpack(&part, &into, MOST_BYTES).unwrap();
        for name in kept {
            assert!(fs::read(into.join(name)).unwrap() == fs::read(folder.join(name)).unwrap(), "{name}");
        }
        let names = |folder: &Path| folder.read_dir().unwrap().count();
        assert_eq!((names(&into), names(&into.join("pcap"))), (3, 1));
        let error = pack(&folder, &part).unwrap_err().to_string();
        assert!(error.starts_with("cannot create"), "a file that is there is not overwritten: {error}");
    }

    #[test]
    fn nothing_is_made_outside_of_the_folder() {
        for name in ["../outside", "/tmp/outside", "a/../../outside", "..", ".", "a/", "./run.json"] {
            let error = refusal(&[(EntryType::Regular, name, b"x"), RUN]);
            assert!(error.contains("is not below the folder"), "{name}: {error}");
        }
    }

    #[test]
    fn only_regular_files_are_made() {
        use EntryType::{
            Block, Char, Continuous, Directory, Fifo, GNULongName, GNUSparse, Link, Symlink, XHeader,
        };
        for kind in [Block, Char, Continuous, Directory, Fifo, GNULongName, GNUSparse, Link, Symlink, XHeader]
        {
            let error = refusal(&[RUN, (kind, "a", b"")]);
            assert!(error.contains("`a` is no regular file"), "{kind:?}: {error}");
        }
    }

    #[test]
    fn names_are_plain() {
        for name in ["a b", "a\\b", "\u{e9}", "a\x1b[2J"] {
            let error = refusal(&[RUN, (EntryType::Regular, name, b"")]);
            assert!(error.contains("is no name of a file in a run folder"), "{error:?}");
            assert!(!error.contains('\x1b'), "{error:?}");
        }
        let twice = refusal(&[RUN, RUN]);
        assert!(twice.contains("cannot create"), "{twice}");
    }

    #[test]
    fn the_bytes_of_all_files_are_bounded() {
        let two = archive(&[RUN, (EntryType::Regular, "a", &[0; 1000])]);
        assert!(unpacked(&two, 1002).1.is_ok());
        let error = unpacked(&two, 1001).1.unwrap_err().to_string();
        assert_eq!(error, "the part has more than 1001 bytes of files");
        // One that claims to have more than the archive holds.
        let mut header = Header::new_ustar();
        header.set_path("run.json").unwrap();
        header.set_entry_type(EntryType::Regular);
        header.set_size(1 << 40);
        header.set_cksum();
        let (parent, done) = unpacked(header.as_bytes(), MOST_BYTES);
        assert!(done.is_err());
        assert!(!parent.path().join("into/run.json").exists(), "it is refused before a byte is written");
    }

    #[test]
    fn a_list_of_repetitions_that_is_too_large_is_refused_before_a_byte_is_written() {
        let claim = |name: &str, bytes: u64| {
            let mut header = Header::new_ustar();
            header.set_path(name).unwrap();
            header.set_entry_type(EntryType::Regular);
            header.set_size(bytes);
            header.set_cksum();
            let (parent, done) = unpacked(header.as_bytes(), MOST_BYTES);
            (parent.path().join("into").join(name).exists(), format!("{:#}", done.unwrap_err()))
        };
        let (is_begun, error) = claim("run.json", MOST_HEAD + 1);
        assert!(!is_begun && error.starts_with("run.json has "), "{error}");
        // These end too early.
        for (name, bytes) in [("run.json", MOST_HEAD), ("pcap/0000-h1.pcapng", MOST_HEAD + 1)] {
            let (is_begun, error) = claim(name, bytes);
            assert!(is_begun && !error.contains("may have"), "{error}");
        }
    }

    #[test]
    fn rows_of_all_tables_together_are_bounded_before_any_is_decoded() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("samples.parquet");
        write_table(&file, 3);
        assert_eq!(with_rows_of(&file, 0).unwrap(), 3);
        assert_eq!(with_rows_of(&file, MOST_ROWS - 3).unwrap(), MOST_ROWS);
        let error = with_rows_of(&file, MOST_ROWS - 2).unwrap_err().to_string();
        assert_eq!(error, "the part has more than 100000000 rows in its tables");
        assert!(with_rows_of(&file, u64::MAX).is_err());
    }

    #[test]
    fn text_of_all_tables_together_is_bounded_as_it_is_decoded_and_not_as_it_is_stored() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("samples.parquet");
        write_table(&file, 100_000);
        let name = Sample::due(Time::from_millis(1), true).outcome.name();
        let bytes = 100_000 * name.len() as u64;
        assert!(fs::metadata(&file).unwrap().len() < bytes, "the name is stored once");
        assert_eq!(with_text_of(&file, 0).unwrap(), bytes);
        assert_eq!(with_text_of(&file, MOST_TEXT - bytes).unwrap(), MOST_TEXT);
        let error = with_text_of(&file, MOST_TEXT - bytes + 1).unwrap_err().to_string();
        assert!(error.contains("of text in its tables"), "{error}");
    }

    #[test]
    fn a_table_without_a_footer_or_with_one_that_is_too_large_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("samples.parquet");
        write_table(&file, 3);
        let whole = fs::read(&file).unwrap();
        let with = |table: &[u8]| archive(&[RUN, (EntryType::Regular, "samples.parquet", table)]);
        assert!(unpacked(&with(&whole), MOST_BYTES).1.is_ok());
        let mut large = whole.clone();
        let length = large.len() - 8;
        large[length..length + 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
        for (damaged, told) in
            [(&large[..], "has a footer of 2147483647 bytes"), (&whole[..7], "is not a Parquet file")]
        {
            let error = format!("{:#}", unpacked(&with(damaged), MOST_BYTES).1.unwrap_err());
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn what_is_cut_off_or_no_archive_at_all_is_refused() {
        let whole = archive(&[RUN, (EntryType::Regular, "a.parquet", &[7; 5000])]);
        for length in [100, 512 + 100, 1536 + 700] {
            let (_, done) = unpacked(&whole[..length], 1 << 20);
            assert!(done.is_err(), "{length}");
        }
        assert!(unpacked(&[0x5a; 4096], 1 << 20).1.is_err());
        let empty = unpacked(&archive(&[]), 1 << 20).1.unwrap_err().to_string();
        assert!(empty.contains("it has no run.json"), "{empty}");
    }

    #[test]
    fn a_folder_that_is_not_empty_is_not_touched() {
        let parent = tempfile::tempdir().unwrap();
        let part = parent.path().join("part");
        fs::write(&part, archive(&[RUN])).unwrap();
        let into = parent.path().join("into");
        fs::create_dir(&into).unwrap();
        fs::write(into.join("mine"), "mine").unwrap();
        let error = unpack(&part, &into, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
        assert_eq!(into.read_dir().unwrap().count(), 1);
    }
}
