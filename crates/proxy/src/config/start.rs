//! What is read only when a sidecar starts, or takes over from another one.

use super::Config;

impl Config {
    /// Takes over, from the configuration that the sidecar runs with, what cannot be changed without a restart.
    pub fn keep_start(&mut self, running: &Self) {
        let Self { threads, memory, mark, user, landlock, log, admin, trace, .. } = running.clone();
        (self.threads, self.memory, self.mark) = (threads, memory, mark);
        (self.user, self.landlock) = (user, landlock);
        (self.log, self.admin, self.trace) = (log, admin, trace);
    }

    /// Which of these keys have another value than in `started`, which is what the file said at the start.
    pub fn not_taken(&self, started: &Self) -> Vec<&'static str> {
        let (log, admin) = (&started.log, &started.admin);
        let all = [
            ("threads", self.threads != started.threads),
            ("memory", self.memory != started.memory),
            ("mark", self.mark != started.mark),
            ("user", self.user != started.user),
            ("landlock", self.landlock != started.landlock),
            ("[log] file", self.log.file != log.file),
            ("[log] format", self.log.format != log.format),
            ("[admin] address", self.admin.address != admin.address),
            ("[admin] public", self.admin.public != admin.public),
            ("[admin] window", self.admin.window != admin.window),
            ("[trace] context", self.trace.context != started.trace.context),
        ];
        all.into_iter().filter(|(_, has_changed)| *has_changed).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n[service.a]\ninstances = ['http://a']\n";

    #[test]
    fn every_key_that_waits_for_a_restart_is_named_and_kept() {
        let started = Config::parse(TEXT).expect("it is right");
        for (top, table, name) in [
            ("threads = 3", "", "threads"),
            ("memory = '1G'", "", "memory"),
            ("mark = 7", "", "mark"),
            ("user = 'nobody'", "", "user"),
            ("landlock = false", "", "landlock"),
            ("", "[log]\nfile = 'a.log'", "[log] file"),
            ("", "[log]\nformat = 'json'", "[log] format"),
            ("", "[admin]\naddress = '127.0.0.1:9'", "[admin] address"),
            ("", "[admin]\npublic = true", "[admin] public"),
            ("", "[admin]\nwindow = '1s'", "[admin] window"),
            ("", "[trace]\ncontext = 'join'", "[trace] context"),
        ] {
            let mut read = Config::parse(&format!("{top}\n{TEXT}{table}\n")).expect(name);
            assert_eq!(read.not_taken(&started), [name]);
            read.keep_start(&started);
            assert_eq!(read, started, "{name}");
        }
        let other = TEXT.replace("http://a", "http://b");
        let mut other = Config::parse(&other).expect("it is right");
        assert_eq!(other.not_taken(&started), [""; 0]);
        other.keep_start(&started);
        assert_ne!(other, started, "what is not of the start is taken");
    }
}
