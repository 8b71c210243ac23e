//! Pid 1 of a cage: `mews-cage-init ORDER_FD`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let fd = std::env::args().nth(1).and_then(|text| text.parse().ok());
    match fd {
        Some(fd) if fd > 2 => cage::init::run(fd),
        _ => ExitCode::from(cage::init::EXIT_NO_CAGE),
    }
}
