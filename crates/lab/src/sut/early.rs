//! How servers are configured for `h2lab timeline`: to forward 103, and to have pages that announce what they need.

use std::fmt::Write as _;
use std::time::Duration;

use h2lab_model::timeline::study::{Announcement, PageSource};

/// Whether a server sends early hints and early pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Early {
    /// Send or forward 103, and push what Link fields name, where a server does that only by configuration.
    pub hints: bool,
    /// Have pages of its own.
    pub pages: Option<Pages>,
}

/// Pages of a server's own, see [`Page`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// How long the slow upstream takes.
    pub slow: Duration,
    /// How long a CGI program takes.
    pub cgi: Duration,
}

/// What a page needs: two style sheets, which every server has under these paths if it has pages.
pub const RESOURCES: [&str; 2] = ["/pages/1.css", "/pages/2.css"];

/// The folder, in the server's own, of the pages that are files.
pub const FOLDER: &str = "pages";

/// A page that a server is configured to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Where it comes from.
    pub source: PageSource,
    /// How the resources that it needs are announced.
    pub announcement: Announcement,
    /// The setting for that, in the server's syntax.
    pub setting: &'static str,
    /// Where it is.
    pub path: String,
}

impl Page {
    /// A page whose path is made from its name: `/pages/slow-proxy-early`.
    pub fn new(source: PageSource, announcement: Announcement, setting: &'static str) -> Self {
        let from = match source {
            PageSource::File => "file",
            PageSource::Proxy => "proxy",
            PageSource::SlowProxy => "slow-proxy",
            PageSource::Cgi => "cgi",
            PageSource::Handler => "handler",
        };
        let by = if announcement == Announcement::Early { "early" } else { "link" };
        Self { source, announcement, setting, path: format!("/{FOLDER}/{from}-{by}") }
    }

    /// Pages from each of these sources: one with Link fields that `link` adds, one that `early` announces early.
    pub fn both(sources: &[PageSource], link: &'static str, early: &'static str) -> Vec<Self> {
        let of = |source: &PageSource| {
            [Self::new(*source, Announcement::Link, link), Self::new(*source, Announcement::Early, early)]
        };
        sources.iter().flat_map(of).collect()
    }

    /// The upstream's path, if the page comes from there.
    pub fn behind(&self, pages: Pages) -> Option<String> {
        match self.source {
            PageSource::Proxy => Some("/bytes/4k".to_owned()),
            PageSource::SlowProxy => Some(format!("/delay/{}", pages.slow.as_millis())),
            PageSource::File | PageSource::Cgi | PageSource::Handler => None,
        }
    }
}

/// The value of a Link field that announces `resource`.
pub fn link_to(resource: &str) -> String {
    format!("<{resource}>; rel=preload; as=style")
}

/// The files of these pages and of what they need: path below the server's folder, and text.
pub fn files(pages: &[Page], options: Pages) -> Vec<(String, String)> {
    if pages.is_empty() {
        return Vec::new();
    }
    let sheet = |resource: &&str| (resource.trim_start_matches('/').to_owned(), filler(4096));
    let mut files: Vec<(String, String)> = RESOURCES.iter().map(sheet).collect();
    for page in pages {
        let text = match page.source {
            PageSource::File => "<!doctype html><title>a page</title>\n".to_owned(),
            PageSource::Cgi => program(options.cgi),
            PageSource::Proxy | PageSource::SlowProxy | PageSource::Handler => continue,
        };
        files.push((page.path.trim_start_matches('/').to_owned(), text));
    }
    files
}

/// A program that waits for this long, then answers.
fn program(time: Duration) -> String {
    format!(
        "#!/bin/sh\nsleep {}\nprintf 'Content-Type: text/html\\r\\n\\r\\n<!doctype html><title>a page</title>\\n'\n",
        time.as_secs_f64()
    )
}

/// A style sheet of this many bytes.
fn filler(bytes: usize) -> String {
    let mut text = String::new();
    let mut line = 0;
    while text.len() < bytes {
        let _ = writeln!(text, "/* {line:04} */");
        line += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_paths_of_their_own_and_files_where_they_are_files() {
        let pages = Page::both(&[PageSource::File, PageSource::SlowProxy, PageSource::Cgi], "Header", "Push");
        let paths: std::collections::BTreeSet<&str> = pages.iter().map(|page| page.path.as_str()).collect();
        assert_eq!(paths.len(), 6);
        let options = Pages { slow: Duration::from_millis(80), cgi: Duration::from_millis(60) };
        let files = files(&pages, options);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "pages/1.css",
                "pages/2.css",
                "pages/file-link",
                "pages/file-early",
                "pages/cgi-link",
                "pages/cgi-early"
            ]
        );
        assert!(files[4].1.starts_with("#!/bin/sh\nsleep 0.06\n"), "{}", files[4].1);
        assert_eq!(pages[2].behind(options).as_deref(), Some("/delay/80"));
        assert_eq!(pages[0].behind(options), None);
    }
}
