//! Waterfalls for tests.

use super::{InterimResponse, Waterfall, WaterfallStream};

/// A request for `path` with these interim responses, and its answer with a body of 10 bytes at `headers_ms`.
pub fn exchange(path: &str, interim: &[(u16, f64)], headers_ms: f64) -> Waterfall {
    let interim = interim.iter().map(|&(status, ms)| InterimResponse { status, ms, links: 1 }).collect();
    let main = WaterfallStream {
        id: 1,
        path: path.to_owned(),
        request_ms: Some(0.5),
        interim,
        status: Some(200),
        headers_ms: Some(headers_ms),
        first_data_ms: Some(headers_ms),
        last_data_ms: Some(headers_ms),
        end_ms: Some(headers_ms),
        bytes: 10,
        ..WaterfallStream::default()
    };
    Waterfall { streams: vec![main], ..Waterfall::default() }
}

/// A stream that was promised, and answered later.
pub fn pushed(path: &str, promise_ms: f64, end_ms: f64) -> WaterfallStream {
    WaterfallStream {
        id: 2,
        path: path.to_owned(),
        pushed: true,
        promise_ms: Some(promise_ms),
        status: Some(200),
        headers_ms: Some(end_ms),
        end_ms: Some(end_ms),
        ..WaterfallStream::default()
    }
}
