//! `h2lab trace`: every frame of a few requests, with its time and what is in it.

pub mod document;
mod lines;
mod selection;
mod view;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::workload::{Arrival, Protocol};

use super::asking::{self, AskArgs};
use super::values::{duration, whole};
use super::{Exit, help, output, quotable, reach, rights, signals, tls};
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::privileges;
use h2lab_roles::client::url::Url;
use h2lab_roles::load;
use h2lab_roles::load::{LoadError, LoadResult, LoadSpec, Watching};
use selection::{Elision, FrameType};
use view::{TraceFormat, TraceView};

/// Show every frame of a few requests, with its time and contents
///
/// Makes requests to a live server and shows live how each connection is established, what each side sends (in Wireshark's
/// spelling: `HEADERS[1]` is on stream 1; HTTP/1.1 heads and bodies are shown in the same terms), and why it ends. Of secret
/// fields (authorization, cookies, those of -H) only the length is shown, and of queries no values, unless --secrets is given.
///
/// Tries HTTP/2, then HTTP/1.1 if the server does not speak HTTP/2, unless a flag names the protocol.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab trace https://service.example/", "one request, all frames"),
        ("h2lab trace -k https://proxy.example/ -n 1001", "when does the proxy close the connection, and how?"),
        ("h2lab trace http://service:8080/ -v --only HEADERS,GOAWAY", "all header fields, HEADERS and GOAWAY only"),
        ("h2lab trace http://service:8080/ -n 10 -m 10 --json", "ten at a time, for scripts"),
    ],
))]
pub struct TraceArgs {
    /// The server (http:// or https://) and the path
    #[arg(value_parser = reach::url_text())]
    url: String,
    /// Requests
    #[arg(short, long, default_value_t = 1, value_parser = whole::<u32>(1..))]
    n: u32,
    /// Connections
    #[arg(short, long, default_value_t = 1, value_parser = whole::<u32>(1..=1_000))]
    connections: u32,
    /// Maximum concurrent streams per connection
    #[arg(short = 'm', long, default_value_t = 1, value_parser = whole::<u32>(1..=100_000))]
    streams: u32,
    /// Keep connections open for this long after the last response, to see what the server does
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    linger: Duration,
    /// Do not send requests again that the server certainly did not process; they fail (see `load --help`)
    #[arg(long)]
    no_replay: bool,
    #[command(flatten)]
    ask: AskArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// What is shown, and how.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
#[allow(clippy::struct_excessive_bools, reason = "they are flags of the command line")]
struct ShowArgs {
    /// Show all header fields and settings, one per line
    #[arg(short, long)]
    verbose: bool,
    /// Show only frames of these types, such as HEADERS,GOAWAY
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    only: Vec<FrameType>,
    /// Show the first N frames; with --tail, the last ones too
    #[arg(long, value_name = "N", value_parser = whole::<usize>(0..), conflicts_with_all = ["elide", "all"])]
    head: Option<usize>,
    /// Show the last N frames
    #[arg(long, value_name = "N", value_parser = whole::<usize>(0..), conflicts_with_all = ["elide", "all"])]
    tail: Option<usize>,
    /// Omit the middle of long runs of frames (the default on a terminal)
    #[arg(long, conflicts_with = "all")]
    elide: bool,
    /// Show all frames
    #[arg(long)]
    all: bool,
    /// One JSON document on stdout, at the end, of at most 100,000 frames; --jsonl has no limit
    #[arg(long)]
    json: bool,
    /// One JSON object per line for each frame, live
    #[arg(long, conflicts_with = "json")]
    jsonl: bool,
}

impl ShowArgs {
    const fn format(&self) -> TraceFormat {
        match (self.json, self.jsonl) {
            (true, _) => TraceFormat::Json,
            (_, true) => TraceFormat::JsonLines,
            _ => TraceFormat::Text,
        }
    }

    /// What is left out.
    fn elision(&self, is_terminal: bool) -> Elision {
        match (self.head, self.tail) {
            (None, None) if self.all => Elision::Nothing,
            (None, None) if self.elide || (is_terminal && self.format() == TraceFormat::Text) => {
                Elision::Middle
            }
            (None, None) => Elision::Nothing,
            (head, tail) => Elision::Between { head: head.unwrap_or(0), tail: tail.unwrap_or(0) },
        }
    }
}

/// Traces.
pub fn main(args: &TraceArgs) -> Result<Exit> {
    let url = reach::template_url(&args.url, args.ask.client.request.template)?;
    let protocols = args.ask.protocols(&url)?;
    rights::reduce(privileges::NONE)?;
    tls::announce_key_log()?;
    let mut spec = spec(args, &url)?;
    let stop = signals::stop_flag()?;
    let hidden = args.ask.client.request.hidden()?;
    let view = Arc::new(TraceView::new(&args.url, &args.show, hidden, Arc::clone(&stop)));
    let watching = Watching {
        watch: view.clone(),
        accept_push: args.ask.client.engine.push,
        linger: args.linger,
        timeout: args.ask.timeout,
    };
    let mut traced = trace(&mut spec, &view, &watching, &stop, protocols[0]);
    if let Err(error @ LoadError::Unreachable { why, .. }) = &traced
        && let Some(next) = asking::next_choice(&protocols, error)
        && !view.has_met_http2()
        && view.banner().is_none()
    {
        say!("{}", quotable(&format!("{url}: {why}; trying {next}")));
        traced = trace(&mut spec, &view, &watching, &stop, next);
    }
    // A reader that goes away (`| head`) ends the work as a signal does, but is no interruption.
    let interrupted = stop.load(Ordering::Relaxed) && !view.has_no_reader();
    match traced {
        Ok(result) => {
            if let Err(error) = view.finish(&result, interrupted) {
                return unprinted(error);
            }
            conclude(&result, &args.url, interrupted)
                .map_err(|error| not_http(&args.url, &view).unwrap_or(error))
        }
        Err(error) => {
            if let Err(error) = view.abandon(interrupted) {
                return unprinted(error);
            }
            if interrupted {
                return Ok(Exit::Interrupted);
            }
            Err(not_http(&args.url, &view).unwrap_or_else(|| asking::failure(&error).into()))
        }
    }
}

/// Stdout took not all: of what followed nothing is known.
fn unprinted(error: io::Error) -> Result<Exit> {
    Ok(output::printed(Err(error)).map(|()| Exit::Done)?)
}

/// That the server speaks another protocol than HTTP, if what it says is the text of one.
fn not_http(url: &str, view: &TraceView) -> Option<anyhow::Error> {
    let message = format!("{url}: not HTTP: got \"{}\"", view.banner()?);
    Some(Failure { kind: FailureKind::Unreachable, message }.into())
}

/// The requests, but for their protocol.
fn spec(args: &TraceArgs, url: &Url) -> Result<LoadSpec<'static>> {
    let mut spec = args.ask.spec(&args.url, url)?;
    spec.requests = Some(args.n as usize);
    let cell = &mut spec.cell;
    cell.connections = args.connections;
    cell.max_connections = args.connections;
    cell.streams = args.streams;
    cell.work.replay = !args.no_replay;
    Ok(spec)
}

/// Makes the requests in `protocol` and shows what happens.
fn trace(
    spec: &mut LoadSpec<'static>,
    view: &TraceView,
    watching: &Watching,
    stop: &AtomicBool,
    protocol: Protocol,
) -> Result<LoadResult, LoadError> {
    let cell = &mut spec.cell;
    cell.protocol = protocol;
    // A connection of HTTP/1.1 carries one request at a time.
    let at_a_time = if protocol.is_multiplexed() { cell.streams } else { 1 };
    cell.work.arrival = Arrival::Closed { concurrency: cell.connections.saturating_mul(at_a_time) };
    view.begin(protocol);
    load::watch(&LoadSpec { stop: Some(stop), ..spec.clone() }, watching)
}

/// The exit code: a server that left a request unanswered counts as unreachable.
fn conclude(result: &LoadResult, url: &str, interrupted: bool) -> Result<Exit> {
    if interrupted {
        return Ok(Exit::Interrupted);
    }
    let unanswered = || result.samples.iter().filter(|sample| !sample.outcome.is_complete());
    let Some(first) = unanswered().next() else { return Ok(Exit::Done) };
    let (left, all, outcome) = (unanswered().count(), result.samples.len(), first.outcome.kind());
    let message = format!("{url}: {left} of {all} requests not answered; the first ended as `{outcome}`");
    Err(Failure { kind: FailureKind::Unreachable, message }.into())
}
