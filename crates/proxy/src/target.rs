//! Request targets.

use std::borrow::Cow;

/// Path and query of a request, as a server gets them: a target of absolute form may have no path (RFC 9112 §3.2.2), which is `/`
/// (RFC 9110 §4.2.3), and `*` of OPTIONS without a query: that is about the server as a whole (RFC 9112 §3.2.4). CONNECT has none.
pub fn path<'a>(method: &[u8], path: &'a [u8]) -> Cow<'a, [u8]> {
    match (method, path.first()) {
        (b"CONNECT", _) => Cow::Borrowed(path),
        (b"OPTIONS", None) => Cow::Borrowed(b"*"),
        (_, None) => Cow::Borrowed(b"/"),
        (_, Some(b'?')) => Cow::Owned([b"/", path].concat()),
        _ => Cow::Borrowed(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_a_path_in_any_case() {
        for (method, given, got) in [
            ("GET", "", "/"),
            ("GET", "?a=b", "/?a=b"),
            ("GET", "/a?b", "/a?b"),
            ("OPTIONS", "", "*"),
            ("OPTIONS", "?a", "/?a"),
            ("OPTIONS", "*", "*"),
            ("CONNECT", "", ""),
        ] {
            assert_eq!(*path(method.as_bytes(), given.as_bytes()), *got.as_bytes(), "{method} {given}");
        }
    }
}
