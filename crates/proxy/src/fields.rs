//! The fields of a message between two hops (RFC 9110 §7.6).
//!
//! What concerns one connection alone ends here. Everything else passes in order, and the proxy adds what it owes to
//! the next hop: `Via`, and who the client was. Framing is not a field: the engine of the next hop writes it, from
//! [`Head::body_length`].

use h2lab_base::JsonSchema;
use h2lab_wire::event::{RequestHead, ResponseHead};
use h2lab_wire::{Field, Fields, is_authority};
use serde::{Deserialize, Serialize};

use crate::head::{Head, Part};
use crate::target;

/// The version of HTTP on a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// HTTP/1.1 (and 1.0).
    H1,
    /// HTTP/2.
    H2,
    /// HTTP/3.
    H3,
}

impl Version {
    /// As `Via` names it (RFC 9110 §7.6.3).
    const fn received_protocol(self, is_http10: bool) -> &'static [u8] {
        match self {
            Self::H1 if is_http10 => b"1.0 ",
            Self::H1 => b"1.1 ",
            Self::H2 => b"2 ",
            Self::H3 => b"3 ",
        }
    }
}

/// How the next hop is told who the client was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientFields {
    /// Not at all; the client's own fields pass.
    None,
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// Which host the next hop is asked for, in `Host` or `:authority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    /// The one that the client has asked for.
    #[default]
    Keep,
    /// The instance's own, as its URL says: for services of others, which accept only their own names.
    Instance,
}

/// Which fields the proxy adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct OwnFields {
    /// The proxy's name in `Via`; without it no `Via` is added.
    pub via: Option<String>,
    /// How the next hop is told who the client was.
    pub client: ClientFields,
    /// Whether the client may be a proxy, so that what it says of other clients is kept and added to. Otherwise it is replaced, and
    /// `X-Real-IP` and `X-Forwarded-Port` do not pass.
    pub trusted: bool,
    /// Which host instances are asked for.
    pub host: Host,
}

impl Default for OwnFields {
    fn default() -> Self {
        let (client, host) = (ClientFields::default(), Host::default());
        Self { via: Some("h2lab".to_owned()), client, trusted: false, host }
    }
}

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The version on that hop.
    pub version: Version,
    /// The client's address, as text: `192.0.2.1`, `2001:db8::1`.
    pub address: &'a str,
    /// Whether it came over TLS.
    pub tls: bool,
}

/// Why a message is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The method is not a token (RFC 9110 §9.1).
    #[error("invalid method")]
    Method,
    /// The target has a byte that would end it in HTTP/1.1, or a fragment, which is for the client alone (RFC 9110
    /// §7.1). Some servers cut a fragment off, and would serve a target that no route was compared with.
    #[error("the target contains white space, a control character or #")]
    Target,
    /// The authority is not a host and port.
    #[error("invalid authority: expected HOST or HOST:PORT")]
    Authority,
    /// `Connection` names more fields than any real message, and none of them may be passed on.
    #[error("more than {MOST_OPTIONS} options of Connection")]
    Options,
}

/// What a request asks of the proxy itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Asked {
    /// It is a WebSocket handshake: `Upgrade: websocket` where that may be, or CONNECT with this protocol (RFC 8441).
    pub websocket: bool,
    /// It is a CONNECT that names no protocol: a tunnel (RFC 9110 §9.3.6).
    pub connect: bool,
    /// It waits for 100 before it sends its body.
    pub expects_continue: bool,
    /// OPTIONS or TRACE with `Max-Forwards: 0`: the proxy answers itself (RFC 9110 §7.6.2).
    pub ends_here: bool,
    /// It came in HTTP/1.0.
    pub is_http10: bool,
}

impl Asked {
    /// Whether bytes go both ways once it is accepted.
    pub const fn is_tunnel(&self) -> bool {
        self.websocket || self.connect
    }
}

/// The most options of `Connection` that are examined: no real message has more. A request with more is refused, since
/// the fields that it names must not go on (RFC 9110 §7.6.1), and so is a response: see [`check_response`].
const MOST_OPTIONS: usize = 16;

/// Fields that `Connection` must not remove from a message. They are meant for every recipient (RFC 9110 §7.6.1); a
/// sender that names them wants to hide them from the next hop.
const END_TO_END: [&[u8]; 12] = [
    b"authorization",
    b"cache-control",
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"content-type",
    b"cookie",
    b"expect",
    b"forwarded",
    b"host",
    b"x-forwarded-for",
    b"x-forwarded-host",
];

/// The options of the `Connection` fields of a message.
struct Options<'a> {
    all: [&'a [u8]; MOST_OPTIONS],
    count: usize,
    /// There are more.
    is_incomplete: bool,
}

impl<'a> Options<'a> {
    fn of(fields: Fields<'a>) -> Self {
        let mut options = Self { all: [&[]; MOST_OPTIONS], count: 0, is_incomplete: false };
        let lines = fields.iter().filter(|field| field.name == b"connection");
        for option in lines.flat_map(|line| tokens(line.value)) {
            if END_TO_END.iter().any(|name| name.eq_ignore_ascii_case(option)) {
                continue;
            }
            let Some(place) = options.all.get_mut(options.count) else {
                options.is_incomplete = true;
                break;
            };
            *place = option;
            options.count += 1;
        }
        options
    }

    fn names(&self, name: &[u8]) -> bool {
        self.all[..self.count].iter().any(|option| option.eq_ignore_ascii_case(name))
    }
}

/// The members of a list of tokens (RFC 9110 §5.6.1).
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

/// Fields that concern one connection, or that the engines write (RFC 9110 §7.6.1, RFC 9113 §8.2.2, RFC 7540 §3.2.1).
fn is_of_hop(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection"
            | b"keep-alive"
            | b"proxy-connection"
            | b"transfer-encoding"
            | b"upgrade"
            | b"http2-settings"
            | b"te"
            | b"content-length"
            | b"host"
    )
}

/// Makes what the next hop gets of a request that came from `origin`. It suits any version of HTTP: a request that is
/// sent again may go on in another version. [`te`] is HTTP/1.1's alone.
pub fn request(
    incoming: &RequestHead<'_>,
    origin: Origin<'_>,
    own: &OwnFields,
    head: &mut Head,
) -> Result<Asked, Refused> {
    check(incoming)?;
    head.clear();
    head.set(Part::Method, incoming.method);
    head.set(Part::Authority, incoming.authority);
    head.set(Part::Path, &target::path(incoming.method, incoming.path));
    head.set(Part::Protocol, incoming.protocol);
    let fields = incoming.fields;
    let options = Options::of(fields);
    if options.is_incomplete {
        return Err(Refused::Options);
    }
    let mut asked = Asked {
        websocket: incoming.protocol == b"websocket",
        is_http10: incoming.is_http10,
        connect: incoming.method == b"CONNECT" && incoming.protocol.is_empty(),
        ..Asked::default()
    };
    let (mut takes_trailers, mut cookies) = (false, 0);
    for Field { name, value } in fields.iter() {
        match name {
            b"te" => takes_trailers |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"trailers")),
            b"upgrade" => {
                let is_websocket = tokens(value).any(|token| token.eq_ignore_ascii_case(b"websocket"));
                asked.websocket |= is_websocket && options.names(b"upgrade") && may_upgrade(incoming);
            }
            b"content-length" => head.body_length = number(value),
            b"cookie" => cookies += 1,
            b"max-forwards" if matches!(incoming.method, b"OPTIONS" | b"TRACE") => {
                asked.ends_here |= !forward_once_less(value, head);
            }
            b"x-forwarded-for" | b"x-forwarded-proto" | b"x-forwarded-host" | b"x-forwarded-port"
            | b"x-real-ip" | b"forwarded" | b"via" => {}
            _ if is_of_hop(name) || options.names(name) => {}
            _ => {
                asked.expects_continue |= name == b"expect" && value.eq_ignore_ascii_case(b"100-continue");
                head.add(name, &[value]);
            }
        }
    }
    add_cookies(fields, cookies, head);
    if takes_trailers {
        head.add(b"te", &[b"trailers"]);
    }
    add_client(incoming, origin, own, head);
    add_via(fields, origin.version.received_protocol(incoming.is_http10), own, head);
    Ok(asked)
}

/// Whether an offer to go on in WebSocket is considered: it is made by GET (RFC 6455 §4.1). An offer in HTTP/1.0 must
/// be ignored, and any other may be (RFC 9110 §7.8). It is ignored in a request with content, which a handshake does
/// not have and which would come before the switch.
fn may_upgrade(incoming: &RequestHead<'_>) -> bool {
    let is_of_content = |field: Field<'_>| match field.name {
        b"transfer-encoding" => true,
        b"content-length" => number(field.value) != Some(0),
        _ => false,
    };
    incoming.method == b"GET" && !incoming.is_http10 && !incoming.fields.iter().any(is_of_content)
}

/// The field line that HTTP/1.1 needs beside `te: trailers`, since that concerns one connection (RFC 9110 §10.1.4).
pub fn te(head: &Head, to: Version) -> Option<Field<'static>> {
    (to == Version::H1 && head.field(b"te").is_some()).then_some(Field::new("connection", "te"))
}

/// The length of a body that the next hop gets. HTTP/1.1 can send trailers only without a length, in chunks (RFC 9112
/// §7.1.2): a message that announces trailers keeps them that way.
pub fn body_length(head: &Head, to: Version) -> Option<u64> {
    let has_trailers = to == Version::H1 && head.field(b"trailer").is_some();
    head.body_length.filter(|_| !has_trailers)
}

/// The length of a body; the engine has checked that it is a number.
fn number(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok()?.parse().ok()
}

/// Passes `Max-Forwards` on, less one; `false` if it was 0.
fn forward_once_less(value: &[u8], head: &mut Head) -> bool {
    match number(value) {
        Some(0) => return false,
        Some(left) => head.add(b"max-forwards", &[(left - 1).to_string().as_bytes()]),
        None => {}
    }
    true
}

/// Refuses what HTTP/2 and HTTP/3 can carry and HTTP/1.1 would read as something else, or must refuse (RFC 9112 §3.2).
fn check(incoming: &RequestHead<'_>) -> Result<(), Refused> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if incoming.method.is_empty() || !incoming.method.iter().all(is_token) {
        return Err(Refused::Method);
    }
    if incoming.path.iter().any(|byte| *byte <= b' ' || matches!(byte, 0x7f | b'#'))
        || str::from_utf8(incoming.path).is_err()
    {
        return Err(Refused::Target);
    }
    if is_authority(incoming.authority) { Ok(()) } else { Err(Refused::Authority) }
}

/// HTTP/2 may split `cookie` into lines, and HTTP/1.1 has one (RFC 9113 §8.2.3).
fn add_cookies(fields: Fields<'_>, lines: usize, head: &mut Head) {
    let all = || fields.iter().filter(|field| field.name == b"cookie").map(|field| field.value);
    if lines < 2 {
        return all().for_each(|value| head.add(b"cookie", &[value]));
    }
    head.add_list(b"cookie", all().flat_map(|value| [&b"; "[..], value]).skip(1));
}

/// Appends `last` to the list in the lines of `name`, as one line; without `kept` it is the only member.
fn add_to_list(fields: Fields<'_>, name: &[u8], kept: bool, last: &[&[u8]], head: &mut Head) {
    let all = fields.iter().filter(|field| kept && field.name == name).map(|field| field.value);
    head.add_list(name, all.flat_map(|value| [value, b", "]).chain(last.iter().copied()));
}

fn add_client(incoming: &RequestHead<'_>, origin: Origin<'_>, own: &OwnFields, head: &mut Head) {
    let (fields, address) = (incoming.fields, origin.address.as_bytes());
    let names: [&[u8]; 6] = [
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-forwarded-host",
        // Nothing here writes these two.
        b"x-forwarded-port",
        b"x-real-ip",
        b"forwarded",
    ];
    let pass = |names: &[&[u8]], head: &mut Head| {
        let kept = fields.iter().filter(|field| names.contains(&field.name));
        kept.for_each(|field| head.add(field.name, &[field.value]));
    };
    let proto: &[u8] = if origin.tls { b"https" } else { b"http" };
    match own.client {
        ClientFields::None => pass(&names, head),
        ClientFields::XForwarded => {
            add_to_list(fields, names[0], own.trusted, &[address], head);
            // These two say what the first proxy saw.
            for (name, value) in [(names[1], proto), (names[2], incoming.authority)] {
                let first = own.trusted.then(|| fields.iter().find(|field| field.name == name)).flatten();
                let value = first.map_or(value, |field| field.value);
                // HTTP/1.0 may name no host.
                if !value.is_empty() {
                    head.add(name, &[value]);
                }
            }
            if own.trusted {
                pass(&names[3..], head);
            }
        }
        ClientFields::Forwarded => {
            let is_ipv6 = address.contains(&b':');
            let quotes: [&[u8]; 2] = if is_ipv6 { [b"\"[", b"]\""] } else { [b"", b""] };
            let element: [&[u8]; 6] = [b"for=", quotes[0], address, quotes[1], b";proto=", proto];
            let host: [&[u8]; 3] = [b";host=\"", incoming.authority, b"\""];
            let has_host = !incoming.authority.is_empty(); // HTTP/1.0 may name none
            let element: Vec<&[u8]> =
                element.into_iter().chain(host.into_iter().filter(|_| has_host)).collect();
            add_to_list(fields, names[5], own.trusted, &element, head);
            if own.trusted {
                pass(&names[..5], head);
            }
        }
    }
}

/// Every proxy adds itself, behind those before it (RFC 9110 §7.6.3).
fn add_via(fields: Fields<'_>, received_protocol: &[u8], own: &OwnFields, head: &mut Head) {
    match &own.via {
        Some(name) => {
            add_to_list(fields, b"via", true, &[received_protocol, name.as_bytes()], head);
        }
        None => fields
            .iter()
            .filter(|field| field.name == b"via")
            .for_each(|field| head.add(b"via", &[field.value])),
    }
}

/// Whether a response, interim or final, may be passed on. One with too many options of `Connection` may not be.
pub fn check_response(incoming: &ResponseHead<'_>) -> Result<(), Refused> {
    if Options::of(incoming.fields).is_incomplete { Err(Refused::Options) } else { Ok(()) }
}

/// Makes what the client gets of a response, interim or final, that came in version `from` and has passed
/// [`check_response`].
pub fn response(incoming: &ResponseHead<'_>, from: Version, own: &OwnFields, head: &mut Head) {
    head.clear();
    head.status = incoming.status;
    let options = Options::of(incoming.fields);
    for Field { name, value } in incoming.fields.iter() {
        match name {
            b"content-length" => head.body_length = number(value),
            b"via" => {}
            _ if (is_of_hop(name) && name != b"host") || options.names(name) => {}
            _ => head.add(name, &[value]),
        }
    }
    add_via(incoming.fields, from.received_protocol(incoming.is_http10), own, head);
}

/// Makes the trailers that the other side gets: without anything that frames, routes or controls a message (RFC 9110
/// §6.5.1).
pub fn trailers(incoming: Fields<'_>, head: &mut Head) {
    head.clear();
    for Field { name, value } in incoming.iter() {
        let is_of_message = matches!(
            name,
            b"trailer" | b"authorization" | b"set-cookie" | b"content-encoding" | b"content-type"
        );
        if !is_of_hop(name) && !is_of_message {
            head.add(name, &[value]);
        }
    }
}

#[cfg(test)]
mod tests;
