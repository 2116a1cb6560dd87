//! Runs a study of waterfalls: starts each server in front of our origin in each of the given settings, and requests
//! each of its pages.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use h2lab_base::units::millis_f64;
use h2lab_model::timeline::Waterfall;
use h2lab_model::timeline::study::{
    Announcement, MissingServer, PageSource, StudyTable, TimelineCase, TimelineMatrix, TimelineRow,
    TimelineStudy,
};
use h2lab_model::workload::Protocol;

use super::chain::{ChainError, ChainSpec, Link, ServerChain};
use super::exchange::{Asking, exchange, or_failed};
use crate::load::LoadSpec;
use h2lab_lab::sut;
use h2lab_lab::sut::{Page, Pages, Sut};
use h2lab_net::clock::Clock;

/// Makes the request for a path of a chain's first server.
pub type SpecOf<'a> = dyn Fn(&ServerChain, Protocol, &str, Clock) -> anyhow::Result<LoadSpec<'static>> + 'a;

/// A study that is being run.
pub struct Runner<'a> {
    /// The study.
    pub study: &'a TimelineStudy,
    /// Where the servers' files go. Servers that change their user read them, so other users must have access.
    pub folder: &'a Path,
    /// Makes requests.
    pub spec: &'a SpecOf<'a>,
    /// Set to end early.
    pub stop: &'a AtomicBool,
    /// Called before each row with the row and the number of rows so far.
    pub progress: &'a mut dyn FnMut(&TimelineCase, usize),
}

/// The result of a study.
#[derive(Debug)]
pub struct Studied {
    /// Everything that was measured.
    pub table: StudyTable,
    /// What ended it early, if anything did.
    pub failure: Option<anyhow::Error>,
}

impl Runner<'_> {
    /// Runs the study. A server that is not installed, does not start or does not support a setting is reported as
    /// missing. An error returned here is an error in the file: no request was made.
    pub fn run(mut self) -> anyhow::Result<Studied> {
        let asked = &self.study.timeline;
        let mut table = StudyTable {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            claim: self.study.claim.clone(),
            protocol: asked.protocol,
            runs: asked.runs,
            backend_delay_ms: millis_f64(asked.backend_delay),
            cgi_delay_ms: millis_f64(asked.cgi_delay),
            interrupted: false,
            rows: Vec::new(),
            missing: Vec::new(),
            original: asked.original.clone(),
        };
        let server = |name: &String| -> Result<(Link, &'static dyn Sut), ChainError> {
            let link: Link = name.parse().map_err(ChainError::Order)?;
            let sut = sut::find(&link.server)?;
            Ok((link, sut))
        };
        let servers = asked.servers.iter().map(server).collect::<Result<Vec<_>, _>>()?;
        let mut failure = None;
        for (link, sut) in &servers {
            let mut made = Vec::new();
            for setting in settings(*sut, asked) {
                if failure.is_some() || self.stop.load(Ordering::Relaxed) {
                    break;
                }
                let Err(error) = self.ask(*sut, link, setting, &mut made, &mut table.rows) else { continue };
                match missing(&link.server, setting.backend, error) {
                    Ok(missing) => table.missing.push(missing),
                    Err(error) => failure = Some(error),
                }
            }
        }
        table.missing.dedup();
        table.interrupted = self.stop.load(Ordering::Relaxed);
        Ok(Studied { table, failure })
    }

    /// Makes all rows of a server in one of its settings. Rows that exist when something fails are kept.
    fn ask(
        &mut self,
        sut: &dyn Sut,
        server: &Link,
        setting: Setting,
        made: &mut Vec<TimelineCase>,
        rows: &mut Vec<TimelineRow>,
    ) -> anyhow::Result<()> {
        let asked = &self.study.timeline;
        let pages = Pages { slow: asked.backend_delay, cgi: asked.cgi_delay };
        let mut links = vec![server.clone()];
        if sut.is_proxy() {
            links.push(Link { server: "origin".to_owned(), protocol: Some(setting.backend) });
        }
        let wanted = ChainSpec {
            links: &links,
            protocol: asked.protocol,
            early_hints: setting.early_hints.unwrap_or(false),
            pages: Some(pages),
            folder: self.folder,
        };
        let clock = Clock::start();
        let chain = ServerChain::start(wanted, clock)?;
        for case in cases(sut, asked, setting) {
            // A page that does not depend on the server behind is the same with any server behind.
            if made.contains(&case) || self.stop.load(Ordering::Relaxed) {
                continue;
            }
            (self.progress)(&case, rows.len());
            let spec = (self.spec)(&chain, asked.protocol, &case.path, clock)?;
            let asking = Asking { push: true, timeout: asked.timeout };
            let once =
                || or_failed(exchange(&LoadSpec { stop: Some(self.stop), ..spec.clone() }, asking, |_| ()));
            let runs = series(asked.runs, || self.stop.load(Ordering::Relaxed), once)?;
            if !runs.is_empty() {
                rows.push(TimelineRow::of(case.clone(), chain.version(), &runs));
            }
            made.push(case);
        }
        Ok(())
    }
}

/// `wanted` runs of an exchange, after one that warms up and is not counted. If the warm-up fails, it is the only run:
/// the others would also fail, and take time. A failure after a success is a run like all others.
fn series<E>(
    wanted: u32,
    is_stopped: impl Fn() -> bool,
    mut once: impl FnMut() -> Result<Waterfall, E>,
) -> Result<Vec<Waterfall>, E> {
    let mut runs = Vec::new();
    for n in 0..=wanted {
        let run = once()?;
        let has_failed = run.failed.is_some();
        if has_failed && is_stopped() {
            break; // a signal ended it, which says nothing of the server
        }
        if n > 0 || has_failed {
            runs.push(run);
        }
        if (n == 0 && has_failed) || is_stopped() {
            break;
        }
    }
    Ok(runs)
}

/// How a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    backend: Protocol,
    /// `None` if the server has no switch.
    early_hints: Option<bool>,
}

fn settings(sut: &dyn Sut, asked: &TimelineMatrix) -> Vec<Setting> {
    let hints: Vec<Option<bool>> = if sut.about().has_hints_switch {
        asked.early_hints.iter().copied().map(Some).collect()
    } else {
        vec![None]
    };
    // A server that is not a proxy has nothing behind it.
    let backends = if sut.is_proxy() { &asked.backends[..] } else { &asked.backends[..1] };
    let with = |early_hints: &Option<bool>| {
        let early_hints = *early_hints;
        backends.iter().map(move |backend| Setting { backend: *backend, early_hints }).collect::<Vec<_>>()
    };
    hints.iter().flat_map(with).collect()
}

/// The requests to a server in a setting.
fn cases(sut: &dyn Sut, asked: &TimelineMatrix, setting: Setting) -> Vec<TimelineCase> {
    let ms = asked.backend_delay.as_millis();
    let own = sut.pages().into_iter().map(|page| {
        let Page { source, announcement, setting: words, path } = page;
        // A handler in the server itself takes as long as a server behind it.
        let path = if source == PageSource::Handler { format!("{path}&ms={ms}") } else { path };
        let backend = matches!(source, PageSource::Proxy | PageSource::SlowProxy).then_some(setting.backend);
        let (server, early_hints) = (sut.name().to_owned(), setting.early_hints);
        TimelineCase { server, backend, early_hints, source, announcement, setting: words.to_owned(), path }
    });
    let behind = [
        (
            Announcement::BackendLink,
            "Link on the response",
            format!("/early?at=none&on=final&links=2&ms={ms}"),
        ),
        (Announcement::BackendHints, "103 with Link", format!("/early?links=2&ms={ms}")),
    ]
    .map(|(announcement, words, path)| TimelineCase {
        server: sut.name().to_owned(),
        backend: Some(setting.backend),
        early_hints: setting.early_hints,
        source: PageSource::SlowProxy,
        announcement,
        setting: words.to_owned(),
        path,
    });
    let behind = behind.into_iter().filter(|_| sut.is_proxy());
    own.chain(behind).collect()
}

/// The row of a server that could not be measured; any other error ends the study.
fn missing(server: &str, backend: Protocol, error: anyhow::Error) -> anyhow::Result<MissingServer> {
    match error.downcast_ref::<ChainError>() {
        Some(ChainError::Sut(_) | ChainError::Order(_)) => {
            Ok(MissingServer { server: server.to_owned(), backend, why: error.to_string() })
        }
        _ => Err(error),
    }
}

impl std::fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("study", &self.study.claim).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use h2lab_lab::sut::SutError;

    /// Whether each of `wanted` runs failed, if the exchanges with the numbers `failing` fail; the first has number 0.
    fn failures(wanted: u32, failing: &[u32]) -> Vec<bool> {
        let n = Cell::new(0);
        let once = || {
            let has_failed = failing.contains(&n.get());
            n.set(n.get() + 1);
            Ok::<_, ()>(Waterfall { failed: has_failed.then(|| "x".to_owned()), ..Waterfall::default() })
        };
        series(wanted, || false, once).unwrap().iter().map(|run| run.failed.is_some()).collect()
    }

    #[test]
    fn a_failure_ends_a_series_only_if_nothing_has_succeeded() {
        assert_eq!(failures(3, &[]), [false; 3]);
        assert_eq!(failures(3, &[0]), [true], "the others would fail alike");
        assert_eq!(failures(3, &[2]), [false, true, false]);
    }

    #[test]
    fn what_a_signal_ended_is_no_run() {
        let stopped = Cell::new(false);
        let once = || {
            let failed = stopped.replace(true).then(|| "x".to_owned());
            Ok::<_, ()>(Waterfall { failed, ..Waterfall::default() })
        };
        assert!(series(3, || stopped.get(), once).unwrap().is_empty());
    }

    #[test]
    fn a_server_that_does_not_start_is_missing_and_costs_no_other_its_rows() {
        let not_started = SutError::Io { server: "caddy", source: std::io::Error::other("no port") };
        let rendered = missing("caddy", Protocol::H1, ChainError::from(not_started).into()).unwrap();
        assert!(rendered.why.contains("no port"), "{rendered:?}");
        let ours = ChainError::Io(std::io::Error::other("no descriptor"));
        assert!(missing("caddy", Protocol::H1, ours.into()).is_err(), "that is this machine's");
    }

    #[test]
    fn a_handler_takes_as_long_as_a_server_behind() {
        let asked = TimelineStudy::from_toml(
            "claim = 'x'\n[timeline]\nservers = ['origin']\nbackends = ['h1']\nearly-hints = [false]\n\
             backend-delay = '33ms'\ncgi-delay = '1ms'",
        )
        .unwrap()
        .timeline;
        let setting = Setting { backend: Protocol::H1, early_hints: None };
        let cases = cases(&sut::origin::Origin, &asked, setting);
        assert_eq!(cases.len(), 3);
        for case in cases {
            assert!(case.path.ends_with("&ms=33"), "{}", case.path);
        }
    }
}
