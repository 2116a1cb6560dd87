//! What to install to have a server's program.

/// What to install to have a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    /// Debian's package of this name.
    Debian(&'static str),
    /// The Python package of this name, whose wheel holds the program.
    Python(&'static str),
    /// Available only from this page, in a version that no package of Debian has.
    Page(&'static str),
}

impl Package {
    /// The line that installs it, or the page that says how.
    pub(super) fn install_line(self) -> String {
        match self {
            Self::Debian(name) => format!("sudo apt-get install --no-install-recommends -y {name}"),
            // A virtual environment (Debian's package pipx), with the program linked into the user's own folder.
            Self::Python(name) => format!("pipx install {name}"),
            Self::Page(url) => url.to_owned(),
        }
    }

    /// How to get it, as the end of a sentence.
    pub(super) fn remedy(self) -> String {
        match self {
            Self::Debian(_) | Self::Python(_) => format!("type\n  {}", self.install_line()),
            Self::Page(url) => format!("get it from {url}"),
        }
    }
}
