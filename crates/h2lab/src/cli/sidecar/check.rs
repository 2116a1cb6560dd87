//! Checks beyond the contents of the file: names that do not resolve, the access log, rights, and the socket at which a
//! successor asks.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use anyhow::Result;
use h2lab_base::counts::plural;
use h2lab_net::intercept::may_take_foreign;
use h2lab_net::privileges::{CapabilitySet, User, has};
use h2lab_net::tcp::StreamSocket;
use h2lab_proxy::config::{Config, Instance, Transparent, instance_line};
use h2lab_roles::sidecar::{SidecarConfig, SidecarError, check_mark, unresolved};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::super::exit::{MissingRequirement, Usage};
use super::super::{Exit, output, quotable};
use super::{SidecarArgs, confine, folder_of};

/// Names that are resolved at the same time.
const AT_ONCE: usize = 32;
/// The longest path of a socket (unix(7): `sun_path` with its zero).
const LONGEST_PATH: usize = 107;

/// `2 listeners, 3 services, 5 instances`, as they are in the file.
pub(super) fn summary(config: &Config) -> String {
    let services: Vec<_> = config.written_services().map(|(_, service)| service).collect();
    let instances: usize = services.iter().map(|service| service.instances.len()).sum();
    let registries = services.iter().filter(|service| service.registry().is_some()).count() as u64;
    let registries = match registries {
        0 => String::new(),
        1 => ", 1 registry".to_owned(),
        n => format!(", {n} registries"),
    };
    format!(
        "{}, {}, {}{registries}",
        plural(config.listen.len() as u64, "listener"),
        plural(services.len() as u64, "service"),
        plural(instances as u64, "instance")
    )
}

/// `--check`: reports what is wrong in the file, and what would be wrong here and now; starts nothing.
pub(super) fn run(args: &SidecarArgs, path: &Path, config: &SidecarConfig) -> Result<Exit> {
    let user = confine::user_of(args, &config.file)?;
    args.take_over.as_deref().map_or(Ok(()), take_over_path)?;
    let log = access_log(&config.file, &folder_of(path), user)?;
    let mut warnings = unresolved_names(path, &config.file);
    warnings.extend(log);
    warnings.extend(missing_rights(config, user));
    warnings.extend(config.file.service.iter().filter_map(|(name, service)| {
        let congestion = service.congestion.as_deref().filter(|_| service.uses_tcp())?;
        let is_restricted = !StreamSocket::rights_for_congestion(congestion).is_empty();
        is_restricted.then(|| restricted(name, congestion))
    }));
    for warning in &warnings {
        say!("warning: {}", quotable(warning));
    }
    output::print(&format!("{} is valid: {}\n", path.display(), summary(&config.file)))?;
    Ok(Exit::Done)
}

/// The warning about congestion control that may be available at a start and not at a reload.
fn restricted(service: &str, congestion: &str) -> String {
    format!(
        "congestion = \"{congestion}\" of service \"{service}\" requires CAP_NET_ADMIN on this system: a sidecar that was started without it \
         takes it only after a restart or a hand-over (--take-over), unless net.ipv4.tcp_allowed_congestion_control has it"
    )
}

/// The rights that a start by this user would lack. Another user may have them, so it is no error.
fn missing_rights(config: &SidecarConfig, user: Option<User>) -> Vec<String> {
    let to_change = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let user = user.filter(|_| !has(to_change)).map(|_| {
        "cannot switch to another user (user or --user): this requires root (CAP_SETUID and CAP_SETGID)"
            .to_owned()
    });
    let mut listeners = config.file.listen.iter();
    let tproxy = listeners.find(|listen| listen.transparent == Some(Transparent::Tproxy));
    let tproxy = tproxy.and_then(|listen| {
        let source = may_take_foreign().err()?;
        Some(SidecarError::Tproxy { address: listen.address, source }.to_string())
    });
    let mark = check_mark(config).err().map(|error| error.to_string());
    let all = user.into_iter().chain(tproxy).chain(mark);
    all.map(|why| format!("started by this user it would fail: {why}")).collect()
}

/// Whether the access log can be opened, as far as that can be checked without creating it. What another user may do is
/// a warning.
fn access_log(file: &Config, folder: &Path, user: Option<User>) -> Result<Option<String>> {
    let Some(name) = file.log.file.as_ref().filter(|name| *name != "-") else { return Ok(None) };
    let path = folder.join(name);
    let about = |why: &dyn std::fmt::Display| format!("cannot open the access log {}: {why}", path.display());
    let in_folder = folder_of(&path);
    let in_folder = if in_folder.as_os_str().is_empty() { Path::new(".") } else { &in_folder };
    let may = match std::fs::metadata(&path) {
        Ok(there) if there.is_dir() => return Err(Usage(about(&"it is a directory")).into()),
        Ok(_) => access(&path, Access::WRITE_OK),
        Err(error) if error.kind() == io::ErrorKind::NotFound && in_folder.is_dir() => {
            access(in_folder, Access::WRITE_OK | Access::EXEC_OK)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("the directory {} does not exist: create it first", in_folder.display());
            return Err(Usage(about(&why)).into());
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Errno::ACCESS),
        Err(error) => return Err(Usage(about(&error)).into()),
    };
    match may.map_err(io::Error::from) {
        Ok(()) => Ok(user.and_then(|user| of_another(user, &path))),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(Some(format!("started by this user it would fail: {}", about(&error))))
        }
        Err(error) => Err(Usage(about(&error)).into()),
    }
}

/// The warning about an existing access log that the user of the sidecar may not open again.
pub(super) fn of_another(user: User, path: &Path) -> Option<String> {
    let error = user.may_write(path).err()?;
    let uid = user.uid();
    (error.raw_os_error() == Some(Errno::ACCESS.raw_os_error())).then(|| {
        format!(
            "user {uid} may not open the access log {}: once it is renamed, or SIGUSR1 asks for that, lines would go on into the file of \
             before; give it to that user, with its directory (chown {uid}), or remove it, and the sidecar makes one of that user",
            path.display()
        )
    })
}

/// Names of instances that have no address now, each with its line.
pub(super) fn unresolved_names(path: &Path, config: &Config) -> Vec<String> {
    let instances = config.service.iter().flat_map(|(name, service)| {
        let agent = service.consul.as_ref().map(|consul| &consul.address);
        let all = service.instances.iter().map(|member| &member.url).chain(&service.dns).chain(agent);
        all.map(move |url| (name.as_str(), url))
    });
    let named: Vec<(&str, &Instance)> =
        instances.filter(|(_, url)| url.host.parse::<IpAddr>().is_err()).collect();
    let mut hosts: Vec<&str> = named.iter().map(|(_, url)| url.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let mut wrong: BTreeMap<&str, String> = BTreeMap::new();
    for some in hosts.chunks(AT_ONCE) {
        let asked = std::thread::scope(|scope| {
            let ask = |host: &&'_ str| {
                let host = (*host).to_owned();
                scope.spawn(move || {
                    (host.as_str(), 0_u16).to_socket_addrs().err().map(|error| unresolved(&error))
                })
            };
            let threads: Vec<_> = some.iter().map(ask).collect();
            threads.into_iter().map(|thread| thread.join().ok().flatten()).collect::<Vec<_>>()
        });
        wrong.extend(some.iter().zip(asked).filter_map(|(host, why)| Some((*host, why?))));
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let told = named.iter().filter_map(|(service, url)| {
        let why = wrong.get(url.host.as_str())?;
        let error = format!("cannot resolve {} (service \"{service}\"): {why}", url.host);
        Some(with_line(path, instance_line(&text, service, url), &error))
    });
    told.collect()
}

fn with_line(path: &Path, line: Option<usize>, error: &str) -> String {
    match line {
        Some(line) => format!("{}: line {line}: {error}", path.display()),
        None if path.as_os_str().is_empty() => error.to_owned(),
        None => format!("{}: {error}", path.display()),
    }
}

/// Whether a socket can be created where the next process is to ask for the sockets of this one.
pub(super) fn take_over_path(path: &Path) -> Result<()> {
    let wrong = |why: String| Usage(format!("--take-over {}: {why}", path.display()));
    let folder = folder_of(path);
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
    if path.as_os_str().as_bytes().len() > LONGEST_PATH {
        return Err(wrong(format!("the path of a socket has at most {LONGEST_PATH} bytes")).into());
    }
    match std::fs::metadata(folder) {
        Ok(there) if there.is_dir() => {}
        Ok(_) => return Err(wrong(format!("{} is not a directory", folder.display())).into()),
        Err(_) => {
            return Err(
                wrong(format!("the directory {} does not exist: create it first", folder.display())).into()
            );
        }
    }
    if std::fs::symlink_metadata(path).is_ok_and(|there| !there.file_type().is_socket()) {
        return Err(wrong("this file exists and is not a socket: choose another path".to_owned()).into());
    }
    // An existing socket there is that of the previous process.
    if let Ok(there) = std::fs::symlink_metadata(path)
        && there.uid() != geteuid().as_raw()
        && access(path, Access::WRITE_OK).is_err()
    {
        let why = format!(
            "this socket belongs to user {}: start the process as that user, or as root",
            there.uid()
        );
        return Err(MissingRequirement(wrong(why).to_string()).into());
    }
    if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        let why = format!(
            "no permission to create a socket in {}: choose another path, or change its owner",
            folder.display()
        );
        return Err(MissingRequirement(wrong(why).to_string()).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_at_which_no_socket_can_be_is_refused() {
        let folder = std::env::temp_dir();
        let told = |path: &Path| take_over_path(path).err().map(|error| error.to_string());
        assert_eq!(told(&folder.join("h2lab-none.sock")), None);
        assert!(
            told(&folder.join("h2lab-none/a.sock"))
                .is_some_and(|why| why.contains("does not exist: create it"))
        );
        assert!(told(&folder.join("x".repeat(200))).is_some_and(|why| why.contains("at most 107")));
        let file = folder.join(format!("h2lab-no-socket-{}", std::process::id()));
        std::fs::write(&file, "").expect("it is written");
        let [at, below] = [told(&file), told(&file.join("a.sock"))];
        std::fs::remove_file(&file).expect("it is there");
        assert!(at.is_some_and(|why| why.contains("is not a socket")));
        assert!(below.is_some_and(|why| why.contains("is not a directory")));
    }

    #[test]
    fn an_access_log_that_cannot_be_opened_is_told_and_not_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let check = |name: &str| {
            let listen =
                "listen = [{ address = '127.0.0.1:1', service = 'a' }]\nservice.a.dns = 'http://a'\n";
            let file = Config::parse(&format!("{listen}log.file = '{name}'")).expect(name);
            access_log(&file, folder.path(), None).map_err(|error| error.to_string())
        };
        assert_eq!((check("-"), check("a.log"), check("/dev/null")), (Ok(None), Ok(None), Ok(None)));
        assert!(!folder.path().join("a.log").exists());
        assert!(check("/").is_err_and(|why| why == "cannot open the access log /: it is a directory"));
        assert!(check("none/a.log").is_err_and(|why| why.ends_with("does not exist: create it first")));
        std::fs::write(folder.path().join("file"), "").expect("a file");
        assert!(check("file/a.log").is_err());
    }

    #[test]
    fn a_name_without_address_is_told_with_its_line() {
        let text = "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n[service.a]\ninstances = ['http://localhost', 'http://a.invalid']\n";
        let config = Config::parse(text).expect("it is right");
        let told = unresolved_names(Path::new(""), &config);
        assert!(
            told.len() == 1 && told[0].starts_with("cannot resolve a.invalid (service \"a\"): "),
            "{told:?}"
        );
        assert_eq!(with_line(Path::new("a.toml"), Some(5), "x"), "a.toml: line 5: x");
        assert_eq!(summary(&config), "1 listener, 1 service, 2 instances");
    }
}
