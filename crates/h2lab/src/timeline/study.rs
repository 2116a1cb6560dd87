//! Runs a study of waterfalls: starts each server in front of our origin in each of the ways that are asked for, and asks it
//! for each of its pages.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use h2lab_core::timeline::Waterfall;
use h2lab_core::timeline::study::{Announcement, Asked, Case, Missing, Row, Source, Study, StudyTable};
use h2lab_core::units::millis_f64;
use h2lab_core::workload::Protocol;

use super::chain::{Chain, ChainError, Link, Wanted};
use super::exchange::{Asking, exchange};
use crate::io::clock::Clock;
use crate::load::LoadSpec;
use crate::sut::{self, Page, Pages, Sut, SutError};

/// What makes the request for a path of a chain's first server.
pub type SpecOf<'a> = dyn Fn(&Chain, Protocol, &str, Clock) -> anyhow::Result<LoadSpec<'static>> + 'a;

/// A study that is being run.
pub struct Runner<'a> {
    /// What is asked for.
    pub study: &'a Study,
    /// Where the servers' files go. Servers that change their user read them: others must be able to get there.
    pub folder: &'a Path,
    /// Makes requests.
    pub spec: &'a SpecOf<'a>,
    /// Set to end early.
    pub stop: &'a AtomicBool,
    /// Told of each row before it is made: its words, rows so far.
    pub progress: &'a mut dyn FnMut(&Case, usize),
}

impl Runner<'_> {
    /// Runs it. A server that is not there or cannot do what is asked is told as missing.
    pub fn run(mut self) -> anyhow::Result<StudyTable> {
        let asked = &self.study.timeline;
        let mut table = StudyTable {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            claim: self.study.claim.clone(),
            protocol: asked.protocol,
            backend_delay_ms: millis_f64(asked.backend_delay),
            cgi_delay_ms: millis_f64(asked.cgi_delay),
            interrupted: false,
            rows: Vec::new(),
            missing: Vec::new(),
            original: asked.original.clone(),
        };
        for name in &asked.servers {
            let server: Link = name.parse().map_err(ChainError::Order)?;
            let sut = sut::find(&server.server)?;
            let mut cases_made = Vec::new();
            for setting in settings(sut, asked) {
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                match self.ask(sut, &server, setting, &mut cases_made, table.rows.len()) {
                    Ok(rows) => table.rows.extend(rows),
                    Err(error) => table.missing.push(missing(&server.server, setting.backend, error)?),
                }
            }
        }
        table.missing.dedup();
        table.interrupted = self.stop.load(Ordering::Relaxed);
        Ok(table)
    }

    /// All rows of a server in one of its settings.
    fn ask(
        &mut self,
        sut: &dyn Sut,
        server: &Link,
        setting: Setting,
        made: &mut Vec<Case>,
        done: usize,
    ) -> anyhow::Result<Vec<Row>> {
        let asked = &self.study.timeline;
        let pages = Pages { slow: asked.backend_delay, cgi: asked.cgi_delay };
        let mut links = vec![server.clone()];
        if sut.is_proxy() {
            links.push(Link { server: "origin".to_owned(), protocol: Some(setting.backend) });
        }
        let wanted = Wanted {
            links: &links,
            protocol: asked.protocol,
            early_hints: setting.early_hints.unwrap_or(false),
            pages: Some(pages),
            folder: self.folder,
        };
        let clock = Clock::start();
        let chain = Chain::start(wanted, clock)?;
        let mut rows = Vec::new();
        for case in cases(sut, asked, setting) {
            // A page that does not depend on what is behind is the same with another server behind.
            if made.contains(&case) || self.stop.load(Ordering::Relaxed) {
                continue;
            }
            (self.progress)(&case, done + rows.len());
            let spec = (self.spec)(&chain, asked.protocol, &case.path, clock)?;
            let row = self.row(&chain, case.clone(), &spec)?;
            if row.runs > 0 {
                rows.push(row);
            }
            made.push(case);
        }
        Ok(rows)
    }

    fn row(&self, chain: &Chain, case: Case, spec: &LoadSpec<'static>) -> anyhow::Result<Row> {
        let asked = &self.study.timeline;
        let asking = Asking { push: true, patience: asked.timeout };
        let mut runs: Vec<Waterfall> = Vec::new();
        // The first one finds everything cold, and is not counted.
        for n in 0..=asked.runs {
            let run = exchange(&LoadSpec { stop: Some(self.stop), ..spec.clone() }, asking, |_| ())?;
            let is_hopeless = run.failed.is_some();
            if is_hopeless && self.stop.load(Ordering::Relaxed) {
                break; // a signal ended it, which says nothing of the server
            }
            if n > 0 || is_hopeless {
                runs.push(run);
            }
            if is_hopeless || self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(Row::of(case, chain.version(), &runs))
    }
}

/// How a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    backend: Protocol,
    /// `None` where there is no switch.
    early_hints: Option<bool>,
}

fn settings(sut: &dyn Sut, asked: &Asked) -> Vec<Setting> {
    let hints: Vec<Option<bool>> = if sut.has_hints_switch() {
        asked.early_hints.iter().copied().map(Some).collect()
    } else {
        vec![None]
    };
    // A server that is no proxy has nothing behind it.
    let backends = if sut.is_proxy() { &asked.backends[..] } else { &asked.backends[..1] };
    let with = |early_hints: &Option<bool>| {
        let early_hints = *early_hints;
        backends.iter().map(move |backend| Setting { backend: *backend, early_hints }).collect::<Vec<_>>()
    };
    hints.iter().flat_map(with).collect()
}

/// What a server is asked for in a setting.
fn cases(sut: &dyn Sut, asked: &Asked, setting: Setting) -> Vec<Case> {
    let own = sut.pages().into_iter().map(|page| {
        let Page { source, announcement, setting: words, path } = page;
        let backend = matches!(source, Source::Proxy | Source::SlowProxy).then_some(setting.backend);
        let (server, early_hints) = (sut.name().to_owned(), setting.early_hints);
        Case { server, backend, early_hints, source, announcement, setting: words.to_owned(), path }
    });
    let ms = asked.backend_delay.as_millis();
    let behind = [
        (
            Announcement::BackendLink,
            "Link on the response",
            format!("/early?at=none&on=final&links=2&ms={ms}"),
        ),
        (Announcement::BackendHints, "103 with Link", format!("/early?links=2&ms={ms}")),
    ]
    .map(|(announcement, words, path)| Case {
        server: sut.name().to_owned(),
        backend: Some(setting.backend),
        early_hints: setting.early_hints,
        source: Source::SlowProxy,
        announcement,
        setting: words.to_owned(),
        path,
    });
    let behind = behind.into_iter().filter(|_| sut.is_proxy());
    own.chain(behind).collect()
}

/// What is told of a server that could not be asked; another error ends the study.
fn missing(server: &str, backend: Protocol, error: anyhow::Error) -> anyhow::Result<Missing> {
    match error.downcast_ref::<ChainError>() {
        Some(
            ChainError::Sut(SutError::Missing { .. } | SutError::Unsupported { .. }) | ChainError::Order(_),
        ) => Ok(Missing { server: server.to_owned(), backend, why: error.to_string() }),
        _ => Err(error),
    }
}

impl std::fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("study", &self.study.claim).finish_non_exhaustive()
    }
}
