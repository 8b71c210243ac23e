//! Accounts that have nothing of each other but a key.

use super::super::operators::people::{Person, host, need_accounts};
use super::super::operators::{allow, reload};
use crate::talk::text;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

/// A grant of this person's, and its key where the other one can read it.
fn handed(from: &Person, to: &Person, sandbox: &Sandbox) -> anyhow::Result<String> {
    let words = ["grants", "make", "-n", "given", "--cages", "2", "--for", "1h"];
    let key = from.mews(&words)?.expect(0)?.out();
    let file = sandbox.root().join("key");
    std::fs::write(&file, key)?;
    std::os::unix::fs::chown(&file, Some(to.uid), Some(to.gid))?;
    Ok(file.to_string_lossy().into_owned())
}

fn idle(person: &Person) -> anyhow::Result<Value> {
    pause::until("nothing runs", LIMIT, || {
        let shown = person.json(&["inspect", "given"]).ok()?;
        text(&shown, "/state").is_ok_and(|state| state == "idle").then_some(shown)
    })
}

/// Eve is no operator here. With the key she starts what runs as ann, and reaches nothing of it.
pub(super) fn of_another_account(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let [ann, bob, eve, boss] = [(); 4].map(|()| Person::make(sandbox, &[]));
    let (ann, bob, eve, boss) = (ann?, bob?, eve?, boss?);
    let policy = format!("{}[admins]\nusers = [{:?}]\n", allow(&[&ann, &bob]), boss.name);
    host(sandbox, &policy, || {
        let key = handed(&ann, &eve, sandbox)?;
        // Ann is not connected: no process of hers is left.
        let script = "id -u > who; id -g >> who; cat secret > copy; sleep 1000";
        ann.sh("echo of ann > project/secret")?.expect(0)?;
        let told = eve.mews(&["grants", "use", &key, "--", "sh", "-c", script])?.expect(0)?;
        ensure!(told.out() == "given\n", "{}", told.out());
        let copy = ann.project().join("copy");
        pause::until("it runs", LIMIT, || copy.exists().then_some(()))?;
        let who = std::fs::read_to_string(ann.project().join("who"))?;
        ensure!(who == format!("{}\n{}\n", ann.uid, ann.gid), "{who}");
        for words in [
            vec!["ls"],
            vec!["attach", "given"],
            vec!["logs", "given"],
            vec!["kill", "given"],
            vec!["grants"],
            vec!["grants", "make", "--cages", "1", "--for", "1h"],
        ] {
            let tried = eve.mews(&words)?;
            ensure!(matches!(tried.code, 4 | 125) && tried.out().is_empty(), "{words:?} {tried:?}");
        }
        // One at a time: the session is busy, and that is not counted.
        let told = eve.mews(&["grants", "use", &key, "--", "true"])?.expect(5)?.err();
        ensure!(told.contains("has a run already"), "{told}");
        let grants = ann.mews(&["--json", "grants"])?.expect(0)?.json_lines()?;
        let grant = grants.first().context("ann's grant")?;
        ensure!(grant.pointer("/left") == Some(&1.into()), "{grant}");
        let id = text(grant, "/id")?;
        // Nobody else's operators see it or end it.
        let told = bob.mews(&["grants"])?.expect(0)?;
        ensure!(told.out().is_empty(), "{told:?}");
        bob.mews(&["grants", "revoke", &id])?.expect(3)?;
        let events = ann.mews(&["--json", "events", "given"])?.expect(0)?.json_lines()?;
        let by: Vec<&Value> = events
            .iter()
            .filter(|event| event.pointer("/type").is_some_and(|it| it == "cage.granted"))
            .filter_map(|event| event.pointer("/data/uid"))
            .collect();
        ensure!(by == [&Value::from(eve.uid)], "{by:?}");
        ann.mews(&["kill", "given"])?.expect(0)?;
        idle(&ann)?;
        let listed = boss.mews(&["grants"])?.expect(0)?.out();
        ensure!(listed.contains("given"), "{listed}");
        boss.mews(&["grants", "revoke", &id])?.expect(0)?;
        let told = eve.mews(&["grants", "use", &key, "--", "true"])?.expect(3)?.err();
        ensure!(told.contains("was revoked"), "{told}");
        Ok(())
    })
}

/// Who is no longer let in gives nothing any more.
pub(super) fn asked_again(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    host(sandbox, &allow(&[&ann, &bob]), || {
        let key = handed(&ann, &bob, sandbox)?;
        reload(sandbox, &allow(&[&bob]))?;
        let told = bob.mews(&["grants", "use", &key, "--", "true"])?.expect(4)?.err();
        ensure!(told.contains("has not let uid"), "{told}");
        let none = format!("{}grants = false\n", allow(&[&ann, &bob]));
        reload(sandbox, &none)?;
        let told = bob.mews(&["grants", "use", &key, "--", "true"])?.expect(4)?.err();
        ensure!(told.contains("grants = false"), "{told}");
        // Ceilings are those of now.
        let low = format!("{}cages = 0\n", allow(&[&ann, &bob]));
        reload(sandbox, &low)?;
        bob.mews(&["grants", "use", &key, "--", "true"])?.expect(5)?;
        reload(sandbox, &allow(&[&ann, &bob]))?;
        bob.mews(&["grants", "use", &key, "--", "true"])?.expect(0)?;
        idle(&ann)?;
        Ok(())
    })
}

/// Where the admin does not want them there are none.
pub(super) fn not_allowed(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let ann = Person::make(sandbox, &[])?;
    let policy = format!("{}grants = false\npolicies = [\"ci\"]\n", allow(&[&ann]));
    host(sandbox, &policy, || {
        let make = |policy: &str| {
            let words = ["grants", "make", "-p", policy, "--cages", "1", "--for", "1h"];
            ann.mews(&words)
        };
        let told = make("ci")?.expect(4)?.err();
        ensure!(told.contains("grants = false"), "{told}");
        let wider = format!("{}policies = [\"ci\"]\n", allow(&[&ann]));
        reload(sandbox, &wider)?;
        make("ci")?.expect(0)?;
        let told = make("shell")?.expect(4)?.err();
        ensure!(told.contains("does not let you use policy 'shell'"), "{told}");
        Ok(())
    })
}
