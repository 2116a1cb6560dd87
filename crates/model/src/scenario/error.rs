//! Why a scenario cannot be run, naming its keys or the flags that set them.

/// Why a scenario cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.rendered(in_file))]
pub enum ScenarioError {
    /// The file is not a scenario. The text names line and column.
    Syntax(String),
    /// A value is out of its range.
    Range {
        /// The key, as in the file.
        field: &'static str,
        /// What was given.
        value: String,
        /// What is accepted.
        expected: &'static str,
    },
    /// A text is not of the form that it must have.
    Malformed {
        /// The key, as in the file.
        field: &'static str,
        /// What was given, without what may be a secret.
        value: String,
        /// The form.
        expected: &'static str,
    },
    /// Two values that are each in range have no meaning together.
    Conflict {
        /// The key whose value is refused, as in the file.
        field: &'static str,
        /// Its value.
        value: String,
        /// The key that it conflicts with.
        with: &'static str,
        /// Why, with the other value.
        why: String,
    },
    /// A value is given twice where it is measured once.
    Repeated {
        /// The key, as in the file.
        field: &'static str,
        /// All that was given.
        value: String,
        /// What is there more than once.
        again: String,
    },
    /// A header field that a request cannot carry because the client writes it itself.
    Field {
        /// Its name.
        name: String,
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// A sysctl that cannot be set in a network namespace.
    Sysctl {
        /// The table, as in the file: `sysctl.client`.
        field: &'static str,
        /// Its name, as given.
        name: String,
        /// Why not.
        why: &'static str,
    },
}

/// How a key is named where it stands in a file.
fn in_file(key: &str) -> String {
    format!("`{key}`")
}

impl ScenarioError {
    /// The error as text, with keys named by `name`: a command line uses its flags.
    pub fn rendered(&self, name: impl Fn(&str) -> String) -> String {
        match self {
            Self::Syntax(why) => format!("not a scenario: {why}"),
            Self::Range { field, value, expected } => {
                format!("{} = {value} is out of range: {expected}", name(field))
            }
            Self::Conflict { field, value, with, why } => {
                format!("{} = {value} cannot be used with {}: {why}", name(field), name(with))
            }
            Self::Malformed { field, value, expected } => {
                format!("{} = {value} is malformed: {expected}", name(field))
            }
            Self::Repeated { field, value, again } => format!(
                "{} = {value} has {again} twice: each value is measured once. For an A/A run, which measures the same twice, \
                 name a protocol twice: {}",
                name(field),
                name("protocols")
            ),
            Self::Field { name: field, why } => format!("{} must not hold `{field}`: {why}", name("headers")),
            Self::Sysctl { field, name: sysctl, why } => {
                format!("{} cannot set `{sysctl}`: {why}", name(field))
            }
        }
    }
}
