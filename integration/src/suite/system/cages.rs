//! Limits, standing still and checkpoints where the kernel has nothing but cgroup v2.

use super::*;
use crate::talk::{number, wall};

fn options(limits: &[&'static str]) -> Vec<&'static str> {
    limits.to_vec()
}

fn policy(person: &Person, limits: &str) -> anyhow::Result<String> {
    let text = format!("version = 1\nname = \"tight\"\nextends = \"shell\"\n[limits]\n{limits}\n");
    let path = person.project().join("tight.toml");
    std::fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

pub(super) fn limits(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<1>(sandbox, |[ann]| {
        let tight = policy(ann, "memory = \"96M\"\nswap = 0\npids = 40\ncpu = 0.5")?;
        let told = start(ann, "held", &["-p", &tight], WAITS)?;
        let cage = text(&told, "/cage")?;
        for (file, wanted) in [
            ("memory.max", (96_u64 << 20).to_string()),
            ("memory.swap.max", "0".to_owned()),
            ("memory.oom.group", "1".to_owned()),
            ("pids.max", "40".to_owned()),
            ("cpu.max", "50000 100000".to_owned()),
        ] {
            let is = group_file(ann, &cage, file)?;
            ensure!(is == wanted, "{file}: {is} instead of {wanted}");
        }
        let shown = json(ann, &["inspect", "held"])?;
        let enforced = shown.pointer("/cages/0/enforced").context("enforced")?;
        for name in ["cgroup.memory", "cgroup.swap", "cgroup.pids", "cgroup.cpu", "landlock"] {
            ensure!(wall(enforced, name)? == "enforced", "{name}: {enforced}");
        }
        mews(ann, &["limits", "held", "memory=64M", "pids=50"])?.expect(0)?;
        let is = group_file(ann, &cage, "memory.max")?;
        ensure!(is == (64_u64 << 20).to_string(), "{is}");
        let stats = json(ann, &["stats", "held"])?;
        ensure!(number(&stats, "/stats/pids/limit")? == 50, "{stats}");
        ensure!(
            number(&stats, "/stats/memory/current_bytes").is_ok_and(|bytes| bytes > 0),
            "{stats}"
        );
        mews(ann, &["kill", "held"])?.expect(0).map(drop)
    })
}

/// Everything in the cage, and nothing beside it; the kernel does it, whoever of ours lives.
pub(super) fn memory(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<2>(sandbox, |[ann, bob]| {
        start(bob, "near", &[], WAITS)?;
        let script = "sleep 300 & tail /dev/zero; echo survived > survived";
        start(ann, "hog", &options(&["--memory", "48M"]), script)?;
        let exit = ended(ann, "hog")?;
        ensure!(text(&exit, "/cause")? == "oom", "{exit}");
        ensure!(!ann.project().join("survived").exists(), "the shell outlived its cage's death");
        let events = mews(ann, &["--json", "events", "hog"])?.expect(0)?.json_lines()?;
        let types = crate::talk::event_types(&events)?;
        ensure!(types.iter().filter(|it| *it == "cage.oom").count() == 1, "{types:?}");
        std::fs::write(bob.project().join("stop"), "")?;
        let near = ended(bob, "near")?;
        ensure!(near.pointer("/code").is_some_and(|code| code == 7), "{near}");
        Ok(())
    })
}

const COUNTS: &str =
    "n=0; while [ ! -e stop ]; do n=$((n+1)); echo $n > count; sleep 0.05; done; exit 7";

fn frozen(person: &Person, cage: &str) -> anyhow::Result<bool> {
    Ok(group_file(person, cage, "cgroup.events")?.lines().any(|line| line == "frozen 1"))
}

pub(super) fn stands(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<2>(sandbox, |[ann, bob]| {
        let told = start(ann, "still", &[], COUNTS)?;
        let bobs = text(&start(bob, "near", &[], COUNTS)?, "/cage")?;
        let cage = text(&told, "/cage")?;
        mews(ann, &["pause", "still"])?.expect(0)?;
        ensure!(frozen(ann, &cage)? && !frozen(bob, &bobs)?, "hers stands, his does not");
        let count = |person: &Person| std::fs::read_to_string(person.project().join("count"));
        let (stood, his) = (count(ann)?, count(bob)?);
        let goes_on = || count(bob).is_ok_and(|now| now != his);
        pause::until("his counts on", LIMIT, || goes_on().then_some(()))?;
        ensure!(count(ann)? == stood, "hers counts on");
        mews(ann, &["resume", "still"])?.expect(0)?;
        let goes_on = || count(ann).is_ok_and(|now| now != stood);
        pause::until("hers counts on", LIMIT, || goes_on().then_some(()))?;
        std::fs::write(ann.project().join("stop"), "")?;
        let exit = ended(ann, "still")?;
        ensure!(exit.pointer("/code").is_some_and(|code| code == 7), "{exit}");
        Ok(())
    })
}

pub(super) fn killed_while_frozen(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<1>(sandbox, |[ann]| {
        for (verb, name) in [("kill", "one"), ("end", "two")] {
            let told = start(ann, name, &[], WAITS)?;
            mews(ann, &["pause", name])?.expect(0)?;
            ensure!(frozen(ann, &text(&told, "/cage")?)?, "it stands");
            mews(ann, &[verb, name])?.expect(0)?;
            let exit = ended(ann, name)?;
            ensure!(text(&exit, "/cause")? == "cancelled", "{verb}: {exit}");
        }
        Ok(())
    })
}

/// What the kernel kills while it stands dies at once, and of the right cause.
pub(super) fn oom_while_frozen(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<1>(sandbox, |[ann]| {
        let script = "x=$(head -c 24M /dev/zero | tr '\\0' x); touch full; sleep 1000; :";
        let told = start(ann, "full", &["--memory", "128M"], script)?;
        let full = ann.project().join("full");
        pause::until("it has its memory", LIMIT, || full.exists().then_some(()))?;
        mews(ann, &["pause", "full"])?.expect(0)?;
        let cage = text(&told, "/cage")?;
        // By the product it is refused, since it would kill; so the kernel is asked directly.
        let refused = mews(ann, &["limits", "full", "memory=8M"])?;
        ensure!(refused.code != 0 && refused.err().contains("would kill it"), "{refused:?}");
        ensure!(frozen(ann, &cage)?, "it stands all the same");
        let payload = PathBuf::from(BASE).join(format!("u{}", ann.uid)).join(&cage);
        std::fs::write(payload.join("payload/memory.max"), "4M")?;
        let exit = ended(ann, "full")?;
        ensure!(text(&exit, "/cause")? == "oom", "{exit}");
        Ok(())
    })
}

/// Of `mews diff`, like diff(1).
const DIFFERS: i32 = 1;

pub(super) fn checkpoint(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<1>(sandbox, |[ann]| {
        for mode in ["--overlay", "--copy"] {
            let name = mode.trim_start_matches('-');
            ann.sh("echo as it was > project/file")?.expect(0)?;
            let words = ["run", "-d", "--name", name, mode, "--", "bash", "-c"];
            let script = "echo first > file; while [ ! -e go ]; do sleep 0.1; done; \
                          echo second > file; touch more; sleep 1000";
            json(ann, &[&words[..], &[script]].concat())?;
            let says = |wanted: &str| {
                let words = ["exec", name, "--no-tty", "--", "sh", "-c", "cat file; ls"];
                mews(ann, &words).is_ok_and(|told| told.out().starts_with(wanted))
            };
            pause::until("it wrote", LIMIT, || says("first\n").then_some(()))?;
            mews(ann, &["checkpoint", name, "--resume"])?.expect(0)?;
            mews(ann, &["exec", name, "--no-tty", "--", "touch", "go"])?.expect(0)?;
            pause::until("it wrote again", LIMIT, || says("second\n").then_some(()))?;
            let shown = mews(ann, &["diff", name])?.expect(DIFFERS)?.out();
            ensure!(shown.contains("file") && shown.contains("more"), "{shown}");
            mews(ann, &["rollback", name, "--yes"])?.expect(0)?;
            let shown = mews(ann, &["diff", name])?.expect(DIFFERS)?.out();
            ensure!(shown.contains("file") && !shown.contains("more"), "{shown}");
            mews(ann, &["apply", name])?.expect(0)?;
            let file = std::fs::read_to_string(ann.project().join("file"))?;
            ensure!(file == "first\n", "{file}");
        }
        Ok(())
    })
}
