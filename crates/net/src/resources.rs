//! What this process may use, and what it uses: open files and memory.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises our soft limit of open files to the hard one, and returns it. Each connection is a file, and shells commonly give
/// 1,024, which users do not know to raise.
pub fn raise_open_files() -> u64 {
    let mut files = getrlimit(Resource::Nofile);
    let before = files.current;
    files.current = files.maximum;
    // Raising the soft limit cannot be refused; should it be, the old limit is returned.
    let limit = if setrlimit(Resource::Nofile, files).is_ok() { files.maximum } else { before };
    limit.unwrap_or(u64::MAX)
}

/// How many files this process may have open: the soft limit.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// CPUs that the machine has running, whether or not this process may use them all; 1 if unknown.
pub fn online_cpus() -> usize {
    // SAFETY: sysconf has no preconditions.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}

/// The memory of this machine, or that which its control groups let this process have (`memory.max` of cgroup v2) if that is less,
/// in bytes.
pub fn memory() -> u64 {
    let all = rustix::system::sysinfo();
    let machine = all.totalram.saturating_mul(all.mem_unit.into());
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = group.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    // The limits of the groups that contain a group apply to it, too.
    let groups = Path::new("/sys/fs/cgroup").join(path);
    let limits = groups.ancestors().take_while(|folder| folder.starts_with("/sys/fs/cgroup"));
    let of = |folder: &Path| std::fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse().ok();
    limits.filter_map(of).fold(machine, u64::min)
}

/// How long since boot each CPU of this machine was ready to run but its hypervisor did not let it, on average, in
/// nanoseconds ("steal", proc(5)); 0 where there is no hypervisor or it is not reported.
pub fn stolen_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    in_ns(ticks(&stat, "cpu").get(7).copied().unwrap_or(0)) / online_cpus() as u64
}

/// CPU time that all programs of this machine have used on these CPUs since boot, added up, in nanoseconds: `user`, `nice` and
/// `system` of proc(5), without interrupts, in which the kernel moves everybody's packets. 0 where it is not reported.
pub fn used_ns(cpus: &[usize]) -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let used = |cpu: &usize| ticks(&stat, &format!("cpu{cpu}")).iter().take(3).sum::<u64>();
    in_ns(cpus.iter().map(used).sum())
}

/// Ticks of the clock in nanoseconds.
fn in_ns(ticks: u64) -> u64 {
    ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// The times of a line of `/proc/stat`, in ticks of the clock: `cpu` is all CPUs together, `cpu0` the first.
fn ticks(stat: &str, name: &str) -> Vec<u64> {
    let of_line = |line: &str| {
        let (first, times) = line.split_once(' ')?;
        (first == name).then(|| times.split_whitespace().map_while(|number| number.parse().ok()).collect())
    };
    stat.lines().find_map(of_line).unwrap_or_default()
}

/// Returns freed memory to the kernel. The allocator keeps it in the arena of the thread that had it: after a load of ten
/// thousand connections that is half of all, and the thread that makes the reports would take as much again.
pub fn give_back_freed_memory() {
    // SAFETY: it takes the locks of the allocator, and touches only what is free.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Memory of this process, in bytes; zeros where the kernel does not show it: in a lab `/proc` may be that of another PID
/// namespace, in which there is no `self`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Resident now (`VmRSS`).
    pub resident: u64,
    /// The most that ever was (`VmHWM`).
    pub peak: u64,
}

impl Memory {
    /// Asks the kernel.
    pub fn now() -> Self {
        std::fs::read_to_string("/proc/self/status")
            .map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(status: &str) -> Self {
        let bytes = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
        };
        Self { resident: bytes("VmRSS").unwrap_or(0), peak: bytes("VmHWM").unwrap_or(0) }
    }
}

/// Memory that belongs to this process alone: neither its code nor anything of files. Opened once, so that it can be
/// read when no file can be opened any more.
#[derive(Debug)]
pub struct OwnMemory(File);

impl OwnMemory {
    /// Opens it; `None` where the kernel does not show it.
    pub fn open() -> Option<Self> {
        File::open("/proc/self/statm").ok().map(Self)
    }

    /// Bytes that are resident now (`RssAnon`); 0 if the kernel does not say. Takes microseconds.
    pub fn now(&self) -> u64 {
        let mut text = [0; 128];
        let n = self.0.read_at(&mut text, 0).unwrap_or(0);
        own_pages(&String::from_utf8_lossy(&text[..n])) * rustix::param::page_size() as u64
    }
}

/// Resident pages that belong to no file, from `/proc/PID/statm` (proc(5)).
fn own_pages(statm: &str) -> u64 {
    let mut numbers = statm.split_whitespace().skip(1).map_while(|number| number.parse::<u64>().ok());
    let (resident, of_files) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    resident.saturating_sub(of_files)
}

/// Makes the allocator return large buffers to the kernel as soon as they are freed, instead of keeping them in the
/// arena of their thread: for a process whose memory is bounded. glibc raises both thresholds by itself up to 64 MiB
/// unless they are set.
pub fn keep_little_freed_memory() {
    // SAFETY: it sets numbers of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 512 * 1024);
    }
}

/// Resident bytes of the process `pid` and all its descendants, such as the workers of a server; `None` if it is gone.
pub fn family_memory(pid: u32) -> Option<u64> {
    let resident = |pid: u32| {
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let pages = statm.split(' ').nth(1)?.parse::<u64>().ok()?;
        Some(pages * rustix::param::page_size() as u64).filter(|bytes| *bytes > 0)
    };
    let mut total = resident(pid)?;
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| {
            let child = entry.ok()?.file_name().to_str()?.parse::<u32>().ok()?;
            Some((child, parent(&std::fs::read_to_string(format!("/proc/{child}/stat")).ok()?)?))
        })
        .collect();
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        for (child, _) in parents.iter().filter(|(_, its)| *its == parent) {
            if !family.contains(child) {
                family.push(*child);
                total += resident(*child).unwrap_or(0);
            }
        }
        next += 1;
    }
    Some(total)
}

/// The parent in `/proc/PID/stat` (proc(5)): the second word behind the name, which may hold spaces and parentheses.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernels_words() {
        let memory = Memory::parse("Name:\th2lab\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n");
        assert_eq!(memory, Memory { resident: 1 << 20, peak: 2 << 20 });
        assert_eq!(Memory::parse("Name:\th2lab\n"), Memory::default());
    }

    #[test]
    fn own_memory_is_what_is_resident_and_of_no_file() {
        assert_eq!(own_pages("9000 700 200 50 0 400 0\n"), 500);
        assert_eq!((own_pages(""), own_pages("1 2")), (0, 2));
        assert!(OwnMemory::open().expect("/proc").now() > 4_096);
    }

    #[test]
    fn stolen_time_is_the_eighth_of_all_cpus() {
        let stat = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n";
        assert_eq!(ticks(stat, "cpu")[7], 80);
        assert_eq!(ticks(stat, "cpu0")[..3], [1, 2, 3]);
        assert_eq!(ticks("cpu  1 2 3 4\n", "cpu"), [1, 2, 3, 4], "before Linux 2.6.11");
        assert_eq!(ticks("", "cpu"), Vec::<u64>::new());
        let cpus: Vec<usize> = (0..online_cpus()).collect();
        let (stolen, used) = (stolen_ns(), used_ns(&cpus));
        assert!(stolen_ns() >= stolen && used_ns(&cpus) >= used && used > 0);
    }

    #[test]
    fn the_memory_of_a_process_has_that_of_its_children() {
        assert_eq!(parent("12 (a) b (c)) S 7 12 12 0"), Some(7));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let alone = family_memory(child.id());
        let all = family_memory(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(alone.is_some() && all > alone, "{alone:?} {all:?}");
        assert_eq!(family_memory(child.id()), None);
    }

    #[test]
    fn what_we_take_is_seen() {
        let taken = std::hint::black_box(vec![1_u8; 64 << 20]);
        let memory = Memory::now();
        assert!(memory.resident >= taken.len() as u64 && memory.peak >= memory.resident, "{memory:?}");
    }

    #[test]
    fn the_limit_of_open_files_is_the_hard_one_from_then_on() {
        let limit = raise_open_files();
        let now = getrlimit(Resource::Nofile);
        assert_eq!((now.current, now.current.unwrap_or(u64::MAX)), (now.maximum, limit));
    }
}
