//! When and where threads run: real-time priority, short slices, precise timers, CPU placement.

use std::io;
use std::num::NonZeroU64;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use super::sys::check;

/// How the scheduler treats the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulingPolicy {
    /// `SCHED_FIFO`: runs as soon as it has something to do.
    Realtime,
    /// An ordinary thread that requests short slices, and so runs sooner when it wakes.
    ShortSlices,
    /// An ordinary thread.
    Ordinary,
}

impl SchedulingPolicy {
    /// The name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Realtime => "SCHED_FIFO",
            Self::ShortSlices => "ordinary, short slices",
            Self::Ordinary => "ordinary",
        }
    }
}

/// The slice that an ordinary thread requests: the shortest that Linux accepts (`sched(7)`, from 6.12 on).
const SLICE_NANOS: u64 = 100_000;

/// Gives the calling thread the best scheduling that this user may have.
///
/// `SCHED_FIFO` needs `CAP_SYS_NICE` outside of any user namespace, or `RLIMIT_RTPRIO`. Its lowest priority is enough to
/// be ahead of all ordinary threads; the kernel's own real-time threads stay ahead of it.
pub fn prefer() -> SchedulingPolicy {
    if make_realtime().is_ok() {
        SchedulingPolicy::Realtime
    } else if shorten_slices().is_ok() {
        SchedulingPolicy::ShortSlices
    } else {
        SchedulingPolicy::Ordinary
    }
}

/// Gives the calling thread `SCHED_FIFO`; its children do not inherit it.
pub fn make_realtime() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: 0 is the calling thread; `parameters` is valid and only read.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) })
}

fn shorten_slices() -> io::Result<()> {
    // SAFETY: all zeros is a valid sched_attr: SCHED_OTHER, nice 0.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_runtime = SLICE_NANOS;
    // SAFETY: 0 is the calling thread; `attributes` is valid for its `size` and only read.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets timers of the calling thread expire on time instead of up to 50 µs later. Children inherit it.
pub fn sharpen_timers() -> io::Result<()> {
    Ok(set_current_timer_slack(NonZeroU64::new(1))?)
}

/// Pins the calling thread to one CPU.
pub fn set_affinity(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(None, &cpus)?)
}

/// The CPUs on which the calling thread may run, in ascending order.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let cpus = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_kept_on_each_cpu_that_it_may_use() {
        std::thread::spawn(|| {
            for cpu in allowed_cpus().unwrap() {
                set_affinity(cpu).unwrap();
                assert_eq!(allowed_cpus().unwrap(), [cpu]);
                assert_eq!(rustix::thread::sched_getcpu(), cpu);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        assert!(set_affinity(CpuSet::MAX_CPU).is_err());
        assert!(set_affinity(CpuSet::MAX_CPU - 1).is_err());
    }
}
