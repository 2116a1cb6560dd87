//! Faults of the machine, as scripts of sh: limits, full disks, damaged files, missing programs.

use std::fs;
use std::process::Command as Program;

use anyhow::{Result, ensure};

use super::{DEADLINE, Ending, Item, draw, item, judge};
use crate::generators::Origin;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::Started;

/// What happens to the machine, as one command in a script of sh.
struct Fault {
    id: &'static str,
    is: &'static str,
    /// Command, script, and the exit codes that are right.
    rows: &'static [(&'static str, &'static str, &'static [i32])],
}

/// A user's mount of so many bytes over the folder; `$H2LAB` and `$URL` are the binary and an origin's.
macro_rules! full {
    ($size:literal, $rest:literal) => {
        concat!(
            "exec unshare --map-root-user --mount sh -c 'mount -t tmpfs -o size=",
            $size,
            " none . && cd \"$PWD\" && ",
            $rest,
            "'"
        )
    };
}

/// A user's mount over the folder in which servers are installed.
macro_rules! without {
    ($rest:literal) => {
        concat!("exec unshare --map-root-user --mount sh -c 'mount -t tmpfs none /usr/sbin; ", $rest, "'")
    };
}

/// All of them. In each script a `test` after the command looks at what it left; 99 is that of a `test` that failed.
const FAULTS: &[Fault] = &[
    Fault {
        id: "disk-full",
        is: "a disk of a few KiB: exit 4, and no half of a file under its name",
        rows: &[
            (
                "load",
                full!(
                    "64k",
                    "$H2LAB load --quiet -n20000 -c4 --out run $URL; c=$?; test ! -e run || exit 99; exit $c"
                ),
                &[4],
            ),
            (
                "compare",
                full!("48k", "$H2LAB compare --quick --json --loss 0% --proto h1,h2c -c1 -q50 --out run"),
                &[4],
            ),
            (
                "load -o",
                full!(
                    "8k",
                    "$H2LAB load --quiet --no-store -n2000 -o r.html $URL; c=$?; test ! -e r.html || exit 99; exit $c"
                ),
                &[4],
            ),
            (
                "timeline -o",
                full!("4k", "$H2LAB timeline -o r.html $URL; c=$?; test ! -e r.html || exit 99; exit $c"),
                &[4],
            ),
            (
                "bulk get",
                full!(
                    "64k",
                    "$H2LAB bulk get -o got $URL/bytes/10M; c=$?; test ! -e got || exit 99; exit $c"
                ),
                &[4],
            ),
            ("bulk get --discard", full!("64k", "$H2LAB bulk get --json --discard $URL/bytes/10M"), &[0]),
        ],
    },
    Fault {
        id: "file-size-limit",
        is: "`ulimit -f`: an error of the write, exit 4, and not a signal",
        rows: &[
            (
                "load",
                "ulimit -f 16; $H2LAB load --quiet -n5000 -c4 --out run $URL; c=$?; test ! -e run || exit 99; exit $c",
                &[4],
            ),
            (
                "load -o",
                "ulimit -f 8; $H2LAB load --quiet --no-store -n2000 -o r.html $URL; c=$?; test ! -e r.html || exit 99; exit $c",
                &[4],
            ),
            (
                "bulk get",
                "ulimit -f 16; $H2LAB bulk get -o got $URL/bytes/10M; c=$?; test ! -e got || exit 99; exit $c",
                &[4],
            ),
            (
                "compare",
                "ulimit -f 8; exec $H2LAB compare --quick --json --loss 0% --proto h1,h2c -c1 -q50 --out run",
                &[4],
            ),
        ],
    },
    Fault {
        id: "open-files",
        is: "`ulimit -n`: exit 4, or what fits into it is done",
        rows: &[
            ("load", "ulimit -n 24; exec $H2LAB load --quiet --no-store -c100 -n200 $URL", &[4]),
            ("trace", "ulimit -n 20; exec $H2LAB trace -c50 -n50 $URL", &[4]),
            ("timeline", "ulimit -n 12; exec $H2LAB timeline $URL", &[0, 4]),
            (
                "bulk get",
                "ulimit -n 20; exec $H2LAB bulk get --json -c50 --part=64k -o got $URL/bytes/10M",
                &[0, 4],
            ),
            (
                "compare",
                "ulimit -n 8; exec $H2LAB compare --quick --json --loss 0% --proto h1,h2c -c1 -q50 --out run",
                &[4],
            ),
            (
                "compare",
                "ulimit -n 24; exec $H2LAB compare --quick --json --loss 0% --proto h1,h2c -c1 -q50 --out run",
                &[4],
            ),
            ("probe", "ulimit -n 5; exec $H2LAB probe --json --timeout=1s --idle=1s $URL", &[4]),
        ],
    },
    Fault {
        id: "read-only",
        is: "a file system without writing: exit 4, or another folder, which is named",
        rows: &[
            (
                "load",
                full!("64k", "mount -o remount,ro . && $H2LAB load --quiet -n20 $URL 2>&1 | grep -q written"),
                &[0],
            ),
            (
                "load --out",
                full!("64k", "mount -o remount,ro . && $H2LAB load --quiet -n20 --out run $URL"),
                &[4],
            ),
            ("compare", full!("64k", "mount -o remount,ro . && $H2LAB compare --quick --out run"), &[4]),
            (
                "load -o",
                full!("64k", "mount -o remount,ro . && $H2LAB load --no-store -n20 -o r.json $URL"),
                &[2, 4],
            ),
            ("bulk get", full!("64k", "mount -o remount,ro . && $H2LAB bulk get -o got $URL/bytes/1k"), &[4]),
        ],
    },
    Fault {
        id: "stdout-full",
        is: "stdout takes nothing: exit 4; closed or without a reader: exit 0",
        rows: &[
            ("load", "exec $H2LAB load --quiet --no-store -n20 $URL >/dev/full", &[4]),
            ("load", "exec $H2LAB load --json --quiet --no-store -n20 $URL >&-", &[0, 5]),
            ("trace", "exec $H2LAB trace $URL >/dev/full", &[4]),
            ("trace", "$H2LAB trace -n100 $URL | head -1", &[0]),
            ("timeline", "exec $H2LAB timeline --json $URL >/dev/full", &[4]),
            ("bulk get", "exec $H2LAB bulk get --json --discard $URL/bytes/1M >/dev/full", &[4]),
            ("probe", "exec $H2LAB probe --timeout=1s --idle=1s $URL >/dev/full", &[4]),
            (
                "compare",
                "exec $H2LAB compare --quick --loss 0% --proto h1,h2c -c1 -q50 --out run >/dev/full",
                &[4],
            ),
            ("report", "exec $H2LAB report $RUN >/dev/full", &[4]),
            ("runs", "exec $H2LAB runs --dir $RUNS >/dev/full", &[4]),
            ("doctor", "exec $H2LAB doctor >/dev/full", &[4]),
            ("gen", "exec $H2LAB gen completions bash >/dev/full", &[4]),
            ("origin", "exec $H2LAB origin --listen 127.0.0.1:0 >/dev/full", &[4]),
            ("bulk serve", "exec $H2LAB bulk serve --memory --listen 127.0.0.1:0 >/dev/full", &[4]),
        ],
    },
    Fault {
        id: "stderr-full",
        is: "stderr takes nothing: what is said there is lost, the result is not",
        rows: &[
            ("load", "exec $H2LAB load --json --no-store -n2000 $URL 2>/dev/full | grep -q succeeded", &[0]),
            ("load", "exec $H2LAB load --no-store -n20 http://127.0.0.1:1/ 2>/dev/full", &[3]),
            (
                "compare",
                "exec $H2LAB compare --quick --json --loss 0% --proto h1,h2c -c1 -q50 --out run 2>/dev/full",
                &[0, 5],
            ),
            (
                "compare",
                "exec $H2LAB compare --quick --loss 0% --proto h1,h2c -c1 -q50 --out run 2>&1 | head -1",
                &[0],
            ),
            ("trace", "exec $H2LAB trace http://127.0.0.1:1/ 2>/dev/full", &[3]),
            ("bulk get", "exec $H2LAB bulk get nonsense 2>/dev/full", &[2]),
            ("probe", "exec $H2LAB probe --json --timeout=1s --idle=1s $URL 2>/dev/full", &[0]),
            ("nothing open", "exec $H2LAB load --no-store -n20 $URL <&- >&- 2>&-", &[0, 5]),
        ],
    },
    Fault {
        id: "run-torn",
        is: "run.json torn, empty, garbage, of no sense: exit 2",
        rows: &[
            (
                "report",
                "head -c 300 $RUN/run.json >r && cp -r $RUN b && mv r b/run.json && exec $H2LAB report b",
                &[2],
            ),
            ("report", "cp -r $RUN b && : >b/run.json && exec $H2LAB report b", &[2]),
            ("report", "cp -r $RUN b && rm b/run.json && exec $H2LAB report b", &[2]),
            ("report", "cp -r $RUN b && head -c 9999 /dev/urandom >b/run.json && exec $H2LAB report b", &[2]),
            (
                "report",
                "cp -r $RUN b && printf %99999d 0 | tr 0 [ | tr ' ' [ >b/run.json && exec $H2LAB report b",
                &[2],
            ),
            ("report --json", "cp -r $RUN b && echo '{}' >b/run.json && exec $H2LAB report --json b", &[2]),
            ("runs", "mkdir d && cp -r $RUN d/b && echo '{' >d/b/run.json && exec $H2LAB runs --dir d", &[0]),
            ("run --resume", "cp -r $RUN b && echo '{' >b/run.json && exec $H2LAB run --resume b", &[2]),
        ],
    },
    Fault {
        id: "table-corrupt",
        is: "a table of a run that is cut, empty, missing, or has one bit changed: exit 2, and no other figures",
        rows: &[
            (
                "report",
                "cp -r $RUN b && head -c 3000 $RUN/samples.parquet >b/samples.parquet && exec $H2LAB report b",
                &[2],
            ),
            ("report", "cp -r $RUN b && : >b/samples.parquet && exec $H2LAB report b", &[2]),
            ("report", "cp -r $RUN b && rm b/samples.parquet && exec $H2LAB report b", &[2]),
            (
                "report",
                "cp -r $RUN b && head -c 9999 /dev/urandom >b/samples.parquet && exec $H2LAB report b",
                &[2],
            ),
            (
                "report",
                "cp -r $RUN b && f=b/samples.parquet && at=$(($RANDOM_NUMBER % $(wc -c <$f))) && was=$(dd if=$f bs=1 skip=$at count=1 2>/dev/null | od -An -tu1) && printf \"\\\\$(printf %03o $(($was ^ 16)))\" | dd of=$f bs=1 seek=$at conv=notrunc 2>/dev/null && exec $H2LAB report b",
                &[2],
            ),
        ],
    },
    Fault {
        id: "wrong-names",
        is: "what is not there, is a folder, or is no text: exit 2",
        rows: &[
            ("run", "exec $H2LAB run nothing.toml", &[2]),
            ("run", "head -c 5000 /dev/urandom >x.toml; exec $H2LAB run x.toml", &[2]),
            ("report", "exec $H2LAB report nothing", &[2]),
            ("bulk put", "exec $H2LAB bulk put nothing $URL/x", &[2]),
            ("bulk put", "exec $H2LAB bulk put . $URL/x", &[2]),
            ("bulk get", "mkdir got; exec $H2LAB bulk get -o got $URL/bytes/1k", &[2]),
            ("load", "exec $H2LAB load --quiet --no-store -n1 --cacert nothing $URL", &[2]),
        ],
    },
    Fault {
        id: "port-in-use",
        is: "a port that another process has: exit 2, which says so",
        rows: &[
            ("origin", "exec $H2LAB origin --listen ${URL#http://}", &[2]),
            ("bulk serve", "exec $H2LAB bulk serve --memory --listen ${URL#http://}", &[2]),
            ("load", "exec $H2LAB load --quiet --no-store -n9 --prometheus ${URL#http://} $URL", &[2]),
        ],
    },
    Fault {
        id: "missing-programs",
        is: "a server that is not installed, and a command that does not exist",
        rows: &[
            (
                "run",
                without!(
                    "printf \"[matrix]\\norigin = \\\"nginx\\\"\\n\" >s.toml; exec $H2LAB run --quick --out run s.toml"
                ),
                &[4],
            ),
            ("timeline", without!("exec $H2LAB timeline / --hops haproxy"), &[4]),
            ("link", "exec $H2LAB link --client no-such-program", &[127]),
            ("link", "exec $H2LAB link --server no-such-program --client 'sleep 9'", &[3]),
        ],
    },
    Fault {
        id: "no-namespaces",
        is: "a machine without user namespaces and without rights: exit 4",
        rows: &[
            (
                "compare",
                "exec unshare -Urn sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs $H2LAB compare --quick --out run'",
                &[4],
            ),
            (
                "link",
                "exec unshare -Urn sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs $H2LAB link --client true'",
                &[4],
            ),
        ],
    },
    Fault {
        id: "journal-corrupt",
        is: "what a killed `bulk get` left, resumed with a journal that is none: exit 2; with its own: whole",
        rows: &[
            (
                "bulk get",
                "timeout -s KILL 1 $H2LAB bulk get -s -o got \"$URL/drip?bytes=100000000&ms=60000\"; head -c 99 /dev/urandom >got.part.journal; exec $H2LAB bulk get -s -o got \"$URL/drip?bytes=100000000&ms=60000\"",
                &[2],
            ),
            (
                "bulk get",
                "echo >got.part; echo '{}' >got.part.journal; exec $H2LAB bulk get -s -o got $URL/bytes/1M",
                &[2],
            ),
            (
                "bulk get",
                "timeout -s KILL 1 $H2LAB bulk get -s -o got \"$URL/drip?bytes=100000000&ms=60000\"; $H2LAB bulk get -s --no-resume -o got $URL/bytes/1M && test $(wc -c <got) = 1048576",
                &[0],
            ),
        ],
    },
    Fault {
        id: "source-changes",
        is: "a file that is cut or grows while it is sent: exit 4, and no success",
        rows: &[(
            "bulk put",
            "truncate -s 3G f; (sleep 0.$RANDOM_DIGIT; truncate -s 1k f) & exec $H2LAB bulk put -s f $URL/echo",
            &[0, 3, 4],
        )],
    },
];

/// The exit code of a script whose `test` failed.
const TEST_FAILED: i32 = 99;

/// An item for each.
pub fn items(seed: u64) -> impl Iterator<Item = Item> {
    FAULTS.iter().map(move |fault| item(fault.id, fault.is, move |h2lab| show(h2lab, fault, seed)))
}

fn show(h2lab: &H2lab, fault: &Fault, seed: u64) -> Result<ItemOutcome> {
    let origin = Origin::start(h2lab)?;
    let url = origin.url("h1", "");
    let runs = tempfile::tempdir()?;
    let run = runs.path().join("run");
    let words = format!("load --quiet -c4 -n2000 --out {} {url}", run.display());
    let made = Program::new(h2lab.path()).args(words.split(' ')).output()?;
    ensure!(made.status.success(), "no run was made: {}", String::from_utf8_lossy(&made.stderr));
    let mut outcome = ItemOutcome::default();
    for (index, (command, script, codes)) in fault.rows.iter().enumerate() {
        let folder = tempfile::tempdir()?;
        let drawn = draw(seed, &format!("{}{index}", fault.id));
        let mut program = Program::new("sh");
        program.args(["-c", script]);
        program.env("H2LAB", h2lab.path()).env("URL", &url).env("RUN", &run).env("RUNS", runs.path());
        program.env("RANDOM_NUMBER", (drawn % 1_000_000).to_string());
        program.env("RANDOM_DIGIT", (drawn % 10).to_string());
        fs::create_dir(folder.path().join("work"))?;
        let ended = Started::begin(&mut program, &folder.path().join("work"), "../said")?.end(DEADLINE)?;
        let row = format!("{command:<12} {}, {:.1} s", ended.ending, ended.took.as_secs_f64());
        match judge(&ended, codes) {
            Ok(()) => outcome.check(true, row),
            Err(_) if ended.ending == Ending::Code(TEST_FAILED) => {
                outcome.check(false, format!("{row}: it left what it must not: {script}"));
            }
            Err(wrong) => {
                outcome.check(false, format!("{row}: {wrong:#} ({}): {script}", ended.last_words()));
            }
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_one_of_sh() {
        for (command, script, codes) in FAULTS.iter().flat_map(|fault| fault.rows) {
            let parsed = Program::new("sh").args(["-n", "-c", script]).output().unwrap();
            assert!(parsed.status.success() && !codes.is_empty(), "{command}: {script}");
            assert!(!codes.contains(&TEST_FAILED));
        }
    }
}
