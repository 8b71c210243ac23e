//! Three people at once.

use super::*;

pub(super) fn three(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<3>(sandbox, |people| {
        let mut cages = Vec::new();
        for person in people {
            let shown = caged(person, &[], "id -u; id -G; pwd")?.expect(0)?.out();
            let (uid, gid) = (person.uid, person.gid);
            let wanted = format!("{uid}\n{gid}\n{}\n", person.project().display());
            ensure!(shown == wanted, "{shown} instead of {wanted}");
            // One name, three sessions.
            let told = start(person, "work", &[], WAITS)?;
            cages.push((text(&told, "/session")?, text(&told, "/cage")?));
        }
        for (person, (own, cage)) in people.iter().zip(&cages) {
            let shown = mews(person, &["exec", "work", "--", "id", "-u"])?.expect(0)?.out();
            ensure!(shown.trim() == person.uid.to_string(), "{shown}");
            let listed = mews(person, &["--json", "ls"])?.expect(0)?.json_lines()?;
            let ids: Vec<String> =
                listed.iter().map(|one| text(one, "/id")).collect::<anyhow::Result<_>>()?;
            for (session, _cage) in &cages {
                ensure!(ids.contains(session) == (session == own), "{session} in {ids:?}");
            }
            // The suite `operators` goes through every verb.
            let other = cages.iter().find(|(session, _)| session != own);
            let (session, other) = other.context("another one's")?;
            for words in [
                ["inspect", session].as_slice(),
                &["exec", session, "--", "true"],
                &["kill", other],
            ] {
                let tried = mews(person, words)?;
                ensure!(tried.code != 0 && tried.out().is_empty(), "{words:?} {tried:?}");
            }
            // Their own group among the operators', and the processes of the cage in it.
            ensure!(
                !group_file(person, cage, "cgroup.procs")?.is_empty(),
                "nobody is in the group"
            );
        }
        let all = root(&["ls"])?.expect(0)?.out();
        for person in people {
            ensure!(all.contains(&person.name), "{all}");
            attach(sandbox, person)?;
            std::fs::write(person.project().join("stop"), "")?;
            let exit = ended(person, "work")?;
            ensure!(exit.pointer("/code").is_some_and(|code| code == 7), "{exit}");
        }
        Ok(())
    })
}

/// A terminal: what is typed reaches a shell in the cage, and leaving it leaves it running.
fn attach(sandbox: &Sandbox, person: &Person) -> anyhow::Result<()> {
    let words = ["exec", "work", "--", "sh", "-c", "echo ready; read x; echo said-$x; id -u"];
    let setpriv = ["setpriv", "--reuid", &person.name, "--regid", &person.name, "--init-groups"];
    let project = person.project();
    let at = project.to_string_lossy();
    let env = ["env", "-i", "-C", &at, "PATH=/usr/bin:/bin", "TERM=xterm-256color", MEWS];
    let line = [&setpriv[..], &env, &words].concat();
    let mut terminal = testkit::Terminal::program(sandbox, &line)?;
    terminal.wait_for("ready")?;
    terminal.send("hello\r")?;
    terminal.wait_for("said-hello")?;
    terminal.wait_for(&person.uid.to_string())?;
    ensure!(terminal.wait_exit()? == 0, "its exit");
    Ok(())
}
