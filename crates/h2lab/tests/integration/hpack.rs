//! Header compression against nghttp2's encoder and decoder, over real connections and with tables of every size.

use crate::origin::Origin;
use crate::peers::Peer;
use crate::support::{DEADLINE, folder, h2lab, need, run_program};

/// `SETTINGS_HEADER_TABLE_SIZE` on both sides of each boundary.
const SIZES: [&str; 5] = ["0", "1", "4095", "4096", "65536"];

/// Requests on one connection: enough that later ones refer to table entries of the first.
const REQUESTS: usize = 8;

/// Fields that repeat, that are large, and that have bytes beyond ASCII.
fn fields() -> Vec<String> {
    let mut fields: Vec<String> =
        (0..20).map(|n| format!("x-field-{n}: value-{}", "v".repeat(n * 13))).collect();
    fields.push(format!("x-large: {}", "0123456789".repeat(300)));
    fields.push("x-latin: na\u{ef}ve".to_owned());
    fields
}

/// Runs nghttp with these options on one connection, and checks that all fields came back in every answer.
fn exchange(origin: &Origin, options: &[&str]) -> bool {
    let Some(nghttp) = need("nghttp") else { return false };
    let fields = fields();
    let mut arguments: Vec<String> =
        ["-v", "--timeout=60s"].iter().chain(options).map(|&a| a.to_owned()).collect();
    arguments.extend(fields.iter().map(|field| format!("-H{field}")));
    arguments.extend((0..REQUESTS).map(|n| format!("http://{}/headers?{n}", origin.clear)));
    let said = run_program(&nghttp, folder().path(), &arguments).transcript();
    assert_eq!(said.matches(":status: 200").count(), REQUESTS, "{options:?}: {said}");
    assert!(!said.contains("COMPRESSION_ERROR"), "{options:?}: {said}");
    for field in &fields {
        let (name, value) = field.split_once(": ").expect("a field");
        let echoed = said.matches(&format!("\"{name}\",\n      \"{value}\"")).count();
        assert_eq!(echoed, REQUESTS, "{options:?}: {name} came back {echoed} times: {said}");
    }
    true
}

#[test]
fn nghttp_reads_what_we_encode_for_tables_of_every_size() {
    let origin = Origin::start(&[]);
    for size in SIZES {
        // Given twice, the smaller value is announced before the larger one: a table that shrinks and grows again.
        for options in [&[size][..], &["0", size], &["1", size]] {
            let options: Vec<String> =
                options.iter().map(|size| format!("--header-table-size={size}")).collect();
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            if !exchange(&origin, &options) {
                return;
            }
        }
    }
}

#[test]
fn we_read_what_nghttp_encodes_with_tables_of_every_size() {
    let origin = Origin::start(&[]);
    for size in SIZES {
        if !exchange(&origin, &[&format!("--encoder-header-table-size={size}")]) {
            return;
        }
    }
}

#[test]
fn nghttpd_and_our_client_agree_with_tables_of_every_size() {
    for size in SIZES {
        for side in ["--header-table-size", "--encoder-header-table-size"] {
            let Some(server) = Peer::nghttpd(&["-v", &format!("{side}={size}")]) else { return };
            let url = format!("http://{}/file", server.address);
            for _ in 0..2 {
                let finished = h2lab(&["__get", &url]);
                assert_eq!(finished.stdout, "200\n", "{side}={size}: {}", finished.transcript());
            }
            let asked =
                server.child.wait_for_line(DEADLINE, |line| line.contains(":path: /file").then_some(()));
            asked.unwrap_or_else(|error| panic!("{error}: {}", server.child.log()));
        }
    }
}
