//! What a sidecar gives up once it has what it needs: its user, its rights, and access to files that it does not use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use h2lab_net::confinement::{Allowed, Confined};
use h2lab_net::privileges::{CapabilitySet, User};
use h2lab_net::tcp::StreamSocket;
use h2lab_proxy::config::{Config, Transparent};
use h2lab_roles::sidecar::SidecarError;

use super::super::exit::Usage;
use super::{SidecarArgs, folder_of, rights};

/// What this process may still read; it is decided once.
static ALLOWED: OnceLock<Allowed> = OnceLock::new();

/// How the process is confined.
#[derive(Debug)]
pub(super) struct Confinement {
    user: Option<User>,
    /// The capabilities that it needs as long as it runs.
    kept: CapabilitySet,
}

/// The user that it changes to: that of the flag, or of the file.
pub(super) fn user_of(args: &SidecarArgs, file: &Config) -> Result<Option<User>> {
    let (what, name) = match (&args.user, &file.user) {
        (Some(name), _) => ("--user", name),
        (None, Some(name)) => ("user", name),
        (None, None) => return Ok(None),
    };
    let user = User::named(name).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Usage(format!("{what} must name an unprivileged user: {error}")),
        _ => Usage(format!("{what}: {error}")),
    })?;
    Ok(Some(user))
}

impl Confinement {
    /// Gives up what is not needed from here on: rights, and, unless the file or a flag says otherwise, access to other
    /// files. Call it before the first thread.
    pub(super) fn begin(args: &SidecarArgs, file: &Config, path: &Path) -> Result<Self> {
        let user = user_of(args, file)?;
        let is_tproxy = file.listen.iter().any(|listen| listen.transparent == Some(Transparent::Tproxy));
        let kept =
            if is_tproxy || file.mark.is_some() { CapabilitySet::NET_ADMIN } else { CapabilitySet::empty() };
        // Congestion control that not every user may set is set on each connection to an instance.
        let over_tcp = file.service.values().filter(|service| service.uses_tcp());
        let congestion = over_tcp.filter_map(|service| service.congestion.as_deref());
        let kept = congestion.fold(kept, |kept, name| kept | StreamSocket::rights_for_congestion(name));
        let to_change =
            user.map_or(CapabilitySet::empty(), |_| CapabilitySet::SETUID | CapabilitySet::SETGID);
        rights::reduce(CapabilitySet::NET_BIND_SERVICE | to_change | kept)?;
        if file.landlock && !args.no_landlock {
            confine(args, file, path)?;
        }
        Ok(Self { user, kept })
    }

    /// The user that it changes to.
    pub(super) const fn user(&self) -> Option<User> {
        self.user
    }

    /// Changes to the user, once all sockets are open.
    pub(super) fn become_user(&self) -> io::Result<()> {
        self.user.map_or(Ok(()), |user| user.become_it(self.kept))
    }
}

/// Forbids this process to open files that it does not use.
fn confine(args: &SidecarArgs, file: &Config, path: &Path) -> Result<()> {
    let allowed = allowed(args, file, path);
    match allowed.confine().context("Landlock")? {
        Confined::Fully | Confined::Partly => {
            let _ = ALLOWED.set(allowed); // nothing else sets it
        }
        Confined::Not => {
            say!("note: this kernel has no Landlock: file access is not restricted");
        }
    }
    Ok(())
}

/// Folders rather than files, since files are replaced by new ones; and the folders that symbolic links lead to.
fn allowed(args: &SidecarArgs, file: &Config, path: &Path) -> Allowed {
    let folder = folder_of(path);
    let of_config = args.config.as_deref().map(|_| PathBuf::from("."));
    let registries = file.service.values().filter_map(|service| service.file.as_ref());
    let named = file.files().into_iter().chain(registries).map(|name| folder.join(name));
    let mut read: Vec<PathBuf> = of_config.iter().map(|_| present(&folder)).collect();
    for file in std::iter::once(path.to_owned()).filter(|_| of_config.is_some()).chain(named) {
        read.push(present(&folder_of(&file)));
        read.extend(file.canonicalize().ok().map(|real| folder_of(&real)));
    }
    let certificates = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
    read.extend(certificates.into_iter().filter_map(std::env::var_os).map(PathBuf::from));
    let log = file.log.file.as_ref().filter(|name| *name != "-").map(|name| folder.join(name));
    let write = log.iter().chain(&args.take_over).map(|file| present(&folder_of(file)));
    let mut allowed = Allowed { read, write: write.collect() };
    for folders in [&mut allowed.read, &mut allowed.write] {
        folders.sort();
        folders.dedup();
    }
    allowed
}

/// A name without a folder is in the working folder.
fn present(folder: &Path) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
}

/// Why a file cannot be read: the kernel's error does not say whether Landlock forbids it.
pub(super) fn unreadable(path: &Path, source: io::Error) -> SidecarError {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let Some(allowed) = ALLOWED
        .get()
        .filter(|allowed| source.kind() == io::ErrorKind::PermissionDenied && !allowed.reads(path))
    else {
        return SidecarError::File { path: path.display().to_string(), source };
    };
    // All of them absolute: a relative one would not show what it is relative to.
    let mut folders: Vec<String> =
        allowed.read.iter().map(|folder| absolute(folder).display().to_string()).collect();
    folders.sort();
    folders.dedup();
    let words = format!(
        "Landlock permits the running sidecar to read files below {} only: move the file there, or restart the sidecar (landlock = false \
         turns this off)",
        folders.join(", ")
    );
    let path = absolute(path).display().to_string();
    SidecarError::File { path, source: io::Error::new(source.kind(), words) }
}
