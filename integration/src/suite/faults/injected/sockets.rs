//! What lies where a socket is to be.

use crate::audit;
use anyhow::ensure;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use testkit::Sandbox;

const NAMES: [&str; 2] = ["api.sock", "supervisor.sock"];

/// A file, a socket that nobody holds and a link make place; what a link leads to stays as it is.
pub(super) fn in_the_way(sandbox: &Sandbox) -> anyhow::Result<()> {
    let bait = sandbox.file("home/bait", "bait")?;
    for name in NAMES {
        let path = sandbox.run_dir().join(name);
        let kinds: [(&str, &dyn Fn() -> std::io::Result<()>); 3] = [
            ("a file", &|| std::fs::write(&path, "left")),
            ("a dead socket", &|| UnixListener::bind(&path).map(drop)),
            ("a link", &|| symlink(&bait, &path)),
        ];
        for (kind, plant) in kinds {
            plant()?;
            let ran = sandbox.mews(["run", "--no-tty", "--", "true"])?;
            ensure!(ran.code == 0, "{kind} at {name}: {}", ran.err());
            ensure!(std::fs::read_to_string(&bait)? == "bait", "{kind} at {name}: written through");
            audit::agrees(sandbox)?;
            sandbox.mews(["daemon", "stop", "--kill"])?.expect(0)?;
            ensure!(!path.exists(), "{name} is left");
        }
        std::fs::create_dir(&path)?;
        let refused = sandbox.mews(["run", "--no-tty", "--", "true"])?;
        // What gives up at its start may have taken it away.
        std::fs::remove_dir(&path).ok();
        ensure!(refused.code != 0, "with a folder at {name} it runs");
        ensure!(refused.err().contains(name), "a folder at {name}: {}", refused.err());
    }
    Ok(())
}
