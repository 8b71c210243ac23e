//! What a program does that may rename where another cage is being built.

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exchanges two names without a pause until the work is done. They stand then as they stood before.
///
/// # Errors
/// The work's, or a name cannot be exchanged.
pub(crate) fn meanwhile(
    (one, other): (&Path, &Path),
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let exchange = || renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE);
    let over = AtomicBool::new(false);
    let flip = || {
        while !over.load(Ordering::Relaxed) {
            exchange()?;
            exchange()?;
        }
        nix::Result::Ok(())
    };
    std::thread::scope(|scope| {
        let flipping = scope.spawn(flip);
        let ends = End(&over);
        let done = work();
        drop(ends);
        flipping.join().map_err(|_panic| anyhow::anyhow!("the exchange"))??;
        done
    })
}

/// Also where the work panics: the scope waits for its threads.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
