//! The requests that a cell sends, prepared once: one, the kinds of a mix, or templates that are filled each time.

use std::borrow::Cow;
use std::cell::{Ref, RefCell};

use h2lab_model::workload::{Body, Draw, MixEntry, Template, TemplateError, Work};
use h2lab_wire::Field;
use h2lab_wire::connection::Request;

/// Body bytes that are handed to an engine at once.
const BLOCK: usize = 64 * 1024;

/// One kind of request as text: the request of the work, with what the entry of its mix replaces and adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKind {
    method: String,
    /// The Host field, if there is one; it replaces the authority in either protocol, as in curl.
    host: Option<String>,
    path: String,
    /// Lower-case names, without Host.
    fields: Vec<(String, String)>,
    body: Option<Body>,
    body_bytes: u64,
}

impl RequestKind {
    /// The kinds of `work`, in the order of its mix; one if it has none.
    pub fn all(work: &Work) -> Vec<Self> {
        if work.mix.is_empty() {
            return vec![Self::of(work, &MixEntry::default())];
        }
        work.mix.iter().map(|entry| Self::of(work, entry)).collect()
    }

    fn of(work: &Work, entry: &MixEntry) -> Self {
        let mut fields: Vec<(String, String)> = Vec::new();
        let shape = work.shape.fields().iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        for layer in [shape.collect(), lower_case(&work.headers), lower_case(&entry.headers)] {
            fields.retain(|(known, _)| layer.iter().all(|(name, _): &(String, String)| name != known));
            fields.extend(layer);
        }
        let host = fields.iter().find(|(name, _)| name == "host").map(|(_, value)| value.clone());
        fields.retain(|(name, _)| name != "host");
        let body = entry.body.as_ref().or(work.body.as_ref()).cloned();
        Self {
            method: entry.method.as_ref().unwrap_or(&work.method).clone(),
            host,
            path: if entry.path.is_empty() { &work.path } else { &entry.path }.clone(),
            fields,
            body_bytes: body.as_ref().map_or(work.body_bytes, |body| body.bytes().len() as u64),
            body,
        }
    }
}

/// Field lines in the form of the engines.
fn lower_case(fields: &[(String, String)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect()
}

/// What a session sends: heads and bodies of requests, each identified by a unique number. A retry must keep the
/// number.
pub trait Outgoing {
    /// Which kind the request with this number is: an index into the mix, 0 without one.
    fn kind(&self, _number: u64) -> u16 {
        0
    }
    /// Whether requests of one kind are all alike, so that what was encoded for one serves the next.
    fn is_constant(&self, _kind: u16) -> bool {
        false
    }
    /// Passes the head of a request to `show`.
    fn with_head<T>(&self, number: u64, show: impl FnOnce(&Request<'_>) -> T) -> T;
    /// Passes the next piece of the body of a request to `show`, of which `left` bytes remain, and whether it is the last. An
    /// empty piece means that no more can be read.
    fn with_piece<T>(&self, number: u64, left: u64, show: impl FnOnce(&[u8], bool) -> T) -> T;
    /// Whether trailers follow the body of a request, which has at least one byte then.
    fn has_trailers(&self, _number: u64) -> bool {
        false
    }
    /// Passes the trailers of a request to `show` after its whole body.
    fn with_trailers<T>(&self, _number: u64, show: impl FnOnce(&[Field<'_>]) -> T) -> T {
        show(&[])
    }
}

/// The requests of a cell, prepared. Sending one allocates nothing, unless it is a template.
///
/// Each request has a number that is unique in the cell, across all threads. The number determines the kind of the
/// request and the values of its placeholders. A retry must keep the number.
#[derive(Debug)]
pub struct Prepared<'a> {
    kinds: Vec<Ready<'a>>,
    draw: Draw,
    /// The template that was filled last, and for which number.
    filled: RefCell<Filled>,
}

/// A prepared kind.
#[derive(Debug)]
struct Ready<'a> {
    method: &'a str,
    authority: &'a str,
    path: &'a str,
    fields: Vec<Field<'a>>,
    body_bytes: u64,
    /// The body, or a block of filler that is sent repeatedly.
    body: Cow<'a, [u8]>,
    /// Its method normally has a body: an empty one is announced too (RFC 9110 §8.6).
    announces: bool,
    template: Option<Templates>,
}

/// The placeholders of a kind. The body has none if it is filler.
#[derive(Debug)]
struct Templates {
    path: Template,
    fields: Vec<Template>,
    body: Option<Template>,
}

/// A request made of templates: its path, its field values and its body, one after the other.
#[derive(Debug, Default)]
struct Filled {
    number: Option<u64>,
    bytes: Vec<u8>,
    /// Where each part ends, the path first.
    ends: Vec<usize>,
    /// Whether the last part is a body.
    has_body: bool,
}

impl Filled {
    fn part(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[index]]
    }

    fn body(&self) -> Option<&[u8]> {
        self.has_body.then(|| self.part(self.ends.len() - 1))
    }

    /// Fills `templates` for the request with this number, unless it was the last one filled.
    fn fill(&mut self, templates: &Templates, number: u64) {
        if self.number.replace(number) == Some(number) {
            return;
        }
        self.bytes.clear();
        self.ends.clear();
        for template in std::iter::once(&templates.path).chain(&templates.fields).chain(&templates.body) {
            template.render(number, &mut self.bytes);
            self.ends.push(self.bytes.len());
        }
        self.has_body = templates.body.is_some();
    }
}

impl<'a> Prepared<'a> {
    /// The requests of `kinds`, which [`RequestKind::all`] made of `work`, to `authority`. `seed` decides the kind of each
    /// and the values of placeholders. Fails if a placeholder is unknown.
    pub fn new(
        work: &Work,
        kinds: &'a [RequestKind],
        authority: &'a str,
        seed: u64,
    ) -> Result<Self, TemplateError> {
        let ready = |(index, kind)| {
            let template = work.template.then(|| Templates::parse(kind, index, seed)).transpose()?;
            Ok(Ready::new(kind, authority, template))
        };
        Ok(Self {
            kinds: kinds.iter().enumerate().map(ready).collect::<Result<_, _>>()?,
            draw: Draw::new(&work.mix, seed),
            filled: RefCell::default(),
        })
    }

    fn ready(&self, number: u64) -> &Ready<'a> {
        &self.kinds[usize::from(self.kind(number))]
    }

    /// The authority of all requests, unless a Host field replaces it.
    pub fn authority(&self) -> &'a str {
        self.kinds[0].authority
    }

    fn filled(&self, templates: &Templates, number: u64) -> Ref<'_, Filled> {
        self.filled.borrow_mut().fill(templates, number);
        self.filled.borrow()
    }
}

impl<'a> Outgoing for Prepared<'a> {
    fn kind(&self, number: u64) -> u16 {
        // Most work is of one kind: nothing is drawn then.
        if self.kinds.len() < 2 { 0 } else { self.draw.kind(number) }
    }

    fn is_constant(&self, kind: u16) -> bool {
        self.kinds[usize::from(kind)].template.is_none()
    }

    fn with_head<T>(&self, number: u64, show: impl FnOnce(&Request<'_>) -> T) -> T {
        let ready = self.ready(number);
        let Some(templates) = &ready.template else {
            return show(&ready.head(ready.path, &ready.fields, ready.body_bytes));
        };
        let filled = self.filled(templates, number);
        let value =
            |(index, field): (usize, &Field<'a>)| Field { name: field.name, value: filled.part(index + 1) };
        // The one allocation of a template: fields that borrow from its buffer cannot outlive it.
        let fields: Vec<Field<'_>> = ready.fields.iter().enumerate().map(value).collect();
        // Templates are text, and so is what they are filled with.
        let path = std::str::from_utf8(filled.part(0)).unwrap_or_default();
        show(&ready.head(path, &fields, filled.body().map_or(ready.body_bytes, |body| body.len() as u64)))
    }

    fn with_piece<T>(&self, number: u64, left: u64, show: impl FnOnce(&[u8], bool) -> T) -> T {
        let ready = self.ready(number);
        let n = left.min(BLOCK as u64) as usize;
        let last = n as u64 == left;
        if let Some(templates @ Templates { body: Some(_), .. }) = &ready.template {
            let filled = self.filled(templates, number);
            let body = filled.body().unwrap_or_default();
            let from = body.len() - left as usize;
            return show(&body[from..from + n], last);
        }
        let whole = ready.body.len() as u64 == ready.body_bytes;
        let from = if whole { (ready.body_bytes - left) as usize } else { 0 };
        show(&ready.body[from..from + n], last)
    }
}

impl<'a> Ready<'a> {
    fn new(kind: &'a RequestKind, authority: &'a str, template: Option<Templates>) -> Self {
        let body = match &kind.body {
            Some(body) => Cow::Borrowed(body.bytes()),
            None => (b'a'..=b'z').cycle().take(kind.body_bytes.min(BLOCK as u64) as usize).collect(),
        };
        Self {
            method: &kind.method,
            authority: kind.host.as_deref().unwrap_or(authority),
            path: &kind.path,
            fields: kind.fields.iter().map(|(name, value)| Field::new(name, value)).collect(),
            body_bytes: kind.body_bytes,
            body,
            announces: matches!(&*kind.method, "POST" | "PUT" | "PATCH"),
            template,
        }
    }

    /// The head for an engine.
    fn head<'h>(&self, path: &'h str, fields: &'h [Field<'h>], body_bytes: u64) -> Request<'h>
    where
        'a: 'h,
    {
        let announced = body_bytes > 0 || self.announces;
        Request {
            method: self.method,
            authority: self.authority,
            path,
            fields,
            body_length: announced.then_some(body_bytes),
            end_stream: body_bytes == 0,
        }
    }
}

impl Templates {
    fn parse(kind: &RequestKind, index: usize, seed: u64) -> Result<Self, TemplateError> {
        let parse = |text: &str, place: &str| Template::parse(text, seed, &format!("{index} {place}"));
        let fields = kind.fields.iter().map(|(name, value)| parse(value, name));
        Ok(Self {
            path: parse(&kind.path, ":path")?,
            fields: fields.collect::<Result<_, _>>()?,
            // A body that is not text has no placeholders: it is sent as it is.
            body: kind.body.as_ref().and_then(Body::text).map(|body| parse(body, ":body")).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use h2lab_model::workload::{Arrival, Phases, RequestShape};

    use super::*;

    fn work(method: &str, body_bytes: u64) -> Work {
        let phase = Duration::from_secs(1);
        Work {
            method: method.to_owned(),
            path: "/".to_owned(),
            shape: RequestShape::Bare,
            headers: vec![
                ("Accept".to_owned(), "text/plain ".to_owned()),
                ("X-New".to_owned(), "1".to_owned()),
                ("Host".to_owned(), "elsewhere".to_owned()),
            ],
            body_bytes,
            body: None,
            mix: Vec::new(),
            template: false,
            secrets: false,
            bulk: false,
            arrival: Arrival::Closed { concurrency: 1 },
            phases: Phases { warmup: phase, measure: phase, drain: phase },
            timeout: phase,
            replay: true,
        }
    }

    /// Passes the requests of `work` to `check`.
    fn prepare<T>(work: &Work, check: impl FnOnce(&Prepared<'_>) -> T) -> T {
        let kinds = RequestKind::all(work);
        check(&Prepared::new(work, &kinds, "localhost:80", 1).unwrap())
    }

    /// All of the body of a request, which must be marked as ended once and at its end.
    fn body(prepared: &Prepared<'_>, number: u64) -> Vec<u8> {
        let (mut sent, mut left) =
            (Vec::new(), prepared.with_head(number, |head| head.body_length.unwrap_or(0)));
        while left > 0 {
            let last = prepared.with_piece(number, left, |piece, last| {
                left -= piece.len() as u64;
                sent.extend_from_slice(piece);
                last
            });
            assert_eq!(last, left == 0);
        }
        sent
    }

    /// Method, path and fields of a request as text.
    fn head(prepared: &Prepared<'_>, number: u64) -> String {
        prepared.with_head(number, |head| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let fields =
                head.fields.iter().map(|field| format!(" {}={}", text(field.name), text(field.value)));
            format!("{} {}{}", head.method, head.path, fields.collect::<String>())
        })
    }

    #[test]
    fn own_fields_replace_those_of_the_shape_and_names_become_lower_case() {
        prepare(&work("GET", 0), |prepared| {
            assert_eq!(head(prepared, 0), "GET / user-agent=h2lab accept=text/plain x-new=1");
        });
    }

    #[test]
    fn a_host_field_takes_the_place_of_the_authority() {
        let mut work = work("GET", 0);
        let authority =
            |work: &Work| prepare(work, |prepared| prepared.with_head(0, |head| head.authority.to_owned()));
        assert_eq!(authority(&work), "elsewhere");
        work.headers.clear();
        assert_eq!(authority(&work), "localhost:80");
    }

    #[test]
    fn a_body_is_cut_into_blocks_and_the_last_one_is_marked() {
        prepare(&work("POST", BLOCK as u64 + 1), |prepared| {
            assert!(!prepared.with_head(0, |head| head.end_stream));
            assert_eq!(prepared.with_piece(0, BLOCK as u64 + 1, |piece, _| piece.len()), BLOCK);
            assert_eq!(body(prepared, 0).len(), BLOCK + 1);
        });
    }

    #[test]
    fn a_given_body_is_sent_as_it_is_whatever_its_length() {
        let text: String = ('a'..='y').cycle().take(BLOCK + 1000).collect();
        let work = Work { body: Some(text.clone().into()), ..work("POST", 3) };
        prepare(&work, |prepared| assert_eq!(body(prepared, 0), text.as_bytes()));
    }

    #[test]
    fn an_empty_post_announces_its_length_and_a_get_does_not() {
        for (method, announced) in [("POST", Some(0)), ("GET", None)] {
            prepare(&work(method, 0), |prepared| {
                prepared
                    .with_head(0, |head| assert_eq!((head.body_length, head.end_stream), (announced, true)));
            });
        }
    }

    #[test]
    fn an_entry_of_a_mix_says_what_differs_and_the_rest_is_as_in_the_work() {
        let mut work = work("GET", 0);
        work.mix = vec![
            MixEntry { weight: 1, path: "/a".to_owned(), ..MixEntry::default() },
            MixEntry {
                weight: 1,
                method: Some("POST".to_owned()),
                headers: vec![("X-NEW".to_owned(), "2".to_owned())],
                body: Some("xyz".into()),
                ..MixEntry::default()
            },
        ];
        prepare(&work, |prepared| {
            let of = |kind| (0..100).find(|&request| prepared.kind(request) == kind).unwrap();
            assert_eq!(head(prepared, of(0)), "GET /a user-agent=h2lab accept=text/plain x-new=1");
            assert_eq!(head(prepared, of(1)), "POST / user-agent=h2lab accept=text/plain x-new=2");
            assert_eq!((body(prepared, of(0)), body(prepared, of(1))), (vec![], b"xyz".to_vec()));
        });
    }

    #[test]
    fn a_template_is_filled_for_each_request_and_the_same_when_it_is_sent_again() {
        let mut work = work("POST", 0);
        work.template = true;
        work.path = "/{{counter}}".to_owned();
        work.headers = vec![("x-id".to_owned(), "{{hex 8}}".to_owned())];
        work.body = Some("<{{pick a|bcd}}>".repeat(BLOCK / 2).into());
        prepare(&work, |prepared| {
            let first = (head(prepared, 0), body(prepared, 0));
            assert!(first.0.starts_with("POST /0 user-agent=h2lab accept=*/* x-id="), "{}", first.0);
            assert!(first.1.len() > BLOCK && first.1.starts_with(b"<"));
            let second = (head(prepared, 1), body(prepared, 1));
            assert!(second.0.starts_with("POST /1 ") && second.0[8..] != first.0[8..]);
            assert_eq!((head(prepared, 0), body(prepared, 0)), first);
            assert_eq!(
                prepared.with_head(1, |head| head.body_length),
                Some(second.1.len() as u64),
                "the length is that of what is sent"
            );
        });
    }

    #[test]
    fn filler_stays_filler_beside_placeholders() {
        let work = Work { template: true, path: "/{{counter}}".to_owned(), ..work("POST", BLOCK as u64 + 5) };
        prepare(&work, |prepared| {
            assert_eq!(body(prepared, 3).len(), BLOCK + 5);
            assert_eq!(prepared.with_head(3, |head| head.body_length), Some(BLOCK as u64 + 5));
        });
    }

    #[test]
    fn a_request_that_carries_its_number_is_otherwise_the_same() {
        let mut work = work("POST", 0);
        work.path = "/{{x}}".to_owned();
        work.headers.push(("X-H2lab-Id".to_owned(), "mine".to_owned()));
        work.body = Some("{{counter}}".into());
        let identified = work.identified();
        work.headers.pop();
        let (plain, content) = prepare(&work, |prepared| (head(prepared, 41), body(prepared, 41)));
        prepare(&identified, |prepared| {
            assert_eq!(head(prepared, 41), format!("{plain} {}=41", h2lab_model::workload::ID_FIELD));
            assert_eq!(body(prepared, 41), content);
        });
        let filled = Work { template: true, path: "/{{counter}}".to_owned(), ..work };
        prepare(&filled.identified(), |prepared| {
            assert!(head(prepared, 7).starts_with("POST /7 "), "placeholders of the work's own are filled");
        });
    }

    #[test]
    fn braces_mean_nothing_unless_the_work_is_a_template() {
        let mut work = Work { path: "/{{x}}".to_owned(), ..work("GET", 0) };
        prepare(&work, |prepared| assert!(head(prepared, 0).starts_with("GET /{{x}} ")));
        work.template = true;
        let kinds = RequestKind::all(&work);
        let error = Prepared::new(&work, &kinds, "localhost", 1).unwrap_err();
        assert!(matches!(error, TemplateError::Unknown { position: 2, .. }), "{error}");
    }
}
