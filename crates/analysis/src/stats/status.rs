//! Statuses that are no success: what is probably not as it was meant.

use h2lab_wire::h1::reason_phrase;

/// `404 Not Found: measured as it is; is the path right?`; `None` of a success.
pub fn doubt_of_status(status: u16) -> Option<String> {
    if (200..400).contains(&status) {
        return None;
    }
    let question = match status {
        400 => "; is the request complete (-H, -d), and is it no port for TLS (https://)?",
        422 => "; is the request complete (-H, -d)?",
        401 | 403 | 407 => "; are credentials missing (-H 'authorization: …')?",
        404 | 410 => "; is the path right?",
        405 => "; is the method right (-X)?",
        421 => "; is the host right?",
        429 => "; the server limits requests",
        _ => "",
    };
    let reason = reason_phrase(status);
    let space = if reason.is_empty() { "" } else { " " };
    Some(format!("{status}{space}{reason}: measured as it is{question}"))
}

#[cfg(test)]
mod tests {
    use super::doubt_of_status;

    #[test]
    fn a_status_that_is_no_success_is_named_with_what_may_be_wrong() {
        assert_eq!([200, 204, 304, 399].map(doubt_of_status), [const { None }; 4]);
        let told = |status| doubt_of_status(status).unwrap();
        assert_eq!(told(404), "404 Not Found: measured as it is; is the path right?");
        assert!(told(405).ends_with("; is the method right (-X)?"));
        assert_eq!(told(599), "599: measured as it is");
    }
}
