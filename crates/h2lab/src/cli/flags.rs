//! A scenario's keys as the command line names them: whoever gave a flag is told of the flag.

use h2lab_model::scenario::{Scenario, ScenarioError};

use super::exit::Usage;

/// The first of these flags that was given, as it is written.
pub fn first_given<const N: usize>(flags: [(bool, &'static str); N]) -> Option<&'static str> {
    flags.into_iter().find(|(given, _)| *given).map(|(_, flag)| flag)
}

/// Checks a scenario into which flags went. A file was checked by itself before, so that what is wrong now came from a
/// flag, and the error names it.
pub fn check(scenario: &Scenario) -> Result<(), Usage> {
    scenario.validate().map_err(|error| in_flags(&error))
}

/// Takes back the claim of `file` if flags have made something else of it: it would be told beside figures that it is not
/// about. Longer or more visits and other seeds measure the same, and so
/// does a run whose packets are kept.
pub fn keep_claim(scenario: &mut Scenario, file: &Scenario) {
    let mut same = file.clone();
    (same.visits, same.seed, same.work.measure, same.capture) =
        (scenario.visits, scenario.seed.clone(), scenario.work.measure.clone(), scenario.capture);
    if same != *scenario {
        scenario.claim = Scenario::default().claim;
    }
}

fn in_flags(error: &ScenarioError) -> Usage {
    Usage(error.told(flag))
}

/// The flag that fills `key`. Most have the key's name; live servers have none, and are URLs.
fn flag(key: &str) -> String {
    let flag = match key {
        "rate" => "-q/--rate",
        "measure" => "-z/--duration",
        "connections" => "-c/--connections",
        "streams" => "-m/--streams",
        "method" => "-X/--request",
        "headers" => "-H/--header",
        "warm-pool" => "--max-connections",
        "protocols" => "--proto",
        "steps" => "--at",
        "live" => "a URL",
        // No flag fills these.
        "path" | "mix" => return format!("the file's `{key}`"),
        other => match other.split_once('.') {
            Some(("uplink", inner)) => return format!("--up {inner}"),
            Some(("downlink", inner)) => return format!("--down {inner}"),
            Some(("sysctl", side)) => return format!("--sysctl-{side}"),
            _ => return format!("--{other}"),
        },
    };
    flag.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_an_error_can_name_leads_to_a_flag_that_exists() {
        let command = super::super::command();
        let compare = command.find_subcommand("compare").unwrap();
        for key in [
            "visits",
            "rate",
            "concurrency",
            "measure",
            "warmup",
            "drain",
            "timeout",
            "method",
            "headers",
            "body-bytes",
            "delay",
            "jitter",
            "queue",
            "bandwidth",
            "connections",
            "warm-pool",
            "max-requests-per-connection",
            "limited",
            "protocols",
            "dial-policy",
            "ramp",
            "arrival",
            "snaplen",
            "reconnect-every",
            "cancel-after",
            "jitter-order",
            "loss-per",
            "loss",
            "queue-discipline",
            "reorder",
            "blackout",
            "steps",
            "uplink.delay",
            "downlink.queue",
            "sysctl.client",
            "sysctl.server",
        ] {
            let named = flag(key);
            let long = named.rsplit('/').next().unwrap().split(' ').next().unwrap().trim_start_matches("--");
            let exists = compare.get_arguments().any(|argument| argument.get_long() == Some(long));
            assert!(exists, "{key}: {named}");
        }
        let urls = compare.get_positionals().next().unwrap();
        assert_eq!(flag("live"), format!("a {}", urls.get_value_names().unwrap()[0]));
    }

    #[test]
    fn a_claim_is_kept_while_the_same_is_measured() {
        let file = Scenario::from_toml("claim = 'It is slow.'").unwrap();
        let mut scenario = file.clone();
        (scenario.visits, scenario.seed) = (9, "1,2".parse().unwrap());
        keep_claim(&mut scenario, &file);
        assert_eq!(scenario.claim, "It is slow.");
        scenario.link.loss = "5%".parse().unwrap();
        keep_claim(&mut scenario, &file);
        assert_eq!(scenario.claim, Scenario::default().claim);
    }

    #[test]
    fn an_error_says_the_flag_and_not_the_key() {
        let mut scenario = Scenario::default();
        scenario.work.measure = "10ms".parse().unwrap();
        let told = check(&scenario).unwrap_err().to_string();
        assert_eq!(told, "-z/--duration = 10ms is out of range: 100ms to 24h");
    }
}
