//! The kernel's own scheduler between operators: as many cages as one likes, half of the machine.

use super::people::{Person, host, need_accounts};
use crate::runner::skip;
use anyhow::{Context as _, ensure};
use std::path::PathBuf;
use std::time::Duration;
use testkit::{Sandbox, pause};

/// Both together in a window, at whose end their parts are compared.
const USED: Duration = Duration::from_secs(4);

pub(super) fn cpu(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let layout = cage::cgroup::Layout::probe(sandbox.cgroup_parent())?;
    if layout.facts().cpu.is_none() {
        return Err(skip("no cpu controller"));
    }
    let bases: Vec<PathBuf> = layout
        .bases()
        .into_iter()
        .filter(|base| base.controllers.contains(&cage::cgroup::Controller::Cpu))
        .map(|base| base.path)
        .collect();
    let base = bases.first().context("a hierarchy with the cpu controller")?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    host(sandbox, &super::allow(&[&ann, &bob]), || {
        let processors = std::thread::available_parallelism()?.get();
        // Enough for all processors each, and four times as much of the one.
        let spin = |person: &Person, loops: usize| {
            let script = format!(
                "i=1; while [ $i -lt {loops} ]; do (while :; do :; done) & i=$((i+1)); done; while :; do :; done"
            );
            person.json(&["run", "-d", "--", "sh", "-c", &script])
        };
        for _cage in 0..4 {
            spin(&ann, processors)?;
        }
        spin(&bob, processors)?;
        let group = |person: &Person| base.join(format!("u{}", person.uid));
        for person in [&ann, &bob] {
            ensure!(group(person).is_dir(), "{} has a group", person.name);
        }
        // Two groups of one weight: half each, but that a scheduler which places busy loops on few
        // processors may settle at a third. Without the groups each of five cages gets a fifth. Not all
        // loops run at once, and a machine has other work: one such window is enough.
        let used = || (used_by(&ann), used_by(&bob));
        let mut before = used();
        let mut shares = Vec::new();
        pause::until("a fair window", Duration::from_secs(60), || {
            let now = used();
            let (of_ann, of_bob) = (now.0 - before.0, now.1 - before.1);
            if of_ann + of_bob < USED {
                return None;
            }
            before = now;
            let share = of_bob.as_secs_f64() / (of_ann + of_bob).as_secs_f64();
            shares.push(share);
            (share > 0.33 && share < 0.67).then_some(())
        })
        .with_context(|| format!("bob with one cage got {shares:.2?} beside ann with four"))?;
        Ok(())
    })
}

/// Of all processes of this uid, by the scheduler's own count.
fn used_by(person: &Person) -> Duration {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_person = processes.filter(|process| {
        use std::os::unix::fs::MetadataExt;
        process.metadata().is_ok_and(|meta| meta.uid() == person.uid)
    });
    of_person
        .filter_map(|process| {
            let text = std::fs::read_to_string(process.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
        })
        .sum()
}
