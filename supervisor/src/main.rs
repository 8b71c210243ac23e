//! `mews-supervisor`: parse, run, exit code.

use std::process::ExitCode;
use supervisor::options::Options;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args_os().skip(1)) {
        Ok(options) => options,
        Err(error) => return fail(&error, 2),
    };
    match supervisor::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}"), 1),
    }
}

#[expect(clippy::print_stderr, reason = "there may be no log yet, and the CLI shows these words")]
fn fail(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    tracing::error!("{error}");
    eprintln!("mews-supervisor: {error}");
    ExitCode::from(code)
}
