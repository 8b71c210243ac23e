//! Steps 9 and 10: what must be true before `go`.

use super::Failure;
use crate::attest::{self, Binds, Wanted};
use crate::broker_link::BrokerLink;
use crate::cage::Cage;
use crate::cage::record::Process;
use crate::last_words::LastWords;
use crate::mounts::Named;
use crate::supervisor::Supervisor;
use ::cage::orders::Attestation;
use ::cage::plan::CagePlan;
use link::Packets;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use wire::broker::BrokerNotice;
use wire::{Enforced, EventBody, control};

/// A loaded machine builds a cage in a second; one that needs longer than this is stuck.
const BUILD_DEADLINE: Duration = Duration::from_secs(30);

/// A broker that said hello and is building the cage.
pub(super) struct Gate {
    notices: Receiver<BrokerNotice>,
    words: LastWords,
}

impl Gate {
    /// Connects at once: the socket listens since before the fork, so the broker finds us waiting.
    pub(super) async fn open(
        supervisor: &Supervisor,
        cage: &Rc<Cage>,
        stderr: OwnedFd,
    ) -> Result<Self, Failure> {
        let mut words = LastWords::collect(cage.id, stderr);
        let packets = Packets::connect(&supervisor.socket_path(cage.id))
            .map_err(|error| Failure::new("broker", error))?;
        let opened = BrokerLink::open(packets, &supervisor.host.hello, cage.listener());
        let (link, notices) = match tokio::time::timeout(BUILD_DEADLINE, opened).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return Err(Failure::new("broker", words.after(&error).await)),
            Err(_late) => return Err(Failure::new("broker", "it did not say hello in 30 s")),
        };
        cage.set_broker(Some(link));
        Ok(Self { notices, words })
    }

    /// Waits for the zygote's word, compares it, looks at pid 1 from outside.
    pub(super) async fn pass(
        mut self,
        supervisor: &Supervisor,
        cage: &Cage,
        plan: &CagePlan,
        named: &[Named],
    ) -> Result<(Enforced, Receiver<BrokerNotice>), Failure> {
        let (pid, attestation) = self.attested().await?;
        let process = Process::of(pid).map_err(|error| Failure::new("init", error))?;
        let gone = || Failure::new("init", "it is gone");
        let init = process.handle().ok_or_else(gone)?;
        cage.update(|record| record.init = Some(process));
        cage.set_handles(|handles| handles.init = Some(Rc::new(init)));
        plan.expected()
            .check(&attestation)
            .map_err(|mismatch| Failure::new(&mismatch.wall, &mismatch.message))?;
        let wanted = Wanted {
            pid,
            uid: plan.user.uid,
            gid: plan.user.gid,
            ptys_max: plan.limits.ptys,
            workspace: attest::Seen::of(plan, cage.record().session),
            binds: Binds { plan, named },
            attestation: &attestation,
        };
        attest::check(&wanted, &cage.handles())
            .map_err(|mismatch| Failure::new(mismatch.wall, &mismatch.message))?;
        let enforced = plan.enforced(&supervisor.facts);
        cage.update(|record| record.enforced = enforced.clone());
        cage.tell(&EventBody::CageAttested { enforced: enforced.clone() })
            .map_err(|error| Failure::new("events", error))?;
        Ok((enforced, self.notices))
    }

    async fn attested(&mut self) -> Result<(i32, Attestation), Failure> {
        let Ok(notice) = tokio::time::timeout(BUILD_DEADLINE, self.notices.recv()).await else {
            return Err(Failure::new("init", "the cage did not attest its walls in 30 s"));
        };
        match notice {
            Some(BrokerNotice::Attested { init_pid, monitor_pid: _, attestation }) => {
                let attestation = control::typed(attestation)
                    .map_err(|error| Failure::new("attestation", error))?;
                Ok((init_pid, attestation))
            }
            Some(BrokerNotice::Failed { wall, message }) => Err(Failure { wall, message }),
            Some(BrokerNotice::Event { .. } | BrokerNotice::Exited { .. }) => {
                Err(Failure::new("broker", "it told of an exit before anything ran"))
            }
            None => {
                let ended = "the broker ended while it built the cage";
                Err(Failure::new("broker", self.words.after(&ended).await))
            }
        }
    }
}
