//! How much memory the proxy may use, and what it gives up before it has used all of it.

/// What the program needs without any connection: its code and tables, and what the allocator keeps.
pub const OWN: u64 = 24 << 20;
/// The same for each further thread, which keeps what it has freed.
pub const OF_THREAD: u64 = 8 << 20;
/// The smallest bound that leaves anything for requests in one thread.
const LEAST: u64 = 64 << 20;

/// The same in so many threads.
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
    /// New requests are refused.
    Shed,
    /// New connections are refused, too, and what holds most is broken off.
    Full,
}

/// Percent from which on new requests are refused.
const SHED: u64 = 80;
/// Percent from which on new connections are.
const FULL: u64 = 95;
/// Either ends so many percent below.
const HYSTERESIS: u64 = 5;

/// The bound, and what is used of it.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    bytes: u64,
    pressure: Pressure,
}

impl Memory {
    /// `bytes` for the whole process, with so many threads.
    pub const fn new(bytes: u64, threads: u32) -> Self {
        Self { bytes: bytes.saturating_sub(OWN + of_others(threads)), pressure: Pressure::None }
    }

    /// Connections and bodies hold so many bytes now.
    pub fn holds(&mut self, held: u64) -> Pressure {
        let percent = |n: u64| self.bytes / 100 * n;
        let least = |level: Pressure, n: u64| if self.pressure >= level { n - HYSTERESIS } else { n };
        self.pressure = if held > percent(least(Pressure::Full, FULL)) {
            Pressure::Full
        } else if held > percent(least(Pressure::Shed, SHED)) {
            Pressure::Shed
        } else {
            Pressure::None
        };
        self.pressure
    }

    /// As of the last call of [`Memory::holds`].
    pub const fn pressure(&self) -> Pressure {
        self.pressure
    }

    /// Bytes that must be given up until there is no need to close anything.
    pub const fn excess(&self, held: u64) -> u64 {
        held.saturating_sub(self.bytes / 100 * (FULL - HYSTERESIS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_before_connections_and_both_are_taken_again_a_little_later() {
        let mut memory = Memory::new(OWN + 2 * OF_THREAD + 1_000, 3);
        let mut at = |held| memory.holds(held);
        assert_eq!(
            [at(0), at(800), at(801), at(760)],
            [Pressure::None, Pressure::None, Pressure::Shed, Pressure::Shed]
        );
        assert_eq!(
            [at(750), at(951), at(905), at(900), at(760)],
            [Pressure::None, Pressure::Full, Pressure::Full, Pressure::Shed, Pressure::Shed]
        );
        assert_eq!((memory.excess(950), memory.excess(900), memory.excess(0)), (50, 0, 0));
    }
}
