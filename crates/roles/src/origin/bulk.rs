//! `bulk serve`: downloads, whole or in parts, from a folder or from memory, and uploads.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use h2lab_base::secrets::without_url_secrets;
use h2lab_base::text::printable;
use h2lab_base::units::{Time, parse_bytes};
use h2lab_transfer::{Algorithm, upload};
use h2lab_wire::{Fields, RequestHead};
use rustix::fs::FileType;

use super::digests::{Content, Digests};
use super::expiry::Expiry;
use super::folder::{FolderError, ServedFile, ServedFolder};
use super::log::Log;
use super::plan::{Answering, ResponsePlan};
use super::put_content::PutContent;
use super::quota::UploadLimits;
use super::range::{RangeSelection, Validators, select};
use super::refusal::Refusal;
use super::token::BearerToken;
use super::uploads::{Destination, Uploads};
use h2lab_net::storage::{Body, Chunk, FileState, Names};

/// What there is to fetch.
#[derive(Debug)]
enum Store {
    /// `/bytes/N`: so many bytes of filler, no disk on our side.
    Memory,
    /// The files of a folder.
    Folder(Arc<ServedFolder>),
}

/// The longest `/bytes/N`, 1 PiB: more than a day at 100 Gbit/s, and lengths stay numbers that clients can add.
const MOST_FILLER: u64 = 1 << 50;

/// A bulk server's content.
#[derive(Debug)]
pub struct Bulk {
    store: Store,
    digests: Digests,
    /// The uploads; `None` if none are accepted.
    uploads: Option<Arc<Uploads>>,
    /// How much of a body an engine gets at once.
    chunk: Chunk,
    /// The request log, if there is one.
    log: Option<Arc<Log>>,
    /// The token that each request must present, if any.
    token: Option<BearerToken>,
    /// Removes unfinished uploads.
    _expiry: Option<Expiry>,
}

/// A representation that was found.
struct Resource {
    content: Content,
    length: u64,
    validators: Validators,
    /// For a file, its state: a response must not mix two states.
    state: Option<FileState>,
}

impl Bulk {
    /// Serves `/bytes/N`, and discards uploads.
    pub fn memory() -> Self {
        Self { uploads: Some(Arc::default()), ..Self::of(Store::Memory) }
    }

    /// Serves the files of the folder at `path`, and takes others within `uploads`, if that is given.
    pub fn folder(path: &Path, uploads: Option<UploadLimits>) -> io::Result<Self> {
        let store = Store::Folder(Arc::new(ServedFolder::open(path, uploads.is_some())?));
        Ok(Self { uploads: uploads.map(Uploads::new).map(Arc::new), ..Self::of(store) })
    }

    fn of(store: Store) -> Self {
        Self {
            store,
            digests: Digests::default(),
            uploads: None,
            chunk: Chunk::default(),
            log: None,
            token: None,
            _expiry: None,
        }
    }

    /// The same, with `chunk` as the amount of a body that an engine gets at once.
    #[must_use]
    pub fn in_chunks(self, chunk: Chunk) -> Self {
        if let Store::Memory = self.store {
            chunk.prepare_filler();
        }
        Self { chunk, ..self }
    }

    /// Bytes of uploads received.
    pub fn taken(&self) -> u64 {
        self.uploads.as_ref().map_or(0, |uploads| uploads.taken())
    }

    /// The same, and a line on stderr for each request: status, method, path, and which bytes.
    #[must_use]
    pub fn logged(self, log: bool) -> Self {
        Self { log: log.then(Arc::default), ..self }
    }

    /// The same, and requests that do not present `token` are refused, if there is one.
    #[must_use]
    pub fn guarded(self, token: Option<BearerToken>) -> Self {
        Self { token, ..self }
    }

    /// The same, and unfinished uploads that have received nothing for `after` are removed, with a line in the log,
    /// which must be set before this. Fails if the thread cannot be started.
    pub fn expiring(self, after: Duration) -> io::Result<Self> {
        let (Store::Folder(folder), Some(uploads)) = (&self.store, &self.uploads) else { return Ok(self) };
        let expiry = Expiry::start(Arc::clone(uploads), Arc::clone(folder), after, self.log.clone())?;
        Ok(Self { _expiry: Some(expiry), ..self })
    }

    /// Plans the response to a request.
    pub fn route(&self, now: Time, head: &RequestHead<'_>) -> ResponsePlan {
        let (plan, bytes) = self.answer(now, head);
        if let Some(log) = self.log.as_ref().filter(|_| plan.receipt.is_none()) {
            let bytes = bytes.map_or_else(String::new, |bytes| format!(" {}-{}", bytes.start, bytes.end));
            let (method, path) = (printable(head.method), path_as_logged(head.path));
            log.write_out(&format!("{} {method} {path}{bytes}", plan.status));
        }
        plan
    }

    fn answer(&self, now: Time, head: &RequestHead<'_>) -> (ResponsePlan, Option<Range<u64>>) {
        if let Some(refused) = self.token.as_ref().and_then(|token| token.refuse(now, head.fields)) {
            return (refused, None);
        }
        let tag = upload::tag(head.fields).filter(|_| head.method == b"HEAD");
        match (head.method, &self.uploads, tag) {
            (b"HEAD", Some(uploads), Some(tag)) => (self.describe(now, uploads, head, tag), None),
            (b"GET" | b"HEAD", ..) => match self.find(head.path) {
                Ok(resource) => self.send(now, head, resource),
                Err(error) => (Refusal::from(error).plan(now), None),
            },
            (b"PUT", Some(uploads), _) => (self.take(now, uploads, head), None),
            (_, uploads, _) => {
                let allowed = if uploads.is_some() { "GET, HEAD, PUT" } else { "GET, HEAD" };
                let plan = ResponsePlan::text(now, 405, format!("this server has files: {allowed}\n"));
                (ResponsePlan { is_final: true, ..plan.with("allow", allowed) }, None)
            }
        }
    }

    /// Describes what is here of an upload.
    fn describe(&self, now: Time, uploads: &Uploads, head: &RequestHead<'_>, tag: &str) -> ResponsePlan {
        match self.destination(head.path) {
            Ok(destination) => {
                let plan = ResponsePlan::at_once(now, 204, "text/plain", Body::filler(0));
                let fields = upload::to_fields(&uploads.held(&destination, tag));
                fields.into_iter().fold(plan, |plan, (name, value)| plan.with(name, value))
            }
            Err(refusal) => refusal.plan(now),
        }
    }

    /// Takes the content of a PUT.
    fn take(&self, now: Time, uploads: &Arc<Uploads>, head: &RequestHead<'_>) -> ResponsePlan {
        let receipt = PutContent::of(head.fields)
            .and_then(|offer| uploads.begin(now, offer, self.destination(head.path)?));
        match receipt {
            Ok(receipt) => {
                let log = self.log.as_ref().map(|log| (Arc::clone(log), path_as_logged(head.path)));
                let plan = ResponsePlan::at_once(now, 204, "text/plain", Body::filler(0));
                ResponsePlan { receipt: Some(Box::new(receipt.logged(log))), ..plan }
            }
            Err(refusal) => refusal.plan(now),
        }
    }

    /// Where an upload to this path goes.
    fn destination(&self, target: &[u8]) -> Result<Destination, Refusal> {
        let path = path_of(target)?;
        let Store::Folder(folder) = &self.store else { return Ok(Destination::Nowhere(path.to_owned())) };
        let (names, path) = folder.names(path).map_err(|error| match error {
            // RFC 4918 §9.7.1 has this status for a missing collection.
            FolderError::Missing => Refusal::new(409, "no such folder"),
            error => error.into(),
        })?;
        if path.file_name().is_some_and(Names::are_taken) {
            return Err(Refusal::new(403, "names that end like this are those of unfinished uploads"));
        }
        match names.kind().map_err(FolderError::from)? {
            None | Some(FileType::RegularFile) => Ok(Destination::File(names, path)),
            Some(_) => Err(Refusal::new(409, "this name exists and is not a file")),
        }
    }

    fn find(&self, target: &[u8]) -> Result<Resource, FolderError> {
        let path = path_of(target)?;
        match &self.store {
            Store::Memory => {
                let size = path.strip_prefix("/bytes/").and_then(|size| parse_bytes(size).ok());
                let length = size.ok_or(FolderError::Missing)?;
                if length > MOST_FILLER {
                    return Err(FolderError::TooLong);
                }
                let validators = Validators { etag: format!("\"filler-{length:x}\""), modified: None };
                Ok(Resource { content: Content::Filler, length, validators, state: None })
            }
            Store::Folder(folder) => {
                let ServedFile { file, length, validators, state } = folder.find(path)?;
                Ok(Resource { content: Content::File(file), length, validators, state: Some(state) })
            }
        }
    }

    /// The response that carries `resource`, or the requested range; and which bytes that is.
    fn send(
        &self,
        now: Time,
        head: &RequestHead<'_>,
        resource: Resource,
    ) -> (ResponsePlan, Option<Range<u64>>) {
        let Resource { content, length, validators, state } = resource;
        let is_head = head.method == b"HEAD";
        // Range applies to GET only (RFC 9110 §14.2).
        let selection =
            if is_head { RangeSelection::Whole } else { select(head.fields, length, &validators) };
        let (status, range) = match selection {
            RangeSelection::Whole => (200, 0..length),
            RangeSelection::Part(range) => (206, range),
            RangeSelection::Unsatisfiable => {
                let plan = ResponsePlan::text(now, 416, "there is no such range\n");
                return (plan.with("content-range", format!("bytes */{length}")), None);
            }
        };
        let wanted = head.fields.get("want-repr-digest").and_then(|field| std::str::from_utf8(field).ok());
        let algorithm = wanted.map_or(Algorithm::None, Algorithm::wanted);
        let awaited = (algorithm != Algorithm::None).then(|| {
            let digest = self.digests.ask(&validators.etag, algorithm, &content, length);
            // A part that waited for the sum of the whole would delay its client's worker.
            let may_follow = status == 200 && !is_head && takes_trailers(head.fields);
            // A HEAD request waits for it; a body is not delayed.
            Answering { digest, is_patient: is_head, may_follow }
        });
        let body = match content {
            Content::Filler => Body::filler_from(range.start, range.end - range.start, self.chunk),
            Content::File(file) => Body::file(file, range.start, range.end - range.start, self.chunk),
        };
        let body = if let Some(state) = state { body.of_state(state) } else { body };
        let mut plan = ResponsePlan::at_once(now, status, "application/octet-stream", body)
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

/// Whether a client says that it honours trailers (RFC 9110 §10.1.4).
fn takes_trailers(fields: Fields<'_>) -> bool {
    let text = fields.get("te").and_then(|field| std::str::from_utf8(field).ok()).unwrap_or_default();
    text.split(',').any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// The path that a request names, for the log.
fn path_as_logged(target: &[u8]) -> String {
    without_url_secrets(&printable(target)).into_owned()
}

/// The path that a request names, without its query.
fn path_of(target: &[u8]) -> Result<&str, FolderError> {
    let target = std::str::from_utf8(target).map_err(|_| FolderError::Malformed)?;
    Ok(target.split_once('?').map_or(target, |(path, _)| path))
}

/// What an origin serves.
#[derive(Debug, Clone, Default)]
pub enum OriginContent {
    /// The paths of [`super::handler`], which do what tests and comparisons need.
    #[default]
    Paths,
    /// The same, and what `/` answers at all other paths: in the place of a server whose paths are not known.
    AnyPath,
    /// Files.
    Bulk(Arc<Bulk>),
}

impl OriginContent {
    /// Plans the response to a request; `now` is when its head was complete.
    pub fn route(&self, now: Time, head: &RequestHead<'_>) -> ResponsePlan {
        match self {
            Self::Paths => super::handler::route(now, head),
            Self::AnyPath => super::handler::route_any(now, head),
            Self::Bulk(bulk) => bulk.route(now, head),
        }
    }
}

#[cfg(test)]
mod tests {
    use h2lab_wire::event::FieldSpan;

    use super::*;

    fn ask(bulk: &Bulk, method: &str, path: &str, field: Option<(&str, &str)>) -> ResponsePlan {
        let (name, value) = field.unwrap_or(("x", ""));
        let bytes = [name, value].concat();
        let span = FieldSpan { start: 0, value_start: name.len() as u32, end: bytes.len() as u32 };
        let head = RequestHead {
            method: method.as_bytes(),
            scheme: b"http",
            authority: b"server",
            path: path.as_bytes(),
            protocol: b"",
            is_http10: false,
            fields: Fields::new(bytes.as_bytes(), std::slice::from_ref(&span)),
        };
        bulk.route(Time::ZERO, &head)
    }

    fn field<'a>(plan: &'a ResponsePlan, name: &str) -> Option<&'a str> {
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
        for more in ["1048577G", "9999999999G"] {
            let want = Some(("want-repr-digest", "sha-512=10"));
            let plan = ask(&bulk, "HEAD", &format!("/bytes/{more}"), want);
            assert_eq!((plan.status, plan.awaited.is_none()), (400, true), "{more}");
        }
        assert_eq!(ask(&bulk, "HEAD", "/bytes/99999999999G", None).status, 404, "no number is so large");
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
    fn what_a_server_does_not_do_it_refuses_before_it_has_heard_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let read_only = Bulk::folder(folder.path(), None).unwrap();
        for method in ["PUT", "POST", "DELETE"] {
            let plan = ask(&read_only, method, "/a", None);
            assert_eq!((plan.status, field(&plan, "allow")), (405, Some("GET, HEAD")), "{method}");
            assert!(plan.is_final && plan.receipt.is_none(), "{method}");
        }
        let plan = ask(&Bulk::memory(), "DELETE", "/a", None);
        assert_eq!((plan.status, field(&plan, "allow")), (405, Some("GET, HEAD, PUT")));
    }

    #[test]
    fn without_the_token_nothing_is_found_or_taken() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "content").unwrap();
        let token = BearerToken::new("secret").ok();
        let bulk = Bulk::folder(folder.path(), Some(UploadLimits::default())).unwrap().guarded(token);
        for (method, path) in
            [("GET", "/a"), ("HEAD", "/a"), ("GET", "/none"), ("PUT", "/b"), ("DELETE", "/a")]
        {
            for shown in [None, Some(("authorization", "Bearer Secret"))] {
                let plan = ask(&bulk, method, path, shown);
                assert_eq!((plan.status, plan.is_final), (401, true), "{method} {path}");
            }
            assert_ne!(ask(&bulk, method, path, Some(("authorization", "Bearer secret"))).status, 401);
        }
    }

    #[test]
    fn nothing_is_put_outside_of_the_folder_or_over_what_is_no_file() {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("inside");
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::os::unix::fs::symlink("..", inside.join("up")).unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("out")).unwrap();
        let bulk = Bulk::folder(&inside, Some(UploadLimits::default())).unwrap();
        for (path, status) in [
            ("/../a", 400),
            ("/%2e%2e/a", 400),
            ("/..%2fa", 400),
            ("/a%00", 400),
            ("/up/a", 409),
            ("/out", 409),
            ("/sub", 409),
            ("/nothing/a", 409),
            ("/", 409),
            ("/a.part", 403),
            ("/sub/a.part.journal", 403),
        ] {
            let plan = ask(&bulk, "PUT", path, None);
            assert_eq!((plan.status, plan.is_final), (status, true), "{path}");
        }
        for path in ["/a", "/sub/a", "//sub/./b%20c"] {
            assert!(ask(&bulk, "PUT", path, None).receipt.is_some(), "{path}");
        }
    }
}
