//! A kernel timer that wakes a reactor at some time, set once for many sleeps.
//!
//! A sleep with a timeout arms a kernel timer and, when an event comes before it, disarms it. On a virtual machine each
//! of these calls the hypervisor, if no other timer of that CPU is due earlier. A busy thread sleeps ten thousand times
//! a second and has a deadline every 10 ms. So its timeouts are one `timerfd` in its epoll set, which is left as it is
//! when its deadline has moved to a later time: then it fires early, to no effect.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use h2lab_base::units::Time;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// See the [module](self).
#[derive(Debug)]
pub struct WakeTimer {
    /// `None` until it is set for the first time: many reactors never wait that long.
    timer: Option<OwnedFd>,
    fires_at: Time,
}

impl Default for WakeTimer {
    fn default() -> Self {
        Self { timer: None, fires_at: Time::NEVER }
    }
}

impl WakeTimer {
    /// When it fires next; [`Time::NEVER`] if it is not set.
    pub const fn fires_at(&self) -> Time {
        self.fires_at
    }

    /// Sets it to `at`, `left` from now and not zero, in place of what it was set to. Its event in `epoll` carries `data`.
    /// Without a free descriptor it stays unset.
    pub fn set(&mut self, epoll: &impl AsFd, data: EventData, at: Time, left: Duration) -> io::Result<()> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => {
                let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
                let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
                // Edge-triggered: every expiry is reported once, and its count is never read.
                epoll::add(epoll, &timer, data, EventFlags::IN | EventFlags::ET)?;
                none.insert(timer)
            }
        };
        let it_value = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
        self.fires_at = at;
        Ok(())
    }

    /// Its event was taken: it does not fire again until it is set.
    pub const fn has_fired(&mut self) {
        self.fires_at = Time::NEVER;
    }
}
