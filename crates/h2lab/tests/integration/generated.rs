//! Files in the tree that the program generates.

use std::fs;

use crate::support::{folder, h2lab, workspace};

#[test]
fn the_published_schemas_are_those_of_this_program() {
    let fresh = folder();
    let path = fresh.path().to_str().expect("temporary folders have plain names");
    let finished = h2lab(&["gen", "schema", path]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    for entry in fs::read_dir(fresh.path()).expect("the folder was just made") {
        let entry = entry.expect("its entries can be read");
        let published = workspace().join("docs/schema").join(entry.file_name());
        let text = fs::read_to_string(&published).unwrap_or_default();
        let name = published.display();
        let written = fs::read_to_string(entry.path()).expect("it was just written");
        // Both are thousands of lines: git shows the difference better than a failed test.
        assert!(
            text == written,
            "{name} lags behind: run `cargo run --features schema -- gen schema docs/schema`"
        );
    }
}
