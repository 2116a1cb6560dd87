//! What a terminal gets: lines that fit, characters that its locale has, and nothing that stays of progress.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::pty::{self, OpenptFlags};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::origin::Origin;
use crate::support::{binary, folder, h2lab, workspace};

/// A pseudo-terminal with this many columns.
pub struct Pty {
    master: File,
    name: String,
    columns: usize,
}

impl Pty {
    /// Opens one.
    pub fn open(columns: u16) -> Self {
        let master = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        pty::grantpt(&master).and_then(|()| pty::unlockpt(&master)).expect("it is ours");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("it has a size");
        let name = pty::ptsname(&master, Vec::new()).expect("it has a name");
        Self {
            master: File::from(master),
            name: name.into_string().expect("a plain name"),
            columns: columns.into(),
        }
    }

    fn end(&self) -> File {
        let mut options = File::options();
        // Otherwise a test that leads a session without a terminal would get this one, and SIGHUP when it is closed.
        options.custom_flags(OFlags::NOCTTY.bits().cast_signed());
        options.read(true).write(true).open(&self.name).expect("it can be opened")
    }

    /// Runs h2lab on it with only this environment until it ends; returns all that was written.
    pub fn run(mut self, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let folder = folder();
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(folder.path());
        command.env_clear().envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(self.end()).stderr(self.end());
        let mut child = command.spawn().expect("it starts");
        drop(command); // and with it our end of the terminal, so that reading ends
        let mut shown = Vec::new();
        // Linux ends a closed pseudo-terminal with EIO.
        let _ = self.master.read_to_end(&mut shown);
        child.wait().expect("it ends");
        String::from_utf8(shown).expect("it prints UTF-8")
    }

    /// Runs h2lab with this as its controlling terminal, and types Ctrl-C as soon as `mark` was written. Types it again
    /// each time that its echo is read, `times` in all. Returns the lines on the screen when h2lab has ended.
    fn interrupt(mut self, arguments: &[&str], mark: &str, times: usize) -> Vec<String> {
        let folder = folder();
        let mut controlled = Command::new("setsid");
        controlled.args(["--ctty", "--wait"]).arg(binary()).args(arguments);
        controlled.env_clear().envs([("TERM", "xterm"), ("LC_ALL", "C.UTF-8")]);
        controlled.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        controlled.stdin(self.end()).stdout(self.end()).stderr(self.end()).current_dir(folder.path());
        let mut child = controlled.spawn().expect("setsid starts");
        drop(controlled);
        let (mut shown, mut buffer, mut typed) = (Vec::new(), [0; 4096], 0);
        while let Ok(n @ 1..) = self.master.read(&mut buffer) {
            shown.extend_from_slice(&buffer[..n]);
            let text = String::from_utf8_lossy(&shown);
            if typed < times && text.contains(mark) && text.matches("^C").count() == typed {
                self.master.write_all(b"\x03").expect("it takes a key");
                typed += 1;
            }
        }
        child.wait().expect("it ends");
        assert_eq!(typed, times, "{}", String::from_utf8_lossy(&shown));
        screen(&String::from_utf8_lossy(&shown), self.columns)
    }
}

/// What a terminal shows of these characters and escape sequences.
fn screen(written: &str, columns: usize) -> Vec<String> {
    let (mut rows, mut row, mut column): (Vec<Vec<char>>, usize, usize) = (vec![Vec::new()], 0, 0);
    let mut rest = written.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\x1b' => {
                let sequence: String =
                    rest.by_ref().skip(1).take_while(|c| c.is_ascii_digit() || *c == ';').collect();
                // `take_while` has consumed the letter, which the numbers do not need: what we send is known.
                let n: usize = sequence.parse().unwrap_or(1);
                let letter = written[..written.len() - rest.as_str().len()].chars().next_back();
                match letter.expect("a sequence has a letter") {
                    'A' => row = row.saturating_sub(n),
                    'F' => (row, column) = (row.saturating_sub(n), 0),
                    'K' => rows[row].truncate(column),
                    'J' => {
                        rows.truncate(row + 1);
                        rows[row].truncate(column);
                    }
                    _ => {} // colours
                }
            }
            c => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                }
                rows.resize(rows.len().max(row + 1), Vec::new());
                let width = rows[row].len().max(column + 1);
                rows[row].resize(width, ' ');
                rows[row][column] = c;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    rows.iter().map(|row| row.iter().collect()).collect()
}

#[test]
fn nothing_of_the_progress_stays_on_a_terminal_after_ctrl_c() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/bytes/1M", origin.clear);
    for columns in [80, 60, 30] {
        for (arguments, mark) in [
            (&["bulk", "get", "--discard", "-z=300s", &url][..], "─"),
            (&["load", "-z=300s", &url], "─"),
            (&["compare", "--proto=h1,h1", "-z=300s", "--repetitions=1", &url], "─"),
            (&["probe", &url], "\r"),
        ] {
            let lines = Pty::open(columns).interrupt(arguments, mark, 1);
            let left: Vec<&String> = lines.iter().filter(|line| is_progress(line)).collect();
            assert!(left.is_empty(), "{arguments:?} at {columns}: {left:?} of {lines:#?}");
        }
    }
}

fn is_progress(line: &str) -> bool {
    line.contains(['━', '─'])
        || (line.ends_with('…') && !line.starts_with(' '))
        || line.contains("in flight, ")
}

#[test]
fn nothing_of_the_progress_stays_after_a_second_ctrl_c_either() {
    let origin = Origin::start(&[]);
    // Requests that are not answered keep it draining between the two.
    let url = format!("http://{}/delay/60000", origin.clear);
    for columns in [80, 40] {
        let lines = Pty::open(columns).interrupt(&["load", "--no-store", "-c3", "-z=300s", &url], "─", 2);
        let left: Vec<&String> = lines.iter().filter(|line| is_progress(line)).collect();
        assert!(left.is_empty(), "at {columns}: {left:?} of {lines:#?}");
    }
}

#[test]
fn a_load_that_was_stopped_says_how_much_of_its_time_was_measured() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    let lines = Pty::open(80).interrupt(&["load", "--no-store", "-c3", "-z=300s", &url], "─", 1);
    let said = lines.join(" ");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("Stopped after ") && said.contains(" of 300 s."), "{lines:#?}");
}

#[test]
fn a_dumb_terminal_gets_no_escape_sequence_and_no_color_no_colour() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/bytes/1k", origin.clear);
    for arguments in [
        &["bulk", "get", "--discard", "-z=300ms", &url][..],
        &["load", "-n=50", &url],
        &["timeline", &url],
        &["compare", "--proto=h1,h1", "-z=300ms", "--repetitions=1", &url],
        &["--help"],
    ] {
        for dumb in [&[("TERM", "dumb")][..], &[]] {
            let shown = Pty::open(80).run(arguments, dumb);
            assert!(!shown.contains('\x1b'), "{arguments:?}: {shown:?}");
        }
        let plain = Pty::open(80).run(arguments, &[("TERM", "xterm"), ("NO_COLOR", "1")]);
        let coloured = plain.match_indices("\x1b[").find(|(at, _)| {
            let rest = plain[at + 2..].trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
            rest.starts_with('m')
        });
        assert!(coloured.is_none(), "{arguments:?}: {plain:?}");
    }
}

/// Commands that print on a terminal, against this server.
fn commands(origin: &Origin) -> Vec<Vec<String>> {
    let url = format!("http://{}/early?ms=1", origin.clear);
    let tls = format!("https://{}/bytes/1k?a-query=that-is-longer-than-the-others", origin.tls);
    let results = workspace().join("results/2026-11-26-2-cpus").display().to_string();
    [
        "run --list",
        "explain",
        "doctor",
        &format!("trace -k {tls}"),
        &format!("trace {url}"),
        &format!("trace --http1.1 {url}"),
        &format!("timeline {url}"),
        &format!("load -n 2000 -c 3 -k {tls}"),
        &format!("load -z 300ms -q 50 --http2-prior-knowledge {url}"),
        &format!("bulk get --discard -z 300ms {url}"),
        &format!("compare --proto h1,h2c -z 300ms --repetitions 1 {url}"),
        &format!("runs --dir {results}"),
        "probe smuggling --fixtures",
        "compare --help",
        "load --help",
    ]
    .iter()
    .map(|line| line.split(' ').map(str::to_owned).collect())
    .collect()
}

/// Text for copying stays in one line: a URL, a command, a message that may contain one, a path (one word).
fn is_to_be_copied(line: &str) -> bool {
    let is_word = !line.trim().contains(' ');
    is_word
        || ["://", "h2lab ", "to enable: ", "run folder: ", "report: ", "note: "]
            .iter()
            .any(|mark| line.contains(mark))
}

#[test]
fn no_line_is_wider_than_the_terminal_or_than_columns() {
    let origin = Origin::start(&[]);
    let environment = [("TERM", "xterm"), ("LC_ALL", "C.UTF-8"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
    for arguments in commands(&origin) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        for columns in [60, 80] {
            let asked = columns.to_string();
            let environment = [environment.as_slice(), &[("COLUMNS", &asked)]].concat();
            let lines = screen(&Pty::open(columns + 40).run(&arguments, &environment), 1_000);
            let wide =
                lines.iter().find(|line| line.chars().count() > columns.into() && !is_to_be_copied(line));
            assert!(wide.is_none(), "{arguments:?} at {columns}: {wide:?}");
        }
    }
}

#[test]
fn where_the_locale_has_only_ascii_every_command_prints_only_that() {
    let origin = Origin::start(&[]);
    for arguments in commands(&origin) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let shown = Pty::open(80).run(&arguments, &[("TERM", "xterm"), ("LC_ALL", "C")]);
        let line = shown.lines().find(|line| !line.is_ascii());
        assert!(line.is_none(), "{arguments:?}: {line:?}");
    }
    let every = h2lab(&["explain"]);
    for id in every.stdout.lines().filter_map(|line| line.split_whitespace().next()) {
        let shown = Pty::open(80).run(&["explain", id], &[("LC_ALL", "C")]);
        assert!(shown.is_ascii(), "{id}: {:?}", shown.lines().find(|line| !line.is_ascii()));
    }
}

#[test]
fn what_is_said_on_stderr_is_folded_where_columns_are_known_and_whole_in_a_pipe() {
    let words = ["load", "--max-connections=9", "http://127.0.0.1:1/"];
    let piped = h2lab(&words).stderr;
    assert!(piped.lines().count() == 1 && piped.chars().count() > 61, "{piped}");
    let whole = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let asked = Command::new(binary()).args(words).env("COLUMNS", "60").output().expect("it starts").stderr;
    for folded in [
        String::from_utf8(asked).expect("it prints UTF-8"),
        Pty::open(60).run(&words, &[("TERM", "xterm"), ("LC_ALL", "C.UTF-8")]),
    ] {
        assert!(folded.lines().all(|line| line.chars().count() <= 60), "{folded}");
        assert_eq!(whole(&folded), whole(&piped));
    }
}
