//! The processes of the cage, as pid 1 sees them in `/proc`.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) name: String,
    state: char,
    parent: i32,
    group: i32,
    session: i32,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let mut process = Self::parse(pid, &text(&format!("/proc/{pid}/stat"))?)?;
        if process.is_dead()
            && let Some(state) = state_of_threads(pid)
        {
            process.state = state;
        }
        Some(process)
    }

    /// A line of `/proc/PID/stat`. The name may hold anything, brackets too.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let (before, after) = stat.rsplit_once(") ")?;
        let (_pid, name) = before.split_once(" (")?;
        let mut fields = after.split(' ');
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.parse().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        Some(Self { pid, name: name.to_owned(), state, parent, group, session })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    pub(crate) fn runs(&self) -> bool {
        !self.is_stopped() && !self.is_dead()
    }
}

/// Of a process whose first thread has ended: it looks dead, and its other threads run on.
fn state_of_threads(pid: i32) -> Option<char> {
    let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    threads.find_map(|thread| {
        let stat = text(&thread.path().join("stat").to_string_lossy())?;
        Process::parse(pid, &stat).filter(|thread| !thread.is_dead()).map(|thread| thread.state)
    })
}

/// A process names itself as it likes, in bytes that need not be text.
fn text(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned())
}

pub(crate) fn all_pids() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Whether it has stopped, or is not there any more.
pub(crate) fn has_stopped(pid: i32) -> bool {
    Process::read(pid).is_none_or(|process| !process.runs())
}

/// All of them at one moment, nearly.
#[derive(Debug)]
pub(crate) struct Processes {
    all: BTreeMap<i32, Process>,
    /// Groups with a parent in their session, outside: the others are orphaned.
    guarded: BTreeSet<i32>,
    /// Ours: neither stopped nor told of.
    spared: BTreeSet<i32>,
}

impl Processes {
    pub(crate) fn read(spared: &BTreeSet<i32>) -> Self {
        let all = all_pids().into_iter().filter_map(Process::read);
        Self::new(all, spared)
    }

    fn new(all: impl Iterator<Item = Process>, spared: &BTreeSet<i32>) -> Self {
        let all = all.filter(|process| !process.is_dead()).map(|process| (process.pid, process));
        let all: BTreeMap<i32, Process> = all.collect();
        let is_guarded = |process: &&Process| {
            all.get(&process.parent).is_some_and(|parent| {
                parent.session == process.session && parent.group != process.group
            })
        };
        let guarded = all.values().filter(is_guarded).map(|process| process.group).collect();
        Self { all, guarded, spared: spared.clone() }
    }

    pub(crate) fn get(&self, pid: i32) -> Option<&Process> {
        self.all.get(&pid)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.all.values().filter(|process| !self.spared.contains(&process.pid))
    }

    /// Those that have children, level by level, the topmost first.
    pub(crate) fn parents(&self) -> Vec<Vec<&Process>> {
        let parents: BTreeSet<i32> = self.iter().map(|process| process.parent).collect();
        let mut levels: BTreeMap<usize, Vec<&Process>> = BTreeMap::new();
        for process in self.iter().filter(|process| parents.contains(&process.pid)) {
            levels.entry(self.depth(process)).or_default().push(process);
        }
        levels.into_values().collect()
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Process> {
        let parents: BTreeSet<i32> = self.iter().map(|process| process.parent).collect();
        self.iter().filter(move |process| !parents.contains(&process.pid))
    }

    fn depth(&self, process: &Process) -> usize {
        let mut depth = 0;
        let mut parent = process.parent;
        // What was read at different moments may name each other as parents.
        while let Some(above) = self.all.get(&parent).filter(|_| depth < self.all.len()) {
            parent = above.parent;
            depth += 1;
        }
        depth
    }

    /// Whether no parent of its group stands in the same session outside the group: then the kernel
    /// discards a stop by default.
    pub(crate) fn is_orphaned(&self, process: &Process) -> bool {
        !self.guarded.contains(&process.group)
    }
}

/// What a process does with signals, as bits: 1 for signal 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    blocked: u64,
    ignored: u64,
    caught: u64,
}

/// Of its main thread; nothing, if it is gone.
pub(crate) fn signals_of(pid: i32) -> Signals {
    Signals::parse(&text(&format!("/proc/{pid}/status")).unwrap_or_default())
}

impl Signals {
    fn parse(status: &str) -> Self {
        let set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
        };
        Self { blocked: set("SigBlk:"), ignored: set("SigIgn:"), caught: set("SigCgt:") }
    }

    pub(crate) fn catches(self, signal: i32) -> bool {
        has(self.caught, signal)
    }

    /// Whether it can stop when it gets this stop signal.
    pub(crate) fn obeys(self, signal: i32, is_orphaned: bool) -> bool {
        let reaches_it = !has(self.ignored, signal) && !has(self.blocked, signal);
        reaches_it && (self.catches(signal) || !is_orphaned)
    }
}

fn has(set: u64, signal: i32) -> bool {
    (1..=64).contains(&signal) && set & (1 << (signal - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &[&str]) -> Processes {
        let all = lines.iter().map(|line| {
            let pid = line.split(' ').next().unwrap().parse().unwrap();
            Process::parse(pid, line).unwrap()
        });
        Processes::new(all, &BTreeSet::from([1, 2, 3]))
    }

    fn pids<'a>(found: impl IntoIterator<Item = &'a Process>) -> Vec<i32> {
        found.into_iter().map(|process| process.pid).collect()
    }

    fn levels(processes: &Processes) -> Vec<Vec<i32>> {
        processes.parents().into_iter().map(pids).collect()
    }

    /// Pid 1, zygote, leader; a shell with a pipeline, and a daemon that has left everything.
    fn shell() -> Processes {
        table(&[
            "1 (init) S 0 0 0 0",
            "2 (zygote) S 1 0 0 0",
            "3 (leader) S 2 3 3 0",
            "4 (bash) S 3 4 3 0",
            "9 (sleep) S 4 9 3 0",
            "10 (a) b) ((c) T 4 9 3 0",
            "5 (bash) S 4 5 3 0",
            "6 (vim) S 5 6 3 0",
            "7 (daemon) S 1 7 7 0",
            "8 (zombie) Z 4 9 3 0",
        ])
    }

    #[test]
    fn parents_come_from_the_top_down_and_the_dead_do_not_count() {
        let shell = shell();
        assert_eq!(levels(&shell), [[4], [5]]);
        assert_eq!(pids(shell.leaves()), [6, 7, 9, 10]);
        assert_eq!(shell.get(10).unwrap().name, "a) b) ((c");
        assert!(shell.get(10).unwrap().is_stopped() && shell.get(8).is_none());
    }

    #[test]
    fn a_group_is_orphaned_without_a_parent_in_its_session() {
        let shell = shell();
        for (pid, orphaned) in [(4, false), (9, false), (6, false), (7, true), (3, true)] {
            assert_eq!(shell.is_orphaned(shell.get(pid).unwrap()), orphaned, "{pid}");
        }
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let torn = table(&["4 (a) S 5 4 4 0", "5 (b) S 4 4 4 0"]);
        assert_eq!(levels(&torn).concat().len(), 2);
    }

    #[test]
    fn who_can_obey() {
        let tstp = 1_u64 << (libc::SIGTSTP - 1);
        let text = |name: &str| format!("Name:\tx\n{name}\t{tstp:016x}\nSeccomp:\t2\n");
        let obeys =
            |name: &str, orphaned| Signals::parse(&text(name)).obeys(libc::SIGTSTP, orphaned);
        assert!(obeys("SigCgt:", true) && obeys("SigCgt:", false));
        assert!(!obeys("SigIgn:", false) && !obeys("SigBlk:", false));
        assert!(obeys("ShdPnd:", false) && !obeys("ShdPnd:", true));
    }
}
