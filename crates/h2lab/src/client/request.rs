//! The request that a cell sends over and over, made ready once.

use std::borrow::Cow;

use h2lab_core::wire::Field;
use h2lab_core::wire::connection::Request;
use h2lab_core::workload::Work;

/// Body bytes that are handed to an engine at once.
const BLOCK: usize = 64 * 1024;

/// Header fields of `work` with lower-case names: those of its shape, replaced and extended by its own. Host is left
/// out: [`Prepared`] makes it the authority, and the engines write that as their protocol has it.
pub fn fields(work: &Work) -> Vec<(String, String)> {
    let own: Vec<(String, String)> = work
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let shape = work.shape.fields().iter().filter(|(name, _)| own.iter().all(|(given, _)| given != name));
    shape
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .chain(own.iter().cloned())
        .filter(|(name, _)| name != "host")
        .collect()
}

/// The Host field among the fields of `work`, if there is one.
fn host(work: &Work) -> Option<&str> {
    let given = work.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    given.map(|(_, value)| value.trim())
}

/// A request made ready: sending it allocates nothing.
#[derive(Debug)]
pub struct Prepared<'a> {
    method: &'a str,
    authority: &'a str,
    path: &'a str,
    fields: Vec<Field<'a>>,
    body_bytes: u64,
    /// The body, or a block of filler that is sent as often as it takes.
    body: Cow<'a, [u8]>,
}

impl<'a> Prepared<'a> {
    /// The request of `work` to `authority`, with the fields that [`fields`] made of it. A Host field of `work` takes the
    /// authority's place in either protocol, as curl has it.
    pub fn new(work: &'a Work, authority: &'a str, fields: &'a [(String, String)]) -> Self {
        let body = match &work.body {
            Some(body) => Cow::Borrowed(body.as_bytes()),
            None => (b'a'..=b'z').cycle().take(work.body_bytes.min(BLOCK as u64) as usize).collect(),
        };
        Self {
            method: &work.method,
            authority: host(work).unwrap_or(authority),
            path: &work.path,
            fields: fields.iter().map(|(name, value)| Field::new(name, value)).collect(),
            body_bytes: work.body_length(),
            body,
        }
    }

    /// As an engine takes it. A method that has a body by its nature announces an empty one (RFC 9110 §8.6).
    pub fn head(&self) -> Request<'_> {
        let announced = self.body_bytes > 0 || matches!(self.method, "POST" | "PUT" | "PATCH");
        Request {
            method: self.method,
            authority: self.authority,
            path: self.path,
            fields: &self.fields,
            body_length: announced.then_some(self.body_bytes),
            end_stream: self.body_bytes == 0,
        }
    }

    /// Length of the body in bytes.
    pub const fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The next piece of a body of which `left` bytes remain, and whether it is the last.
    pub fn piece(&self, left: u64) -> (&[u8], bool) {
        let whole = self.body.len() as u64 == self.body_bytes;
        let from = if whole { (self.body_bytes - left) as usize } else { 0 };
        let n = left.min(BLOCK as u64) as usize;
        (&self.body[from..from + n], n as u64 == left)
    }

    /// Whether the method is idempotent (RFC 9110 §9.2.2), so that a client may send the request again when it cannot
    /// know whether it was processed.
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use h2lab_core::workload::{Arrival, Phases, RequestShape};

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
            arrival: Arrival::Closed { concurrency: 1 },
            phases: Phases { warmup: phase, measure: phase, drain: phase },
            timeout: phase,
            replay: true,
        }
    }

    #[test]
    fn own_fields_replace_those_of_the_shape_and_names_become_lower_case() {
        let pairs = fields(&work("GET", 0));
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("user-agent", "h2lab"), ("accept", "text/plain"), ("x-new", "1")]);
    }

    #[test]
    fn a_host_field_takes_the_place_of_the_authority() {
        let work = work("GET", 0);
        assert_eq!(Prepared::new(&work, "localhost:80", &[]).head().authority, "elsewhere");
        let work = Work { headers: Vec::new(), ..work };
        assert_eq!(Prepared::new(&work, "localhost:80", &[]).head().authority, "localhost:80");
    }

    #[test]
    fn a_body_is_cut_into_blocks_and_the_last_one_is_marked() {
        let work = work("POST", BLOCK as u64 + 1);
        let fields = fields(&work);
        let prepared = Prepared::new(&work, "localhost", &fields);
        assert!(!prepared.head().end_stream);
        let (first, last) = prepared.piece(prepared.body_bytes());
        assert_eq!((first.len(), last), (BLOCK, false));
        let (second, last) = prepared.piece(1);
        assert_eq!((second.len(), last), (1, true));
    }

    #[test]
    fn a_given_body_is_sent_as_it_is_whatever_its_length() {
        let text: String = ('a'..='y').cycle().take(BLOCK + 1000).collect();
        let work = Work { body: Some(text.clone()), ..work("POST", 3) };
        let prepared = Prepared::new(&work, "localhost", &[]);
        let (mut sent, mut left) = (Vec::new(), prepared.body_bytes());
        while left > 0 {
            let (piece, last) = prepared.piece(left);
            left -= piece.len() as u64;
            sent.extend_from_slice(piece);
            assert_eq!(last, left == 0);
        }
        assert_eq!(sent, text.as_bytes());
    }

    #[test]
    fn an_empty_post_announces_its_length_and_a_get_does_not() {
        for (method, announced) in [("POST", Some(0)), ("GET", None)] {
            let work = work(method, 0);
            let fields = fields(&work);
            let prepared = Prepared::new(&work, "localhost", &fields);
            assert_eq!(prepared.head().body_length, announced);
            assert!(prepared.head().end_stream);
        }
    }

    #[test]
    fn only_idempotent_methods_may_be_sent_blindly_again() {
        for (method, idempotent) in [("GET", true), ("PUT", true), ("POST", false), ("PATCH", false)] {
            let work = work(method, 0);
            assert_eq!(Prepared::new(&work, "localhost", &[]).is_idempotent(), idempotent, "{method}");
        }
    }
}
