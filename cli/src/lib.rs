//! The program that operators type. One verb, one file; this file only picks it.
//!
//! Owns the operator's own terminal while it is attached, and nothing else: no state, no policy.

mod api;
mod args;
mod ci;
mod complete;
mod connect;
mod control;
mod escape;
mod failure;
mod hello;
mod http;
mod oneshot;
mod out;
mod place;
mod programs;
mod request;
mod similar;
mod status_file;
#[expect(unsafe_code, reason = "what a child does between fork and exec; stdio by number")]
mod sys;
mod table;
mod terminal;
mod time;
mod verb;
mod viewer;
mod whole;

use crate::args::{Cli, Verb};
use crate::failure::Failure;
use crate::out::Say;
use std::ffi::OsString;
use std::process::ExitCode;

/// Parses, runs one verb, gives its exit status.
pub fn run(argv: impl IntoIterator<Item = OsString>) -> ExitCode {
    let argv: Vec<OsString> = argv.into_iter().collect();
    match complete::answer(&argv) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return ExitCode::from(args::refuse(&error, &argv)),
    }
    out::colour::want(args::colour(&argv));
    let cli = match args::parse(&argv) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(args::refuse(&error, &argv)),
    };
    let say = Say::new(cli.json);
    place::want(cli.place());
    let runs_a_program = cli.verb.as_ref().is_some_and(Verb::runs_a_program);
    match in_runtime(cli, &say) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            let mut failure = failure.or_help(|| args::help(&argv));
            similar::policies(&mut failure);
            say.failure(&failure);
            // 1 to 5 could come from the program itself; 125 says that it is ours.
            ExitCode::from(if runs_a_program { 125 } else { failure.status })
        }
    }
}

fn in_runtime(cli: Cli, say: &Say) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(verb::run(cli, say));
    // Nothing that still waits may hold the way out.
    runtime.shutdown_background();
    outcome
}
