//! The kernel's own scheduler between operators: as many cages as one likes, half of the machine.

use super::people::{Person, host, need_accounts};
use crate::runner::skip;
use anyhow::{Context as _, ensure};
use std::path::PathBuf;
use std::time::Duration;
use testkit::{Sandbox, pause};

/// Used by both together before their parts count.
const FIRST: Duration = Duration::from_secs(4);
/// Used by both together while they do.
const USED: Duration = Duration::from_secs(12);

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
        // Two groups of one weight: half each, but a scheduler that places busy loops on few processors
        // settles between 0.39 and 0.6. Without the groups each of five cages gets a fifth. The first
        // window has not all loops running, and does not count.
        let used = || (used_by(&ann), used_by(&bob));
        let from = used();
        let from = window("all loops run", from, FIRST, used)?;
        let till = window("a share of the processors", from, USED, used)?;
        let (of_ann, of_bob) = (till.0 - from.0, till.1 - from.1);
        let share = of_bob.as_secs_f64() / (of_ann + of_bob).as_secs_f64();
        ensure!(
            share > 0.3 && share < 0.7,
            "bob with one cage got {share:.2} beside ann with four: {of_bob:?} and {of_ann:?}"
        );
        Ok(())
    })
}

/// What both have used once it is so much more than `from`.
fn window(
    what: &str,
    from: (Duration, Duration),
    length: Duration,
    used: impl Fn() -> (Duration, Duration),
) -> anyhow::Result<(Duration, Duration)> {
    pause::until(what, Duration::from_secs(60), || {
        let now = used();
        (now.0 + now.1 >= from.0 + from.1 + length).then_some(now)
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
