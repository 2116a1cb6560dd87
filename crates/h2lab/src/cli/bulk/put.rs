//! `h2lab bulk put`: files to any server that takes PUT.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::bulk::TransferDirection;

use super::super::exit::Usage;
use super::super::reach;
use super::super::values::{duration, size};
use super::super::{Exit, help};
use super::transfer::{Cargo, TransferArgs, chunk};
use h2lab_roles::bulk::{FileLocation, RequestedFile};
use h2lab_roles::client::url::Url;

/// Send files: whole or in parts, resumable, checked end to end
///
/// Files are sent to `bulk serve` in parts if there are several workers (-c, -m). It joins them, compares the checksum,
/// and then renames the file. The same command resumes a transfer that was interrupted by Ctrl-C, by the server or by
/// its disk: the server reports what it has. A file that changes while it is sent is refused.
///
/// Any other server gets one plain PUT for each file, without a check of the checksum; a PUT that fails must be
/// repeated from the beginning.
///
/// The name of the file is appended to a URL that ends with /.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab bulk put data.tar http://127.0.0.1:8080/", "to /data.tar"),
        ("h2lab bulk put -c 4 --h2c data.tar http://127.0.0.1:8080/backup.tar", "in parts, over four connections"),
        ("h2lab bulk put --memory 10G --h2c http://127.0.0.1:8080/x", "no file: how fast is the network?"),
    ],
))]
pub struct PutArgs {
    /// What to send, and where to (http:// or https://)
    #[arg(value_name = "FILE… URL", required = true)]
    files_and_url: Vec<String>,
    /// Send this many bytes of filler instead of a file
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Send repeatedly for this long; transfers still running then are aborted, and their bytes are counted
    #[arg(short = 'z', short_alias = 'D', long, value_name = "TIME", value_parser = duration, requires = "memory")]
    duration: Option<Duration>,
    /// Bytes passed to the engine at once, also the longest frame [default: the value of -f if that is more than
    /// 128k; else 128k of a file, 64k of memory]
    #[arg(long, value_name = "SIZE", value_parser = chunk)]
    chunk: Option<u32>,
    #[command(flatten)]
    transfer: TransferArgs,
}

/// Sends and says how it went.
pub fn main(args: &PutArgs, command_line: Vec<String>) -> Result<Exit> {
    let (text, files) = args.files_and_url.split_last().ok_or_else(|| Usage("give a URL".to_owned()))?;
    let text = &reach::as_url(text);
    let url = reach::url(text)?;
    let cargo = Cargo {
        direction: TransferDirection::Put,
        wanted: wanted(args.memory, files, text, &url)?,
        text: text.clone(),
        url,
        is_memory: args.memory.is_some(),
        duration: args.duration,
        chunk: args.chunk,
    };
    args.transfer.run(cargo, command_line)
}

/// What goes where.
fn wanted(memory: Option<u64>, files: &[String], text: &str, url: &Url) -> Result<Vec<RequestedFile>, Usage> {
    let path = url.path_and_query();
    let to = |path: &str, place| {
        let server = text.strip_suffix(url.path_and_query()).unwrap_or(text);
        RequestedFile { url: format!("{server}{path}"), path: path.to_owned(), place, bytes: None }
    };
    match (memory, files) {
        (Some(_), [file, ..]) => Err(Usage(format!("{file}: --memory sends no file; give one or the other"))),
        (Some(bytes), []) => Ok(vec![RequestedFile {
            url: text.to_owned(),
            path: path.to_owned(),
            place: FileLocation::Memory(bytes),
            bytes: None,
        }]),
        (None, []) => Err(Usage(format!("{text}: nothing to send; give FILE… URL, or --memory SIZE"))),
        (None, [file]) if !path.ends_with('/') => Ok(vec![RequestedFile {
            url: text.to_owned(),
            path: path.to_owned(),
            place: FileLocation::File(PathBuf::from(file)),
            bytes: None,
        }]),
        (None, _) if !path.ends_with('/') => {
            Err(Usage(format!("{text}: one name for several files; end the URL with /")))
        }
        (None, files) => {
            let mut wanted: Vec<RequestedFile> = Vec::new();
            for file in files {
                let one =
                    to(&format!("{path}{}", escaped_name(file)?), FileLocation::File(PathBuf::from(file)));
                if wanted.iter().any(|other| other.path == one.path) {
                    return Err(Usage(format!("{file}: another file has the same name; send it separately")));
                }
                wanted.push(one);
            }
            Ok(wanted)
        }
    }
}

/// The name of a file as a part of a path: all that is not unreserved is escaped (RFC 3986 §2.3).
fn escaped_name(file: &str) -> Result<String, Usage> {
    let name = Path::new(file).file_name().ok_or_else(|| Usage(format!("{file}: it has no name")))?;
    let mut escaped = String::new();
    for &byte in name.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}"); // a String takes everything
        }
    }
    Ok(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(memory: Option<u64>, files: &[&str], url: &str) -> Result<Vec<(String, String)>, Usage> {
        let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
        let wanted = wanted(memory, &files, url, &url.parse().unwrap())?;
        Ok(wanted.into_iter().map(|one| (one.path, one.url)).collect())
    }

    #[test]
    fn a_url_that_ends_with_a_slash_gets_the_names_of_the_files() {
        let of = |path: &str, url: &str| (path.to_owned(), url.to_owned());
        assert_eq!(
            paths(None, &["x/a b", "é"], "http://h:1/in/").unwrap(),
            [of("/in/a%20b", "http://h:1/in/a%20b"), of("/in/%C3%A9", "http://h:1/in/%C3%A9")]
        );
        assert_eq!(paths(None, &["a"], "http://h:1/as").unwrap(), [of("/as", "http://h:1/as")]);
        assert_eq!(paths(Some(5), &[], "http://h:1/m").unwrap(), [of("/m", "http://h:1/m")]);
        assert_eq!(paths(None, &["a"], "http://h:1").unwrap()[0].0, "/a");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert!(paths(None, &[], "http://h/a").is_err());
        assert!(paths(Some(5), &["a"], "http://h/a").is_err());
        assert!(paths(None, &["a", "b"], "http://h/a").is_err());
        assert!(paths(None, &["x/a", "y/a"], "http://h/").is_err());
    }
}
