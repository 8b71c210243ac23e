//! Steps 6 and 7: everything that the broker is given, under the numbers that its boot text names.

use super::Failure;
use crate::cage::Cage;
use crate::layers::Layer;
use crate::mounts::{self, Lent, Named};
use crate::supervisor::Supervisor;
use crate::sys::child::Prepared;
use ::cage::bwrap::{self, BwrapFds, Sources};
use ::cage::cgroup::Version;
use ::cage::launch::{BOOT_FD, Boot, BootFds, CounterFile, IoFile};
use ::cage::plan::CagePlan;
use link::{Listener, Packets, memfd};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::SpawnSpec;

/// The broker's numbers: standard ones, its boot text at [`BOOT_FD`], then what comes.
struct Numbers {
    fds: Vec<(OwnedFd, i32)>,
    next: i32,
}

impl Numbers {
    fn give(&mut self, fd: OwnedFd) -> i32 {
        let number = self.next;
        self.next += 1;
        self.fds.push((fd, number));
        number
    }

    fn give_counter(&mut self, counter: Option<::cage::cgroup::Counter>) -> Option<CounterFile> {
        counter.map(|c| CounterFile { fd: self.give(c.fd), key: c.key.to_owned() })
    }
}

/// What the child needs, and what stays with us.
pub(super) struct Booting {
    pub(super) prepared: Prepared,
    pub(super) tether: Packets,
    pub(super) stderr: OwnedFd,
    pub(super) named: Vec<Named>,
}

pub(super) fn prepare(
    supervisor: &Supervisor,
    cage: &Cage,
    plan: &CagePlan,
    spec: &SpawnSpec,
    layer: Option<&Layer>,
    listener: Listener,
) -> Result<Booting, Failure> {
    let (uid, gid) = (plan.user.uid, plan.user.gid);
    let Lent { paths, mounts, named } = mounts::lend(supervisor, plan, cage.operator(), layer)
        .map_err(|error| Failure::new("files", error))?;
    let mut numbers = Numbers { fds: Vec::new(), next: BOOT_FD + 1 };
    let (tether, theirs) = Packets::pair().map_err(|error| Failure::new("tether", error))?;
    let fds = fds(supervisor, cage, plan, &paths, [listener.into(), theirs.into()], &mut numbers)?;
    let boot = Boot {
        proto: supervisor.host.hello.proto,
        cage: spec.cage,
        session: spec.session,
        run: spec.run,
        fds,
        program: plan.inner_program(),
        clocks: plan.clocks(),
        terminal: plan.terminal(),
        ptys_max: plan.limits.ptys,
        supervisor_uid: supervisor.host.uid,
    };
    let text = serde_json::to_vec(&boot).map_err(|error| Failure::new("boot", error))?;
    numbers.fds.push((sealed("boot", &text)?, BOOT_FD));
    let stderr = standard(&mut numbers).map_err(|error| Failure::new("pipe", error))?;
    let prepared = Prepared {
        program: copy(&supervisor.programs.broker)?,
        argv: vec![c"mews-ptybroker".to_owned()],
        env: speaks().into_iter().collect(),
        fds: numbers.fds,
        mounts,
        identity: supervisor.host.is_root().then_some((uid, gid)),
        // Limits are the inner stage's: hard ones set here could not be raised again inside.
        limits: Vec::new(),
        oom_score_adj: CString::new("500").ok(),
    };
    Ok(Booting { prepared, tether, stderr, named })
}

/// Nothing, but where a test wants an older or newer broker.
fn speaks() -> Option<CString> {
    let text = link::failpoint::variable(wire::hello::SPEAKS)?;
    CString::new(format!("{}={text}", wire::hello::SPEAKS)).ok()
}

/// Null, null, and a pipe whose other end is given back.
fn standard(numbers: &mut Numbers) -> io::Result<OwnedFd> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let (ours, theirs) = io::pipe()?;
    numbers.fds.push((null.try_clone()?.into(), 0));
    numbers.fds.push((null.into(), 1));
    numbers.fds.push((theirs.into(), 2));
    Ok(ours.into())
}

fn fds(
    supervisor: &Supervisor,
    cage: &Cage,
    plan: &CagePlan,
    paths: &[std::path::PathBuf],
    [listener, tether]: [OwnedFd; 2],
    numbers: &mut Numbers,
) -> Result<BootFds, Failure> {
    let cgroup = cage.handles().cgroup.clone().ok_or_else(|| Failure::new("cgroup", "none"))?;
    let of_cgroup = |error: ::cage::cgroup::CgroupError| Failure::new(error.wall(), &error);
    let counters = cgroup.counters();
    let mut inherited = Vec::new();
    for file in bwrap::data_files(plan) {
        inherited.push(numbers.give(sealed("file", &file.contents)?));
    }
    let args = bwrap::args(plan, &Sources(paths.to_vec()), &BwrapFds { data: inherited.clone() })
        .map_err(|error| Failure::new("bwrap", error))?;
    Ok(BootFds {
        listener: numbers.give(listener),
        tether: numbers.give(tether),
        state_dir: numbers.give(copy(cage.folder())?),
        bwrap: numbers.give(copy(&supervisor.programs.bwrap)?),
        args: numbers.give(sealed("args", &args)?),
        init: numbers.give(copy(&supervisor.programs.init)?),
        seccomp: Some(numbers.give(reopen(&supervisor.seccomp)?)),
        inherited,
        cgroup_procs: cgroup
            .procs_files()
            .map_err(of_cgroup)?
            .into_iter()
            .map(|fd| numbers.give(fd))
            .collect(),
        memory_events: numbers.give_counter(counters.memory_events),
        pids_events: numbers.give_counter(counters.pids_events),
        oom_event: cgroup.oom_eventfd().map_err(of_cgroup)?.map(|fd| numbers.give(fd)),
        oom_group: plan.limits.oom_group,
        cgroup_events: counters.cgroup_events.map(|fd| numbers.give(fd)),
        memory_peak: counters.memory_peak.map(|fd| numbers.give(fd)),
        cpu_usage: numbers.give_counter(counters.cpu_usage),
        pids_peak: counters.pids_peak.map(|fd| numbers.give(fd)),
        io_usage: counters
            .io_usage
            .map(|(version, fd)| IoFile { fd: numbers.give(fd), v2: version == Version::V2 }),
    })
}

fn sealed(name: &str, bytes: &[u8]) -> Result<OwnedFd, Failure> {
    memfd::sealed(name, bytes).map_err(|error| Failure::new("memory", error))
}

fn copy(fd: &OwnedFd) -> Result<OwnedFd, Failure> {
    fd.try_clone().map_err(|error| Failure::new("descriptors", error))
}

/// With an offset of its own: cages read it at the same time.
fn reopen(fd: &OwnedFd) -> Result<OwnedFd, Failure> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let file = File::open(path).map_err(|error| Failure::new("descriptors", error))?;
    Ok(file.into())
}
