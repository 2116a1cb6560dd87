//! Which CPU does what in a lab.

use h2lab_lab::topology::sched;

/// Generator and pump never share a CPU where there are two, since each would make the other late.
#[derive(Debug, Clone, Copy)]
pub struct Placement {
    /// The link's.
    pub pump: Option<usize>,
    /// The load's.
    pub generator: Option<usize>,
}

impl Placement {
    /// The placement on the CPUs that we may use. The server is left to the scheduler.
    pub fn choose() -> Self {
        match sched::allowed_cpus().as_deref() {
            Ok([pump, generator, ..]) => Self { pump: Some(*pump), generator: Some(*generator) },
            _ => Self { pump: None, generator: None },
        }
    }

    /// As the record has it.
    pub fn describe(self) -> Vec<(String, String)> {
        let cpu = |cpu: Option<usize>| cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string());
        vec![
            ("pump".to_owned(), cpu(self.pump)),
            ("generator".to_owned(), cpu(self.generator)),
            ("server".to_owned(), "any".to_owned()),
        ]
    }
}
