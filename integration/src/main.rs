//! The product on the real kernel, through its command line: `mews-integration [SUITE…|NAME…]`.
//!
//! Every test has folders and a cgroup parent of its own and must leave nothing behind: no process,
//! cgroup, mount, socket or folder. Suites: see `--list`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program whose output is its report")]

mod audit;
mod bench;
mod exchange;
mod hostile;
mod nemesis;
mod pattern;
mod rude;
mod runner;
mod suite;
mod talk;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "bench") {
        return bench::main(args.get(1..).unwrap_or_default());
    }
    match args.first().map(String::as_str) {
        Some("ask") => return ask(args.get(1..).unwrap_or_default()),
        Some("rude") => return rude::main(args.get(1..).unwrap_or_default()),
        Some("nemesis") => return nemesis::main(args.get(1..).unwrap_or_default()),
        Some("hold") => return hostile::hold(args.get(1).map_or("", String::as_str)),
        Some("hostile") => return hostile::run(),
        Some("--listen-fd") => return hostile::as_sessiond(),
        Some(_) | None => {}
    }
    let tests = suite::all();
    if args.iter().any(|arg| arg == "--list") {
        for test in &tests {
            println!("{}", test.name);
        }
        return ExitCode::SUCCESS;
    }
    if let Err(error) = testkit::leftovers::adopt_orphans() {
        println!("cannot take orphans in, so leftovers would not be seen: {error}");
        return ExitCode::FAILURE;
    }
    let all_passed = runner::run(&tests, &args);
    testkit::programs::forget();
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `ask SOCKET METHOD PATH BODY KEY`: one request as whoever runs this; status, then the body.
fn ask(args: &[String]) -> ExitCode {
    let [socket, method, path, body, key] = args else { return ExitCode::from(2) };
    match testkit::api::ask_by_key(std::path::Path::new(socket), (method, path), key, body) {
        Ok((status, body)) => {
            println!("{status}\n{body}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
