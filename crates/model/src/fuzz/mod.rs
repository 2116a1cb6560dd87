//! Fuzz targets: code under arbitrary input, and its invariants.
//!
//! A target is a function that panics if the code under it is wrong. The crate in `fuzz/` runs each under cargo-fuzz; the
//! tests here run them on the stable toolchain, on inputs that are mutated from valid ones by a seed.
//! `cargo xtask fuzz-proof` shows that each finds a bug that was planted for the purpose.

mod mutate;
mod proxy;
#[cfg(test)]
mod tests;

use crate::scenario::Scenario;
use h2lab_wire::fuzz as connections;
use h2lab_wire::{h1, h2, h3};
pub use mutate::Mutator;

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Its name: of its function, of its test, and of its file in `fuzz/fuzz_targets/`.
    pub name: &'static str,
    /// Panics if something is wrong. For any bytes it ends soon and uses little memory.
    pub run: fn(&[u8]),
    /// Valid inputs, the corpus for mutations.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [FuzzTarget; 11] = [
    FuzzTarget { name: "frames", run: h2::fuzz::frames, seeds: h2_conversations },
    FuzzTarget { name: "hpack", run: h2::fuzz::hpack, seeds: hpack_seeds },
    FuzzTarget { name: "h1_head", run: h1::fuzz::head, seeds: head_seeds },
    FuzzTarget { name: "h1_body", run: h1::fuzz::body, seeds: body_seeds },
    FuzzTarget { name: "server", run: connections::server, seeds: server_seeds },
    FuzzTarget { name: "client", run: connections::client, seeds: client_seeds },
    FuzzTarget { name: "pair", run: connections::pair, seeds: pair_seeds },
    FuzzTarget { name: "qpack", run: h3::fuzz::sections, seeds: qpack_seeds },
    FuzzTarget { name: "h3", run: h3::fuzz::streams, seeds: h3::fuzz::scripts },
    FuzzTarget { name: "proxy", run: proxy::proxy, seeds: proxy::seeds },
    FuzzTarget { name: "scenario", run: scenario, seeds: scenario_seeds },
];

/// The target called `name`.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> FuzzTarget {
    *TARGETS.iter().find(|target| target.name == name).expect("a target of that name")
}

/// A scenario file: a valid one survives a round trip, and can be planned.
fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(scenario) = Scenario::from_toml(text) else { return };
    let written = scenario.to_toml();
    let read = Scenario::from_toml(&written).expect("what we write is valid");
    assert_eq!(read, scenario, "{written}");
    // The plan is a product: a file of that many values may legitimately ask for more cells than fit into memory.
    let values = text.bytes().filter(|byte| *byte == b',').count();
    if values <= 24 && scenario.repetitions <= 3 {
        scenario.plan();
    }
}

fn h2_conversations() -> Vec<Vec<u8>> {
    let client = connections::recorded_client(true);
    vec![client[h2::frame::PREFACE.len()..].to_vec(), connections::recorded_server(true)]
}

/// Every field block of the recorded conversations, after its length.
fn hpack_seeds() -> Vec<Vec<u8>> {
    let block = |block: &[u8]| [&(block.len() as u16).to_be_bytes()[..], block].concat();
    let mut all = Vec::new();
    for mut bytes in h2_conversations() {
        while let Some((header, rest)) = bytes.split_first_chunk::<{ h2::frame::HEADER_LENGTH }>() {
            let header = h2::frame::FrameHeader::parse(header);
            let (payload, rest) = rest.split_at(header.length as usize);
            if header.kind == h2::frame::kind::HEADERS {
                all.extend(block(payload));
            }
            bytes = rest.to_vec();
        }
    }
    let updates =
        block(&[0x20, 0x3f, 0xe1, 0x1f, 0x40, 1, b'x', 1, b'v', 0xbe, 0x82, 0x10, 1, b'n', 1, b's']);
    vec![
        [&[3][..], &all].concat(),
        [&[0x84][..], &all, &updates, &all].concat(),
        [&[0x30][..], &updates].concat(),
    ]
}

/// Sections after their lengths: every static entry, names by reference, literals with and without the Huffman code, and
/// one that needs a dynamic table.
fn qpack_seeds() -> Vec<Vec<u8>> {
    let section = |lines: &[u8]| [&(lines.len() as u16 + 2).to_be_bytes()[..], &[0, 0], lines].concat();
    let entries: Vec<u8> = (0xc0..0xff).chain((0..36).flat_map(|rest| [0xff, rest])).collect();
    let literals = [
        &[0x51, 0x0b][..],
        b"/index.html",
        &[0x5f, 80, 0x81, 0x1f, 0x23, b'x', b'-', b'a', 0, 0x2a, 0x94, 0xe7, 2, b'o', b'k'],
    ];
    vec![section(&entries), section(&literals.concat()), [section(&[0x80]), section(&entries)].concat()]
}

fn head_seeds() -> Vec<Vec<u8>> {
    let (client, server) = (connections::recorded_client(false), connections::recorded_server(false));
    vec![
        [&[0][..], &client].concat(),
        [&[1][..], &server].concat(),
        b"\x02x-sum: 1\r\nx-end: of the body\r\n\r\n".to_vec(),
    ]
}

fn body_seeds() -> Vec<Vec<u8>> {
    let chunks = b"4\r\nWiki\r\n05;name=\"value\"\r\npedia\r\nA\r\n0123456789\r\n0\r\nx: 1\r\n\r\n";
    vec![[&[0, 3][..], chunks].concat(), [&[1, 7][..], chunks].concat(), [&[2, 1][..], chunks].concat()]
}

/// Every conversation under every option that changes how it is read.
fn with_options(is_h2: bool, bytes: &[u8]) -> Vec<Vec<u8>> {
    let options =
        if is_h2 { [0, 4, 8, 16, 4 + 8, 32] } else { [1, 1 + 8, 1 + 16, 1 + 32, 1 + 8 + 16, 1 + 32 + 16] };
    options.iter().map(|options| [&[*options, 5][..], bytes].concat()).collect()
}

fn server_seeds() -> Vec<Vec<u8>> {
    let upgrade = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\
                    http2-settings: AAMAAABkAAQAAP__\r\n\r\n";
    let mut seeds = with_options(true, &connections::recorded_client(true));
    seeds.extend(with_options(true, &connections::sparing_client()));
    seeds.extend(with_options(false, &connections::recorded_client(false)));
    seeds.push([&[1 + 32, 9][..], upgrade, &connections::recorded_client(true)].concat());
    seeds
}

fn client_seeds() -> Vec<Vec<u8>> {
    let mut seeds = with_options(true, &connections::recorded_server(true));
    seeds.extend(with_options(false, &connections::recorded_server(false)));
    seeds
}

/// Scripts: both sides send requests and responses and deliver them, in several orders and with several options.
fn pair_seeds() -> Vec<Vec<u8>> {
    let script: [u8; 40] = [
        0, 0, 1, 90, 10, 255, 3, 200, 11, 255, 2, 50, 10, 40, 9, 1, 4, 80, 11, 99, 8, 1, 8, 200, 10, 200, 1,
        200, 10, 255, 7, 1, 3, 77, 7, 200, 11, 255, 9, 0,
    ];
    [0, 1, 4, 2 + 8, 16 + 4, 32, 64 + 1, 1 + 4, 32 + 4 + 8]
        .iter()
        .map(|options| [&[*options][..], &script, &script].concat())
        .collect()
}

fn scenario_seeds() -> Vec<Vec<u8>> {
    let written = Scenario::default().to_toml();
    let full = include_bytes!("scenario.toml").to_vec();
    vec![written.into_bytes(), include_bytes!("../../../../scenarios/compare.toml").to_vec(), full]
}
