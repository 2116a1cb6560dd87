//! What distinguishes a condition from the first one of a run, in a few words: `RTT 25ms`, `tcp buffers 4 MiB`. That is the
//! factor that was varied, where one was at a time.

use super::condition;
use h2lab_base::units::{format_bytes, format_duration};
use h2lab_link::Impairment;
use h2lab_model::scenario::Cell;
use h2lab_model::scenario::sysctl::{READ_BUFFERS, WRITE_BUFFERS};

/// The name of the first condition.
pub(super) const BASELINE: &str = "baseline";

/// How `cell` differs from `first`, apart from the protocol; [`BASELINE`] if in nothing.
pub(super) fn factor(first: &Cell, cell: &Cell) -> String {
    let mut rendered = Vec::new();
    match (&first.link, &cell.link) {
        (Some(first), Some(link)) if first != link => {
            // Data flows down, and most links are the same in both directions.
            rendered.extend(direction(&first.downlink, &link.downlink));
            if rendered.is_empty() {
                rendered.push(format!("uplink {}", link.uplink));
            }
        }
        (Some(_), None) => rendered.push("loopback".to_owned()),
        (None, Some(link)) => rendered.push(format!("link: {}", link.downlink)),
        _ => {}
    }
    if cell.congestion != first.congestion {
        rendered.extend(cell.congestion.clone());
    }
    rendered.extend(sysctls(first, cell));
    if cell.work.arrival != first.work.arrival {
        rendered.push(condition::offered(cell));
    }
    if cell.work.path != first.work.path {
        rendered.push(cell.work.path.clone());
    }
    if cell.work.phases != first.work.phases {
        rendered.push(condition::measured_time(cell));
    }
    let fresh = |first: Vec<String>, now: Vec<String>| -> Vec<String> {
        now.into_iter().filter(|set| !first.contains(set)).collect()
    };
    rendered.extend(fresh(first.client.rendered(), cell.client.rendered()));
    rendered.extend(
        fresh(first.server.rendered(), cell.server.rendered())
            .into_iter()
            .map(|set| format!("server's {set}")),
    );
    if rendered.is_empty() { BASELINE.to_owned() } else { rendered.join(", ") }
}

/// The setting in which `cell` differs from `other`, besides nothing else.
pub(super) fn setting(other: &Cell, cell: &Cell) -> String {
    if cell.parties() != other.parties() {
        return cell.parties();
    }
    match factor(other, cell) {
        nothing if nothing == BASELINE => "the default setting".to_owned(),
        words => words,
    }
}

/// The differences in a direction. A queue is rendered only where nothing else differs: it depends on the bandwidth.
fn direction(first: &Impairment, impairment: &Impairment) -> Vec<String> {
    let mut rendered = Vec::new();
    if impairment.delay != first.delay {
        rendered.push(format!("RTT {}", format_duration(impairment.delay * 2)));
    }
    if impairment.bandwidth != first.bandwidth {
        rendered.push(
            impairment.bandwidth.map_or_else(|| "unlimited".to_owned(), |bandwidth| bandwidth.to_string()),
        );
    }
    if impairment.loss != first.loss {
        rendered.push(format!("{} loss", impairment.loss.share()));
    }
    if rendered.is_empty() && impairment.queue_bytes != first.queue_bytes {
        rendered.push(
            impairment
                .queue_bytes
                .map_or_else(|| "default queue".to_owned(), |bytes| format!("queue {}", format_bytes(bytes))),
        );
    }
    if rendered.is_empty() && impairment != first {
        rendered.push(impairment.to_string());
    }
    rendered
}

/// Kernel settings that the first condition lacks or has otherwise; those of socket buffers in a word.
fn sysctls(first: &Cell, cell: &Cell) -> Vec<String> {
    if cell.sysctls == first.sysctls {
        return Vec::new();
    }
    let sides = [&cell.sysctls.client, &cell.sysctls.server];
    let most = |name: &str| -> Option<u64> { sides[0].get(name)?.split_whitespace().nth(2)?.parse().ok() };
    let is_buffer = |name: &String| name == READ_BUFFERS || name == WRITE_BUFFERS;
    let is_alike = sides[0] == sides[1] && sides[0].keys().all(is_buffer);
    match (is_alike, most(READ_BUFFERS), most(WRITE_BUFFERS)) {
        (true, Some(read), Some(write)) if read == write => {
            vec![format!("tcp buffers {}", format_bytes(read))]
        }
        _ if cell.sysctls.is_empty() => vec!["no sysctls".to_owned()],
        _ => {
            let before: Vec<String> = first.sysctls.rendered().collect();
            cell.sysctls.rendered().filter(|set| !before.contains(set)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::scenario::Scenario;

    #[test]
    fn each_factor_is_described_in_a_few_words_and_nothing_else_is() {
        let text = "repetitions = 1\n[work]\nbulk = true\nmethod = 'GET'\npath = '/bytes/1000G'\nconcurrency = 1\n\
                    [link]\ndelay = '125ms'\nbandwidth = '1gbit'\nqueue = '64M'\n[sysctl]\ntcp-buffer = '128M'\n\
                    [matrix]\nprotocols = 'h2c'\n";
        let factors = [
            ("link.delay = '12.5ms'", "RTT 25ms"),
            ("link = { bandwidth = '10gbit', queue = '640M' }", "10gbit"),
            ("link.queue = '1M'", "queue 1 MiB"),
            ("link.loss = '0.01%'", "0.01% loss"),
            ("link.congestion = 'bbr'", "bbr"),
            ("sysctl.tcp-buffer = '4M'", "tcp buffers 4 MiB"),
            ("work.concurrency = 16", "16 in flight"),
            ("client.stream-window = 65535", "stream window 64 KiB - 1"),
            ("client.window-update-bytes = 4096", "credit every 4 KiB"),
            ("server.max-frame-size = 1048576", "server's frames up to 1 MiB"),
            (
                "client = { max-frame-size = 16384, window-update-threshold = 0 }",
                "credit at 0 %, frames up to 16 KiB",
            ),
        ];
        for (vary, words) in factors {
            let plan = Scenario::from_toml(&format!("{text}[[vary]]\n{vary}")).unwrap().plan();
            assert_eq!(factor(&plan[0], &plan[1]), words);
            assert_eq!(factor(&plan[0], &plan[0]), BASELINE);
        }
    }
}
