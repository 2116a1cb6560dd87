//! How much memory the proxy may use, and what it gives up before it has used all of it.

/// What the program needs without any connection: its code and tables, and what the allocator keeps.
pub const OWN: u64 = 24 << 20;
/// The same for each further thread, which keeps what it has freed.
pub const OF_THREAD: u64 = 8 << 20;
/// The smallest bound that leaves anything for requests in one thread.
const LEAST: u64 = 64 << 20;

/// The same with `threads` threads.
pub const fn least(threads: u32) -> u64 {
    LEAST + of_others(threads)
}

const fn of_others(threads: u32) -> u64 {
    OF_THREAD * threads.saturating_sub(1) as u64
}

/// How short memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Pressure {
    /// There is enough.
    #[default]
    None,
    /// All buffers and windows shrink: slow readers need little.
    Tight,
    /// New requests are refused, and connections that hold much and take nothing are broken off.
    Shed,
    /// New connections are refused, too, and the connections that hold most are broken off.
    Full,
}

/// Percent from which on buffers shrink.
const SHRINK_FROM_PERCENT: u64 = 50;
/// Percent from which on new requests are refused.
const REFUSE_FROM_PERCENT: u64 = 80;
/// Percent from which on new connections are refused.
const FULL: u64 = 95;
/// Each level ends this many percent below where it begins.
const HYSTERESIS: u64 = 5;

/// The bound, and what is used of it.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    bytes: u64,
    pressure: Pressure,
}

impl Memory {
    /// `bytes` for the whole process, with `threads` threads.
    pub const fn new(bytes: u64, threads: u32) -> Self {
        Self { bytes: bytes.saturating_sub(OWN + of_others(threads)), pressure: Pressure::None }
    }

    /// Connections and bodies hold `held` bytes now.
    pub fn holds(&mut self, held: u64) -> Pressure {
        let percent = |n: u64| self.bytes / 100 * n;
        let least = |level: Pressure, n: u64| if self.pressure >= level { n - HYSTERESIS } else { n };
        self.pressure = if held > percent(least(Pressure::Full, FULL)) {
            Pressure::Full
        } else if held > percent(least(Pressure::Shed, REFUSE_FROM_PERCENT)) {
            Pressure::Shed
        } else if held > percent(least(Pressure::Tight, SHRINK_FROM_PERCENT)) {
            Pressure::Tight
        } else {
            Pressure::None
        };
        self.pressure
    }

    /// Continues from the level that another thread has found. Each level ends below where it begins, so all threads
    /// must agree on the current one.
    pub const fn resume(&mut self, pressure: Pressure) {
        self.pressure = pressure;
    }

    /// What connections and bodies may hold in all.
    pub const fn room(&self) -> u64 {
        self.bytes
    }

    /// As of the last call of [`Memory::holds`].
    pub const fn pressure(&self) -> Pressure {
        self.pressure
    }

    /// Bytes that must be given up until the pressure is no longer at this level, [`Pressure::Shed`] or [`Pressure::Full`].
    pub const fn excess(&self, held: u64, level: Pressure) -> u64 {
        let from = if matches!(level, Pressure::Full) { FULL } else { REFUSE_FROM_PERCENT };
        held.saturating_sub(self.bytes / 100 * (from - HYSTERESIS))
    }
}

/// What each of `threads` threads may keep for the diagnosis, where all together may hold `room` bytes.
pub fn diagnosis(room: u64, threads: u32) -> u64 {
    room / DIAGNOSIS_PARTS / u64::from(threads.max(1))
}

/// The diagnosis has one of this many parts of the room. Whoever reads it uses two or three times as much for a moment.
const DIAGNOSIS_PARTS: u64 = 16;

/// What a stream may have under way, and a connection unsent, where all together may hold `room` bytes: thousands may be slow at a time.
pub fn share(room: u64) -> u32 {
    (room / SHARES).clamp(LEAST_SHARE, MOST_SHARE) as u32
}

/// The largest window that a stream may grow to within that `room`. Such a stream has taken everything fast until then,
/// but may stop at any time.
pub fn largest_window(room: u64) -> u32 {
    (room / LARGEST_SHARES).clamp(LEAST_SHARE, MOST_WINDOW) as u32
}

/// One stream may grow to one of this many parts of the room.
const LARGEST_SHARES: u64 = 512;
/// Where memory is not bounded: 1 Gbit/s at a round trip of 128 ms.
const MOST_WINDOW: u64 = 16 << 20;
/// One stream begins with one of this many parts of the room.
const SHARES: u64 = 2_048;
/// A frame of the least size that HTTP/2 has (RFC 9113 §4.2).
const LEAST_SHARE: u64 = 16 * 1024;
/// What a stream begins with where memory is not bounded.
const MOST_SHARE: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_before_connections_and_both_are_taken_again_a_little_later() {
        use Pressure::{Full, None, Shed, Tight};
        let mut memory = Memory::new(OWN + 2 * OF_THREAD + 1_000, 3);
        let mut at = |held| memory.holds(held);
        assert_eq!([at(0), at(500), at(501), at(460), at(450)], [None, None, Tight, Tight, None]);
        assert_eq!([at(800), at(801), at(760), at(750)], [Tight, Shed, Shed, Tight]);
        assert_eq!([at(951), at(905), at(900), at(760), at(0)], [Full, Full, Shed, Shed, None]);
        let excess = |held, level| memory.excess(held, level);
        assert_eq!([excess(950, Full), excess(900, Full), excess(800, Shed)], [50, 0, 50]);
    }

    #[test]
    fn a_thread_goes_on_from_the_level_that_another_one_has_found() {
        let mut memory = Memory::new(OWN + 1_000, 1);
        memory.resume(Pressure::Full);
        assert_eq!((memory.holds(920), memory.holds(900)), (Pressure::Full, Pressure::Shed));
    }

    #[test]
    fn a_share_is_small_where_there_is_little_room_and_never_below_a_frame() {
        assert_eq!([share(0), share(48 << 20), share(512 << 20)], [16_384, 24_576, 262_144]);
        assert_eq!([0, 48 << 20, 1 << 40].map(largest_window), [16_384, 98_304, 16 << 20]);
        assert_eq!([(40 << 20, 1), (32 << 20, 4)].map(|(room, n)| diagnosis(room, n)), [2_621_440, 524_288]);
    }
}
