//! What a program does that may rename where another cage is being built.

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// So often at least, and until one has passed: who never gets a cage shows nothing.
const TRIES: usize = 40;
const TRIES_MAX: usize = 2000;

/// Exchanges two names without a pause while a cage is tried to be built in between. An attempt says
/// whether it was. The names stand then as they stood before.
///
/// # Errors
/// An attempt's, a name cannot be exchanged, or no cage could be built at all.
pub(crate) fn meanwhile(
    names: (&Path, &Path),
    mut attempt: impl FnMut(usize) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    exchanging(names, || {
        let mut built = 0;
        for number in 0..TRIES_MAX {
            built += usize::from(attempt(number)?);
            if number + 1 >= TRIES && built > 0 {
                return Ok(());
            }
        }
        anyhow::bail!("none of {TRIES_MAX} could be built")
    })
}

fn exchanging(
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
