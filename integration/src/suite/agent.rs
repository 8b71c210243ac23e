//! A real agent, driven offline by a mock provider, in a real cage.

use crate::runner::{Test, skip};
use crate::talk::{
    Mode, event_types, events, in_workspace, read, run_with_status, start, text, wait_exit,
};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::{Caller, Sandbox, pause, process};

const PACKAGE: &str = "@mariozechner/pi-coding-agent";
const VERSION: &str = "0.73.1";
/// npm on a slow line.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("agent.pi_works_offline_in_a_cage", |sandbox| pi(sandbox, Mode::Daemons)),
        Test::new("agent.pi_works_without_daemons", |sandbox| pi(sandbox, Mode::Alone)),
        Test::new("agent.pi_works_for_an_ordinary_user", |_root| {
            let sandbox = Sandbox::of(Caller::ordinary(5))?;
            let done = pi(&sandbox, Mode::Daemons);
            let finish = sandbox.finish();
            done.and(finish)
        }),
        Test::new("agent.pi_is_paused_in_a_tool_call", paused),
    ]
}

/// The proof that the provider's tool call asks for.
const PROOF: &str = "{ id -u; id -un; pwd; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; \
                     ls /home 2>/dev/null | grep -vcx $USER; test -e /root && echo root-seen; test -e /etc/shadow && \
                     echo shadow-seen; true; } > proof.txt 2>&1; echo tool-ran";

fn pi(sandbox: &Sandbox, mode: Mode) -> anyhow::Result<()> {
    let provider = Provider::start(sandbox, PROOF)?;
    let (options, script) = caged(&provider)?;
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (finished, status) = run_with_status(sandbox, mode, &options, &["sh", "-c", &script])?;
    let finished = finished.expect(0).map_err(|error| error.context(provider.log()))?;
    ensure!(finished.out().contains("MOCK_FINAL_ANSWER"), "{}", process::tail(&finished.out()));
    check_proof(sandbox)?;
    ensure!(text(&status, "/exit/cause")? == "exited", "{status}");
    if mode == Mode::Daemons {
        check_events(sandbox, &text(&status, "/session")?)?;
    }
    Ok(())
}

/// Its tool call waits for a file that comes while nothing in the cage can see it.
fn paused(sandbox: &Sandbox) -> anyhow::Result<()> {
    let wait = "touch tool-started; while [ ! -e go-on ]; do sleep 0.02; done";
    let provider = Provider::start(sandbox, &format!("{wait}; {PROOF}"))?;
    let (options, script) = caged(&provider)?;
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--name", "agent"]);
    start(sandbox, &options, &["sh", "-c", &script])?;
    let (started, proof) =
        (in_workspace(sandbox, "tool-started"), in_workspace(sandbox, "proof.txt"));
    pause::until("the tool call", process::LIMIT, || started.exists().then_some(()))?;
    sandbox.mews(["pause", "agent"])?.expect(0)?;
    sandbox.file("ws/go-on", "")?;
    for _look in 0..20 {
        pause::briefly();
        ensure!(!proof.exists(), "the tool call goes on");
    }
    sandbox.mews(["resume", "agent"])?.expect(0)?;
    wait_exit(sandbox, "agent")?.expect(0).map_err(|error| error.context(provider.log()))?;
    let shown = sandbox.json(["inspect", "agent"])?;
    ensure!(text(&shown, "/runs/0/exit/cause")? == "exited", "{shown}");
    let printed = sandbox.mews(["logs", "--raw", "agent"])?.expect(0)?.out();
    ensure!(printed.contains("MOCK_FINAL_ANSWER"), "{}", process::tail(&printed));
    check_proof(sandbox)?;
    check_events(sandbox, "agent")
}

/// Options and script that run the agent in a cage, against this provider.
fn caged(provider: &Provider) -> anyhow::Result<(Vec<String>, String)> {
    let prefix = installed()?;
    let models = r#"{"providers":{"mock":{"baseUrl":"http://127.0.0.1:8399/v1","api":"openai-completions","apiKey":"x","models":[{"id":"mock-1"}]}}}"#;
    let agent = prefix.join("bin/pi").to_string_lossy().into_owned();
    let script = format!(
        "mkdir -p ~/.pi/agent && echo '{models}' > ~/.pi/agent/models.json && \
         exec {agent} --provider mock --model mock-1 -p --mode json go"
    );
    let socket = format!("unix:{}", provider.socket.display());
    let read_prefix = prefix.to_string_lossy().into_owned();
    let options = ["--policy", "agent-offline", "--provider", &socket, "--read", &read_prefix];
    let options = options.into_iter().chain(["--home", "pi"]).map(str::to_owned).collect();
    Ok((options, script))
}

fn check_proof(sandbox: &Sandbox) -> anyhow::Result<()> {
    let proof = read(sandbox, "proof.txt")?;
    let lines: Vec<&str> = proof.lines().collect();
    let [uid, name, folder, interface, homes] = lines.as_slice() else {
        anyhow::bail!("the proof has other lines: {lines:?}");
    };
    ensure!(*uid != "0" && *name != "root", "uid {uid}, {name}");
    ensure!(Path::new(folder) == sandbox.workspace(), "in {folder}");
    ensure!(*interface == "lo" && *homes == "0", "{interface}, {homes} other homes");
    let facts = std::fs::metadata(in_workspace(sandbox, "proof.txt"))?;
    let owner = std::os::unix::fs::MetadataExt::uid(&facts);
    ensure!(owner == sandbox.caller().uid(), "the proof belongs to {owner}");
    Ok(())
}

fn check_events(sandbox: &Sandbox, session: &str) -> anyhow::Result<()> {
    let events = events(sandbox, session)?;
    let types = event_types(&events)?;
    for kind in ["cage.planned", "cage.attested", "cage.started", "pty.started", "cage.exited"] {
        ensure!(types.iter().any(|it| it == kind), "no {kind} in {types:?}");
    }
    let exited = events
        .iter()
        .find(|event| event.pointer("/type").and_then(Value::as_str) == Some("cage.exited"));
    let code = exited.and_then(|event| event.pointer("/data/exit/code")).and_then(Value::as_i64);
    ensure!(code == Some(0), "{exited:?}");
    Ok(())
}

/// The agent, installed once, outside of the repository.
fn installed() -> anyhow::Result<PathBuf> {
    let prefix = cache().join(format!("pi-{VERSION}"));
    if prefix.join("bin/pi").exists() {
        return Ok(prefix);
    }
    std::fs::create_dir_all(&prefix)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--global", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix"]);
    npm.arg(&prefix).arg(format!("{PACKAGE}@{VERSION}")).current_dir(&prefix);
    let done = process::run(&mut npm, b"", INSTALL_LIMIT).and_then(|npm| npm.expect(0));
    match done {
        Ok(_) => Ok(prefix),
        Err(error) if std::env::var_os("CI").is_some() => Err(error.context("npm install")),
        Err(error) => Err(skip(&format!("{PACKAGE} could not be installed: {error}"))),
    }
}

pub(crate) fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    // Everybody's, if root runs the tests: other uids read it.
    let shared = testkit::caller::is_root().then(|| PathBuf::from("/var/cache"));
    shared.or(base).or_else(home).unwrap_or_else(std::env::temp_dir).join("mews-agents")
}

/// The mock of `shared/agents`, on a Unix socket.
struct Provider {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Provider {
    fn start(sandbox: &Sandbox, tool_call: &str) -> anyhow::Result<Self> {
        let program = mock()?;
        let socket = sandbox.root().join("provider.sock");
        let log = sandbox.root().join("provider.log");
        let errors = std::fs::File::create(sandbox.root().join("provider.err"))?;
        let child = Command::new("/usr/bin/python3")
            .arg(program)
            .arg(&socket)
            .env("MOCK_LOG", &log)
            .env("MOCK_CMD", tool_call)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()?;
        let provider = Self { child, socket, log };
        pause::until("the provider listens", process::LIMIT, || {
            provider.socket.exists().then_some(())
        })?;
        if let Caller::Uid(uid) = sandbox.caller() {
            std::os::unix::fs::chown(&provider.socket, Some(uid), Some(uid))?;
        }
        Ok(provider)
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        format!("the provider was asked:\n{log}")
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn mock() -> anyhow::Result<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("a repository")?;
    let beside = repository.parent().context("a folder")?.join("shared/agents/mock_provider.py");
    let set = std::env::var_os("MEWS_MOCK_PROVIDER").map(PathBuf::from);
    let path = set.unwrap_or(beside);
    if path.exists() { Ok(path) } else { Err(skip(&format!("{} is missing", path.display()))) }
}
