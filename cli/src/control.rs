//! What the viewer of a running command may do to it beside its stream: signals and the end.

use crate::api::Api;
use crate::failure::Failure;
use crate::oneshot::Commands;
use std::sync::Arc;
use wire::supervisor::SupervisorRequest;
use wire::{CageId, Cause, PtyId, SessionId};

/// Through the daemons, or straight to the supervisor of a one-shot run.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    Daemons { api: Arc<Api>, session: SessionId, cage: CageId, pty: PtyId },
    OneShot { commands: Commands, cage: CageId, pty: PtyId },
}

impl Control {
    /// A command that has not started yet gets it when it has.
    pub(crate) async fn signal(&self, signal: i32) -> Result<(), Failure> {
        match self {
            Self::Daemons { api, session, cage, pty } => {
                api.signal(*session, *cage, Some(*pty), signal).await
            }
            Self::OneShot { commands, cage, pty } => {
                let body = SupervisorRequest::Signal { cage: *cage, pty: Some(*pty), signal };
                commands.request(body, Vec::new()).await.map(drop)
            }
        }
    }

    /// The whole cage, at once.
    pub(crate) async fn kill(&self) -> Result<(), Failure> {
        match self {
            Self::Daemons { api, session, cage, .. } => api.kill(*session, *cage).await,
            Self::OneShot { commands, cage, .. } => {
                let body = SupervisorRequest::Kill { cage: *cage, cause: Cause::Cancelled };
                commands.request(body, Vec::new()).await.map(drop)
            }
        }
    }
}
