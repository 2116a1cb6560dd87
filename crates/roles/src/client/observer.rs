//! What a session reports of the data that crosses its connection.

use std::sync::Arc;

use h2lab_base::units::Time;
use h2lab_wire::trace::{Crossing, Dialect, Direction, Tap};

use super::connect::DialTarget;
use super::request_observer::RequestObserver;
use super::watch::{Watch, WatchEvent};

/// The observers of what crosses, beside the statistics: the [`Tap`], and a [`Watch`] if there is one.
#[derive(Debug)]
pub(super) struct Observer {
    /// The connection's number in the cell.
    connection: u32,
    /// Reports each frame; `None` where they are not wanted, see [`DialTarget::tap`].
    tap: Option<Tap>,
    /// The observer of every byte, if there is one.
    watch: Option<Arc<dyn Watch>>,
}

impl Observer {
    /// For the connection with this number, whose bytes are parsed in this dialect.
    pub fn new(target: &DialTarget, dialect: Dialect, connection: u32) -> Self {
        let tap = target.tap.then(|| Tap::new(dialect, connection));
        Self { connection, tap, watch: target.watch.clone() }
    }

    /// Shows what crosses.
    pub fn see(
        &mut self,
        at: Time,
        direction: Direction,
        crossing: Crossing<'_>,
        exchange: &mut impl RequestObserver,
    ) {
        if let Some(watch) = &self.watch {
            watch.see(at, WatchEvent::Crossing { connection: self.connection, direction, crossing });
        }
        let Some(tap) = &mut self.tap else { return };
        tap.cross(at, direction, crossing, &mut |frame| exchange.frame(frame));
    }
}
