//! A description of this machine.

/// Kernel, architecture and number of CPUs.
pub fn machine() -> String {
    let uname = rustix::system::uname();
    format!(
        "{} {} {}, {} CPUs",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        uname.machine().to_string_lossy(),
        cpus()
    )
}

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
