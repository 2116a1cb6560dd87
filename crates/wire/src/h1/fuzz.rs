//! Heads and bodies under arbitrary input ([`h2lab_model::fuzz`]).

use super::body::{Decoder, Then};
use super::head::{self, Scratch};

/// A head, or trailers. A complete one ends within the input, reads the same without what follows it, and is not
/// complete a byte earlier.
pub fn head(data: &[u8]) {
    let [kind, data @ ..] = data else { return };
    let parse = |bytes: &[u8]| {
        let mut scratch = Scratch::default();
        let length = match kind % 3 {
            0 => head::parse_request(bytes, &mut scratch).map(|head| head.map(|head| head.length)),
            1 => head::parse_response(bytes, &mut scratch).map(|head| head.map(|head| head.length)),
            _ => head::parse_trailers(bytes, &mut scratch),
        };
        let fields: Vec<Vec<u8>> = scratch
            .spans
            .iter()
            .map(|span| {
                assert!(span.start <= span.value_start && span.value_start <= span.end);
                let field = &scratch.bytes[span.start as usize..span.end as usize];
                assert!(
                    !field.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
                    "a field breaks its line"
                );
                field.to_vec()
            })
            .collect();
        (length, fields)
    };
    let _ = head::opening(data, kind % 3 == 0);
    let _ = head::names_another_protocol(data);
    let (Ok(Some(length)), fields) = parse(data) else { return };
    assert!(length <= data.len());
    assert_eq!(parse(&data[..length]), (Ok(Some(length)), fields));
    assert!(!matches!(parse(&data[..length - 1]), (Ok(Some(_)), _)), "complete a byte too early");
    assert!(head::may_be_complete(&data[..length], 0));
}

/// A body, in pieces of any size: the same bytes, the same end and the same fault as in one piece.
pub fn body(data: &[u8]) {
    let [kind, pieces, data @ ..] = data else { return };
    let decoder = match kind % 3 {
        0 => Decoder::chunked(),
        1 => Decoder::Length(u64::from(*kind) * 5),
        _ => Decoder::UntilClose,
    };
    let whole = decode(decoder.clone(), data, usize::MAX);
    let cut = decode(decoder, data, usize::from(*pieces % 37) + 1);
    match (&whole, &cut) {
        (Ok(whole), Ok(cut)) => assert_eq!(whole, cut),
        (Err(whole), Err(cut)) => assert_eq!(whole, cut),
        _ => panic!("at once {whole:?}, in pieces {cut:?}"),
    }
}

/// The body that `input` holds, where it ends, and how.
fn decode(mut decoder: Decoder, input: &[u8], step: usize) -> Result<(Vec<u8>, usize, Then), &'static str> {
    let (mut body, mut at) = (Vec::new(), 0);
    let mut then = Then::More;
    while at < input.len() && then == Then::More {
        let end = input.len().min(at.saturating_add(step));
        let piece = decoder.decode(&input[at..end])?;
        assert!(piece.skip + piece.data <= end - at, "more than there is");
        assert!(piece.skip + piece.data > 0 || piece.then != Then::More, "no progress");
        body.extend_from_slice(&input[at + piece.skip..at + piece.skip + piece.data]);
        at += piece.skip + piece.data;
        then = piece.then;
    }
    Ok((body, at, then))
}
