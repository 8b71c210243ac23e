//! What an admin installs: the layout, the units, and a start by systemd's socket.

use crate::runner::{Test, need_root, skip};
use anyhow::{Context as _, ensure};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, programs};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("packaging.an_installation_works_where_it_is", layout),
        Test::new("packaging.the_units_are_right", units),
        Test::new("packaging.systemds_socket_starts_the_daemons", activation),
    ]
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

fn install(sandbox: &Sandbox) -> anyhow::Result<PathBuf> {
    let root = sandbox.folder("installed")?;
    let mut command = Command::new(source().join("install.sh"));
    command.arg("--from").arg(programs::folder()?).arg("--root").arg(&root);
    process::run(&mut command, b"", LIMIT)?.expect(0)?;
    Ok(root)
}

fn layout(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let root = install(sandbox)?;
    // Twice is an upgrade; the admin's own files stay.
    std::fs::write(root.join("etc/mews/policies/own.toml"), "version = 1\n")?;
    install(sandbox)?;
    ensure!(root.join("etc/mews/policies/own.toml").exists(), "an admin's policy is gone");
    for name in
        ["mews-supervisor", "mews-sessiond", "mews-ptybroker", "mews-layer", "mews-cage-init"]
    {
        let facts = std::fs::metadata(root.join("usr/libexec/mews").join(name))?;
        // What runs under an operator's uid is executed by it, and not read.
        let is_closed = ["mews-ptybroker", "mews-layer"].contains(&name);
        let mode = if is_closed { 0o711 } else { 0o755 };
        ensure!((facts.uid(), facts.mode() & 0o7777) == (0, mode), "{name}");
    }
    for shared in [
        "man/man1/mews.1",
        "man/man1/mews-run.1",
        "bash-completion/completions/mews",
        "zsh/vendor-completions/_mews",
        "fish/vendor_completions.d/mews.fish",
    ] {
        let facts = std::fs::metadata(root.join("usr/share").join(shared))?;
        ensure!(facts.len() > 0 && facts.mode() & 0o777 == 0o644, "{shared}");
    }
    let mews = root.join("usr/bin/mews");
    for options in [&["--no-daemon"][..], &[]] {
        let mut command = Command::new(&mews);
        command.args(["run", "--no-tty"]).args(options).args(["--", "echo", "hello"]);
        command.env_clear().envs(sandbox.env()?).current_dir(sandbox.workspace());
        let shown = process::run(&mut command, b"", LIMIT)?.expect(0)?.out();
        ensure!(shown == "hello\n", "{shown}");
    }
    let example = std::fs::read(root.join("usr/share/doc/mews/host.toml.example"))?;
    sandbox.file("config/host.toml", example)?;
    let doctor = sandbox.mews(["doctor"])?.out();
    ensure!(doctor.contains("host policy"), "the example is right: {doctor}");
    let wrong = doctor.lines().any(|line| line.starts_with("FAIL") && line.contains("host policy"));
    ensure!(!wrong, "{doctor}");
    Ok(())
}

fn units(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let analyze = program("systemd-analyze")?;
    let root = install(sandbox)?;
    let folder = root.join("usr/lib/systemd/system");
    // systemd looks for the program that a unit names.
    let service = folder.join("mews-supervisor.service");
    let text = std::fs::read_to_string(&service)?;
    let libexec = root.join("usr/libexec/mews");
    std::fs::write(&service, text.replace("/usr/libexec/mews", &libexec.to_string_lossy()))?;
    let names =
        ["mews-supervisor.service", "mews-supervisor.socket", "mews-cages.service", "mews.slice"];
    let mut command = Command::new(analyze);
    command.args(["verify", "--man=no", "--recursive-errors=no"]);
    command.args(names.map(|name| folder.join(name)));
    let told = process::run(&mut command, b"", LIMIT)?.expect(0)?;
    ensure!(told.err().is_empty(), "{}", told.err());
    // What would leak into cages stands in no line that is one.
    for word in LEAKING {
        let used = text.lines().any(|line| line.trim_start().starts_with(word));
        ensure!(!used, "{word} would hold for every cage");
        ensure!(text.contains(word), "{word}: why it is left out is not said");
    }
    for (file, program) in
        [("mews.sysusers", "systemd-sysusers"), ("mews.tmpfiles", "systemd-tmpfiles")]
    {
        let Ok(program) = self::program(program) else { continue };
        let into = sandbox.folder("dry")?;
        std::fs::create_dir_all(into.join("etc"))?;
        let mut command = Command::new(program);
        command.arg(format!("--root={}", into.display()));
        if file == "mews.tmpfiles" {
            command.arg("--create");
        }
        process::run(command.arg(source().join("systemd").join(file)), b"", LIMIT)?.expect(0)?;
    }
    let mode = |path: &str| std::fs::metadata(sandbox.root().join("dry").join(path));
    ensure!(mode("run/mews")?.mode() & 0o777 == 0o711, "run/mews");
    ensure!(mode("var/lib/mews")?.mode() & 0o777 == 0o711, "var/lib/mews");
    Ok(())
}

/// Directives that a cage inherits from its supervisor's process.
const LEAKING: [&str; 16] = [
    "NoNewPrivileges",
    "SystemCallFilter",
    "SystemCallArchitectures",
    "MemoryDenyWriteExecute",
    "RestrictNamespaces",
    "RestrictAddressFamilies",
    "RestrictSUIDSGID",
    "LockPersonality",
    "ProtectHome",
    "ProtectSystem",
    "PrivateTmp",
    "PrivateDevices",
    "ProtectKernelTunables",
    "ProtectControlGroups",
    "IPAddressDeny",
    "DynamicUser",
];

fn program(name: &str) -> anyhow::Result<PathBuf> {
    let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
    found.into_iter().find(|path| path.exists()).ok_or_else(|| skip(&format!("no {name}")))
}

fn activation(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let activate = program("systemd-socket-activate")?;
    let root = install(sandbox)?;
    let notify = sandbox.root().join("notify.sock");
    let told = UnixDatagram::bind(&notify)?;
    told.set_read_timeout(Some(LIMIT))?;
    std::fs::set_permissions(sandbox.run_dir(), std::fs::Permissions::from_mode(0o711))?;
    let mut command = Command::new(activate);
    command.arg(format!("--listen={}", sandbox.api_socket().display()));
    let own = [
        ("NOTIFY_SOCKET", notify.to_string_lossy().into_owned()),
        ("WATCHDOG_USEC", "900000".to_owned()),
    ];
    for (name, value) in sandbox.env()?.iter().map(|(k, v)| (k.as_str(), v.clone())).chain(own) {
        command.arg(format!("--setenv={name}={value}"));
    }
    command.arg(root.join("usr/libexec/mews/mews-supervisor")).stdin(Stdio::null());
    let log = std::fs::File::create(sandbox.root().join("supervisor.log"))?;
    let mut child = command.stdout(Stdio::null()).stderr(log).spawn()?;
    let done = activated(sandbox, &told);
    let stopped = sandbox.mews(["daemon", "stop", "--kill"]).and_then(|told| told.expect(0));
    // Where it could not be asked, it is told.
    let ended =
        if stopped.is_ok() { process::wait(&mut child, LIMIT).map(drop) } else { end(&mut child) };
    done.with_context(|| {
        std::fs::read_to_string(sandbox.root().join("supervisor.log")).unwrap_or_default()
    })?;
    stopped?;
    ended?;
    // It is systemd's: whoever comes next waits in its backlog, and is not refused.
    ensure!(sandbox.api_socket().exists(), "the socket was removed");
    std::fs::remove_file(sandbox.api_socket())?;
    Ok(())
}

fn activated(sandbox: &Sandbox, told: &UnixDatagram) -> anyhow::Result<()> {
    let there = || sandbox.api_socket().exists().then_some(());
    testkit::pause::until("systemd listens", LIMIT, there)?;
    // The first that asks starts everything, and is answered.
    let (status, body) = testkit::api::get(&sandbox.api_socket(), "/api/v1/healthz")?;
    ensure!(status == 200, "{status} {body}");
    let mut words = String::new();
    let mut buffer = [0; 512];
    let mut feedings = 0;
    while !words.contains("READY=1") || feedings < 3 {
        let length = told.recv(&mut buffer).context("a word to the service manager")?;
        words.push_str(&String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()));
        words.push('\n');
        feedings = words.matches("WATCHDOG=1").count();
    }
    crate::talk::sh(sandbox, &[], "true")?.expect(0)?;
    Ok(())
}

fn end(child: &mut Child) -> anyhow::Result<()> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    process::wait(child, Duration::from_secs(20))?;
    Ok(())
}
