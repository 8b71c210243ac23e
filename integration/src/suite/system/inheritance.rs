//! What a cage is under is its policy, never its supervisor's unit.

use super::*;

/// Everything that a process inherits and may read of itself, and three things that a unit's filters
/// would forbid.
const FACTS: &str = r#"
grep -E '^(Umask|Uid|Gid|Groups|Sig(Blk|Ign|Cgt)|Cap|NoNewPrivs|Seccomp|Speculation|Cpus_allowed_list|Mems_allowed_list|CoreDumping|THP_enabled)' /proc/self/status
cat /proc/self/limits /proc/self/oom_score_adj /proc/self/coredump_filter /proc/self/personality /proc/self/timerslack_ns
nice; ulimit -a
cut -d' ' -f 4- /proc/self/mountinfo | sed 's/ [^ ]*shared:[0-9]*//; s/ master:[0-9]*//' | sed "s|$PROJECT|PROJECT|g"
ls -l /proc/self/ns | wc -l; cat /proc/keys | wc -l
python3 -c 'import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ|mmap.PROT_WRITE|mmap.PROT_EXEC); print("write and execute")'
node -e 'console.log([1,2,3].map(x => x * 2).join())' || echo no node
python3 -c 'import socket; [socket.socket(f, socket.SOCK_STREAM) for f in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)]; print("sockets")'
ls -ld /tmp /dev/shm /dev/null /proc/sys/kernel/hostname /home; ls /sys 2>&1 | head -3; env | sort
"#;

pub(super) fn compared(sandbox: &Sandbox) -> anyhow::Result<()> {
    with_people::<1>(sandbox, |[ann]| {
        let project = ann.project().to_string_lossy().into_owned();
        let option = format!("PROJECT={project}");
        let units = caged(ann, &["--env", &option], FACTS)?.expect(0)?;
        // The same supervisor, started by hand.
        let plain = people::host(sandbox, &allow(&[ann]), || {
            ann.caged(&["--env", &option], FACTS)?.expect(0)
        })?;
        ensure!(units.out().contains("write and execute"), "{}", units.out());
        let lines = |told: &Finished| told.out().lines().map(neutral).collect::<Vec<_>>();
        let (units, plain) = (lines(&units), lines(&plain));
        let differ: Vec<String> = units
            .iter()
            .zip(&plain)
            .filter(|(unit, plain)| unit != plain)
            .map(|(unit, plain)| format!("by the unit: {unit}\n      plain: {plain}"))
            .collect();
        ensure!(differ.is_empty() && units.len() == plain.len(), "{}", differ.join("\n"));
        Ok(())
    })
}

/// Without what is of one cage: its id, times, numbers of mounts.
fn neutral(line: &str) -> String {
    let words = line.split_whitespace().filter(|word| !word.contains(':') || word.ends_with(':'));
    let id = |word: &str| word.len() == 26 && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    words.filter(|word| !id(word)).collect::<Vec<_>>().join(" ")
}
