//! How long the threads of some processes ran and waited for a CPU (`/proc/PID/task/TID/schedstat`).

use std::collections::BTreeMap;
use std::time::Duration;

/// CPU time of some threads, and how long they waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuUse {
    /// For how long they were on a CPU, added up.
    pub ran: Duration,
    /// For how long they were ready to run and had none, added up.
    pub waited: Duration,
    /// A lower bound of the longest time that one of them waited without a break, less what all of them ran meanwhile:
    /// threads that wait for each other have more to do than there are CPUs.
    pub longest: Duration,
}

/// The threads, and what they have done since the first look.
#[derive(Debug, Default)]
pub(super) struct Threads {
    last: BTreeMap<(u32, u32), Thread>,
    has_looked: bool,
    pub sum: CpuUse,
}

/// One of them at the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thread {
    ran: Duration,
    waited: Duration,
    /// What all had run when this one was last seen to get a CPU.
    all_ran: Duration,
}

impl Threads {
    /// Reads what the kernel has counted, `since` the last look.
    pub fn look(&mut self, pids: impl Iterator<Item = u32>, since: Duration) {
        let read = |pid: u32| {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            tasks.filter_map(move |task| {
                let thread = task.file_name().to_str()?.parse().ok()?;
                let (ran, waited) = parse(&std::fs::read_to_string(task.path().join("schedstat")).ok()?)?;
                Some(((pid, thread), ran, waited))
            })
        };
        let now: Vec<_> = pids.flat_map(read).collect();
        self.count(&now, since);
    }

    /// Counts what the threads have run and waited until now, by process and thread. A new thread began after the last
    /// look.
    fn count(&mut self, now: &[((u32, u32), Duration, Duration)], since: Duration) {
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let fresh = |all_ran| Thread { ran: Duration::ZERO, waited: Duration::ZERO, all_ran };
        let before: Vec<Thread> = now
            .iter()
            .map(|&(id, ran, waited)| {
                let first = Thread { ran, waited, all_ran: Duration::ZERO };
                let new = if is_first { first } else { fresh(self.sum.ran) };
                self.last.get(&id).copied().unwrap_or(new)
            })
            .collect();
        for (thread, &(_, ran, waited)) in before.iter().zip(now) {
            self.sum.ran += ran.saturating_sub(thread.ran);
            self.sum.waited += waited.saturating_sub(thread.waited);
        }
        let mut last = BTreeMap::new();
        for (thread, &(id, ran, waited)) in before.iter().zip(now) {
            // The kernel counts a wait when it ends. So whatever exceeds the time since the last look belongs to a
            // single wait.
            let at_once = waited.saturating_sub(thread.waited).saturating_sub(since);
            let all_ran = self.sum.ran.saturating_sub(thread.all_ran);
            self.sum.longest = self.sum.longest.max(at_once.saturating_sub(all_ran));
            let got_one = (ran, waited) != (thread.ran, thread.waited);
            let all_ran = if got_one { self.sum.ran } else { thread.all_ran };
            last.insert(id, Thread { ran, waited, all_ran });
        }
        self.last = last;
    }
}

/// The first two numbers of a schedstat: nanoseconds on a CPU, and ready without one (Documentation/scheduler/sched-stats.rst).
fn parse(text: &str) -> Option<(Duration, Duration)> {
    let mut numbers =
        text.split_ascii_whitespace().map(|number| number.parse::<u64>().map(Duration::from_nanos));
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK_PERIOD: Duration = Duration::from_millis(20);

    /// Looks of 20 ms: what each thread had run and waited by then, in milliseconds.
    fn after(looks: &[&[(u64, u64)]]) -> [u64; 3] {
        let mut threads = Threads::default();
        for look in looks {
            let ms = Duration::from_millis;
            let now = look.iter().zip(1..).map(|(&(ran, waited), n)| ((1, n), ms(ran), ms(waited)));
            threads.count(&now.collect::<Vec<_>>(), CHECK_PERIOD);
        }
        let CpuUse { ran, waited, longest } = threads.sum;
        [ran, waited, longest].map(|time| time.as_millis() as u64)
    }

    #[test]
    fn what_was_before_the_first_look_does_not_count_and_threads_that_begin_later_do() {
        assert_eq!(after(&[&[(1_000, 5_000)], &[(1_010, 5_005)]]), [10, 5, 0]);
        assert_eq!(after(&[&[(1_000, 5_000)], &[(1_010, 5_005), (7, 2)]]), [17, 7, 0]);
        assert_eq!(after(&[&[(5, 5), (9, 9)], &[(6, 5)], &[(7, 5)]]), [2, 0, 0], "one ended");
    }

    #[test]
    fn a_wait_longer_than_a_look_was_one() {
        assert_eq!(after(&[&[(0, 0)], &[(0, 0)], &[(0, 0)], &[(1, 320)]]), [1, 320, 299]);
        assert_eq!(after(&[&[(0, 0)], &[(1, 19)], &[(2, 38)]]), [2, 38, 0], "many short ones");
    }

    #[test]
    fn threads_that_wait_for_each_other_are_an_overload_of_their_own() {
        // The first runs for as long as the second waits.
        let looks: Vec<[(u64, u64); 2]> = (0..16).map(|n| [(n * 20, 0), (0, 0)]).collect();
        let mut looks: Vec<&[(u64, u64)]> = looks.iter().map(<[_; 2]>::as_slice).collect();
        looks.push(&[(320, 0), (1, 319)]);
        assert_eq!(after(&looks), [321, 319, 0]);
    }

    #[test]
    fn the_kernels_words_are_read() {
        assert_eq!(parse("7 8 9\n"), Some((Duration::from_nanos(7), Duration::from_nanos(8))));
        assert_eq!(parse("7"), None);
        assert_eq!(parse(""), None);
    }
}
