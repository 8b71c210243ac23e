//! What systemd says of the units, and what stands where.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

pub(super) fn up(_sandbox: &Sandbox) -> anyhow::Result<()> {
    need_guest()?;
    for unit in [SUPERVISOR, "mews-supervisor.socket", "mews-cages.service"] {
        until_active(unit)?;
    }
    root(&["daemon", "status"])?.expect(0)?;
    let pid = main_pid()?;
    let group = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
    ensure!(group(pid)?.trim() == "0::/mews.slice/mews-supervisor.service", "{}", group(pid)?);
    let holder: i32 = property("mews-cages.service", "MainPID")?.parse()?;
    let wanted = "0::/mews.slice/mews-cages.service/holder";
    ensure!(group(holder)?.trim() == wanted, "{}", group(holder)?);
    // sessiond is nobody's but its own, and stands beside the supervisor.
    let status = root(&["--json", "daemon", "status"])?.expect(0)?.json()?;
    let sessiond = crate::talk::number(&status, "/versions/pid")?;
    let account = nix::unistd::User::from_name("mews")?.context("the account mews")?;
    let owner = std::fs::metadata(format!("/proc/{sessiond}"))?.uid();
    let facts = std::fs::read_to_string(format!("/proc/{sessiond}/status"))?;
    let uid = account.uid.as_raw();
    ensure!(facts.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}")), "{owner}: {facts}");
    for (path, mode) in [("/run/mews", 0o711), ("/var/lib/mews", 0o711), ("/etc/mews", 0o755)] {
        let is = std::fs::metadata(path)?.permissions().mode() & 0o777;
        ensure!(is == mode, "{path} has mode {is:o}");
    }
    let socket = std::fs::metadata("/run/mews/api.sock")?.permissions().mode() & 0o777;
    ensure!(socket == 0o666, "the API's socket has mode {socket:o}");
    // Exactly what docs/system.md lists, and nothing that it could get again.
    let facts = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = facts.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default().to_owned()
    };
    ensure!(field("CapBnd:") == field("CapPrm:"), "{facts}");
    ensure!(u64::from_str_radix(&field("CapPrm:"), 16)?.count_ones() == 9, "{facts}");
    let doctor = root(&["doctor"])?.out();
    let failed = doctor.lines().any(|line| line.starts_with("FAIL"));
    ensure!(!failed && doctor.contains("cgroup v2"), "{doctor}");
    Ok(())
}

/// The last of the suite: neither the daemons nor systemd had anything to complain of, but for what
/// the tests did to them.
pub(super) fn journal(_sandbox: &Sandbox) -> anyhow::Result<()> {
    need_guest()?;
    let words = ["--no-pager", "--output=cat", "-u", "mews-*"];
    let told = process::run(Command::new("journalctl").args(words), b"", LIMIT)?.expect(0)?.out();
    let errors: Vec<&str> = told.lines().filter(|line| line.contains("ERROR")).collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    let failed = systemctl(&["--failed", "--no-legend", "--plain"])?.out();
    ensure!(!failed.contains("mews"), "{failed}");
    Ok(())
}
