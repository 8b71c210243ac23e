//! `mews-sessiond`.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match sessiond::daemon::run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where even this cannot be written, the status says it.
            drop(writeln!(std::io::stderr(), "mews-sessiond: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
