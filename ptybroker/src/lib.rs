//! The terminals of one cage: rings, screen model, viewers, recording, exit status.
//!
//! One process per cage, one thread. It is bwrap's parent, keeps the exit status and survives every
//! daemon above it. Read it from [`broker`] (what happens, in which order) to [`terminal`] (one
//! terminal) and [`viewer`] (one attached client); the pure cores are [`ring`], [`scrollback`],
//! [`screen`], [`queue`], [`recording`] and [`state`].
#![deny(unsafe_code)]

pub mod boot;
pub mod broker;
pub mod clocks;
pub mod control;
pub mod events;
pub mod exit;
pub mod init_link;
pub mod launch;
pub mod limiter;
pub mod lockup;
pub mod pipes;
pub mod queue;
pub mod quiet;
pub mod recording;
pub mod ring;
pub mod screen;
pub mod scrollback;
pub mod state;
#[expect(unsafe_code, reason = "system calls that nix does not wrap, or not safely")]
mod sys;
pub mod terminal;
pub mod viewer;

use std::io;
use std::process::ExitCode;

/// The whole program. Its last words go to standard error; everything else goes up as events.
#[must_use]
pub fn run() -> ExitCode {
    match sanitise().map_err(|error| error.to_string()).and_then(|()| serve()) {
        Ok(code) => code,
        Err(words) => {
            last_words(&words);
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<ExitCode, String> {
    let booted = boot::take().map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| format!("no event loop: {error}"))?;
    // The broker is a task beside the terminals': what `block_on` is given runs with each of them.
    let tasks = tokio::task::LocalSet::new();
    let broker = tasks.spawn_local(broker::run(booted));
    tasks.block_on(&runtime, broker).map_err(|error| format!("broken off: {error}"))
}

/// What must hold before anything else: our memory is nobody's to read (it holds what an operator
/// types), orphans of the cage come to us, and a limit on file sizes does not kill us.
fn sanitise() -> io::Result<()> {
    nix::sys::prctl::set_dumpable(false)?;
    nix::sys::prctl::set_child_subreaper(true)?;
    sys::ignore_signal(libc::SIGPIPE);
    sys::ignore_signal(libc::SIGXFSZ);
    sys::ignore_signal(libc::SIGHUP);
    Ok(())
}

fn last_words(words: &str) {
    use std::io::Write;
    // Nobody is left to tell if standard error is gone.
    drop(writeln!(io::stderr(), "mews-ptybroker: {words}"));
}
