//! Many operators on one host: root's daemons, cages under each one's own uid, nothing of each other.

mod connections;
mod holding_up;
pub(super) mod people;
mod policy;
pub(super) mod routes;
mod shares;
mod trail;

pub(super) use policy::put as reload;

use crate::runner::Test;
use crate::talk::text;
use anyhow::{Context as _, ensure};
use people::{Group, Person, host, need_accounts};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, pause};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("operators.cages_run_under_their_own_uid", own_uid),
        Test::new("operators.see_nothing_of_each_other", nothing_of_each_other),
        Test::new("operators.every_route", routes::every_route),
        Test::new("operators.paths_are_looked_at_as_the_operator", paths),
        Test::new("operators.what_works_for_them_cannot_be_looked_into", closed),
        Test::new("operators.who_is_not_let_in_is_told", strangers),
        Test::new("operators.policies_and_ceilings", policy::policies_and_ceilings),
        Test::new("operators.caps_are_refused_with_counts", policy::caps),
        Test::new("operators.an_unsafe_host_policy_is_refused", policy::unsafe_file),
        Test::new("operators.reload_keeps_the_old_if_the_new_is_wrong", policy::reload),
        Test::new("operators.an_admin_acts_and_it_is_told", admin),
        Test::new("operators.the_audit_trail", trail::everybody_sees_their_own),
        Test::new("operators.the_audit_trail_has_no_hole", trail::has_no_hole),
        Test::new("operators.hold_up_only_their_own_leftovers", holding_up::leftovers),
        Test::new("operators.a_removed_admin_keeps_no_connection", connections::of_a_removed_admin),
        Test::new("operators.removed_ones_keep_no_terminal", connections::of_removed_viewers),
        Test::new("operators.strangers_take_little_of_sessiond", connections::of_strangers),
        Test::new("operators.get_equal_shares_of_cpu", shares::cpu),
        Test::new("operators.find_the_system_by_themselves", find_the_system),
        Test::new("operators.a_new_supervisor_keeps_them_apart", restart),
    ]
}

pub(super) fn allow(people: &[&Person]) -> String {
    let names: Vec<String> = people.iter().map(|person| format!("{:?}", person.name)).collect();
    format!("version = 1\n[[allow]]\nusers = [{}]\n", names.join(", "))
}

/// Descriptors of what root starts under an operator's uid: of a layer, of the supervisor.
fn closed(sandbox: &Sandbox) -> anyhow::Result<()> {
    /// Looks at such processes until it has met both.
    const LOOKER: &str = "
import os
refused = set()
while len(refused) < 2:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            name = open(f'/proc/{pid}/comm').read().strip()
            # A copy in memory has its name cut.
            name = {'memfd:mews-laye': 'mews-layer', 'memfd:mews-ptyb': 'mews-ptybroker'}.get(name, name)
            if name not in ('mews-layer', 'mews-ptybroker'): continue
            os.listdir(f'/proc/{pid}/fd')
            print('looked into', name)
        except PermissionError: refused.add(name)
        except OSError: pass
print(*sorted(refused))
";
    need_accounts()?;
    let ann = Person::make(sandbox, &[])?;
    host(sandbox, &allow(&[&ann]), || {
        // The layer has all of it once it is touched, so that a diff has something to do.
        ann.sh("truncate -s 300M project/big")?.expect(0)?;
        let touch = ["run", "-d", "--overlay", "--name", "apart", "--", "sh", "-c"];
        ann.json(&[&touch[..], &["touch big; sleep 1000"]].concat())?;
        let mut looker = ann.command("python3");
        let mut looker = looker.args(["-c", LOOKER]).stdout(Stdio::piped()).spawn()?;
        pause::until("it has met both", LIMIT, || {
            ann.mews(&["diff", "apart"]).ok()?;
            looker.try_wait().ok().flatten()
        })?;
        let told = looker.wait_with_output()?.stdout;
        let told = String::from_utf8_lossy(&told);
        ensure!(told.trim() == "mews-layer mews-ptybroker", "{told}");
        Ok(())
    })
}

fn own_uid(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let extra = Group::make()?;
    let ann = Person::make(sandbox, &[&extra])?;
    host(sandbox, &allow(&[&ann]), || {
        let shown = ann.sh("id -Gn")?.expect(0)?.out();
        ensure!(shown.contains(&extra.0), "the account has a second group: {shown}");
        let script = "id -u; id -g; id -G; id -un; pwd; echo made > made";
        let shown = ann.caged(&[], script)?.expect(0)?.out();
        let (uid, gid) = (ann.uid, ann.gid);
        let project = ann.project();
        let wanted = format!("{uid}\n{gid}\n{gid}\n{}\n{}\n", ann.name, project.display());
        ensure!(shown == wanted, "{shown} instead of {wanted}");
        let made = std::fs::metadata(project.join("made"))?;
        ensure!((made.uid(), made.gid()) == (uid, gid), "{} {}", made.uid(), made.gid());
        // From outside: the payload has no group of the account but its own, and no capability.
        let started = ann.start("stays")?;
        let shown = ann.json(&["inspect", &text(&started, "/session")?])?;
        let pid = shown.pointer("/cages/0/pid").and_then(serde_json::Value::as_i64);
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.context("a pid")?))?;
        for line in [
            format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}"),
            format!("Gid:\t{gid}\t{gid}\t{gid}\t{gid}"),
            "Groups:\t ".to_owned(),
            "CapEff:\t0000000000000000".to_owned(),
        ] {
            ensure!(status.lines().any(|it| it.trim_end() == line.trim_end()), "{line}: {status}");
        }
        // A home that is kept belongs to the operator, and the next cage finds it.
        ann.caged(&["--home", "h"], "echo kept > ~/file")?.expect(0)?;
        let shown = ann.caged(&["--home", "h"], "cat ~/file")?.expect(0)?.out();
        ensure!(shown == "kept\n", "{shown}");
        Ok(())
    })
}

fn nothing_of_each_other(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    host(sandbox, &allow(&[&ann, &bob]), || {
        let started = ann.start("secret-name")?;
        bob.start("of-bob")?;
        let shown = bob.mews(&["ls", "--all"])?.expect(0)?.out();
        ensure!(shown.contains("of-bob") && !shown.contains("secret"), "{shown}");
        let ids = ["/session", "/cage", "/run", "/pty"].map(|at| text(&started, at));
        let ids = ids.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        for id in ids.iter().map(String::as_str).chain(["secret-name"]) {
            for words in [
                vec!["attach", id],
                vec!["exec", id, "--", "true"],
                vec!["logs", id],
                vec!["inspect", id],
                vec!["events", id],
                vec!["wait", "--exit", id],
                vec!["kill", id],
                vec!["kill", "-s", "TERM", id],
                vec!["pause", id],
                vec!["resume", id],
                vec!["end", id],
                vec!["rm", "-f", id],
            ] {
                let tried = bob.mews(&words)?;
                // What does not exist at all, in the same words.
                let none: Vec<&str> = words
                    .iter()
                    .map(|&word| if word == id { "no-such-thing" } else { word })
                    .collect();
                let nothing = bob.mews(&none)?;
                let same = nothing.err().replace("no-such-thing", id);
                ensure!(tried.code == nothing.code && tried.code != 0, "{words:?} {tried:?}");
                ensure!(tried.err() == same, "{words:?}: {} / {same}", tried.err());
                ensure!(tried.out().is_empty(), "{words:?} {}", tried.out());
            }
        }
        // The same name is free for the other one.
        bob.start("secret-name")?;
        // Not by the files either.
        let state = sandbox.state_dir();
        let run = sandbox.run_dir();
        for path in [state.join("cages"), state.join("sup"), state.join("db"), run.join("sup")] {
            let tried = bob.sh(&format!("ls {}", path.display()))?;
            ensure!(tried.code != 0, "{} can be listed", path.display());
        }
        let shown = ann.mews(&["ls"])?.expect(0)?.out();
        ensure!(shown.contains("secret-name") && shown.contains("running"), "{shown}");
        Ok(())
    })
}

/// What an operator cannot see is not there; what they may not open is not opened for them.
fn paths(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    let closed = sandbox.folder("of-root")?;
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700))?;
    std::fs::write(closed.join("secret"), "of root")?;
    std::fs::set_permissions(closed.join("secret"), std::fs::Permissions::from_mode(0o644))?;
    ann.sh("echo of ann > project/secret")?.expect(0)?;
    host(sandbox, &allow(&[&ann, &bob]), || {
        let secret = closed.join("secret").to_string_lossy().into_owned();
        let anns = ann.project().to_string_lossy().into_owned();
        let none = closed.join("none").to_string_lossy().into_owned();
        for (there, not_there) in [(&secret, &none), (&anns, &format!("{anns}-none"))] {
            // The client looks for itself first, as the operator.
            ensure!(bob.caged(&["-w", there], "cat secret")?.code >= 125, "-w {there}");
            for flag in ["--read", "--write"] {
                let seen = bob.caged(&[flag, there], "cat secret; ls")?.expect(125)?;
                let unseen = bob.caged(&[flag, not_there], "true")?.expect(125)?;
                let (seen, unseen) = (seen.err(), unseen.err().replace(not_there, there));
                ensure!(seen == unseen, "{flag} tells of {there}: {seen} / {unseen}");
            }
            let policy = bob.project().join("own.toml");
            for key in ["read", "write"] {
                let line = format!("version = 1\nextends = \"shell\"\n[fs]\n{key} = [{there:?}]\n");
                std::fs::write(&policy, line)?;
                let tried = bob.caged(&["-p", "./own.toml"], &format!("cat {there} {there}/*"))?;
                ensure!(tried.code != 0 && !tried.out().contains("of "), "{key} {tried:?}");
            }
        }
        // A link of their own leads no further than they do.
        bob.sh(&format!("ln -s {} project/link; ln -s {anns} project/other", closed.display()))?;
        for name in ["link", "other"] {
            let path = bob.project().join(name).to_string_lossy().into_owned();
            let tried = bob.caged(&["-w", &path], "cat secret")?;
            ensure!(tried.code >= 125 && tried.out().is_empty(), "{name} {tried:?}");
        }
        // Their own private folder is theirs to lend.
        bob.sh("mkdir -m 700 private && echo mine > private/f")?.expect(0)?;
        let own = bob.home().join("private").to_string_lossy().into_owned();
        let shown = bob.caged(&["--read", &own], &format!("cat {own}/f"))?.expect(0)?.out();
        ensure!(shown == "mine\n", "{shown}");
        Ok(())
    })
}

fn strangers(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, eve) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    host(sandbox, &allow(&[&ann]), || {
        for (words, status) in [
            (vec!["ls"], 4),
            (vec!["run", "--no-tty", "--", "true"], 125),
            (vec!["daemon", "stop", "--kill"], 4),
            (vec!["daemon", "status"], 4),
        ] {
            let told = eve.mews(&words)?.expect(status)?.err();
            ensure!(told.contains("has not let uid") && told.contains("host.toml"), "{told}");
        }
        let told = ann.mews(&["daemon", "stop", "--kill"])?.expect(4)?.err();
        ensure!(told.contains("only root") || told.contains("Only root"), "{told}");
        ann.caged(&[], "true")?.expect(0)?;
        Ok(())
    })?;
    // Without the file root is alone, as in a container.
    std::fs::remove_file(sandbox.root().join("config/host.toml"))?;
    sandbox.mews(["daemon", "start"])?.expect(0)?;
    let told = ann.mews(&["run", "--no-tty", "--", "true"])?.expect(125)?.err();
    ensure!(told.contains("serves root alone") && told.contains("host.toml"), "{told}");
    Ok(())
}

fn admin(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let staff = Group::make()?;
    let (ann, boss) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[&staff])?);
    let policy = format!("{}[admins]\ngroups = [{:?}]\n", allow(&[&ann]), staff.0);
    host(sandbox, &policy, || {
        let started = ann.start("of-ann")?;
        let session = text(&started, "/session")?;
        let shown = boss.mews(&["ls"])?.expect(0)?.out();
        ensure!(shown.contains("of-ann"), "{shown}");
        let shown = boss.mews(&["exec", "of-ann", "--", "id", "-u"])?.expect(0)?.out();
        ensure!(shown.trim() == ann.uid.to_string(), "{shown}");
        boss.mews(&["pause", "of-ann"])?.expect(0)?;
        boss.mews(&["resume", "of-ann"])?.expect(0)?;
        sandbox.mews(["kill", &session])?.expect(0)?;
        let events = ann.mews(&["--json", "events", &session])?.expect(0)?.json_lines()?;
        let acts =
            events.iter().filter(|event| event.pointer("/type").is_some_and(|t| t == "cage.admin"));
        let acts: Vec<(u64, String)> = acts
            .filter_map(|event| {
                let uid = event.pointer("/data/uid")?.as_u64()?;
                Some((uid, event.pointer("/data/verb")?.as_str()?.to_owned()))
            })
            .collect();
        for (uid, verb) in
            [(boss.uid, "exec"), (boss.uid, "suspend"), (boss.uid, "resume"), (0, "kill")]
        {
            ensure!(
                acts.contains(&(uid.into(), verb.to_owned())),
                "{uid} {verb} is not in {acts:?}"
            );
        }
        // The journal of the supervisor itself, which sessiond cannot write.
        let log = std::fs::read_to_string(sandbox.state_dir().join("log/mews-supervisor.log"))?;
        ensure!(
            log.contains("an admin acts") && log.contains(&format!("uid={}", boss.uid)),
            "{log}"
        );
        // An admin's own runs are the admin's.
        let shown = boss.caged(&[], "id -u")?.expect(0)?.out();
        ensure!(shown.trim() == boss.uid.to_string(), "{shown}");
        let shown = ann.mews(&["ls", "-a"])?.expect(0)?.out();
        ensure!(!shown.contains("id -u"), "{shown}");
        Ok(())
    })
}

fn find_the_system(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, eve) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    let own = |person: &Person| format!("/tmp/mews-{}", person.uid);
    let status = |person: &Person, flags: &[&str]| {
        let words = [flags, &["--json", "daemon", "start"]].concat();
        let mut command = person.mews_command(&words)?;
        command.env_remove("MEWS_RUN_DIR").env("MEWS_SYSTEM_RUN_DIR", sandbox.run_dir());
        let told = process::run(&mut command, b"", LIMIT)?.expect(0)?.json()?;
        text(&told, "/socket")
    };
    let stop = |person: &Person| {
        let mut command = person.mews_command(&["--user", "daemon", "stop", "--kill"])?;
        process::run(command.env_remove("MEWS_RUN_DIR"), b"", LIMIT)?.expect(0)?;
        std::fs::remove_dir_all(own(person))?;
        anyhow::Ok(())
    };
    host(sandbox, &allow(&[&ann]), || {
        let system = sandbox.api_socket().to_string_lossy().into_owned();
        ensure!(status(&ann, &[])? == system, "let in, so the system's");
        ensure!(status(&ann, &["--system"])? == system, "asked for");
        let hers = status(&ann, &["--user"]);
        let stopped = stop(&ann);
        ensure!(hers?.starts_with(&own(&ann)), "her own, asked for");
        stopped?;
        let hers = status(&eve, &[]);
        let stopped = stop(&eve);
        ensure!(hers?.starts_with(&own(&eve)), "not let in, so her own");
        stopped
    })
}

fn restart(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    host(sandbox, &allow(&[&ann, &bob]), || {
        let started = ann.start("lives")?;
        let cage = text(&started, "/cage")?;
        for _round in 0..2 {
            let (_sessiond, supervisor) = crate::talk::daemon_pids(sandbox)?;
            let supervisor = link::PidFd::open(supervisor)?;
            supervisor.signal(libc::SIGKILL)?;
            let dead = || (!supervisor.is_alive()).then_some(());
            pause::until("the supervisor is dead", LIMIT, dead)?;
            sandbox.mews(["daemon", "start"])?.expect(0)?;
            let tried = bob.mews(&["kill", &cage])?;
            ensure!(tried.code == 3, "{tried:?}");
            let shown = ann.mews(&["exec", "lives", "--", "id", "-u"])?.expect(0)?.out();
            ensure!(shown.trim() == ann.uid.to_string(), "{shown}");
        }
        // Hers is not a number that root's cages may be given.
        ann.mews(&["kill", "lives"])?.expect(0)?;
        ann.mews(&["rm", "-f", "lives"])?;
        let shown = crate::talk::sh(sandbox, &[], "id -u")?.expect(0)?.out();
        ensure!(shown.trim() != ann.uid.to_string() && shown.trim() != "0", "{shown}");
        Ok(())
    })
}
