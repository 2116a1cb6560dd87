//! What is read of documents, run folders and captures.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::fleet::send;
use super::network::Namespace;
use crate::process;
use crate::verify::started::Started;

/// Far above what tshark takes to begin and to end.
const DEADLINE: Duration = Duration::from_secs(60);
/// What was seen just now is in the kernel's buffer for so long, at most.
const SEEN: Duration = Duration::from_secs(1);
/// For coreutils' timeout: no query and no reading of a capture takes as many seconds, but one that hangs.
const READING_S: &str = "300";
/// In all; a capture is as long as what it looks at.
const LONGEST: Duration = Duration::from_secs(600);

/// A number of a document.
pub fn number(of: &Value, pointer: &str) -> Result<f64> {
    of.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("there is no {pointer} in {of}"))
}

/// A text of a document.
pub fn text<'a>(of: &'a Value, pointer: &str) -> Result<&'a str> {
    of.pointer(pointer).and_then(Value::as_str).with_context(|| format!("there is no {pointer} in {of}"))
}

/// A list of a document.
pub fn list<'a>(of: &'a Value, pointer: &str) -> Result<&'a [Value]> {
    let list = of.pointer(pointer).and_then(Value::as_array);
    list.map(Vec::as_slice).with_context(|| format!("there is no {pointer} in {of}"))
}

/// The one figure of a query about the tables of a run folder.
pub fn queried(folder: &Path, sql: &str) -> Result<f64> {
    let duckdb = process::find("duckdb").context("it reads the requests: pipx install duckdb-cli")?;
    let mut command = Command::new("timeout");
    command.arg(READING_S).arg(duckdb).args(["-csv", "-noheader", "-c", sql]).current_dir(folder);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().with_context(|| format!("{sql}: {said} {}", String::from_utf8_lossy(&output.stderr)))
}

/// A capture under way.
#[derive(Debug)]
pub struct Capture {
    tshark: Started,
    file: PathBuf,
}

impl Capture {
    /// Captures on a device of a namespace what pcap-filter(7) lets through.
    pub fn begin(at: &Namespace, device: &str, folder: &Path, name: &str, filter: &str) -> Result<Self> {
        let program = process::find("tshark").context("tshark is not installed")?;
        let file = folder.join(format!("{name}.pcapng"));
        let mut command = at.command(program);
        // Heads are enough; 64 MiB of buffer lose nothing on a busy machine.
        command.args(["-q", "-i", device, "-s", "128", "-B", "64", "-f", filter, "-w"]).arg(&file);
        let mut tshark = Started::begin(&mut command, folder, name)?;
        let has_begun = tshark.until(DEADLINE, |tshark| tshark.stderr().contains("Capturing on"))?;
        ensure!(has_begun, "tshark does not capture: {}", tshark.stderr().trim());
        Ok(Self { tshark, file })
    }

    /// Ends it; the values of these fields of each packet that tshark's own filter lets through.
    pub fn end(self, filter: &str, fields: &[&str]) -> Result<Vec<Vec<String>>> {
        std::thread::sleep(SEEN);
        send(&self.tshark, "INT")?;
        let ended = self.tshark.end(LONGEST)?;
        ensure!(!ended.stderr.contains(" dropped from "), "tshark lost packets: {}", ended.last_words());
        let program = process::find("tshark").context("tshark is not installed")?;
        let mut command = Command::new("timeout");
        command.arg(READING_S).arg(program).args(["-n", "-r"]).arg(&self.file).args([
            "-Y",
            filter,
            "-T",
            "fields",
            "-E",
            "separator=/t",
        ]);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        let read = process::said(&mut command)?;
        Ok(read.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
    }
}
