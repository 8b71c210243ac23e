//! What one operator can hold up: their own work, and nobody else's.

use super::people::{Person, host, need_accounts};
use crate::suite::stopper::{Stopper, processes_of};
use anyhow::{Context as _, ensure};
use std::process::Command;
use std::time::Duration;
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, pause};

/// A checkpoint was never whole, removing it takes a while, and its operator stops whoever does it: the
/// daemons start and serve everybody.
pub(super) fn leftovers(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let (ann, bob) = (Person::make(sandbox, &[])?, Person::make(sandbox, &[])?);
    host(sandbox, &super::allow(&[&ann, &bob]), || {
        ann.json(&["run", "-d", "--overlay", "--name", "kept", "--", "sleep", "1000"])?;
        sandbox.mews(["daemon", "stop", "--leave"])?.expect(0)?;
        let mut layers = std::fs::read_dir(sandbox.state_dir().join("layers"))?;
        let layer = layers.next().context("a layer")??.path();
        let half = layer.join("checkpoints/half.new");
        std::fs::create_dir(&half)?;
        let script = format!("seq 30000 | xargs touch; chown -R {}:{} .", ann.uid, ann.gid);
        let mut made = Command::new("sh");
        process::run(made.args(["-c", &script]).current_dir(&half), b"", LIMIT)?.expect(0)?;
        let uid = ann.uid;
        let stopper = Stopper::start(move || processes_of(uid));
        sandbox.mews(["daemon", "start"])?.expect(0)?;
        let one = || (!stopper.bounds().is_empty()).then_some(());
        pause::until("one is stopped", Duration::from_secs(20), one)?;
        let bobs = ["run", "--no-tty", "--overlay", "--", "true"];
        bob.mews(&bobs)?.expect(0)?;
        ensure!(half.exists(), "it was removed before it could be stopped");
        drop(stopper);
        pause::until("it is removed", LIMIT, || (!half.exists()).then_some(()))
    })
}
