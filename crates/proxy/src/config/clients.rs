//! `max-clients`: how many clients may be connected at a time.
//!
//! Each connection takes a file descriptor. Clients that took all of them would leave none for connections to instances, and the sidecar
//! would answer 503 to all of them.

use super::{Config, ConfigError};

/// File descriptors that are not for connections: standard ones, the log, certificates that are read again, the admin
/// listener and its client, name servers.
const OTHERS: u64 = 32;
/// The same for each thread, and for each listener.
const EACH: u64 = 4;
/// A default bound below this is reported at the start.
const FEW: u32 = 1_000;

impl Config {
    /// File descriptors that are left for connections of `files`.
    fn files_for_connections(&self, files: u64, threads: u32) -> u64 {
        files.saturating_sub(OTHERS + EACH * (u64::from(threads) + self.listen.len() as u64))
    }

    /// How many clients may be connected over TCP where `max-clients` is not set, with `files` file descriptors: each
    /// may need one connection to an instance, as over HTTP/1.1. At least one.
    pub fn usual_clients(&self, files: u64, threads: u32) -> u32 {
        u32::try_from(self.files_for_connections(files, threads) / 2).unwrap_or(u32::MAX).max(1)
    }

    /// The line to print at the start of a process that may have `files` files open, if that is few.
    pub fn few_files(&self, files: u64, threads: u32) -> Option<String> {
        let room = self.files_for_connections(files, threads);
        let usual = self.usual_clients(files, threads);
        let most = self.max_clients.unwrap_or(usual);
        let idle = self
            .listen
            .iter()
            .find_map(|listen| Some((listen.address, listen.max_clients.filter(|own| *own > most)?)));
        let idle = idle.map(|(address, own)| {
            let all = if self.max_clients.is_some() {
                "max-clients for all is"
            } else {
                "by the limit of open files, all together may be"
            };
            format!("max-clients = {own} of the listener on {address} has no effect: {all} {most}")
        });
        let raise = "raise LimitNOFILE (systemd) or the hard limit of ulimit -n";
        match self.max_clients {
            Some(most) if u64::from(most) >= room => Some(format!(
                "max-clients = {most} is too much for the limit of {files} open files of this process: none would be left for \
                 connections to instances; {raise}"
            )),
            None if usual < FEW => Some(format!(
                "at most {usual} clients can be connected at a time, further ones wait: the limit of this process is {files} open files, \
                 and half of them are kept for connections to instances; {raise}, or set max-clients"
            )),
            _ => idle,
        }
    }

    pub(super) fn check_clients(&self) -> Result<(), ConfigError> {
        let wrong = |place| ConfigError::Value {
            place,
            why: "must be at least 1; without the key the limit follows from the number of open files",
        };
        if self.max_clients == Some(0) {
            return Err(wrong("max-clients".to_owned()));
        }
        match self.listen.iter().find(|listen| listen.max_clients == Some(0)) {
            Some(listen) => Err(wrong(format!("max-clients of the listener on {}", listen.address))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(top: &str, of_listener: &str) -> Result<Config, ConfigError> {
        Config::parse(&format!(
            "{top}\n[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n{of_listener}\n[service.a]\ninstances = ['http://a']\n"
        ))
    }

    #[test]
    fn clients_leave_as_many_files_for_instances_and_a_few_for_all_else() {
        let config = config("", "").expect("it is right");
        let usual = [0, 64, 1_024, 1 << 20, u64::MAX].map(|files| config.usual_clients(files, 1));
        assert_eq!(usual, [1, 12, 492, 524_268, u32::MAX]);
        assert!(config.usual_clients(1_024, 64) < 400, "each thread has its own");
    }

    #[test]
    fn few_files_are_told_and_a_bound_that_does_not_fit() {
        let of = |top: &str, files| config(top, "").expect(top).few_files(files, 1);
        let told = of("", 1_024).expect("that is little");
        assert!(
            told.starts_with("at most 492 clients can be connected") && told.contains("LimitNOFILE"),
            "{told}"
        );
        assert_eq!((of("", 4_096), of("max-clients = 100", 1_024)), (None, None));
        let told = of("max-clients = 1000", 1_024).expect("none would be left");
        assert!(
            told.starts_with("max-clients = 1000 is too much for the limit of 1024 open files"),
            "{told}"
        );
    }

    #[test]
    fn a_bound_of_a_listener_above_that_of_all_is_of_no_use() {
        let of = |top: &str, own: u32| {
            config(top, &format!("max-clients = {own}")).expect(top).few_files(1 << 20, 1)
        };
        let told = of("", 4_000_000_000).expect("there are not so many files");
        assert!(
            told.ends_with("has no effect: by the limit of open files, all together may be 524268"),
            "{told}"
        );
        let told = of("max-clients = 100", 101).expect("all are fewer");
        assert!(told.ends_with("max-clients for all is 100"), "{told}");
        assert_eq!((of("max-clients = 100", 100), of("", 100)), (None, None));
    }

    #[test]
    fn no_client_at_all_is_no_bound() {
        for (top, of_listener) in [("max-clients = 0", ""), ("", "max-clients = 0")] {
            let wrong = config(top, of_listener).expect_err("0").to_string();
            assert!(wrong.contains("max-clients") && wrong.contains("at least 1"), "{wrong}");
        }
        assert!(config("max-clients = 1", "max-clients = 1").is_ok());
    }
}
