//! `h2lab bulk get`: files from any server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use h2lab_model::bulk::TransferDirection;

use super::super::exit::Usage;
use super::super::files;
use super::super::reach;
use super::super::values::duration;
use super::super::{Exit, help};
use super::transfer::{Cargo, TransferArgs};
use h2lab_net::storage::{FileSink, collide};
use h2lab_roles::bulk::{FileLocation, RequestedFile};
use h2lab_roles::client::url::Url;

/// Fetch files: whole or in parts, resumable, checked end to end
///
/// A file is written as NAME.part, with a journal beside it, and is renamed when it is completely on disk and its checksum
/// matches. The same command resumes a transfer that was interrupted by Ctrl-C, by the server or by a full
/// disk; it refuses if the file on the server has changed meanwhile.
///
/// With -c and -m the file is fetched in parts, by ranges; a server without range support sends it on one stream. If
/// the server sends no checksum (`Repr-Digest`, RFC 9530) the file is accepted, and its checksum is printed for you to
/// compare.
///
/// https:// uses HTTP/2 if the server selects it (ALPN), else HTTP/1.1; http:// uses HTTP/1.1 unless a flag says otherwise. All
/// URLs must have the same scheme, host and port.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab bulk get https://service.example/data.tar", "into ./data.tar"),
        ("h2lab bulk get -c 4 -o /mnt/data.tar https://service.example/data.tar", "in parts, over four connections"),
        ("h2lab bulk get --out-dir /mnt --http3 https://service.example/a https://service.example/b", "two files, HTTP/3"),
        ("h2lab bulk get --discard -z 60s --h2c -m 8 http://127.0.0.1:8080/bytes/1G", "discard it: how fast is it?"),
    ],
))]
pub struct GetArgs {
    /// What to fetch (http:// or https://)
    #[arg(value_name = "URL", required = true, value_parser = reach::url_text())]
    urls: Vec<String>,
    /// Write to this file [default: the last part of the URL, here]
    #[arg(short = 'o', long, value_name = "FILE", group = "to")]
    output: Option<PathBuf>,
    /// Write into this folder, by the last part of each URL
    #[arg(long, value_name = "DIR", group = "to")]
    out_dir: Option<PathBuf>,
    /// Discard what is fetched: measure the network without a disk
    #[arg(long, group = "to")]
    discard: bool,
    /// Fetch the URLs repeatedly for this long; transfers still running then are aborted, and their bytes are counted
    #[arg(short = 'z', short_alias = 'D', long, value_name = "TIME", value_parser = duration, requires = "discard")]
    duration: Option<Duration>,
    #[command(flatten)]
    transfer: TransferArgs,
}

/// Fetches and says how it went.
pub fn main(args: &GetArgs, command_line: Vec<String>) -> Result<Exit> {
    let urls: Vec<Url> = args.urls.iter().map(|text| reach::url(text)).collect::<Result<_, _>>()?;
    check_server(&args.urls, &urls)?;
    let cargo = Cargo {
        direction: TransferDirection::Get,
        wanted: places(args, &urls)?,
        text: args.urls[0].clone(),
        url: urls[0].clone(),
        is_memory: args.discard,
        duration: args.duration,
        chunk: None,
    };
    args.transfer.run(cargo, command_line)
}

/// All URLs are of one server: its connections are shared.
fn check_server(texts: &[String], urls: &[Url]) -> Result<(), Usage> {
    let server = |url: &Url| (url.is_tls(), url.authority().to_owned());
    match urls.iter().position(|url| server(url) != server(&urls[0])) {
        Some(other) => {
            Err(Usage(format!("{}: not the server of {}; run a command for each", texts[other], texts[0])))
        }
        None => Ok(()),
    }
}

/// Where each file goes.
fn places(args: &GetArgs, urls: &[Url]) -> Result<Vec<RequestedFile>> {
    if args.output.is_some() && urls.len() > 1 {
        return Err(Usage("-o/--output takes one URL; for several give --out-dir DIR".to_owned()).into());
    }
    if let Some(folder) = &args.out_dir {
        std::fs::create_dir_all(folder).with_context(|| format!("--out-dir {}", folder.display()))?;
    }
    let mut wanted: Vec<RequestedFile> = Vec::new();
    for (text, url) in args.urls.iter().zip(urls) {
        let place = match &args.output {
            _ if args.discard => FileLocation::Discard,
            Some(path) => FileLocation::File(path.clone()),
            None => {
                FileLocation::File(args.out_dir.as_deref().unwrap_or(Path::new("")).join(name(text, url)?))
            }
        };
        if let FileLocation::File(path) = &place
            && path.is_dir()
        {
            // The rename at the end would find out, after an hour perhaps.
            return Err(Usage(format!(
                "{}: there is a folder of this name; give -o FILE or --out-dir DIR",
                path.display()
            ))
            .into());
        }
        if let FileLocation::File(path) = &place {
            FileSink::check(path).map_err(|error| Usage(error.to_string()))?;
            files::check_folder("-o", path)?;
            let meets = |other: &&RequestedFile| matches!(&other.place, FileLocation::File(other) if collide(other, path));
            if let Some(other) = wanted.iter().find(meets) {
                let words = "would be written to the same file, or to its .part file; fetch it with -o FILE";
                return Err(Usage(format!("{text}: it and {} {words}", other.url)).into());
            }
        }
        wanted.push(RequestedFile {
            url: text.clone(),
            path: url.path_and_query().to_owned(),
            place,
            bytes: None,
        });
    }
    Ok(wanted)
}

/// The name of a file: the last part of its URL's path, verbatim.
fn name<'a>(text: &str, url: &'a Url) -> Result<&'a str, Usage> {
    let path = url.path_and_query().split('?').next().unwrap_or_default();
    match path.rsplit('/').next().unwrap_or_default() {
        "" | "." | ".." => Err(Usage(format!("{text}: the URL names no file; give -o FILE"))),
        name => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_that_its_url_ends_with_or_needs_one() {
        let of = |text: &str| name(text, &text.parse().unwrap()).map(str::to_owned).ok();
        assert_eq!(of("http://a/b/data.tar?x=/y"), Some("data.tar".to_owned()));
        assert_eq!(of("http://a/%2e%2e"), Some("%2e%2e".to_owned()));
        for bad in ["http://a", "http://a/b/", "http://a/b/..", "http://a/."] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
