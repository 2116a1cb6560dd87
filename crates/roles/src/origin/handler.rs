//! What each path answers: a pure function from a request's head to a [`ResponsePlan`].

use std::fmt::Write as _;
use std::time::Duration;

use h2lab_base::units::{Time, parse_bytes};
use h2lab_wire::RequestHead;

use super::early;
use super::plan::{Drip, Echo, MAX_BYTES, MAX_DELAY, ResponsePlan, pretty};
use h2lab_net::storage::Body;

/// The body of `/`.
const INDEX_BYTES: u64 = 1024;

/// The response to a request. `now` is when its head was complete.
pub fn route(now: Time, head: &RequestHead<'_>) -> ResponsePlan {
    known(now, head).unwrap_or_else(|refused| match refused {
        Some(why) => ResponsePlan::text(now, 400, why),
        None => not_found(now),
    })
}

/// The same, with what `/` answers at every path that is none of these or has another argument: for an origin in the place
/// of a server whose paths are not known.
pub fn route_any(now: Time, head: &RequestHead<'_>) -> ResponsePlan {
    known(now, head).unwrap_or_else(|_| {
        // 200 to a CONNECT would begin a tunnel.
        if head.method == b"CONNECT" { not_found(now) } else { ResponsePlan::filler(now, INDEX_BYTES) }
    })
}

/// The response at a path of ours; else what is wrong with the path, or `None` at any other path.
fn known(now: Time, head: &RequestHead<'_>) -> Result<ResponsePlan, Option<&'static str>> {
    let Ok(target) = std::str::from_utf8(head.path) else {
        return Err(Some("the path is not UTF-8\n"));
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut segments = path.trim_matches('/').split('/');
    let (first, argument) = (segments.next().unwrap_or(""), segments.next());
    if segments.next().is_some() {
        return Err(None);
    }
    if head.method == b"CONNECT" {
        return Ok(connect(now, head, first));
    }
    let planned = match (first, argument) {
        ("*", None) if head.method == b"OPTIONS" => Some(ResponsePlan::text(now, 200, "")),
        ("", None) => Some(ResponsePlan::filler(now, INDEX_BYTES)),
        ("bytes", Some(size)) => size_of(size).map(|bytes| ResponsePlan::filler(now, bytes)),
        ("delay", Some(ms)) => {
            ms.parse().ok().map(|ms| ResponsePlan::text(now, 200, "").after(Duration::from_millis(ms)))
        }
        ("drip", None) => drip(now, query),
        ("status", Some(status)) => status_of(status).map(|status| ResponsePlan::text(now, status, "")),
        ("headers", None) => {
            Some(ResponsePlan::at_once(now, 200, JSON, Body::bytes(pretty(&describe(head)))))
        }
        ("anything", None) => Some(
            ResponsePlan::at_once(now, 200, JSON, Body::filler(0)).echoing(Echo::Described(describe(head))),
        ),
        ("echo", None) => Some(ResponsePlan::filler(now, 0).echoing(Echo::Same)),
        ("stream", Some(lines)) => lines.parse().ok().filter(|n| *n <= 100_000).map(|n| lines_of(now, n)),
        ("early", None) => early::plan(now, query, head.authority, early::EARLY),
        ("push", None) => early::plan(now, query, head.authority, early::PUSH),
        ("stall", None) => Some(stall(now, query)),
        _ => return Err(None),
    };
    planned.ok_or(Some("the path's argument is not a number in range\n"))
}

/// A tunnel to ourselves, for any protocol, on the echo paths. Without a protocol CONNECT means a proxy (RFC 9110 §9.3.6), which
/// this server is not.
fn connect(now: Time, head: &RequestHead<'_>, first: &str) -> ResponsePlan {
    match first {
        "anything" | "echo" if !head.protocol.is_empty() => {
            ResponsePlan { tunnel: true, ..ResponsePlan::filler(now, 0) }
        }
        // The client does not end a request whose tunnel it waits for.
        _ => {
            let plan = if head.protocol.is_empty() {
                ResponsePlan::text(now, 501, "this server is not a proxy\n")
            } else {
                not_found(now)
            };
            ResponsePlan { is_final: true, ..plan }
        }
    }
}

const JSON: &str = "application/json";

fn not_found(now: Time) -> ResponsePlan {
    let known = "/ /bytes/N /delay/MS /drip?bytes=&ms= /status/N /headers /anything /echo /stream/N \
                 /early?ms=&at=&status=&links=&on=&push=&bytes=&body=&trailers= /push?count= /stall?every=&ms=&at=";
    ResponsePlan::text(now, 404, format!("no such path; there are {known}\n"))
}

/// The response to a request whose body is too large to be echoed.
pub fn too_large(now: Time) -> ResponsePlan {
    ResponsePlan::text(now, 413, "this server holds no more than 16 MiB for a connection\n")
}

/// The response if one connection, or all of them together, ask for more at a time than may be held. It does not wait
/// for the rest of the request.
pub fn too_much(now: Time) -> ResponsePlan {
    let plan = ResponsePlan::at_once(now, 503, "text/plain; charset=utf-8", Body::filler(0));
    ResponsePlan { is_final: true, ..plan }
}

/// `10`, `64k`, `1M`, `2G`.
fn size_of(text: &str) -> Option<u64> {
    parse_bytes(text).ok().filter(|bytes| *bytes <= MAX_BYTES)
}

fn status_of(text: &str) -> Option<u16> {
    text.parse().ok().filter(|status| (200..=599).contains(status))
}

/// A number of the query, `ms` of `every=1000&ms=200`.
fn number(query: &str, name: &str) -> Option<u64> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// `bytes` in ten pieces, or as many as there are bytes for: the last one leaves `ms` after the head.
fn drip(now: Time, query: &str) -> Option<ResponsePlan> {
    const PIECES: u64 = 10;
    let bytes =
        query.split('&').find_map(|pair| pair.strip_prefix("bytes=")).map_or(Some(INDEX_BYTES), size_of)?;
    let whole = Duration::from_millis(number(query, "ms").unwrap_or(1000)).min(MAX_DELAY);
    let piece = bytes.div_ceil(PIECES).max(1);
    let pieces = bytes.div_ceil(piece).max(1) as u32; // at most ten
    Some(ResponsePlan {
        drip: Some(Drip { piece, every: whole / pieces }),
        ..ResponsePlan::filler(now, bytes)
    })
}

/// Once per `every` milliseconds the whole server seems to pause for `ms`: requests of that time are answered at the end of the
/// pause, on all connections alike. It has the shape of a stall by packet loss, without a lost packet.
///
/// Pauses begin `at` milliseconds after the server's start and at every multiple of `every` from there: with a long `every`
/// there is one.
fn stall(now: Time, query: &str) -> ResponsePlan {
    let every = number(query, "every").unwrap_or(1000).clamp(1, 3_600_000) * 1_000_000;
    let pause = number(query, "ms").unwrap_or(200).saturating_mul(1_000_000).min(every);
    let at = number(query, "at").unwrap_or(0).saturating_mul(1_000_000) % every;
    let phase = (now.as_nanos() % every + every - at) % every;
    let left = pause.saturating_sub(phase);
    ResponsePlan::filler(now, INDEX_BYTES).after(Duration::from_nanos(left))
}

fn lines_of(now: Time, n: u64) -> ResponsePlan {
    let mut lines = String::new();
    for id in 0..n {
        _ = writeln!(lines, "{{\"id\": {id}}}"); // writing to a string cannot fail
    }
    ResponsePlan::at_once(now, 200, JSON, Body::bytes(lines.into_bytes()))
}

/// The request's head as JSON.
fn describe(head: &RequestHead<'_>) -> serde_json::Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields: Vec<(String, String)> =
        head.fields.iter().map(|field| (text(field.name), text(field.value))).collect();
    serde_json::json!({
        "method": text(head.method),
        "scheme": text(head.scheme),
        "authority": text(head.authority),
        "path": text(head.path),
        "headers": fields,
    })
}

#[cfg(test)]
mod tests {
    use h2lab_wire::Fields;

    use super::*;

    fn plan_at(now: Time, path: &str) -> ResponsePlan {
        let head = RequestHead {
            method: b"GET",
            scheme: b"http",
            authority: b"server",
            path: path.as_bytes(),
            protocol: b"",
            is_http10: false,
            fields: Fields::default(),
        };
        route(now, &head)
    }

    fn plan(path: &str) -> ResponsePlan {
        plan_at(Time::from_millis(500), path)
    }

    #[test]
    fn the_root_is_1_kib() {
        assert_eq!((plan("/").status, plan("/").body.length()), (200, 1024));
    }

    #[test]
    fn sizes_take_suffixes_and_have_a_bound() {
        assert_eq!(plan("/bytes/64k").body.length(), 65_536);
        assert_eq!(plan("/bytes/1T").status, 400);
        assert_eq!(plan("/bytes/").status, 404);
        assert_eq!(plan("/bytes/x").status, 400);
    }

    #[test]
    fn delays_postpone_the_head_and_have_a_bound() {
        assert_eq!(plan("/delay/250").due, Time::from_millis(750));
        assert_eq!(plan("/delay/99999999").due, Time::from_millis(500) + MAX_DELAY);
        assert_eq!(plan("/early?ms=80").interim.len(), 1);
        assert_eq!(plan("/early?ms=80").due, Time::from_millis(580));
    }

    #[test]
    fn statuses_are_final_ones() {
        assert_eq!(plan("/status/503").status, 503);
        assert_eq!(plan("/status/103").status, 400);
        assert_eq!(plan("/status/600").status, 400);
    }

    #[test]
    fn a_drip_is_ten_pieces_over_its_time() {
        let plan = plan("/drip?bytes=1000&ms=500");
        assert_eq!(plan.drip, Some(Drip { piece: 100, every: Duration::from_millis(50) }));
        assert_eq!(plan.body.length(), 1000);
    }

    #[test]
    fn a_stall_holds_back_all_that_falls_into_it() {
        let due = |ms| plan_at(Time::from_millis(ms), "/stall?every=1000&ms=200").due;
        assert_eq!(due(3_000), Time::from_millis(3_200));
        assert_eq!(due(3_199), Time::from_millis(3_200));
        assert_eq!(due(3_200), Time::from_millis(3_200));
        assert_eq!(due(3_999), Time::from_millis(3_999));
    }

    #[test]
    fn a_stall_may_begin_later_than_the_server() {
        let due = |ms| plan_at(Time::from_millis(ms), "/stall?every=60000&ms=500&at=2000").due;
        assert_eq!(due(0), Time::from_millis(0));
        assert_eq!(due(1_999), Time::from_millis(1_999));
        assert_eq!(due(2_000), Time::from_millis(2_500));
        assert_eq!(due(2_499), Time::from_millis(2_500));
        assert_eq!(due(2_500), Time::from_millis(2_500));
        assert_eq!(due(62_100), Time::from_millis(62_500));
    }

    #[test]
    fn a_stall_of_any_length_is_at_most_the_whole_time() {
        let due = plan("/stall?every=1000&ms=18446744073709551615").due;
        assert_eq!(due, Time::from_millis(1_000));
        assert_eq!(plan("/stall?every=0&ms=0").due, Time::from_millis(500));
    }

    #[test]
    fn pushes_are_counted_and_have_a_bound() {
        let pushes = |path| plan(path).push.map_or(0, |push| push.count);
        assert_eq!((pushes("/"), pushes("/push"), pushes("/push?count=16")), (0, 1, 16));
        assert_eq!((pushes("/push?count=17"), pushes("/push?count=0")), (16, 0));
        assert_eq!(plan(&early::resource(3)).body.length(), 4096);
    }

    #[test]
    fn a_tunnel_names_its_protocol_and_a_path_that_echoes() {
        let connect = |path: &str, protocol: &str| {
            let head = RequestHead {
                method: b"CONNECT",
                scheme: b"http",
                authority: b"server",
                path: path.as_bytes(),
                protocol: protocol.as_bytes(),
                is_http10: false,
                fields: Fields::default(),
            };
            let plan = route(Time::ZERO, &head);
            (plan.status, plan.tunnel)
        };
        assert_eq!(connect("/echo", "websocket"), (200, true));
        assert_eq!(connect("/anything", "connect-udp"), (200, true));
        assert_eq!(connect("/bytes/4k", "websocket"), (404, false));
        assert_eq!(connect("", ""), (501, false));
    }

    #[test]
    fn unknown_paths_say_which_there_are() {
        assert_eq!(plan("/nope").status, 404);
        assert_eq!(plan("/bytes/1/2").status, 404);
    }

    #[test]
    fn in_the_place_of_another_server_unknown_paths_answer_as_the_root_does() {
        let answer_bytes = |method: &str, path: &[u8]| {
            let head = RequestHead {
                method: method.as_bytes(),
                scheme: b"http",
                authority: b"server",
                path,
                protocol: b"",
                is_http10: false,
                fields: Fields::default(),
            };
            let plan = route_any(Time::ZERO, &head);
            (plan.status, plan.body.length())
        };
        let answer = |method: &str, path: &str| answer_bytes(method, path.as_bytes());
        let others = ["/", "/api", "/api?x=1", "/api/users/7", "/bytes"];
        let alike = ["/status/ready", "/stream/x", "/bytes/x", "/bytes/1T", "/delay/x", "/drip?bytes=x"];
        for path in others.into_iter().chain(alike) {
            assert_eq!(answer("GET", path), (200, 1024), "{path}");
        }
        assert_eq!(answer_bytes("GET", b"/\xff"), (200, 1024));
        assert_eq!(answer_bytes("CONNECT", b"/\xff").0, 404);
        assert_eq!(answer("POST", "/api"), (200, 1024));
        assert_eq!(answer("GET", "/bytes/64k"), (200, 65_536), "a path of ours stays what it is");
        assert_eq!(answer("GET", "/status/404").0, 404);
        assert_eq!([answer("CONNECT", "/a/b/c").0, answer("CONNECT", "/api").0], [404, 501]);
    }
}
