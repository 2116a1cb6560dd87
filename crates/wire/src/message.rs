//! Whether decoded fields make a well-formed request, response or trailer section (RFC 9113 §8.1 to §8.3). HTTP/3 has
//! the same rules in the same words (RFC 9114 §4.1.2 to §4.4).

use super::Priority;
use super::compression::{FieldKind, FieldList};
use super::event::{RequestHead, ResponseHead};

/// Why a message is malformed (§8.1.1).
type Malformed = &'static str;

/// A field's place in its list, or none. Four bytes rather than the sixteen of an `Option<usize>`: the places in a head
/// are copied with it for every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(u32);

impl Place {
    const NONE: Self = Self(u32::MAX);

    const fn is_some(self) -> bool {
        self.0 != Self::NONE.0
    }

    /// The field's value, if there is one.
    fn value(self, fields: &FieldList) -> Option<&[u8]> {
        self.is_some().then(|| fields.value(self.0 as usize))
    }

    /// This place, or `other` if it is none.
    const fn or(self, other: Self) -> Self {
        if self.is_some() { self } else { other }
    }
}

/// The places of the fields with a special meaning in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Places {
    method: Place,
    scheme: Place,
    authority: Place,
    path: Place,
    protocol: Place,
    status: Place,
    host: Place,
    /// The first field that is not a pseudo-header field.
    first_field: u32,
    content_length: Option<u64>,
    has_priority: bool,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            method: Place::NONE,
            scheme: Place::NONE,
            authority: Place::NONE,
            path: Place::NONE,
            protocol: Place::NONE,
            status: Place::NONE,
            host: Place::NONE,
            first_field: 0,
            content_length: None,
            has_priority: false,
        }
    }
}

/// Finds them, and refuses what no message may contain.
fn survey(fields: &FieldList) -> Result<Places, Malformed> {
    let mut places = Places::default();
    for (kind, place) in fields.kinds().iter().zip(0..) {
        let slot = match kind {
            FieldKind::Regular => continue,
            FieldKind::Priority => {
                places.has_priority = true;
                continue;
            }
            FieldKind::Method => &mut places.method,
            FieldKind::Scheme => &mut places.scheme,
            FieldKind::Authority => &mut places.authority,
            FieldKind::Path => &mut places.path,
            FieldKind::Status => &mut places.status,
            FieldKind::Protocol => &mut places.protocol,
            FieldKind::Host if places.host.is_some() => return Err("two host fields (RFC 9110 §7.2)"),
            FieldKind::Host => {
                places.host = Place(place);
                continue;
            }
            FieldKind::ContentLength => {
                let length = content_length(fields.value(place as usize))?;
                if places.content_length.is_some_and(|other| other != length) {
                    return Err("content-length twice with different values (RFC 9110 §8.6)");
                }
                places.content_length = Some(length);
                continue;
            }
            FieldKind::UnknownPseudo => return Err("an undefined pseudo-header field (RFC 9113 §8.3)"),
            FieldKind::ConnectionSpecific => return Err("a connection-specific field (RFC 9113 §8.2.2)"),
            FieldKind::BadName => return Err("an illegal field name (RFC 9113 §8.2.1)"),
            FieldKind::BadValue => return Err("an illegal field value (RFC 9113 §8.2.1)"),
        };
        if place != places.first_field {
            return Err("a pseudo-header field after a regular one (RFC 9113 §8.3)");
        }
        if std::mem::replace(slot, Place(place)).is_some() {
            return Err("a duplicate pseudo-header field (RFC 9113 §8.3)");
        }
        places.first_field += 1;
    }
    Ok(places)
}

fn content_length(value: &[u8]) -> Result<u64, Malformed> {
    const BAD: Malformed = "content-length is not a number (RFC 9110 §8.6)";
    // 19 digits cannot overflow, and no body is longer.
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return Err(BAD);
    }
    Ok(value.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0')))
}

/// A well-formed request; lends its head from the list that it was made of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestParts {
    places: Places,
    is_head: bool,
    is_connect: bool,
}

impl RequestParts {
    /// Checks a request (§8.3.1). `extended`: we announced that CONNECT may name a protocol (RFC 8441 §3).
    pub(crate) fn check(fields: &FieldList, extended: bool) -> Result<Self, Malformed> {
        let mut places = survey(fields)?;
        if places.status.is_some() {
            return Err(":status in a request (RFC 9113 §8.3)");
        }
        let method = places.method.value(fields).unwrap_or_default();
        if method.is_empty() {
            return Err("a request without :method (RFC 9113 §8.3.1)");
        }
        if !method.iter().all(u8::is_ascii_graphic) {
            return Err(":method is not a token (RFC 9110 §9.1)");
        }
        let is_connect = method == b"CONNECT";
        match places.protocol.value(fields) {
            None if is_connect => check_connect(&places)?,
            Some(_) if !extended => {
                return Err(":protocol, although extended CONNECT is not enabled (RFC 8441 §3)");
            }
            Some(_) if !is_connect => return Err(":protocol without CONNECT (RFC 8441 §4)"),
            Some(protocol) if !is_protocol(protocol) => return Err(":protocol is not a token (RFC 8441 §4)"),
            // The target of a CONNECT that names a protocol is that of any other request.
            _ => check_target(&places, fields, method)?,
        }
        check_authority(&places, fields)?;
        let is_head = method == b"HEAD";
        places.authority = places.authority.or(places.host);
        Ok(Self { places, is_head, is_connect })
    }

    pub(crate) const fn content_length(&self) -> Option<u64> {
        self.places.content_length
    }

    /// The priority of its `priority` fields, if any (RFC 9218 §5).
    pub(crate) fn priority(&self, fields: &FieldList) -> Option<Priority> {
        let lines = || fields.starting_at(0).iter().filter(|field| field.name == b"priority");
        let all = || lines().fold(Priority::default(), |priority, line| priority.updated_by(line.value));
        self.places.has_priority.then(all)
    }

    pub(crate) const fn is_head(&self) -> bool {
        self.is_head
    }

    /// Whether it asks for a tunnel, of either kind.
    pub(crate) const fn is_connect(&self) -> bool {
        self.is_connect
    }

    /// Whether it names no authority, which HTTP/3 demands of `http` and `https` (RFC 9114 §4.3.1) and HTTP/2 does not.
    pub(crate) fn lacks_authority(&self, fields: &FieldList) -> bool {
        self.places.authority.value(fields).is_none_or(<[u8]>::is_empty)
            && self.places.scheme.value(fields).is_none_or(is_http)
    }

    /// Whether a server may promise it: GET or HEAD without a body (§8.4).
    pub(crate) fn may_be_promised(&self, fields: &FieldList) -> bool {
        let method = self.places.method.value(fields).unwrap_or_default();
        matches!(method, b"GET" | b"HEAD") && matches!(self.content_length(), None | Some(0))
    }

    /// The head; `fields` is the list that was checked.
    pub(crate) fn lend(self, fields: &FieldList) -> RequestHead<'_> {
        let value = |place: Place| place.value(fields).unwrap_or_default();
        RequestHead {
            method: value(self.places.method),
            scheme: value(self.places.scheme),
            authority: value(self.places.authority),
            path: value(self.places.path),
            protocol: value(self.places.protocol),
            is_http10: false,
            fields: fields.starting_at(self.places.first_field as usize),
        }
    }
}

/// CONNECT names its authority and nothing else (§8.5).
const fn check_connect(places: &Places) -> Result<(), Malformed> {
    match (places.scheme.is_some(), places.path.is_some(), places.authority.is_some()) {
        (false, false, true) => Ok(()),
        _ => Err("CONNECT with :scheme or :path, or without :authority (RFC 9113 §8.5)"),
    }
}

/// Whether `value` may name a protocol: what HTTP Upgrade calls one (RFC 9110 §7.8), a token with perhaps a version.
fn is_protocol(value: &[u8]) -> bool {
    !value.is_empty()
        && value.iter().all(|byte| byte.is_ascii_graphic() && !b"\"(),:;<=>?@[\\]{}".contains(byte))
}

fn is_http(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https")
}

fn check_target(places: &Places, fields: &FieldList, method: &[u8]) -> Result<(), Malformed> {
    let (Some(scheme), Some(path)) = (places.scheme.value(fields), places.path.value(fields)) else {
        return Err("a request without :scheme or :path (RFC 9113 §8.3.1)");
    };
    match path {
        [] => Err("an empty :path (RFC 9113 §8.3.1)"),
        [b'/', ..] => Ok(()),
        b"*" if method == b"OPTIONS" => Ok(()),
        _ if is_http(scheme) => Err(":path does not begin with a slash (RFC 9113 §8.3.1)"),
        _ => Ok(()),
    }
}

fn check_authority(places: &Places, fields: &FieldList) -> Result<(), Malformed> {
    let Some(authority) = places.authority.value(fields) else { return Ok(()) };
    if authority.contains(&b'@') {
        return Err(":authority with user information (RFC 9113 §8.3.1)");
    }
    match places.host.value(fields) {
        Some(host) if !host.eq_ignore_ascii_case(authority) => {
            Err(":authority and host differ (RFC 9113 §8.3.1)")
        }
        _ => Ok(()),
    }
}

/// A well-formed response.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResponseParts {
    /// 100 to 999; a recipient that does not know one above 599 treats it as 500 (RFC 9110 §15).
    pub(crate) status: u16,
    pub(crate) content_length: Option<u64>,
    first_field: u32,
}

impl ResponseParts {
    /// Checks a response (§8.3.2). 101 does not exist in HTTP/2 (§8.6).
    pub(crate) fn check(fields: &FieldList) -> Result<Self, Malformed> {
        let places = survey(fields)?;
        let Some(status) = places.status.value(fields) else {
            return Err("a response without :status (RFC 9113 §8.3.2)");
        };
        if places.first_field != 1 {
            return Err("request pseudo-header fields in a response (RFC 9113 §8.3)");
        }
        let status = match *status {
            [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
            }
            _ => return Err(":status is not a number from 100 to 999 (RFC 9110 §15)"),
        };
        if status == 101 {
            return Err("status 101 (RFC 9113 §8.6)");
        }
        Ok(Self { status, content_length: places.content_length, first_field: places.first_field })
    }

    /// The head; `fields` is the list that was checked.
    pub(crate) fn lend(self, fields: &FieldList) -> ResponseHead<'_> {
        ResponseHead {
            status: self.status,
            is_http10: false,
            fields: fields.starting_at(self.first_field as usize),
        }
    }
}

/// Checks trailers: no pseudo-header fields (§8.1).
pub(crate) fn check_trailers(fields: &FieldList) -> Result<(), Malformed> {
    let places = survey(fields)?;
    if places.first_field > 0 { Err("a pseudo-header field in trailers (RFC 9113 §8.1)") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(fields: &[(&str, &str)]) -> FieldList {
        let mut list = FieldList::new(65_536);
        for (name, value) in fields {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            list.push(name, value, FieldKind::of(name, value));
        }
        list
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];

    fn request_with(more: &[(&str, &str)]) -> Result<RequestParts, Malformed> {
        RequestParts::check(&list(&[&GET[..], more].concat()), false)
    }

    #[test]
    fn a_request_lends_its_head_without_pseudo_fields() {
        let fields = list(&[&GET[..], &[("x", "1"), ("content-length", "5")]].concat());
        let parts = RequestParts::check(&fields, false).unwrap();
        let head = parts.lend(&fields);
        assert_eq!(
            (head.method, head.scheme, head.authority, head.path),
            (&b"GET"[..], &b"http"[..], &b"a"[..], &b"/"[..])
        );
        assert_eq!(head.fields.len(), 2);
        assert_eq!(parts.content_length(), Some(5));
    }

    #[test]
    fn every_missing_or_repeated_pseudo_field_is_malformed() {
        for missing in [":method", ":scheme", ":path"] {
            let rest: Vec<_> = GET.iter().copied().filter(|field| field.0 != missing).collect();
            assert!(RequestParts::check(&list(&rest), false).is_err(), "without {missing}");
        }
        for (name, value) in GET {
            assert!(request_with(&[(name, value)]).is_err(), "{name} twice");
        }
        assert!(request_with(&[("x", "1"), (":method", "GET")]).is_err(), "after a regular field");
        assert!(request_with(&[(":status", "200")]).is_err());
        assert!(request_with(&[(":test", "1")]).is_err());
        assert!(request_with(&[("connection", "close")]).is_err());
        assert!(request_with(&[("te", "gzip")]).is_err());
        assert!(request_with(&[("te", "trailers")]).is_ok());
    }

    #[test]
    fn a_method_that_is_none_is_told_from_none() {
        for (method, words) in [("", "without :method"), ("FOO BAR", ":method is not a token")] {
            let told = RequestParts::check(&list(&[(":method", method), GET[1], GET[2], GET[3]]), false);
            assert!(told.is_err_and(|why| why.contains(words)), "{method}");
        }
    }

    #[test]
    fn the_path_is_absolute_or_the_asterisk_of_options() {
        let check = |method, path| {
            let fields = [(":method", method), (":scheme", "https"), (":authority", "a"), (":path", path)];
            RequestParts::check(&list(&fields), false)
        };
        assert!(check("GET", "").is_err());
        assert!(check("GET", "x").is_err());
        assert!(check("GET", "*").is_err());
        assert!(check("OPTIONS", "*").is_ok());
    }

    #[test]
    fn connect_has_an_authority_and_no_path() {
        let check = |fields: &[(&str, &str)]| RequestParts::check(&list(fields), true);
        let connect = (":method", "CONNECT");
        assert!(check(&[connect, (":authority", "a:1")]).is_ok_and(|parts| parts.is_connect()));
        assert!(check(&[connect, (":authority", "a:1"), (":path", "/")]).is_err());
        assert!(check(&[connect]).is_err());
    }

    #[test]
    fn a_connect_that_names_a_protocol_has_a_target_as_any_request_if_we_announced_it() {
        let fields = |method, protocol| {
            list(&[(":method", method), GET[1], GET[2], GET[3], (":protocol", protocol), ("x", "1")])
        };
        let websocket = fields("CONNECT", "websocket");
        assert_eq!(RequestParts::check(&websocket, true).unwrap().lend(&websocket).protocol, b"websocket");
        assert!(RequestParts::check(&websocket, false).is_err(), "not announced");
        assert!(RequestParts::check(&fields("GET", "websocket"), true).is_err());
        assert!(RequestParts::check(&fields("CONNECT", ""), true).is_err());
        assert!(RequestParts::check(&fields("CONNECT", "web socket"), true).is_err());
        let no_target = list(&[(":method", "CONNECT"), GET[2], (":protocol", "websocket")]);
        assert!(RequestParts::check(&no_target, true).is_err());
        assert!(check_trailers(&list(&[(":protocol", "websocket")])).is_err());
        assert!(ResponseParts::check(&list(&[(":status", "200"), (":protocol", "websocket")])).is_err());
    }

    #[test]
    fn host_stands_in_for_authority_and_must_not_contradict_it() {
        let fields = list(&[GET[0], GET[1], GET[3], ("host", "b")]);
        assert_eq!(RequestParts::check(&fields, false).unwrap().lend(&fields).authority, b"b");
        assert!(request_with(&[("host", "A")]).is_ok(), "hosts have no case");
        assert!(request_with(&[("host", "b")]).is_err());
        assert!(request_with(&[("host", "a"), ("host", "a")]).is_err());
    }

    #[test]
    fn content_lengths_must_be_numbers_and_agree() {
        assert!(request_with(&[("content-length", "3"), ("content-length", "3")]).is_ok());
        assert!(request_with(&[("content-length", "3"), ("content-length", "4")]).is_err());
        for bad in ["", "-1", "+1", "1,1", "0x1", "99999999999999999999"] {
            assert!(request_with(&[("content-length", bad)]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_status_is_three_digits_from_100_and_not_101() {
        let check = |status| ResponseParts::check(&list(&[(":status", status)])).map(|parts| parts.status);
        assert_eq!((check("100"), check("999")), (Ok(100), Ok(999)));
        for bad in ["099", "000", "101", "20", "2000", "2x0", ""] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(ResponseParts::check(&list(&[("x", "1")])).is_err());
        assert!(ResponseParts::check(&list(&[(":status", "200"), (":path", "/")])).is_err());
    }

    #[test]
    fn trailers_have_no_pseudo_fields() {
        assert!(check_trailers(&list(&[("grpc-status", "0")])).is_ok());
        assert!(check_trailers(&list(&[(":status", "200")])).is_err());
    }
}
