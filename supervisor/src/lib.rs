//! mews-supervisor: who may ask for what, cages from spawn to nothing left, and what becomes of them
//! when daemons die. Parses no terminal output, no HTTP, no SQL.
//!
//! | file | what |
//! | --- | --- |
//! | `permit.rs` | the table: request, who, phase, once, handler |
//! | `spawn.rs` | the recipe, numbered |
//! | `cage/driver.rs` | from `go` to nothing left |
//! | `reconcile.rs` | what an earlier supervisor left |
//! | `outbox.rs`, `pump.rs` | events: file first, then up, until acknowledged |
//! | `sys.rs` | everything unsafe; `sys/child.rs` is what happens between fork and exec |

mod admission;
mod attest;
mod audit;
mod broker_link;
mod cage;
mod caps;
mod checkpoint;
mod clock;
mod daemon;
mod ending;
mod files;
mod grants;
mod host;
mod last_words;
mod late;
mod launch;
mod layers;
mod limits;
mod mounts;
mod one_shot;
pub mod options;
mod outbox;
mod permit;
mod planning;
mod privileges;
mod programs;
mod pump;
mod reconcile;
mod requests;
mod server;
mod service;
mod sessiond;
mod signals;
mod spawn;
mod stats;
mod supervisor;
mod suspend;
#[expect(unsafe_code, reason = "fork, mounts and the like, which nix does not wrap safely")]
mod sys;
mod trail;
mod uids;
mod unreachable;
mod upstream;
mod viewers;
mod walltime;
mod workspace;

use ::cage::cgroup::Layout;
use ::cage::{probe, seccomp};
use anyhow::Context;
use options::Options;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Runs until it is told to stop.
///
/// # Errors
/// It could not start; one sentence says why and what to do.
pub fn run(options: Options) -> anyhow::Result<()> {
    harden().context("locking down")?;
    // Before anything else opens descriptors: these numbers are our parent's gifts.
    let ready = options.ready_fd.map(sys::inherited).transpose().context("--ready-fd")?;
    // Whoever waits for us must not see the end of this pipe before the last word is in the log.
    let until_the_end = ready.as_ref().map(OwnedFd::try_clone).transpose()?;
    std::mem::forget(until_the_end);
    let caller = options.one_shot.then(|| sys::inherited(3)).transpose();
    let caller = caller.context("--one-shot wants its caller on descriptor 3")?;
    let host = host::Host::find(options.one_shot)?;
    let given =
        if options.one_shot { None } else { service::given_socket(&host.dirs.api_socket())? };
    if host.is_root() {
        privileges::keep_needed()?;
        // A group of ours would open folders to a plan that is made with an operator's eyes.
        nix::unistd::setgroups(&[]).context("supplementary groups")?;
    }
    host.make_folders()?;
    start_log(&host, ready.is_some())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        match caller {
            Some(caller) => one_shot::run(host, caller).await,
            None => daemon::run(host, ready, given).await,
        }
    })
}

/// Everything that is looked for once and then only used.
fn equip(host: host::Host) -> anyhow::Result<Rc<supervisor::Supervisor>> {
    let admission = admission::Admission::read(&host)?;
    let programs = programs::Programs::open(host.is_root(), host.one_shot)?;
    let setting = std::env::var("MEWS_CGROUP_PARENT").unwrap_or_else(|_unset| "auto".to_owned());
    let layout = Layout::probe(&setting)?;
    let facts = probe::facts(&layout);
    let filter = seccomp::compile(seccomp::Profile::Default);
    let filter = link::memfd::sealed("seccomp", &filter).context("seccomp filter")?;
    let grants = grants::Grants::open(host.dirs.grants()).context("the table of grants")?;
    let audit = audit::Audit::open(host.dirs.journal(), Rc::default()).context("the journal")?;
    let kept = (admission, grants, audit);
    Ok(supervisor::Supervisor::new(host, kept, programs, layout, facts, filter))
}

/// Neither Landlock nor seccomp: every cage would inherit them. Not no_new_privs either: a host may
/// give bwrap its right to user namespaces by an AppArmor profile, which no_new_privs would void.
fn harden() -> anyhow::Result<()> {
    sys::set_undumpable()?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    Ok(())
}

/// To standard error, or, for a daemon that the CLI started, to its file.
fn start_log(host: &host::Host, to_file: bool) -> anyhow::Result<()> {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("MEWS_LOG")
        .unwrap_or_else(|_unset| EnvFilter::new(if host.one_shot { "error" } else { "info" }));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    if to_file {
        let file = sessiond::open_log(&host.dirs.log("mews-supervisor")).context("log file")?;
        log.with_writer(std::sync::Mutex::new(file)).init();
    } else {
        log.with_writer(std::io::stderr).init();
    }
    Ok(())
}
