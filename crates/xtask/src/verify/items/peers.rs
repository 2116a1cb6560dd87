//! Proxies and clients that are not ours, probed.

use anyhow::Result;

use super::suites::suite;
use super::{Item, item};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

/// What is promised of `probe smuggling` and `probe client`.
pub fn all() -> Vec<Item> {
    vec![
        item(
            "smuggling",
            "HAProxy 2.6 is found vulnerable to h2c smuggling by default and not with the fix; nginx's recipe for WebSocket is found \
             with a lax backend; nginx and Apache as they come are clean; every fixture is what it says",
            |h2lab| integration(h2lab, "smuggling::"),
        ),
        item(
            "clients",
            "curl, Go's net/http, Node and nghttp get the grades that are known of them",
            |h2lab| integration(h2lab, "client_under_test::"),
        ),
    ]
}

fn integration(h2lab: &H2lab, filter: &str) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], filter)
}
