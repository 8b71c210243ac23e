//! One job in the foreground: the CLI plays sessiond's part over a socket pair. Same cages, no
//! database; nothing outlives the caller, and no file is left.

use crate::host::Host;
use crate::supervisor::{Stop, Supervisor};
use crate::{ending, equip, files, signals, upstream};
use link::Packets;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use wire::Cause;

pub(crate) async fn run(host: Host, caller: OwnedFd) -> anyhow::Result<()> {
    let folders = [host.dirs.run.clone(), host.dirs.state.clone()];
    let result = serve(host, caller).await;
    for folder in &folders {
        files::remove_any(folder)?;
    }
    result
}

async fn serve(host: Host, caller: OwnedFd) -> anyhow::Result<()> {
    let mut signals = signals::Signals::register()?;
    let supervisor = equip(host)?;
    let link = upstream::serve(Packets::from_fd(caller), Rc::clone(&supervisor));
    let result = tokio::select! {
        result = link => result,
        why = supervisor.stopped() => {
            tracing::debug!(?why, "stopping");
            Ok(())
        }
        () = signals.any() => Ok(()),
    };
    supervisor.stop(Stop::CallerGone);
    clear(&supervisor).await;
    result.map_err(Into::into)
}

async fn clear(supervisor: &Supervisor) {
    for cage in supervisor.cages() {
        if let Err(error) = ending::kill(&cage, Cause::Cancelled).await {
            tracing::error!(cage = %cage.id, %error, "a cage does not end");
        }
        if let Err(error) = supervisor.forget(&cage) {
            tracing::error!(cage = %cage.id, %error, "files are left");
        }
    }
    supervisor.layout.tidy();
}
