//! A diagnosis: what is wrong, how it is known, what it costs, what to change, how to prove it.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use h2lab_base::units::Time;
use h2lab_model::experiment::Knob;
use h2lab_model::{Confidence, Fix};

/// One fact that a finding rests on. Every number names its unit and where in the record it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What was seen, in words.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit: `ms`, `streams`, `packets` …
    pub unit: String,
    /// The connection in whose record it stands.
    pub connection: Option<u32>,
    /// When it was seen.
    pub at: Option<Time>,
}

impl Evidence {
    /// A number of the whole cell.
    pub fn new(what: &str, value: f64, unit: &str) -> Self {
        Self { what: what.to_owned(), value, unit: unit.to_owned(), connection: None, at: None }
    }

    /// Several numbers of the whole cell: what was seen, the number and its unit.
    pub fn list<const N: usize>(seen: [(&str, f64, &str); N]) -> Vec<Self> {
        seen.into_iter().map(|(what, value, unit)| Self::new(what, value, unit)).collect()
    }

    /// The number, seen on this connection at this time.
    #[must_use]
    pub fn seen(self, connection: u32, at: Time) -> Self {
        Self { connection: Some(connection), at: Some(at), ..self }
    }
}

/// A diagnosis of one cell.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The rule's id: `LOSS101`.
    pub rule: String,
    /// The rule's name: `tcp-head-of-line-blocking`.
    pub name: String,
    /// The cell's index in the matrix.
    pub cell: u32,
    /// The cell's label, for people: `h2c × 1`.
    pub label: String,
    /// What a user sees, in a sentence with numbers.
    pub symptom: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What it costs, in a sentence with numbers.
    pub cost: String,
    /// The part of all request time in the cell that it accounts for, 0 to 1; findings are sorted by it.
    pub cost_share: f64,
    /// The part of the difference from the same work over HTTP/1.1 that it explains, 0 to 1: those of a cell add up to
    /// at most 1, the rest is unexplained. The difference is one of response times; of bulk work, and of a cell that
    /// does not carry its load, it is the rate that is lost. 0 if the cell is not slower, or if the finding costs no response time: then
    /// it is an observation. `None` if HTTP/1.1 was not measured, and in older documents.
    #[serde(default)]
    pub explains: Option<f64>,
    /// How sure it is.
    pub confidence: Confidence,
    /// What to change.
    pub fixes: Vec<Fix>,
    /// The experiment that confirms it.
    pub confirm: String,
    /// Whether it costs failed requests, and no time that is worth telling: then neither equal response times over another protocol
    /// nor changes without effect on times disprove it.
    #[serde(skip)]
    pub of_failures: bool,
    /// A change that removes the cause in other forms and cannot in this one: it is not worth a try, and disproves
    /// nothing.
    #[serde(skip)]
    pub unaffected_by: Option<Knob>,
}

impl Finding {
    /// Whether the cell is not slower than what it is compared with, or not because of this, so that nothing needs to change.
    pub fn is_observation(&self) -> bool {
        self.explains == Some(0.0)
    }

    /// Whether a change removes what was found, if the finding is true.
    pub fn is_removed_by(&self, knob: &Knob) -> bool {
        self.unaffected_by.as_ref() != Some(knob) && knob.causes().contains(&self.rule.as_str())
    }
}
