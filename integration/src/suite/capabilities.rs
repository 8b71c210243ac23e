//! The supervisor's capabilities: no other than the table's, and each of these for a reason.

use super::operators::people::{Person, host, need_accounts};
use crate::runner::{Test, need_root};
use anyhow::ensure;
use std::process::Command;
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, programs};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("capabilities.are_the_table_and_no_more", the_table),
        Test::new("capabilities.a_missing_one_is_named", missing),
        Test::new("capabilities.each_has_its_reason", reasons),
    ]
}

/// In the kernel's numbering: CHOWN 0, DAC_OVERRIDE 1, FOWNER 3, KILL 5, SETGID 6, SETUID 7, SETPCAP 8,
/// SYS_PTRACE 19, SYS_ADMIN 21.
const WANTED: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 19 | 1 << 21;
const NAMES: [&str; 9] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_SYS_PTRACE",
    "CAP_SYS_ADMIN",
];

fn the_table(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let ann = Person::make(sandbox, &[])?;
    host(sandbox, &super::operators::allow(&[&ann]), || {
        let (sessiond, supervisor) = crate::talk::daemon_pids(sandbox)?;
        let status = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/status"));
        let set = |status: &str, name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            u64::from_str_radix(line.unwrap_or_default().trim(), 16)
        };
        let of_supervisor = status(supervisor)?;
        for (name, wanted) in [
            ("CapPrm:", WANTED),
            ("CapEff:", WANTED),
            ("CapBnd:", WANTED),
            ("CapInh:", 0),
            ("CapAmb:", 0),
        ] {
            let got = set(&of_supervisor, name)?;
            ensure!(got == wanted, "{name} {got:x}, not {wanted:x}");
        }
        ensure!(of_supervisor.lines().any(|line| line.trim_end() == "Groups:"), "{of_supervisor}");
        let of_sessiond = status(sessiond)?;
        for name in ["CapPrm:", "CapEff:", "CapBnd:", "CapInh:", "CapAmb:"] {
            ensure!(set(&of_sessiond, name)? == 0, "sessiond: {of_sessiond}");
        }
        // With them everything works, for root and for an operator.
        crate::talk::sh(sandbox, &["--home", "h"], "true")?.expect(0)?;
        ann.caged(&["--home", "h"], "true")?.expect(0)?;
        Ok(())
    })
}

/// As a container starts root with less.
fn missing(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    for name in NAMES {
        let supervisor = programs::folder()?.join("mews-supervisor");
        let mut command = Command::new("setpriv");
        let word = name.trim_start_matches("CAP_").to_lowercase();
        command.args(["--bounding-set", &format!("-{word}"), "--inh-caps", &format!("-{word}")]);
        command.arg(supervisor).env_clear().envs(sandbox.env()?);
        let told = process::run(&mut command, b"", LIMIT)?.expect(1)?.err();
        ensure!(told.contains(&format!("lacks the capability {name}")), "{name}: {told}");
    }
    Ok(())
}

/// Each left out, with what fails then and says so.
fn reasons(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    for (name, said) in [
        ("CAP_CHOWN", "the cage's files could not be made"),
        ("CAP_SETUID", "a user namespace for the cage's uid: Operation not permitted"),
        ("CAP_SETGID", "supplementary groups"),
        ("CAP_SETPCAP", "bounding set"),
        ("CAP_SYS_ADMIN", "cannot be lent"),
        ("CAP_SYS_PTRACE", "a user namespace for the cage's uid: Permission denied"),
    ] {
        let mut command = sandbox.command(["run", "--no-daemon", "--no-tty", "--", "true"])?;
        command.env("MEWS_WITHOUT_CAPABILITY", name);
        let told = process::run(&mut command, b"", LIMIT)?;
        ensure!(told.err().contains(said), "without {name}: {told:?}");
    }
    // Without it the cage runs, and what its broker wrote in its own closed folder stays behind.
    let mut command = sandbox.command(["run", "--no-daemon", "--no-tty", "--", "true"])?;
    process::run(command.env("MEWS_WITHOUT_CAPABILITY", "CAP_DAC_OVERRIDE"), b"", LIMIT)?;
    let left = std::fs::read_dir(sandbox.state_dir())?.flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("one-shot-"));
    let left: Vec<_> = left.map(|entry| entry.path()).collect();
    ensure!(left.len() == 1, "a one-shot without CAP_DAC_OVERRIDE left {left:?}");
    for path in left {
        std::fs::remove_dir_all(path)?;
    }
    sandbox.file("ws/file", "")?;
    let chmod = ["run", "--no-daemon", "--no-tty", "--overlay", "--", "chmod", "600", "file"];
    let mut command = sandbox.command(chmod)?;
    process::run(&mut command, b"", LIMIT)?.expect(0)?;
    let mut command = sandbox.command(chmod)?;
    let told = process::run(command.env("MEWS_WITHOUT_CAPABILITY", "CAP_FOWNER"), b"", LIMIT)?;
    ensure!(told.err().contains("not permitted"), "without CAP_FOWNER: {told:?}");
    // Without it sessiond, which has a uid of its own, cannot be told to end.
    let mut command = sandbox.command(["daemon", "start"])?;
    process::run(command.env("MEWS_WITHOUT_CAPABILITY", "CAP_KILL"), b"", LIMIT)?.expect(0)?;
    let (sessiond, supervisor) = crate::talk::daemon_pids(sandbox)?;
    let stopped = sandbox.mews(["daemon", "stop"])?;
    for pid in [sessiond, supervisor] {
        // ESRCH: it ended all the same.
        link::PidFd::open(pid).and_then(|process| process.signal(libc::SIGKILL)).ok();
    }
    // With all of them the next ones clear up.
    sandbox.mews(["daemon", "start"])?.expect(0)?;
    // Which of the two words it is depends on who is faster.
    let told = ["has not ended", "broke"].iter().any(|words| stopped.err().contains(words));
    ensure!(stopped.code != 0 && told, "{stopped:?}");
    Ok(())
}
