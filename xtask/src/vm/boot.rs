//! One boot: what the guest prints is printed, and what its suites count is counted.

use super::image::Image;
use crate::steps::shown;
use crate::tally::Tally;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The last line of a guest that came to its end.
const END: &str = "guest: end";
/// A guest that hangs is given up.
const LIMIT: &str = "7200";

/// The disk is not written to: what the guest changes is gone with it.
///
/// # Errors
/// qemu could not be started.
pub(super) fn run(image: &Image, payload: &Path, tally: &mut Tally) -> anyhow::Result<()> {
    let mut command = command(image, payload);
    eprintln!("$ {}", shown(&command));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut ended = false;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches('\r');
            println!("{line}");
            ended |= line == END;
            tally.line(line);
        }
    }
    if !child.wait()?.success() || !ended {
        tally.fails("the guest did not come to its end");
    }
    Ok(())
}

/// Without /dev/kvm, which not every machine has and not every one that has it can use.
fn command(image: &Image, payload: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args([LIMIT, "qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi"]);
    command.args(["-cpu", "max", "-smp", "2", "-m", "2048", "-nodefaults", "-no-user-config"]);
    command.args(["-nographic", "-serial", "stdio", "-no-reboot"]);
    command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initrd);
    // A busy host starves the emulated timer, which the kernel would take for a broken one.
    command.args([
        "-append",
        "console=ttyS0 panic=-1 quiet no_timer_check mitigations=off psi=1 systemd.show_status=0 \
         systemd.unified_cgroup_hierarchy=1",
    ]);
    let drive = |file: &Path, id: &str, how: &str| {
        format!("file={},if=none,id={id},format=raw,cache=unsafe,{how}", file.display())
    };
    command.args(["-drive", &drive(&image.disk, "system", "snapshot=on")]);
    command.args(["-drive", &drive(payload, "payload", "readonly=on")]);
    command.args(["-device", "virtio-blk-pci,drive=system"]);
    command.args(["-device", "virtio-blk-pci,drive=payload", "-device", "virtio-rng-pci"]);
    command
}
