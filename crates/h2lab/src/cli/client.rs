//! What our client sends, whichever command makes the requests: the flags that all these commands share.

use clap::Args;
use h2lab_model::scenario::Scenario;
use h2lab_model::workload::EngineSettings;

use super::engine::EngineArgs;
use super::exit::Usage;
use super::flags;
use super::protocols::ProtocolArgs;
use super::requests::RequestArgs;

/// Protocol, request, and how our HTTP/2 engine behaves. [`ReachArgs`](super::reach::ReachArgs) has the address.
#[derive(Debug, Clone, Default, Args)]
pub struct ClientArgs {
    #[command(flatten)]
    pub protocol: ProtocolArgs,
    #[command(flatten)]
    pub request: RequestArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

impl ClientArgs {
    /// Overrides the scenario's values with the flags.
    pub fn apply(&self, scenario: &mut Scenario) -> Result<(), Usage> {
        self.protocol.apply(&mut scenario.matrix);
        self.request.apply(&mut scenario.work)?;
        self.engine.apply(&mut scenario.client.engine);
        Ok(())
    }

    /// Further header fields and settings of the engine, checked: for work that no scenario describes.
    pub fn checked(&self) -> Result<(Vec<(String, String)>, EngineSettings), Usage> {
        let mut scenario = Scenario::default();
        self.request.apply(&mut scenario.work)?;
        self.engine.apply(&mut scenario.client.engine);
        flags::check(&scenario)?;
        Ok((scenario.work.headers, scenario.client.engine))
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::super::reach::ReachArgs;
    use super::super::{Cli, command};
    use super::*;

    /// Every command that makes requests.
    const COMMANDS: [&str; 10] = [
        "compare http://a/",
        "run s.toml",
        "load http://a/",
        "bulk get http://a/x",
        "bulk put f http://a/x",
        "bulk drive --clients=local --servers=local",
        "probe http://a/",
        "probe smuggling --proxy=http://a/ --backend-listen=127.0.0.1:1",
        "timeline http://a/",
        "trace http://a/",
    ];

    /// A value of each flag that takes one, and the flags that it requires.
    const VALUES: &str = "--proto h2c, --h2c-mode upgrade, --request PUT, --header a:b, --data x, --data-raw x, --body-bytes 1k, --user a:b, \
        --oauth2-bearer x, --cookie a=b, --shape mesh, --stream-window 16, --connection-window 1M, --auto-window=4M, \
        --window-budget 1G, --window-update-threshold 20, --window-update-bytes 1M, --max-frame-size 32k, --keep-alive 1s, \
        --encoder-header-table-size 0, \
        --cacert x, --cert x, --key x --cert x, --resolve a:80:127.0.0.1, --connect-to ::b:81, --unix-socket x";

    /// Why a flag that names no protocol may be refused.
    const OTHER_REASONS: &[&str] = &["has no effect", "is for live", "is not for probes"];

    /// Why this command does not take this flag of [`ProtocolArgs`]; `None` if it does.
    fn no_protocol(command: &str, id: &str) -> Option<&'static str> {
        match (command, id) {
            ("probe http://a/", "h2c_mode") => {
                Some("--h2c-mode is not for probes, which start h2c in both ways")
            }
            (command, _) if command.starts_with("probe smuggling") => {
                Some("is not for probes of a proxy, which need HTTP/1.1 and HTTP/2")
            }
            _ => None,
        }
    }

    #[derive(Debug, Parser)]
    struct Protocols {
        #[command(flatten)]
        protocol: ProtocolArgs,
    }

    #[derive(Debug, Parser)]
    struct All {
        #[command(flatten)]
        client: ClientArgs,
        #[command(flatten)]
        reach: ReachArgs,
    }

    #[test]
    fn every_command_that_makes_requests_knows_the_same_flags_and_says_why_it_does_not_take_one() {
        for line in COMMANDS {
            let words: Vec<&str> = line.split(' ').collect();
            let all = command();
            let mut own = &all;
            for name in &words {
                own = own.find_subcommand(name).unwrap_or(own);
            }
            for flag in All::command().get_arguments() {
                let id = flag.get_id();
                let its = own.get_arguments().find(|arg| arg.get_id() == id);
                let its = its.unwrap_or_else(|| panic!("{line}: no {id}"));
                assert_eq!(
                    (its.get_short(), its.get_long(), its.get_all_aliases(), its.get_value_names()),
                    (flag.get_short(), flag.get_long(), flag.get_all_aliases(), flag.get_value_names()),
                    "{line}"
                );
                let long = format!("--{}", flag.get_long().expect("all have a long one"));
                let value = VALUES.split(", ").find(|value| value.split([' ', '=']).next() == Some(&long));
                let given = value.map_or(long.as_str(), |value| value).split(' ');
                let of_protocol = Protocols::command().get_arguments().any(|arg| arg.get_id() == id);
                let expected = of_protocol.then(|| no_protocol(line, id.as_str()));
                let line: Vec<&str> =
                    ["h2lab"].into_iter().chain(words.iter().copied()).chain(given).collect();
                match Cli::try_parse_from(&line) {
                    Ok(_) => {
                        assert!(!its.is_hide_set(), "{line:?} is not in the help");
                        assert_eq!(expected.flatten(), None, "{line:?} is taken");
                    }
                    Err(error) => {
                        let error = error.to_string();
                        let says_why = match expected {
                            Some(reason) => reason.is_some_and(|reason| error.contains(reason)),
                            None => OTHER_REASONS.iter().any(|reason| error.contains(reason)),
                        };
                        assert!(its.is_hide_set() && says_why, "{line:?}: {error}");
                    }
                }
            }
        }
    }
}
