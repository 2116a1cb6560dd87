//! What a session reports of the data that crosses its connection.

use std::sync::Arc;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_wire::ResponseHead;
use h2lab_wire::trace::{Dialect, Direction, Tap};

use super::connect::Target;
use super::session::{Exchange, Fate};
use super::watch::{Watch, WatchEvent};
use h2lab_net::transport::Crossing;

/// The observers of what crosses, beside the statistics: the [`Tap`], and a [`Watch`] if there is one.
#[derive(Debug)]
pub(super) struct Observer {
    /// The connection's number in the cell.
    connection: u32,
    /// Reports each frame; `None` where they are not wanted, see [`Target::tap`].
    tap: Option<Tap>,
    /// The observer of every byte, if there is one.
    watch: Option<Arc<dyn Watch>>,
}

impl Observer {
    /// For the connection with this number, whose bytes are parsed in this dialect.
    pub fn new(target: &Target, dialect: Dialect, connection: u32) -> Self {
        let tap = target.tap.then(|| Tap::new(dialect, connection));
        Self { connection, tap, watch: target.watch.clone() }
    }

    /// Shows what crosses.
    pub fn see(
        &mut self,
        at: Time,
        direction: Direction,
        crossing: Crossing<'_>,
        exchange: &mut impl Exchange,
    ) {
        if let Some(watch) = &self.watch {
            watch.see(at, WatchEvent::Crossing { connection: self.connection, direction, crossing });
        }
        let Some(tap) = &mut self.tap else { return };
        let mut sink = |frame| exchange.frame(frame);
        match crossing {
            Crossing::Bytes { stream: None, bytes, .. } => tap.feed(at, direction, bytes, &mut sink),
            Crossing::Bytes { stream: Some(stream), bytes, fin } => {
                tap.feed_stream(at, direction, stream, bytes, fin, &mut sink);
            }
            Crossing::Reset { stream, code } => tap.abort(at, direction, stream, false, code, &mut sink),
            Crossing::Stop { stream, code } => tap.abort(at, direction, stream, true, code, &mut sink),
        }
    }
}

/// Ignores everything: when all requests have been reported, only connection-level frames cross.
#[derive(Debug)]
pub(super) struct Deaf;

impl Exchange for Deaf {
    fn sent(&mut self, _: u32, _: Time, _: Duration) {}
    fn head(&mut self, _: u32, _: Time, _: &ResponseHead<'_>) {}
    fn body(&mut self, _: u32, _: &[u8]) {}
    fn ended(&mut self, _: u32, _: Time, _: Fate) {}
}
