//! What an agent's log says of tasks: what begins, once the owner of the machine permits it, and what came of it.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use h2lab_base::secrets::without_url_secrets;
use h2lab_base::units::{format_bytes, format_duration};
use h2lab_model::bulk::{TIME_WAS_OVER, TransferDirection, TransferOutcome};
use h2lab_model::fleet::subjects::RandomId;
use h2lab_model::fleet::{FetchTask, FromAgent, LoadTask, ServeTask};
use h2lab_model::workload::Arrival;

use super::super::permits::Permits;
use super::Order;

/// Transfers that a line names; the others are counted.
const MOST_NAMED: usize = 8;

/// What the owner permits; the service learns of each task that is permitted, before it begins.
#[derive(Debug)]
pub(super) struct Announced {
    pub permits: Arc<dyn Permits>,
    pub session: RandomId,
    pub service: Sender<Order>,
}

impl Announced {
    fn begins(&self, what: String) {
        // Fails only if the service has ended.
        let _ = self.service.send(Order::Begins { session: self.session, what });
    }
}

impl Permits for Announced {
    fn load(&self, task: &LoadTask) -> Result<(), String> {
        self.permits.load(task)?;
        self.begins(of_load(task));
        Ok(())
    }

    fn fetch(&self, tasks: &[FetchTask]) -> Result<(), String> {
        self.permits.fetch(tasks)?;
        self.begins(of_transfers(tasks));
        Ok(())
    }

    fn serve(&self, task: &ServeTask) -> Result<(), String> {
        self.permits.serve(task)?;
        self.begins(format!("a server of bytes at {}, {}", task.listen, task.protocol.name()));
        Ok(())
    }

    fn bytes(&self) -> Option<u64> {
        self.permits.bytes()
    }

    fn time(&self) -> Option<Duration> {
        self.permits.time()
    }
}

fn of_load(task: &LoadTask) -> String {
    let url = without_url_secrets(&task.url);
    let (number, of) = (u64::from(task.share.number) + 1, task.share.of);
    let place = format!("share {number} of {of} of a load of {url}, {}", task.protocol.name());
    let Ok(cell) = task.cell() else { return place };
    let amount = match (cell.work.arrival, cell.work.arrival.rate()) {
        (Arrival::Closed { concurrency }, _) => format!("{concurrency} requests at a time"),
        (_, rate) => format!("{} requests per second", rate.unwrap_or_default()),
    };
    let most = task.requests.map(|most| format!(", {most} requests at most")).unwrap_or_default();
    let (connections, phases) = (cell.max_connections, &cell.work.phases);
    let time = format_duration(phases.warmup + phases.measure);
    format!("{place}; in all {amount} on {connections} connections for {time}{most}")
}

fn of_transfers(tasks: &[FetchTask]) -> String {
    let named = tasks.iter().take(MOST_NAMED).map(|task| {
        let url = without_url_secrets(task.urls.first().map_or("", String::as_str));
        let way = match task.direction {
            TransferDirection::Get => "from",
            TransferDirection::Put => "to",
        };
        let (protocol, connections) = (task.protocol.name(), task.connections);
        let time = format_duration(task.duration);
        format!("pair {} {way} {url}, {protocol}, {connections} connections for {time}", task.pair)
    });
    let words = named.collect::<Vec<_>>().join("; ");
    match tasks.len().saturating_sub(MOST_NAMED) {
        0 => format!("transfers: {words}"),
        more => format!("transfers: {words}; and {more} more"),
    }
}

/// What the log says when an agent says this to `driver`, if anything; `has_begun` if a task was permitted before.
pub(super) fn said(message: &FromAgent, driver: &str, has_begun: bool) -> Option<String> {
    Some(match message {
        FromAgent::Refused { why } if has_begun => format!("failed for {driver}: {why}"),
        FromAgent::Refused { why } => format!("refuses {driver}: {why}"),
        FromAgent::Busy { with } => format!("refuses {driver}: busy with {with}"),
        FromAgent::Result { pair, figures: Ok(figures), .. } => {
            let why = figures.endings.iter().find_map(|ending| match &ending.outcome {
                TransferOutcome::Partial { why } if why != TIME_WAS_OVER => Some(format!(": {why}")),
                _ => None,
            });
            let moved = format_bytes(figures.meter.total());
            format!("pair {pair} for {driver} is over: {moved}{}", why.unwrap_or_default())
        }
        FromAgent::Result { pair, figures: Err(why), .. } => {
            format!("pair {pair} for {driver} failed: {why}")
        }
        FromAgent::Served(figures) => {
            let (sent, received) = (format_bytes(figures.sent), format_bytes(figures.received));
            format!(
                "the server for {driver} is over: {sent} sent, {received} received, {} connections",
                figures.connections
            )
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use h2lab_model::fleet::testing;

    use super::*;

    #[test]
    fn what_begins_is_named_without_the_secrets_of_its_url() {
        let task = LoadTask { url: "http://me:secret@a:1/x?token=secret".to_owned(), ..testing::load_task() };
        let words = of_load(&task);
        assert!(words.contains("share 1 of ") && words.contains("@a:1/x"), "{words}");
        assert!(words.contains(" connections for ") && !words.contains("secret"), "{words}");
    }

    #[test]
    fn what_was_permitted_fails_and_what_was_not_is_refused() {
        let refused = FromAgent::Refused { why: "why".to_owned() };
        assert_eq!(said(&refused, "ann", false).unwrap(), "refuses ann: why");
        assert_eq!(said(&refused, "ann", true).unwrap(), "failed for ann: why");
        assert_eq!(said(&FromAgent::Planned, "ann", true), None);
    }
}
