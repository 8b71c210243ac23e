//! What is wrong is said with file, line and how to mend it, and nothing is started: all that needs more
//! of a set-up than a row of the suite `mistakes`.

use crate::runner::{Test, need_root};
use crate::talk::{Mode, in_workspace, run, sh, start};
use anyhow::ensure;
use std::process::Command;
use std::time::Duration;
use testkit::Sandbox;
use testkit::process::{self, LIMIT};

struct Bad {
    name: &'static str,
    /// The lines after `extends`, from line 4.
    text: &'static str,
    /// What the message must contain.
    says: &'static [&'static str],
}

const BAD: [Bad; 9] = [
    Bad { name: "unknown_key", text: "[fs]\nraed = [\"/x\"]", says: &["raed", ":5"] },
    Bad { name: "unknown_table", text: "[filesystem]\nread = []", says: &["filesystem", ":4"] },
    Bad { name: "bad_size", text: "[limits]\nmemory = \"12Q\"", says: &["12Q", ":5"] },
    Bad { name: "bad_time", text: "[limits]\nwalltime = \"soon\"", says: &["soon", ":5"] },
    Bad { name: "path_outside", text: "[fs]\nread = [\"../up\"]", says: &["../up", ":5"] },
    Bad { name: "not_built", text: "[net]\nmode = \"host\"", says: &["mode", ":5"] },
    Bad {
        name: "missing_path",
        text: "[fs]\nmissing = \"error\"\nread = [\"/no/such/place\"]",
        // The first one in the order of the policy, which may be a parent's.
        says: &["does not exist", "fs.read"],
    },
    Bad { name: "unknown_parent", text: "[limits]\npids = \"many\"", says: &["pids", ":5"] },
    Bad { name: "syntax", text: "[fs\nread = 1", says: &[":4"] },
];

pub(crate) fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = BAD
        .iter()
        .map(|bad| Test::new(format!("errors.policy_{}", bad.name), move |s| bad_policy(s, bad)))
        .collect();
    tests.extend([
        Test::new("errors.what_was_typed_wrong_keeps_no_name", typed_again),
        Test::new("errors.policy_wrong_version", wrong_version),
        Test::new("errors.policy_file_missing", policy_missing),
        Test::new("errors.policy_name_unknown", policy_unknown),
        Test::new("errors.bwrap_missing", no_bwrap),
        Test::new("errors.ambiguous_id_names_candidates", ambiguous),
        Test::new("errors.workspace_that_no_cage_may_have", bad_workspace),
        Test::new("errors.granted_path_missing", granted_missing),
        Test::new("errors.stop_with_living_cages_refuses", stop_refuses),
        Test::new("errors.rm_of_a_living_one_refuses", rm_refuses),
        Test::new("errors.lifecycle_of_a_session", lifecycle),
        Test::new("errors.rename_label_archive", amended),
    ]);
    tests
}

/// Refused with 125, the words, and without a trace.
fn refused(sandbox: &Sandbox, options: &[&str], says: &[&str]) -> anyhow::Result<()> {
    for mode in Mode::BOTH {
        let finished = run(sandbox, mode, options, &["touch", "it-ran"])?.expect(125)?;
        for word in says {
            ensure!(finished.err().contains(word), "no {word:?} in: {}", finished.err());
        }
        ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
        ensure!(finished.stdout.is_empty(), "stdout: {}", finished.out());
    }
    Ok(())
}

fn bad_policy(sandbox: &Sandbox, bad: &Bad) -> anyhow::Result<()> {
    let text = format!("version = 1\nname = \"bad\"\nextends = \"shell\"\n{}\n", bad.text);
    let path = sandbox.file("home/bad.toml", text)?;
    let path = path.to_string_lossy().into_owned();
    let mut says: Vec<&str> = bad.says.to_vec();
    says.push("bad.toml");
    refused(sandbox, &["--policy", &path], &says)?;
    if bad.name != "missing_path" {
        let checked = sandbox.mews(["policy", "check", &path])?;
        ensure!(checked.code == 1, "policy check exits {}", checked.code);
    }
    Ok(())
}

fn wrong_version(sandbox: &Sandbox) -> anyhow::Result<()> {
    let path = sandbox.file("home/old.toml", "version = 9\nname = \"old\"\n")?;
    refused(sandbox, &["--policy", &path.to_string_lossy()], &["old.toml", ":1", "version"])
}

fn policy_missing(sandbox: &Sandbox) -> anyhow::Result<()> {
    refused(sandbox, &["--policy", "./no-such.toml"], &["no-such.toml"])
}

fn policy_unknown(sandbox: &Sandbox) -> anyhow::Result<()> {
    refused(sandbox, &["--policy", "shel"], &["shel", "shell"])
}

/// In a mount namespace where /usr/bin has no bwrap.
fn no_bwrap(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let overlay = sandbox.folder("home/overlay")?;
    let mews = testkit::programs::folder()?.join("mews");
    let script = format!(
        "mount -t tmpfs none {o} && mkdir {o}/up {o}/work && \
         mount -t overlay -o lowerdir=/usr/bin,upperdir={o}/up,workdir={o}/work none /usr/bin && \
         rm /usr/bin/bwrap && exec {} run --no-tty -- touch it-ran",
        mews.display(),
        o = overlay.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env_clear().envs(sandbox.env()?);
    command.current_dir(sandbox.workspace());
    let finished = process::run(&mut command, b"", LIMIT)?.expect(125)?;
    for word in ["bubblewrap", "install"] {
        ensure!(finished.err().contains(word), "{}", finished.err());
    }
    ensure!(!in_workspace(sandbox, "it-ran").exists(), "it ran");
    Ok(())
}

fn ambiguous(sandbox: &Sandbox) -> anyhow::Result<()> {
    let one = start(sandbox, &[], &["sleep", "1000"])?;
    let two = start(sandbox, &[], &["sleep", "1000"])?;
    let shared = one.session.chars().zip(two.session.chars()).take_while(|(a, b)| a == b).count();
    let prefix: String = one.session.chars().take(shared).collect();
    ensure!(shared >= 4, "ids share {shared} characters");
    let finished = sandbox.mews(["inspect", &prefix])?;
    ensure!(finished.code == 3 || finished.code == 5, "exits {}", finished.code);
    ensure!(finished.err().contains("sleep-1"), "candidates: {}", finished.err());
    let suffix: String = one.session.chars().skip(one.session.len() - 6).collect();
    sandbox.mews(["inspect", &suffix.to_lowercase()])?.expect(0)?;
    Ok(())
}

fn bad_workspace(sandbox: &Sandbox) -> anyhow::Result<()> {
    let state = sandbox.state_dir().to_string_lossy().into_owned();
    for folder in ["/", "/etc", &state, "/no/such/folder"] {
        refused(sandbox, &["--workspace", folder], &[folder])?;
    }
    Ok(())
}

fn granted_missing(sandbox: &Sandbox) -> anyhow::Result<()> {
    refused(sandbox, &["--read", "/no/such/place"], &["/no/such/place"])
}

fn typed_again(sandbox: &Sandbox) -> anyhow::Result<()> {
    for wrong in
        [["--memory", "5X"], ["-p", "nope"], ["--read", "/nope"], ["--provider", "unix:/nope"]]
    {
        for detached in [&[][..], &["-d"]] {
            let words = [&["run", "-n", "job"], &wrong[..], detached, &["--", "true"]].concat();
            sandbox.mews(words)?.expect(125)?;
        }
    }
    let listed = sandbox.mews(["--json", "ls", "-a"])?.expect(0)?.out();
    ensure!(!listed.contains("job"), "{listed}");
    sandbox.mews(["run", "--no-tty", "-n", "job", "--", "true"])?.expect(0)?;
    // A wall that the host has not is no slip: it is kept, with its reason.
    let policy = "version = 1\nextends = \"shell\"\nrequire = [\"landlock>=99\"]\n";
    let policy = sandbox.file("home/far.toml", policy)?.to_string_lossy().into_owned();
    sandbox.mews(["run", "-n", "far", "-p", &*policy, "--", "true"])?.expect(125)?;
    let shown = sandbox.json(["inspect", "far"])?;
    ensure!(shown.to_string().contains("landlock"), "{shown}");
    Ok(())
}

fn stop_refuses(sandbox: &Sandbox) -> anyhow::Result<()> {
    start(sandbox, &["--name", "living"], &["sleep", "1000"])?;
    let finished = sandbox.mews(["daemon", "stop"])?.expect(5)?;
    ensure!(finished.err().contains("--kill"), "{}", finished.err());
    let shown = sandbox.mews(["ls"])?.expect(0)?.out();
    ensure!(shown.contains("living"), "{shown}");
    sandbox.mews(["daemon", "stop", "--leave"])?.expect(0)?;
    let shown = sandbox.json(["inspect", "living"])?;
    ensure!(shown.pointer("/cages/0/phase").is_some_and(|it| it == "running"), "{shown}");
    Ok(())
}

fn rm_refuses(sandbox: &Sandbox) -> anyhow::Result<()> {
    start(sandbox, &["--name", "living"], &["sleep", "1000"])?;
    sandbox.mews(["rm", "living"])?.expect(5)?;
    sandbox.mews(["end", "living"])?.expect(0)?;
    sandbox.mews(["rm", "living"])?.expect(0)?;
    sandbox.mews(["inspect", "living"])?.expect(3)?;
    let left = std::fs::read_dir(sandbox.state_dir().join("cages"))?.count();
    ensure!(left == 0, "{left} cages are left in the state folder");
    Ok(())
}

fn lifecycle(sandbox: &Sandbox) -> anyhow::Result<()> {
    sh(sandbox, &["--name", "life"], "echo out; exit 3")?.expect(3)?;
    // `run` ends with its command; the session a moment later, when nothing of the cage is left.
    testkit::pause::until("the session has ended", Duration::from_secs(20), || {
        let session = sandbox.json(["inspect", "life"]).ok()?;
        session.pointer("/state").filter(|state| *state == "ended").map(|_ended| ())
    })?;
    let events = crate::talk::events(sandbox, "life")?;
    let types = crate::talk::event_types(&events)?;
    let order = [
        "session.created",
        "cage.planned",
        "cage.attested",
        "cage.started",
        "pty.started",
        "cage.exited",
        "cage.gone",
    ];
    let mut at = types.iter();
    for kind in order {
        ensure!(at.any(|it| it == kind), "no {kind} in its place: {types:?}");
    }
    ensure!(sandbox.mews(["logs", "life"])?.expect(0)?.out() == "out\n", "logs");
    let listed = sandbox.mews(["--json", "ls"])?.expect(0)?.out();
    ensure!(listed.contains("\"life\""), "{listed}");
    Ok(())
}

/// Another name, labels, filters, out of the way.
fn amended(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mews = |words: &[&str]| sandbox.mews(words);
    let listed = |words: &[&str]| -> anyhow::Result<String> {
        let words = [&["--json", "ls"], words].concat();
        let lines = mews(&words)?.expect(0)?.json_lines()?;
        let names = lines.iter().map(|line| line["name"].as_str().unwrap_or_default().to_owned());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Ok(names.join(" "))
    };
    mews(&["run", "-d", "--name", "one", "--", "sleep", "1000"])?.expect(0)?;
    mews(&["run", "-d", "--name", "two", "--", "sleep", "1000"])?.expect(0)?;
    mews(&["rename", "one", "review"])?.expect(0)?;
    let shown = mews(&["label", "review", "team=blue", "urgent="])?.expect(0)?.out();
    ensure!(shown == "team=blue\nurgent=\n", "{shown}");
    let shown = mews(&["label", "review", "urgent-"])?.expect(0)?.out();
    ensure!(shown == "team=blue\n", "{shown}");
    let none = mews(&["ls", "--project", "none"])?.expect(0)?;
    ensure!(none.err().contains("no session fits; -a looks at all"), "{}", none.err());
    ensure!(listed(&["--label", "team=blue", "--state", "running"])? == "review", "by label");
    mews(&["end", "two"])?.expect(0)?;
    ensure!(listed(&["--state", "ended"])? == "two", "by state");
    mews(&["archive", "two"])?.expect(0)?;
    ensure!(listed(&[])? == "review", "archived");
    ensure!(listed(&["-a"])? == "review two", "all");
    mews(&["archive", "--undo", "two"])?.expect(0)?;
    ensure!(listed(&[])? == "review two", "brought back");
    let told = mews(&["events", "review"])?.expect(0)?.out();
    ensure!(told.contains("session.renamed") && told.contains("session.updated"), "{told}");
    mews(&["end", "review"])?.expect(0)?;
    mews(&["rm", "review", "two"])?.expect(0)?;
    Ok(())
}
