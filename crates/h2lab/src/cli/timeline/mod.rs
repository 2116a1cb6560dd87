//! `h2lab timeline`: when each thing happened in one exchange, at one server or at each of a chain.

mod files;
mod hops;
mod request;
pub mod study;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use clap::Args;
use h2lab_model::timeline::Waterfall;
use h2lab_report::{TimelineAsked, TimelineDocument, timeline_document, timeline_text};

use super::asking::{self, AskArgs};
use super::exit::Usage;
use super::values::whole;
use super::{Exit, help, output, quotable, reach, rights, signals, tls};
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::privileges;
use h2lab_roles::load::LoadSpec;
use h2lab_roles::timeline::chain::Link;
use h2lab_roles::timeline::{Asking, exchange, or_failed};
use request::prepare;

/// Show when each event of one exchange happened: TLS, SETTINGS, 103, promises, DATA
///
/// Makes one request on a new connection and shows for each stream when it was promised or requested, and when each
/// interim response (103 Early Hints), the response, and its first and last DATA arrived, in milliseconds since the client
/// began to connect. With -n, repeats that and shows medians and their spread. Pushed responses are accepted
/// and waited for, unless --no-push is given.
///
/// With --hops, starts a chain of real proxies in front of the built-in origin; URL is then a path. For each server, shows
/// whether it forwarded, delayed or dropped 103 and pushes, or broke the response. A listener in front
/// of each server reads the same exchange; no second request is made.
///
/// Tries HTTP/2, then HTTP/1.1 if the server does not speak HTTP/2, unless a flag names the protocol.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab timeline https://service.example/", "one exchange as a waterfall"),
        ("h2lab timeline https://service.example/ -n 11 -o page.html", "medians of eleven, and a picture"),
        ("h2lab timeline https://service.example/ --no-push --json", "a client that refuses push, for scripts"),
        ("h2lab timeline '/early?ms=80' --hops haproxy,nginx", "which of the two forwards a 103?"),
        ("h2lab timeline '/early?at=0,20,40&ms=80' --hops apache,origin/h2c --early-hints", "three runs, in h2c"),
    ],
))]
pub struct TimelineArgs {
    /// The server (http:// or https://) and the path; with --hops the path [default: /early]
    #[arg(required_unless_present = "hops", value_parser = reach::url_text())]
    url: Option<String>,
    /// Runs, each on a new connection
    #[arg(short, long, default_value_t = 1, value_parser = whole::<u32>(1..=10_000))]
    n: u32,
    /// Refuse push, as most clients do (`SETTINGS_ENABLE_PUSH` = 0)
    #[arg(long, conflicts_with = "push")]
    no_push: bool,
    /// Proxies from the client to the built-in origin at the end: haproxy,nginx or apache,origin/h2c
    ///
    /// NAME/h2c receives HTTP/2 from the hop in front of it; the default is HTTP/1.1. The first receives the protocol of
    /// --proto [default: h2c].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    hops: Vec<Link>,
    /// Configure proxies to forward 103 and to push what Link fields name, if that is not their default
    #[arg(long, requires = "hops")]
    early_hints: bool,
    /// Keep the proxies' configurations and logs in this folder
    #[arg(long, value_name = "DIR", requires = "hops")]
    logs: Option<PathBuf>,
    #[command(flatten)]
    ask: AskArgs,
    /// One JSON document on stdout instead of text
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Also write a picture or the document; the extension sets the format: .html .svg .json; repeatable
    #[arg(
        short = 'o',
        long = "output",
        visible_alias = "html",
        value_name = "FILE",
        help_heading = "Output"
    )]
    files: Vec<PathBuf>,
}

/// Makes the requests and reports.
pub fn main(args: &TimelineArgs) -> Result<Exit> {
    files::check(&args.files)?;
    tls::announce_key_log()?;
    let stop = signals::stop_flag()?;
    let document = if args.hops.is_empty() { at_a_server(args, &stop)? } else { hops::along(args, &stop)? };
    files::write(&args.files, &document)?;
    let text = if args.json {
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        timeline_text(&document, output::style())
    };
    output::print(&text)?;
    conclude(&document)
}

/// A server that left a request unanswered counts as unreachable, as with `trace`; behind hops that is a result.
fn conclude(document: &TimelineDocument) -> Result<Exit> {
    if document.asked.interrupted {
        return Ok(Exit::Interrupted);
    }
    let left = document.runs - document.answered;
    if left > 0 && document.legs.is_empty() {
        let why =
            document.each.iter().find_map(|run| run.failed.as_deref()).unwrap_or("no response received");
        let which = match document.answered {
            0 => "no request was answered".to_owned(),
            _ => format!("{left} of {} requests not answered", document.runs),
        };
        let message = format!("{}: {which}: {why}", document.asked.url);
        return Err(Failure { kind: FailureKind::Unreachable, message }.into());
    }
    Ok(Exit::Done)
}

/// The exchange with a live server.
fn at_a_server(args: &TimelineArgs, stop: &AtomicBool) -> Result<TimelineDocument> {
    let text = args.url.as_deref().unwrap_or_default();
    let url = reach::template_url(text, args.ask.client.request.template)?;
    let protocols = args.ask.protocols(&url)?;
    rights::reduce(privileges::NONE)?;
    let mut spec = args.ask.spec(text, &url)?;
    prepare(&mut spec, protocols[0]);
    let asking = asking_of(args);
    let once =
        |spec: &LoadSpec<'static>| exchange(&LoadSpec { stop: Some(stop), ..spec.clone() }, asking, |_| ());
    let mut first = once(&spec);
    if let Err(error) = &first
        && let Some(next) = asking::next_choice(&protocols, error)
    {
        say!("{}", quotable(&format!("{url}: {error}; trying {next}")));
        prepare(&mut spec, next);
        first = once(&spec);
    }
    let first = first.map_err(|error| asking::failure(&error))?;
    let mut runs = vec![first];
    while (runs.len() as u32) < args.n && !stop.load(Ordering::Relaxed) {
        let run = or_failed(once(&spec)).map_err(|error| asking::failure(&error))?;
        if is_cut(&run, stop) {
            break;
        }
        runs.push(run);
    }
    let request = &args.ask.client.request;
    for stream in runs.iter_mut().flat_map(|run| &mut run.streams) {
        stream.path = request.url_as_shown(&stream.path).into_owned();
    }
    let asked = asked(args, &request.url_as_shown(text), &spec, stop);
    Ok(timeline_document(asked, runs, (Vec::new(), Vec::new())))
}

/// Whether a signal ended this run, which then has no result.
fn is_cut(run: &Waterfall, stop: &AtomicBool) -> bool {
    run.failed.is_some() && stop.load(Ordering::Relaxed)
}

const fn asking_of(args: &TimelineArgs) -> Asking {
    Asking { push: !args.no_push, timeout: args.ask.timeout }
}

fn asked(args: &TimelineArgs, url: &str, spec: &LoadSpec<'_>, stop: &AtomicBool) -> TimelineAsked {
    TimelineAsked {
        url: url.to_owned(),
        protocol: spec.cell.protocol,
        method: spec.cell.work.method.clone(),
        push: !args.no_push,
        interrupted: stop.load(Ordering::Relaxed),
    }
}

/// Refuses what has no meaning with the other flags.
fn refuse<T>(text: impl Into<String>) -> Result<T> {
    Err(Usage(text.into()).into())
}
