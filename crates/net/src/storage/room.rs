//! Room on a disk for what others send: reserved as their bytes arrive, and never all of it.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// How much of a file system stays free, whatever is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spare {
    /// A twentieth of it, and at most 1 GiB.
    #[default]
    Usual,
    /// This many bytes.
    Bytes(u64),
}

/// [`Spare::Usual`] of a large disk, in bytes.
const USUAL: u64 = 1 << 30;

/// The most room that is taken ahead of the bytes of one request, in bytes. It keeps a file in few pieces on its disk.
const MOST_AHEAD: u64 = 64 << 20;

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// Everything that is free is to stay free.
    Spared {
        /// Bytes that are free.
        free: u64,
        /// Bytes that stay free.
        spare: u64,
    },
    /// What the system says.
    System(Errno),
}

impl Spare {
    /// The same in bytes, for a file system of `capacity` bytes.
    const fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Usual => {
                let part = capacity / 20;
                if part < USUAL { part } else { USUAL }
            }
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Whether `more` bytes of a file of `total` bytes fit on the disk of `place`, which is that file or its folder.
/// Reserves nothing: announcing a file must not take room from others.
pub fn check(place: impl AsFd, total: u64, more: u64, spare: Spare) -> Result<(), NoRoom> {
    if getrlimit(Resource::Fsize).current.is_some_and(|most| total > most) {
        return Err(NoRoom::System(Errno::FBIG));
    }
    // A system that does not report its disk will refuse what it cannot write.
    let Ok(disk) = fstatvfs(place) else { return Ok(()) };
    let (free, spare) = (disk.f_bavail * disk.f_frsize, spare.of(disk.f_blocks * disk.f_frsize));
    if more > 0 && free < more.saturating_add(spare) { Err(NoRoom::Spared { free, spare }) } else { Ok(()) }
}

/// Reserves room for the bytes `wanted` of `file`, and for as many bytes behind them as came before, since these will
/// probably follow. The request began at `from` and ends at `until`. Returns up to where there is room.
///
/// Room for everything that was announced was rejected: the head of one request could reserve the whole disk. Room for
/// each write by itself was rejected, too: a file that grows beside others would be in thousands of pieces.
pub fn take(
    file: &File,
    from: u64,
    wanted: Range<u64>,
    until: Option<u64>,
    spare: Spare,
) -> Result<u64, NoRoom> {
    let ahead = (wanted.start - from).min(MOST_AHEAD);
    let end = wanted.end.saturating_add(ahead).min(until.unwrap_or(u64::MAX)).max(wanted.end);
    let end = match check(file, end, end - wanted.start, spare) {
        Ok(()) => end,
        Err(_) => check(file, wanted.end, wanted.end - wanted.start, spare).map(|()| wanted.end)?,
    };
    match fallocate(file, FallocateFlags::empty(), wanted.start, end - wanted.start) {
        // Some file systems cannot: then room is taken by writing.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(end),
        Err(error) => Err(NoRoom::System(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_twentieth_of_a_small_disk_and_a_gibibyte_of_a_large_one_stay_free() {
        assert_eq!(Spare::Usual.of(2_000), 100);
        assert_eq!(Spare::Usual.of(20 << 30), 1 << 30);
        assert_eq!(Spare::Usual.of(1 << 50), 1 << 30);
        assert_eq!(Spare::Bytes(7).of(1 << 50), 7);
    }

    #[test]
    fn room_is_taken_for_as_much_again_as_came_and_not_behind_the_end() {
        let file = tempfile::tempfile().unwrap();
        let none = Spare::Bytes(0);
        assert_eq!(take(&file, 0, 0..4_096, Some(1 << 40), none).unwrap(), 4_096);
        assert_eq!(take(&file, 0, 4_096..8_192, Some(1 << 40), none).unwrap(), 12_288);
        assert_eq!(take(&file, 0, 12_288..16_384, Some(20_000), none).unwrap(), 20_000);
        assert_eq!(take(&file, 100_000, 100_000..100_001, None, none).unwrap(), 100_001);
        let length = file.metadata().unwrap();
        assert!(length.blocks() * 512 <= 128 << 10, "{length:?}");
    }

    #[test]
    fn what_is_spared_is_not_taken_and_what_is_not_announced_is_not_asked() {
        let file = tempfile::tempfile().unwrap();
        let all = Spare::Bytes(u64::MAX / 2);
        assert!(
            matches!(check(&file, 1, 1, all), Err(NoRoom::Spared { spare, .. }) if spare == u64::MAX / 2)
        );
        assert!(matches!(take(&file, 0, 0..1, None, all), Err(NoRoom::Spared { .. })));
        assert!(check(&file, 0, 0, all).is_ok(), "nothing always fits");
        assert!(matches!(check(&file, 1 << 60, 1 << 60, Spare::Bytes(0)), Err(NoRoom::Spared { .. })));
        assert_eq!(file.metadata().unwrap().blocks(), 0);
    }
}
