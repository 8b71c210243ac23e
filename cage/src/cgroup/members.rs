//! Who is in a group, and how it is emptied. Pids are read, pidfds are signalled.

use super::CgroupError;
use super::group::{Group, Version};
use link::PidFd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long one look waits for a change before it looks again by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(super) fn of(groups: &[Group]) -> Vec<i32> {
    let mut pids: Vec<i32> = groups.iter().flat_map(living).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

pub(super) fn is_in(group: &Group, pid: i32) -> bool {
    listed(group).contains(&pid)
}

/// v2 says so itself, and does not count zombies; v1 lists them at times.
pub(super) fn is_empty(group: &Group) -> bool {
    match group.version() {
        Version::V2 => match group.read("cgroup.events") {
            Ok(events) => events.lines().any(|line| line == "populated 0"),
            Err(_removed) => true,
        },
        Version::V1 => living(group).is_empty(),
    }
}

pub(super) fn kill(groups: &[Group]) -> Result<(), CgroupError> {
    if let Some(group) = groups.iter().find(|group| can_kill(group)) {
        return group.write("cgroup.kill", "1").map_err(|source| CgroupError::File {
            path: group.path().join("cgroup.kill"),
            source,
        });
    }
    for handle in of(groups).into_iter().filter_map(|pid| PidFd::open(pid).ok()) {
        // ESRCH: it ended meanwhile, which is what was wanted.
        handle.signal(libc::SIGKILL).ok();
    }
    Ok(())
}

/// Again and again: without `cgroup.kill` a fork can slip between the list and the signal.
pub(super) fn kill_until_empty(groups: &[Group], deadline: Instant) -> Result<(), CgroupError> {
    let started = Instant::now();
    while !groups.iter().all(is_empty) {
        kill(groups)?;
        if Instant::now() >= deadline {
            return Err(CgroupError::StillAlive {
                path: groups.first().map(|group| group.path().to_owned()).unwrap_or_default(),
                left: of(groups).len(),
                waited_ms: started.elapsed().as_millis(),
            });
        }
        wait_for_change(groups);
    }
    Ok(())
}

pub(super) fn wait_empty(groups: &[Group], deadline: Instant) -> bool {
    while !groups.iter().all(is_empty) {
        if Instant::now() >= deadline {
            return false;
        }
        wait_for_change(groups);
    }
    true
}

pub(super) fn wait_a_moment(group: &Group) {
    wait_for_change(std::slice::from_ref(group));
}

/// For a parent folder whose child was just removed: the kernel is done in microseconds.
pub(super) fn yield_briefly() {
    poll(&mut [], 1_u8).ok();
}

/// Until `cgroup.events` changes or, on v1, a member ends; at most [`LOOK_AGAIN`], because a change
/// between the look and the poll is not told again.
fn wait_for_change(groups: &[Group]) {
    let events: Vec<_> =
        groups.iter().filter_map(|group| group.open_read("cgroup.events")).collect();
    let handles: Vec<PidFd> = if events.is_empty() {
        of(groups).into_iter().filter_map(|pid| PidFd::open(pid).ok()).collect()
    } else {
        Vec::new()
    };
    let mut fds: Vec<PollFd<'_>> = events
        .iter()
        .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLPRI))
        .chain(handles.iter().map(|handle| PollFd::new(handle.as_fd(), PollFlags::POLLIN)))
        .collect();
    let timeout = PollTimeout::try_from(LOOK_AGAIN).unwrap_or(PollTimeout::ZERO);
    // An interrupted poll is a look more; nothing is lost by its error.
    poll(&mut fds, timeout).ok();
}

fn can_kill(group: &Group) -> bool {
    group.version() == Version::V2 && group.path().join("cgroup.kill").exists()
}

fn listed(group: &Group) -> Vec<i32> {
    group
        .read("cgroup.procs")
        .map(|text| text.lines().filter_map(|line| line.trim().parse().ok()).collect())
        .unwrap_or_default()
}

fn living(group: &Group) -> Vec<i32> {
    listed(group).into_iter().filter(|pid| !has_ended(*pid)).collect()
}

/// A zombie, or already reaped.
fn has_ended(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| matches!(rest.trim_start().chars().next(), Some('Z' | 'X'))),
        Err(_reaped) => true,
    }
}
