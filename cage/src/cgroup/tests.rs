//! On the kernel that runs them. An ordinary user has no groups to make: there they check that.

use super::*;
use std::io::Write;
use std::process::{Child, Command};

fn layout(name: &str) -> Layout {
    Layout::probe(&format!("/mews-unit-{}-{name}", std::process::id())).unwrap()
}

/// A child that joins the cage, as the broker's stub does, before it becomes `sleep`.
fn sleeper_in(cgroup: &CageCgroup) -> Child {
    let child = Command::new("sleep").arg("600").spawn().unwrap();
    for procs in cgroup.procs_files().unwrap() {
        std::fs::File::from(procs).write_all(child.id().to_string().as_bytes()).unwrap();
    }
    child
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

#[test]
fn limits_are_written_and_read_back_and_gone_after_remove() {
    let layout = layout("limits");
    let limits = Limits {
        memory_bytes: Some((64 << 20) + 5),
        swap_bytes: Some(0),
        pids: Some(20),
        cpu_milli: Some(500),
        io: None,
        oom_group: true,
        share_of: None,
    };
    let cgroup = CageCgroup::create(&layout, CageId::new(), &limits).unwrap();
    assert_eq!(cgroup.is_absent(), layout.facts() == LimitFacts::default());
    let counters = cgroup.counters();
    assert_eq!(counters.memory_events.is_some(), layout.facts().memory.is_some());
    assert_eq!(counters.pids_events.is_some(), layout.facts().pids.is_some());
    let oom = cgroup.oom_eventfd().unwrap();
    assert_eq!(oom.is_some(), layout.facts().memory == Some(Version::V1));
    let paths = cgroup.paths();
    cgroup.remove().unwrap();
    layout.tidy();
    for group in paths.groups {
        assert!(!group.path.exists(), "{}", group.path.display());
    }
    assert!(layout.bases().iter().all(|base| !base.path.exists()));
}

#[test]
fn members_are_seen_killed_and_found_again() {
    let layout = layout("members");
    let cage = CageId::new();
    let limits = Limits { pids: Some(20), ..Limits::default() };
    let cgroup = CageCgroup::create(&layout, cage, &limits).unwrap();
    if cgroup.is_absent() {
        return;
    }
    assert!(cgroup.is_empty());
    let mut child = sleeper_in(&cgroup);
    let pid = i32::try_from(child.id()).unwrap();
    assert_eq!(cgroup.members(), [pid]);
    assert!(cgroup.contains(pid) && !cgroup.is_empty());
    let found = scan(&layout);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, cage);
    let again = CageCgroup::reopen(&cgroup.paths());
    again.kill_all(soon()).unwrap();
    assert!(again.is_empty(), "a zombie counts as gone");
    assert!(!again.members().contains(&pid));
    child.wait().unwrap();
    again.remove().unwrap();
    assert!(scan(&layout).is_empty());
    layout.tidy();
}

#[test]
fn v1_alone_is_emptied_by_pidfds() {
    let layout = layout("v1");
    let limits = Limits { pids: Some(20), memory_bytes: Some(64 << 20), ..Limits::default() };
    let mut cgroup = CageCgroup::create(&layout, CageId::new(), &limits).unwrap();
    let v2: Vec<Group> =
        cgroup.groups.extract_if(.., |group| group.version() == Version::V2).collect();
    if !cgroup.is_absent() {
        let mut children: Vec<Child> = (0..5).map(|_| sleeper_in(&cgroup)).collect();
        assert_eq!(cgroup.members().len(), 5);
        cgroup.kill_all(soon()).unwrap();
        assert!(cgroup.is_empty());
        for child in &mut children {
            child.wait().unwrap();
        }
    }
    cgroup.groups.extend(v2);
    cgroup.remove().unwrap();
    layout.tidy();
}

#[test]
fn a_limit_that_the_kernel_refuses_names_its_wall_and_leaves_nothing() {
    let layout = layout("refused");
    if layout.facts().pids.is_none() {
        return;
    }
    let limits = Limits { pids: Some(u64::MAX), ..Limits::default() };
    let error = CageCgroup::create(&layout, CageId::new(), &limits).unwrap_err();
    assert_eq!(error.wall(), "cgroup.pids", "{error}");
    assert!(scan(&layout).is_empty());
    layout.tidy();
}

/// What can be changed is, as the kernel says; what would kill is refused and nothing is changed.
#[test]
fn limits_of_a_living_cage_change() {
    let layout = layout("change");
    let facts = layout.facts();
    let disk = Disk::of(std::path::Path::new("/"));
    let io = disk.filter(|_| facts.io.is_some()).map(|disk| IoLimit { disk, bytes: 10 << 20 });
    let first = Limits {
        memory_bytes: facts.memory.map(|_| 64 << 20),
        swap_bytes: facts.swap.map(|_| 0),
        pids: facts.pids.map(|_| 20),
        cpu_milli: facts.cpu.map(|_| 500),
        io,
        oom_group: true,
        share_of: None,
    };
    let cgroup = CageCgroup::create(&layout, CageId::new(), &first).unwrap();
    if cgroup.is_absent() {
        return;
    }
    let steps = [
        Limits {
            memory_bytes: first.memory_bytes.map(|_| 256 << 20),
            swap_bytes: first.swap_bytes.map(|_| 32 << 20),
            pids: first.pids.map(|_| 40),
            cpu_milli: first.cpu_milli.map(|_| 1500),
            io: io.map(|limit| IoLimit { bytes: 20 << 20, ..limit }),
            ..first
        },
        Limits { oom_group: true, ..Limits::default() },
        first,
    ];
    let mut now = first;
    for next in steps {
        cgroup.change(&now, &next).unwrap();
        now = next;
        let used = cgroup.measure();
        let memory = used.memory.as_ref();
        assert_eq!(memory.and_then(|memory| memory.limit_bytes), next.memory_bytes);
        assert_eq!(memory.and_then(|memory| memory.swap_limit_bytes), next.swap_bytes);
        assert_eq!(used.pids.and_then(|pids| pids.limit), next.pids);
        assert_eq!(used.cpu.and_then(|cpu| cpu.limit_milli), next.cpu_milli);
        let rate = used.io.and_then(|io| io.limit_bytes);
        assert_eq!(rate, next.io.map(|limit| limit.bytes));
    }
    cgroup.remove().unwrap();
    layout.tidy();
}

#[test]
fn a_limit_of_memory_below_what_is_in_use_is_refused_and_kills_nobody() {
    let layout = layout("in-use");
    if layout.facts().memory.is_none() {
        return;
    }
    let first = Limits {
        memory_bytes: Some(256 << 20),
        swap_bytes: layout.facts().swap.map(|_| 0),
        oom_group: true,
        ..Limits::default()
    };
    let cgroup = CageCgroup::create(&layout, CageId::new(), &first).unwrap();
    let mut child = sleeper_in(&cgroup);
    // What the pipe does not take stays in its memory.
    let script = "read go; dd if=/dev/zero bs=60M count=1 status=none \
                  | { head -c 1 > /dev/null; echo ready; sleep 600; }";
    let mut hog = Command::new("sh")
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    for procs in cgroup.procs_files().unwrap() {
        std::fs::File::from(procs).write_all(hog.id().to_string().as_bytes()).unwrap();
    }
    writeln!(hog.stdin.as_ref().unwrap()).unwrap();
    let mut ready = [0_u8; 6];
    std::io::Read::read_exact(hog.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let used = || cgroup.measure().memory.unwrap();
    assert!(used().current_bytes > 60_000_000, "{:?}", used());
    let low = Limits { memory_bytes: Some(16 << 20), ..first };
    let error = cgroup.change(&first, &low).unwrap_err();
    assert!(matches!(error, CgroupError::InUse { wanted: 16_777_216, .. }), "{error}");
    assert_eq!((used().limit_bytes, used().oom_kills), (first.memory_bytes, 0));
    assert!(cgroup.contains(i32::try_from(hog.id()).unwrap()));
    let enough = Limits { memory_bytes: Some(192 << 20), ..first };
    cgroup.change(&first, &enough).unwrap();
    assert_eq!(used().limit_bytes, enough.memory_bytes);
    cgroup.kill_all(soon()).unwrap();
    for child in [&mut child, &mut hog] {
        child.wait().unwrap();
    }
    cgroup.remove().unwrap();
    layout.tidy();
}

#[test]
fn operators_stand_beside_each_other_and_leave_nothing() {
    let layout = layout("shares");
    let of = |uid| Limits { share_of: Some(uid), ..Limits::default() };
    let cages = [(1000, CageId::new()), (1000, CageId::new()), (1001, CageId::new())];
    let made: Vec<CageCgroup> = cages
        .iter()
        .map(|(uid, cage)| CageCgroup::create(&layout, *cage, &of(*uid)).unwrap())
        .collect();
    if made[0].is_absent() {
        return;
    }
    let carries_cpu =
        made[0].paths().groups.iter().any(|g| g.controllers.contains(&Controller::Cpu));
    assert_eq!(carries_cpu, layout.facts().cpu.is_some());
    let mut found: Vec<CageId> = scan(&layout).into_iter().map(|(cage, _group)| cage).collect();
    found.sort();
    let mut wanted: Vec<CageId> = cages.iter().map(|(_uid, cage)| *cage).collect();
    wanted.sort();
    assert_eq!(found, wanted);
    let operators =
        |uid| layout.bases().iter().any(|base| base.path.join(format!("u{uid}")).is_dir());
    made[0].remove().unwrap();
    assert!(operators(1000), "another cage of theirs is there");
    made[1].remove().unwrap();
    assert!(!operators(1000) && operators(1001));
    made[2].remove().unwrap();
    assert!(layout.bases().iter().all(|base| !base.path.exists()));
}
