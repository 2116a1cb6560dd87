//! Writes the valid inputs of every target: where a corpus begins.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = "corpus";
    for target in h2lab_model::fuzz::TARGETS {
        let folder = Path::new(folder).join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (n, seed) in (target.seeds)().into_iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{n}")), seed)?;
        }
    }
    Ok(())
}
