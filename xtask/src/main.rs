//! Chores: `cargo xtask build | run | test | ci | bench | nemesis | vm`.
//!
//! Every chore is a list of plain commands, printed before they run, so that anybody can type them.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

mod build;
mod ci;
mod run;
mod steps;
mod tally;
mod test;
mod vm;

use build::Profile;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask build [--release]      the programs, and the static pid 1 of cages, in target/<profile>
cargo xtask run [OPTIONS] [-- CMD] build, then `mews run`: CMD, or a shell, in a cage
cargo xtask test [SUITE…]          unit, hermetic and integration suites
cargo xtask ci                     what .ci/run does after it has installed packages
cargo xtask bench [ROW…]           measured beside bwrap, dtach and tmux; ratios
cargo xtask nemesis [--minutes N] [--seed S]
                                   everything that can be asked and die, from a seed, against a model
cargo xtask vm [--debian 12|13] [--debug] [SUITE…]
                                   installed under systemd on cgroup v2 in emulated guests; both,
                                   the release build and the suites that differ there, unless told";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = match args.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("help", [].as_slice()),
    };
    let done = match verb {
        "build" => build::build(profile_of(rest), build::Scope::Programs).map(|()| true),
        "run" => return run::run(rest),
        "test" => test::test(rest),
        "ci" => ci::ci(),
        "bench" => test::bench(rest),
        "nemesis" => test::nemesis(rest),
        "vm" => vm::vm(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(true)
        }
        other => Err(anyhow::anyhow!("no chore named {other:?}\n{USAGE}")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn profile_of(args: &[String]) -> Profile {
    if args.iter().any(|arg| arg == "--release") { Profile::Release } else { Profile::Dev }
}
