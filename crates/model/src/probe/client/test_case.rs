//! The server's behaviour in each test case.

use std::time::Duration;

use h2lab_wire::{Config, FlowControl, Role};
use strum::VariantArray;

/// One behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum TestCase {
    /// Like any server: the baseline of the others.
    Plain,
    /// A body of [`LARGE`] bytes.
    LargeBody,
    /// Ends the connection after some requests by one GOAWAY, whose last stream is below the request that has just come: that one
    /// and those in flight behind it are not processed.
    #[strum(to_string = "stream-quota")]
    Quota,
    /// The same in two steps, so that nothing is lost.
    #[strum(to_string = "graceful-goaway")]
    Graceful,
    /// Ends the first connection by a GOAWAY with an error, and cuts it: what was under way is lost with it.
    #[strum(to_string = "abrupt-goaway")]
    Abrupt,
    /// Refuses the first request with `REFUSED_STREAM`.
    #[strum(to_string = "refused-stream")]
    Refuse,
    /// Allows one stream at a time, and no dynamic table.
    OneStream,
    /// Announces other settings while a response is under way.
    #[strum(to_string = "settings-change")]
    Change,
    /// Takes bodies through small receive windows, and makes these smaller after the first body has begun.
    SmallWindows,
    /// Several 1xx before each response.
    Interim,
    /// Promises a resource that was not requested.
    Push,
    /// Bodies that trickle.
    SlowBody,
    /// A body that stops in its middle.
    StalledBody,
    /// The first connection falls silent, as if the server hung: the kernel still accepts data, and no answer comes.
    BlackOut,
}

/// Bytes of the large body.
pub const LARGE: u64 = 4 << 20;
/// Bytes of the others.
pub const SMALL: u64 = 1024;
/// How long an answer takes where requests are to pile up.
pub const BUSY: Duration = Duration::from_millis(30);
/// Pieces of a slow body, and how far apart.
pub const DROPS: (u64, Duration) = (8, Duration::from_millis(100));
/// The interim responses before each final one.
pub const INTERIM: [u16; 4] = [100, 103, 103, 199];
/// The settings that [`TestCase::Change`] announces: `MAX_CONCURRENT_STREAMS` 50, `MAX_FRAME_SIZE` 16,384.
pub const CHANGED: [(u16, u32); 2] = [(3, 50), (5, 16_384)];
/// The `MAX_FRAME_SIZE` that [`TestCase::Change`] begins with.
const UNCHANGED_FRAME: u32 = 32_768;
/// The receive windows for streams in [`TestCase::SmallWindows`], before and after `INITIAL_WINDOW_SIZE` is lowered. Credit for
/// half of the first comes back before the second is used up.
pub const WINDOWS: [u32; 2] = [4_096, 3_072];

impl TestCase {
    /// All of them, in the order in which they are run.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Its name: `stream-quota`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The test case with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|test_case| test_case.name() == name)
    }

    /// How our engine is configured for it.
    pub fn config(self) -> Config {
        let mut config = Config::new(Role::Server);
        config.flow = FlowControl { stream_window: 65_536, connection_window: 1 << 20, ..config.flow };
        match self {
            Self::Change => config.max_frame_size = UNCHANGED_FRAME,
            Self::SmallWindows => config.flow.stream_window = WINDOWS[0],
            Self::OneStream => {
                config.max_concurrent_streams = Some(1);
                config.header_table_size = 0;
            }
            _ => {}
        }
        config
    }
}

/// Requests after which a connection ends where a test case needs that: a third of them, so that some come after it.
pub fn quota(requests: usize) -> u32 {
    u32::try_from(requests / 3).unwrap_or(u32::MAX).max(1)
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnswerState {
    /// Answered to its end.
    Answered,
    /// Refused with `REFUSED_STREAM`: it was not processed and may be sent again.
    Refused,
    /// Not answered to its end, deliberately or because the connection ended.
    #[default]
    Open,
}

/// The position of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestPosition {
    /// Among all of the test case, from 0.
    pub of_all: usize,
    /// Among those of its connection, from 0.
    pub on_connection: usize,
    /// Its connection is the first one that carries any: a client may dial some that never do.
    pub on_first: bool,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a deviation of its own from an ordinary answer")]
pub struct RequestHandling {
    /// Nothing is sent for it, nor for anything else on this connection.
    pub goes_dark: bool,
    /// `REFUSED_STREAM`.
    pub refuses: bool,
    /// It is not processed: a GOAWAY names the stream before it as the last one, and the connection ends after the accepted
    /// requests.
    pub ends_below: bool,
    /// It is not processed, and the connection ends at once: a GOAWAY with an error, and no more.
    pub cuts: bool,
    /// A graceful GOAWAY is sent with it.
    pub says_goaway: bool,
    /// Interim responses come first.
    pub interim: bool,
    /// A promise comes first.
    pub pushes: bool,
    /// Other settings come after its head.
    pub changes_settings: bool,
    /// `INITIAL_WINDOW_SIZE` is lowered at once.
    pub lowers_windows: bool,
    /// The delay from the end of the request to the head.
    pub delay: Duration,
    /// Bytes of the body.
    pub length: u64,
    /// Pieces of the body, and how far apart; the last one never comes if [`RequestHandling::stalls`].
    pub pieces: (u64, Duration),
    /// The last piece never comes.
    pub stalls: bool,
}

impl TestCase {
    /// What this test case does with a request, of `expected` in all.
    pub fn handling(self, place: RequestPosition, expected: usize) -> RequestHandling {
        let is_first = place.of_all == 0;
        let plain = RequestHandling {
            goes_dark: false,
            refuses: false,
            ends_below: false,
            cuts: false,
            lowers_windows: false,
            says_goaway: false,
            interim: false,
            pushes: false,
            changes_settings: false,
            delay: Duration::ZERO,
            length: SMALL,
            pieces: (1, Duration::ZERO),
            stalls: false,
        };
        match self {
            Self::LargeBody if is_first => RequestHandling { length: LARGE, ..plain },
            Self::Quota => RequestHandling {
                delay: BUSY,
                ends_below: place.on_connection >= quota(expected) as usize,
                ..plain
            },
            Self::OneStream => RequestHandling { delay: BUSY, ..plain },
            Self::Graceful => {
                let last = place.on_connection + 1 == quota(expected) as usize;
                RequestHandling { delay: BUSY, says_goaway: last, ..plain }
            }
            Self::Abrupt => {
                let cuts = place.on_first && place.on_connection == quota(expected) as usize;
                RequestHandling { delay: BUSY, cuts, ..plain }
            }
            Self::SmallWindows => RequestHandling { lowers_windows: is_first, ..plain },
            Self::Refuse => RequestHandling { refuses: is_first, ..plain },
            // The second half comes later, so that the client is still there to acknowledge them.
            Self::Change if is_first => {
                RequestHandling { pieces: (2, BUSY), changes_settings: true, ..plain }
            }
            Self::Interim => RequestHandling { interim: true, ..plain },
            Self::Push => RequestHandling { pushes: is_first, ..plain },
            Self::SlowBody if is_first => RequestHandling { pieces: DROPS, ..plain },
            Self::StalledBody if is_first => {
                RequestHandling { pieces: (2, Duration::ZERO), stalls: true, ..plain }
            }
            Self::BlackOut => RequestHandling { goes_dark: place.on_first, ..plain },
            Self::Plain | Self::LargeBody | Self::Change | Self::SlowBody | Self::StalledBody => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for &test_case in TestCase::ALL {
            assert_eq!(TestCase::named(test_case.name()), Some(test_case));
        }
        assert_eq!(TestCase::named("x"), None);
    }

    #[test]
    fn a_quota_leaves_requests_behind_it_and_is_never_zero() {
        assert_eq!((quota(0), quota(1), quota(20)), (1, 1, 6));
        let at = |on_connection| RequestPosition { of_all: on_connection, on_connection, on_first: true };
        assert!(
            TestCase::Graceful.handling(at(5), 20).says_goaway
                && !TestCase::Graceful.handling(at(4), 20).says_goaway
        );
        assert!(
            TestCase::Quota.handling(at(6), 20).ends_below && !TestCase::Quota.handling(at(5), 20).ends_below
        );
    }

    #[test]
    fn what_is_announced_later_is_never_more_than_the_engine_takes() {
        let config = TestCase::Change.config();
        assert!(CHANGED.iter().all(|(id, value)| *id != 5 || *value < config.max_frame_size));
    }

    #[test]
    fn what_is_done_once_is_done_to_the_first_request_alone() {
        let place = |of_all, on_connection, on_first| RequestPosition { of_all, on_connection, on_first };
        let places = [place(0, 0, true), place(1, 1, true), place(2, 0, false)];
        let first = |test_case: TestCase| places.map(|place| test_case.handling(place, 9)).into();
        for test_case in [
            TestCase::Refuse,
            TestCase::Push,
            TestCase::Change,
            TestCase::StalledBody,
            TestCase::SlowBody,
            TestCase::LargeBody,
        ] {
            let (first, second, other): (RequestHandling, RequestHandling, RequestHandling) =
                first(test_case);
            assert_ne!(first, second, "{}", test_case.name());
            assert_eq!(second, other, "{}", test_case.name());
        }
        let (first, second, other): (RequestHandling, RequestHandling, RequestHandling) =
            first(TestCase::BlackOut);
        assert!(first.goes_dark && second.goes_dark && !other.goes_dark);
    }
}
