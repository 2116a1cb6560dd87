//! `bulk serve`: what clients fetch whole or in parts, of a folder or of memory.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use h2lab_core::bulk::Algorithm;
use h2lab_core::units::{Time, parse_bytes};
use h2lab_core::wire::RequestHead;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::body::Body;
use super::digests::{Content, Digests};
use super::folder::{Folder, FolderError, Found};
use super::handler::{Answering, Plan};
use super::range::{Selection, Validators, select};

/// What there is to fetch.
#[derive(Debug)]
enum Store {
    /// `/bytes/N`: so many bytes of filler, no disk on our side.
    Memory,
    /// The files of a folder.
    Folder(Folder),
}

/// The longest `/bytes/N`, 1 PiB: more than a day at 100 Gbit/s, and lengths stay numbers that clients can add.
const MOST_FILLER: u64 = 1 << 50;

/// The longest line of the log, in bytes: what a pipe takes at once whenever it takes anything (`PIPE_BUF`, pipe(7)).
const LONGEST_LINE: usize = 4096;

/// A bulk server's content.
#[derive(Debug)]
pub struct Bulk {
    store: Store,
    digests: Digests,
    /// Whether each request is told on stderr.
    log: bool,
    /// Lines of the log that nobody took.
    lost: AtomicU64,
}

/// A representation that was found.
struct Resource {
    content: Content,
    length: u64,
    validators: Validators,
}

impl Bulk {
    /// Serves `/bytes/N`.
    pub fn memory() -> Self {
        Self::of(Store::Memory)
    }

    /// Serves the files of the folder at `path`.
    pub fn folder(path: &Path) -> io::Result<Self> {
        Ok(Self::of(Store::Folder(Folder::open(path)?)))
    }

    fn of(store: Store) -> Self {
        Self { store, digests: Digests::default(), log: false, lost: AtomicU64::new(0) }
    }

    /// The same, and a line on stderr for each request: status, method, path, and which bytes.
    #[must_use]
    pub fn logged(self, log: bool) -> Self {
        Self { log, ..self }
    }

    /// What a request is answered.
    pub fn route(&self, now: Time, head: &RequestHead<'_>) -> Plan {
        let (plan, bytes) = self.answer(now, head);
        if self.log {
            let text = String::from_utf8_lossy;
            let bytes = bytes.map_or_else(String::new, |bytes| format!(" {}-{}", bytes.start, bytes.end));
            let (method, path) = (text(head.method), text(head.path));
            self.tell(&format!("{} {method} {path}{bytes}", plan.status));
        }
        plan
    }

    /// A line of the log. Whether anybody reads it is no matter of the clients: what is not taken at once is lost, and counted.
    fn tell(&self, line: &str) {
        let lost = self.lost.load(Ordering::Relaxed);
        let before = if lost > 0 { format!("({lost} lines were not read)\n") } else { String::new() };
        if write_if_taken(io::stderr(), &format!("{before}{line}")) {
            self.lost.fetch_sub(lost, Ordering::Relaxed);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn answer(&self, now: Time, head: &RequestHead<'_>) -> (Plan, Option<Range<u64>>) {
        if !matches!(head.method, b"GET" | b"HEAD") {
            let plan = Plan::text(now, 405, "this server has files: GET and HEAD\n");
            return (plan.with("allow", "GET, HEAD"), None);
        }
        match self.find(head.path) {
            Ok(resource) => self.send(now, head, resource),
            Err(error) => {
                let status = match error {
                    FolderError::Malformed | FolderError::TooLong => 400,
                    FolderError::Missing => 404,
                    FolderError::Denied => 403,
                    FolderError::Io(_) => 500,
                };
                (Plan::text(now, status, format!("{error}\n")), None)
            }
        }
    }

    fn find(&self, target: &[u8]) -> Result<Resource, FolderError> {
        let target = std::str::from_utf8(target).map_err(|_| FolderError::Malformed)?;
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        match &self.store {
            Store::Memory => {
                let size = path.strip_prefix("/bytes/").and_then(|size| parse_bytes(size).ok());
                let length = size.ok_or(FolderError::Missing)?;
                if length > MOST_FILLER {
                    return Err(FolderError::TooLong);
                }
                let validators = Validators { etag: format!("\"filler-{length:x}\""), modified: None };
                Ok(Resource { content: Content::Filler, length, validators })
            }
            Store::Folder(folder) => {
                let Found { file, length, validators } = folder.find(path)?;
                Ok(Resource { content: Content::File(file), length, validators })
            }
        }
    }

    /// The answer that carries `resource`, or what is wanted of it; and which bytes that is.
    fn send(&self, now: Time, head: &RequestHead<'_>, resource: Resource) -> (Plan, Option<Range<u64>>) {
        let Resource { content, length, validators } = resource;
        let is_head = head.method == b"HEAD";
        // A range is of GET alone (RFC 9110 §14.2).
        let selection = if is_head { Selection::Whole } else { select(head.fields, length, &validators) };
        let (status, range) = match selection {
            Selection::Whole => (200, 0..length),
            Selection::Part(range) => (206, range),
            Selection::Unsatisfiable => {
                let plan = Plan::text(now, 416, "there is no such range\n");
                return (plan.with("content-range", format!("bytes */{length}")), None);
            }
        };
        let wanted = head.fields.get("want-repr-digest").and_then(|field| std::str::from_utf8(field).ok());
        let algorithm = wanted.map_or(Algorithm::None, Algorithm::wanted);
        let awaited = (algorithm != Algorithm::None).then(|| {
            let digest = self.digests.ask(&validators.etag, algorithm, &content, length);
            // Who wants nothing but the head waits for it; a body is not held up.
            Answering { digest, is_patient: is_head }
        });
        let body = match content {
            Content::Filler => Body::Filler { at: range.start, left: range.end - range.start },
            Content::File(file) => Body::file(file, range.start, range.end - range.start),
        };
        let mut plan = Plan::at_once(now, status, "application/octet-stream", body)
            .with("accept-ranges", "bytes")
            .with("etag", validators.etag);
        if let Some(modified) = validators.modified {
            plan = plan.with("last-modified", modified);
        }
        if status == 206 {
            plan = plan.with("content-range", format!("bytes {}-{}/{length}", range.start, range.end - 1));
        }
        plan.awaited = awaited;
        (plan, Some(range))
    }
}

/// Writes a line if that does not block; says whether it was written. Of a line that is too long the end is left out.
fn write_if_taken(to: impl AsFd, line: &str) -> bool {
    let mut ready = [PollFd::new(&to, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ready, Some(&now)) != Ok(1) || !ready[0].revents().contains(PollFlags::OUT) {
        return false;
    }
    let mut line = line.as_bytes()[..line.len().min(LONGEST_LINE - 1)].to_vec();
    line.push(b'\n');
    rustix::io::write(&to, &line).is_ok()
}

/// What an origin has to offer.
#[derive(Debug, Clone, Default)]
pub enum Site {
    /// The paths of [`super::handler`], which do what tests and comparisons need.
    #[default]
    Paths,
    /// Files.
    Bulk(Arc<Bulk>),
}

impl Site {
    /// What a request is answered; `now` is when it was complete enough to be read: its head.
    pub fn route(&self, now: Time, head: &RequestHead<'_>) -> Plan {
        match self {
            Self::Paths => super::handler::route(now, head),
            Self::Bulk(bulk) => bulk.route(now, head),
        }
    }
}

#[cfg(test)]
mod tests {
    use h2lab_core::wire::Fields;
    use h2lab_core::wire::event::FieldSpan;

    use super::*;

    fn ask(bulk: &Bulk, method: &str, path: &str, field: Option<(&str, &str)>) -> Plan {
        let (name, value) = field.unwrap_or(("x", ""));
        let bytes = [name, value].concat();
        let span = FieldSpan { start: 0, value_start: name.len() as u32, end: bytes.len() as u32 };
        let head = RequestHead {
            method: method.as_bytes(),
            scheme: b"http",
            authority: b"server",
            path: path.as_bytes(),
            protocol: b"",
            fields: Fields::new(bytes.as_bytes(), std::slice::from_ref(&span)),
        };
        bulk.route(Time::ZERO, &head)
    }

    fn field<'a>(plan: &'a Plan, name: &str) -> Option<&'a str> {
        plan.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn memory_is_as_long_as_asked_for_and_has_ranges() {
        let bulk = Bulk::memory();
        let whole = ask(&bulk, "GET", "/bytes/10M", None);
        assert_eq!((whole.status, whole.body.length()), (200, 10 << 20));
        let etag = field(&whole, "etag").unwrap().to_owned();
        let part = ask(&bulk, "GET", "/bytes/10M", Some(("range", "bytes=1048576-1048585")));
        assert_eq!((part.status, part.body.length()), (206, 10));
        assert_eq!(field(&part, "content-range"), Some("bytes 1048576-1048585/10485760"));
        assert_eq!(field(&part, "etag"), Some(etag.as_str()));
        let behind = ask(&bulk, "GET", "/bytes/10M", Some(("range", "bytes=10485760-")));
        assert_eq!((behind.status, field(&behind, "content-range")), (416, Some("bytes */10485760")));
        for (path, status) in [("/bytes/x", 404), ("/bytes/", 404), ("/", 404), ("/other", 404)] {
            assert_eq!(ask(&bulk, "GET", path, None).status, status, "{path}");
        }
    }

    #[test]
    fn memory_has_an_end() {
        let bulk = Bulk::memory();
        assert_eq!(ask(&bulk, "HEAD", "/bytes/1048576G", None).status, 200);
        for more in ["1048577G", "99999999999G"] {
            let want = Some(("want-repr-digest", "sha-512=10"));
            let plan = ask(&bulk, "HEAD", &format!("/bytes/{more}"), want);
            assert_eq!((plan.status, plan.awaited.is_none()), (400, true), "{more}");
        }
    }

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let line = "x".repeat(2 * LONGEST_LINE);
        let written = (0..1_000).take_while(|_| write_if_taken(&writer, &line)).count();
        assert!((1..1_000).contains(&written), "{written}");
        let mut block = vec![0; LONGEST_LINE];
        let read = rustix::io::read(&reader, &mut block).unwrap();
        assert_eq!((read, block[LONGEST_LINE - 1]), (LONGEST_LINE, b'\n'));
        assert!(write_if_taken(&writer, "short") && !write_if_taken(&writer, "and full again"));
    }

    #[test]
    fn a_head_has_no_range_and_waits_for_the_checksum_that_it_wants() {
        let bulk = Bulk::memory();
        let head = ask(&bulk, "HEAD", "/bytes/1M", Some(("range", "bytes=0-9")));
        assert_eq!((head.status, head.body.length()), (200, 1 << 20));
        assert!(head.awaited.is_none());
        let want = Some(("want-repr-digest", "crc32c=10"));
        for (method, is_patient) in [("HEAD", true), ("GET", false)] {
            let awaited = ask(&bulk, method, "/bytes/1M", want).awaited.expect("it is wanted");
            assert_eq!(awaited.is_patient, is_patient, "{method}");
        }
        assert!(ask(&bulk, "GET", "/bytes/1M", Some(("want-repr-digest", "md5=10"))).awaited.is_none());
    }

    #[test]
    fn nothing_is_taken_or_changed() {
        for method in ["PUT", "POST", "DELETE"] {
            let plan = ask(&Bulk::memory(), method, "/bytes/1M", None);
            assert_eq!((plan.status, field(&plan, "allow")), (405, Some("GET, HEAD")), "{method}");
        }
    }
}
