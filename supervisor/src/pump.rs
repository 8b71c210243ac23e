//! Events up to sessiond: which cages have some to send, and the one task that sends them.

use crate::supervisor::Supervisor;
use link::nonblocking::AsyncPackets;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use tokio::sync::Notify;
use wire::control::Message;
use wire::supervisor::SupervisorNotice;
use wire::{CageId, Event, Source};

/// What is told beside events.
enum Told {
    Rules,
    Audit,
}

/// Cages with events that no link has sent yet.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    cages: RefCell<BTreeSet<CageId>>,
    /// The journal of who asked for what has grown.
    audit: Cell<bool>,
    /// The host's policy was read again.
    rules: Cell<bool>,
    notify: Notify,
    late: Notify,
}

impl Dirty {
    pub(crate) fn mark(&self, cage: CageId) {
        self.cages.borrow_mut().insert(cage);
        self.notify.notify_one();
    }

    /// The disk did not take something.
    pub(crate) fn mark_late(&self) {
        self.late.notify_one();
    }

    pub(crate) async fn something_late(&self) {
        self.late.notified().await;
    }

    pub(crate) fn mark_audit(&self) {
        self.audit.set(true);
        self.notify.notify_one();
    }

    pub(crate) fn mark_rules(&self) {
        self.rules.set(true);
        self.notify.notify_one();
    }

    async fn next(&self) -> (BTreeSet<CageId>, Vec<Told>) {
        loop {
            let cages = self.cages.take();
            let mut told = Vec::new();
            // Whoever is no longer let in must not wait for a crowd of events.
            if self.rules.take() {
                told.push(Told::Rules);
            }
            if self.audit.take() {
                told.push(Told::Audit);
            }
            if !cages.is_empty() || !told.is_empty() {
                return (cages, told);
            }
            self.notify.notified().await;
        }
    }
}

/// Sends everything that is not acknowledged, then what comes, in order for each source, as fast
/// as the other side takes it. Ends with the link.
pub(crate) async fn run(packets: Rc<AsyncPackets>, supervisor: Rc<Supervisor>) {
    let mut sent: BTreeMap<(CageId, Source), u64> = BTreeMap::new();
    for cage in supervisor.cages() {
        supervisor.dirty.mark(cage.id);
    }
    supervisor.dirty.mark_audit();
    loop {
        let (cages, notices) = supervisor.dirty.next().await;
        for notice in notices {
            let notice = match notice {
                Told::Rules => SupervisorNotice::Rules,
                Told::Audit => SupervisorNotice::Audit { newest: supervisor.audit.newest() },
            };
            if let Ok(message) = Message::notify(&notice)
                && packets.send(&message.to_bytes(), &[]).await.is_err()
            {
                return;
            }
        }
        for id in cages {
            let Some(cage) = supervisor.find(id) else {
                sent.retain(|(cage, _source), _seq| *cage != id);
                continue;
            };
            let [broker, own] = [Source::Broker, Source::Supervisor].map(|source| {
                cage.events_after(source, sent.get(&(id, source)).copied().unwrap_or(0))
            });
            for event in merge(broker, own) {
                sent.insert((id, event.source), event.seq);
                let Ok(message) = Message::notify(&SupervisorNotice::Event { event }) else {
                    continue;
                };
                if packets.send(&message.to_bytes(), &[]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Both in their own order, and by the clock where that does not break it.
fn merge(broker: Vec<Event>, own: Vec<Event>) -> Vec<Event> {
    let mut merged = Vec::with_capacity(broker.len() + own.len());
    let mut own = own.into_iter().peekable();
    for event in broker {
        while let Some(earlier) = own.next_if(|other| other.at_ms < event.at_ms) {
            merged.push(earlier);
        }
        merged.push(event);
    }
    merged.extend(own);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::EventBody;

    #[test]
    fn merging_keeps_each_order() {
        let cage = CageId::new();
        let make = |source, times: &[i64]| -> Vec<Event> {
            let body = EventBody::CageGone {};
            (1..).zip(times).map(|(seq, at)| Event::new(cage, source, seq, *at, &body)).collect()
        };
        let merged = merge(make(Source::Broker, &[5, 3, 9]), make(Source::Supervisor, &[1, 4, 10]));
        let order: Vec<(Source, u64)> = merged.iter().map(|e| (e.source, e.seq)).collect();
        let (b, s) = (Source::Broker, Source::Supervisor);
        assert_eq!(order, [(s, 1), (s, 2), (b, 1), (b, 2), (b, 3), (s, 3)]);
    }
}
