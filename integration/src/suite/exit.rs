//! Exit statuses, causes and the status file, with and without daemons.

use crate::runner::{Test, need_root};
use crate::talk::{Mode, in_workspace, number, run, run_fed, run_with_status, text};
use anyhow::{Context as _, ensure};
use std::os::unix::fs::PermissionsExt;
use testkit::Sandbox;

struct Case {
    name: &'static str,
    options: &'static [&'static str],
    command: &'static [&'static str],
    status: i32,
    cause: &'static str,
    /// What standard error says.
    says: &'static str,
    root_only: bool,
}

const PLAIN: Case = Case {
    name: "",
    options: &[],
    command: &[],
    status: 0,
    cause: "exited",
    says: "",
    root_only: false,
};

const CASES: [Case; 10] = [
    Case { name: "zero", command: &["true"], ..PLAIN },
    Case { name: "own_status", command: &["sh", "-c", "exit 7"], status: 7, ..PLAIN },
    Case { name: "status_255", command: &["sh", "-c", "exit 255"], status: 255, ..PLAIN },
    Case {
        name: "signal_is_128_and_n",
        command: &["sh", "-c", "kill -TERM $$"],
        status: 143,
        cause: "signaled",
        ..PLAIN
    },
    Case {
        name: "kill_is_137_and_not_oom",
        command: &["sh", "-c", "kill -KILL $$"],
        status: 137,
        cause: "signaled",
        ..PLAIN
    },
    Case {
        name: "missing_program_is_127",
        command: &["no-such-program"],
        status: 127,
        says: "no-such-program",
        ..PLAIN
    },
    Case {
        name: "missing_path_is_127",
        command: &["./no-such-file"],
        status: 127,
        says: "no-such-file",
        ..PLAIN
    },
    Case {
        name: "not_executable_is_126",
        command: &["./plain-file"],
        status: 126,
        says: "plain-file",
        ..PLAIN
    },
    Case {
        name: "walltime_is_124",
        options: &["--timeout", "1s"],
        command: &["sleep", "100"],
        status: 124,
        cause: "walltime",
        ..PLAIN
    },
    Case {
        name: "memory_hog_is_137_oom",
        options: &["--memory", "48M"],
        command: &["sh", "-c", "tail /dev/zero"],
        status: 137,
        cause: "oom",
        root_only: true,
        ..PLAIN
    },
];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for mode in Mode::BOTH {
        let name = |what: &str| format!("exit.{what}.{}", mode.name());
        for case in CASES {
            tests.push(Test::new(name(case.name), move |sandbox| check(sandbox, mode, &case)));
        }
        tests.push(Test::new(name("unbuildable_cage_is_125"), move |s| unbuildable(s, mode)));
        tests.push(Test::new(name("big_file_through_pipes"), move |s| big_file(s, mode)));
        tests.push(Test::new(name("stdin_and_its_end"), move |s| stdin(s, mode)));
        tests.push(Test::new(name("out_and_err_apart"), move |s| out_and_err(s, mode)));
        tests.push(Test::new(name("background_holder"), move |s| background_holder(s, mode)));
        tests.push(Test::new(name("signal_to_mews_reaches_program"), move |s| forwarded(s, mode)));
    }
    tests.push(Test::new("exit.slow_reader_loses_nothing", slow_reader));
    tests.push(Test::new("exit.status_fd", status_fd));
    tests
}

fn check(sandbox: &Sandbox, mode: Mode, case: &Case) -> anyhow::Result<()> {
    if case.root_only {
        need_root()?;
    }
    let file = sandbox.file("ws/plain-file", "not a program\n")?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
    let (finished, status) = run_with_status(sandbox, mode, case.options, case.command)?;
    let finished = finished.expect(case.status)?;
    ensure!(finished.err().contains(case.says), "stderr: {}", finished.err());
    let cause = text(&status, "/exit/cause")?;
    ensure!(cause == case.cause, "cause {cause} in {status}");
    for name in ["/session", "/run", "/cage"] {
        text(&status, name)?;
    }
    number(&status, "/usage/wall_ms")?;
    ensure!(status.pointer("/enforced/walls").is_some(), "no walls in {status}");
    let code = status.pointer("/exit/code").and_then(serde_json::Value::as_i64);
    let signal = status.pointer("/exit/signal").and_then(serde_json::Value::as_i64);
    ensure!(code.is_some() != signal.is_some(), "code and signal in {status}");
    if case.cause == "exited" {
        ensure!(code == Some(case.status.into()), "{status}");
    }
    Ok(())
}

/// A wall that no host has: the run fails with its name and nothing ran.
fn unbuildable(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let policy = "version = 1\nname = \"far\"\nextends = \"shell\"\nrequire = [\"landlock>=99\"]\n";
    let policy = sandbox.file("home/far.toml", policy)?;
    let policy = policy.to_string_lossy().into_owned();
    let (finished, status) =
        run_with_status(sandbox, mode, &["--policy", &policy], &["touch", "it-ran"])?;
    let finished = finished.expect(125)?;
    ensure!(finished.err().contains("landlock"), "stderr: {}", finished.err());
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "the command ran");
    ensure!(number(&status, "/exit/code")? == 125, "{status}");
    ensure!(text(&status, "/exit/cause")? == "cage_setup", "{status}");
    ensure!(status.to_string().contains("landlock"), "{status}");
    Ok(())
}

/// 20 MB that a terminal would spoil.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .take(bytes / 8)
    .flatten()
    .collect()
}

fn big_file(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let content = noise(20_000_000);
    sandbox.file("ws/big.bin", &content)?;
    let finished = run(sandbox, mode, &[], &["cat", "big.bin"])?.expect(0)?;
    ensure!(finished.stdout == content, "{} bytes came, not the file's", finished.stdout.len());
    Ok(())
}

fn stdin(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let content = noise(3_000_000);
    let finished = run_fed(sandbox, mode, &["cat"], &content)?.expect(0)?;
    ensure!(finished.stdout == content, "{} bytes came back", finished.stdout.len());
    let finished = run_fed(sandbox, mode, &["sh", "-c", "head -c 5; exit 3"], &content)?;
    ensure!(finished.expect(3)?.stdout.len() == 5, "head did not get its five bytes");
    Ok(())
}

fn out_and_err(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let script = "echo to-out; echo to-err >&2; exit 4";
    let finished = run(sandbox, mode, &[], &["sh", "-c", script])?.expect(4)?;
    ensure!(finished.out() == "to-out\n", "stdout: {:?}", finished.out());
    ensure!(finished.err().contains("to-err\n"), "stderr: {:?}", finished.err());
    ensure!(!finished.err().contains("to-out"), "stderr: {:?}", finished.err());
    Ok(())
}

/// Something in the background that keeps the pipe open does not keep the run open.
fn background_holder(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    let script = "sleep 300 & echo started; exit 5";
    let finished = run(sandbox, mode, &[], &["sh", "-c", script])?.expect(5)?;
    ensure!(finished.out() == "started\n", "stdout: {:?}", finished.out());
    ensure!(started.elapsed().as_secs() < 20, "took {:?}", started.elapsed());
    Ok(())
}

fn forwarded(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let mut words = vec!["run", "--no-tty"];
    if mode == Mode::Alone {
        words.push("--no-daemon");
    }
    let script = "trap 'echo told; exit 9' TERM; echo ready > ready; while :; do sleep 0.05; done";
    words.extend(["--", "bash", "-c", script]);
    let mut command = sandbox.command(words)?;
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.stdin(std::process::Stdio::null()).spawn()?;
    let ready = in_workspace(sandbox, "ready");
    testkit::pause::until("the program is ready", testkit::process::LIMIT, || {
        ready.exists().then_some(())
    })?;
    link::PidFd::open(i32::try_from(child.id())?)?.signal(libc::SIGTERM)?;
    let output = child.wait_with_output()?;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = testkit::process::code_of(output.status);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(code == 9 && shown.contains("told"), "{code}: {shown} {err}");
    Ok(())
}

fn slow_reader(sandbox: &Sandbox) -> anyhow::Result<()> {
    let content = noise(8_000_000);
    sandbox.file("ws/big.bin", &content)?;
    let mut command = sandbox.command(["run", "--no-tty", "--", "cat", "big.bin"])?;
    let mut child = command.stdout(std::process::Stdio::piped()).spawn()?;
    let mut from = child.stdout.take().context("a pipe")?;
    let (mut got, mut part) = (Vec::new(), vec![0_u8; 64 * 1024]);
    loop {
        let count = std::io::Read::read(&mut from, &mut part)?;
        if count == 0 {
            break;
        }
        got.extend_from_slice(part.get(..count).unwrap_or_default());
        testkit::pause::briefly();
    }
    let status = testkit::process::wait(&mut child, testkit::process::LIMIT)?;
    ensure!(status.success(), "{status}");
    ensure!(got == content, "{} of {} bytes came", got.len(), content.len());
    Ok(())
}

fn status_fd(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mews = testkit::programs::folder()?.join("mews");
    let script =
        format!("exec 5>status; {} run --no-tty --status-fd 5 -- sh -c 'exit 6'", mews.display());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).env_clear().envs(sandbox.env()?).current_dir(sandbox.workspace());
    testkit::process::run(&mut shell, b"", testkit::process::LIMIT)?.expect(6)?;
    let status: serde_json::Value = serde_json::from_str(&crate::talk::read(sandbox, "status")?)?;
    ensure!(number(&status, "/exit/code")? == 6, "{status}");
    Ok(())
}
