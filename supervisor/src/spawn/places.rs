//! How many cages may live at once, of one operator and of all.
//!
//! A spawn takes its place before it does anything, and holds it until its cage is registered and
//! counted itself: two that come at the same time cannot both get the last one.

use crate::admission::Operator;
use crate::caps::check;
use crate::supervisor::Supervisor;
use std::rc::Rc;
use wire::WireError;

/// Starts of one operator that are under way at once: one whose file system does not answer must not
/// fill the queue for everybody.
const STARTS_MAX: u32 = 16;

pub(super) struct Place {
    supervisor: Rc<Supervisor>,
    uid: u32,
}

impl Place {
    /// # Errors
    /// `limit_reached`, with resource, limit and what there is.
    pub(super) fn take(
        supervisor: &Rc<Supervisor>,
        operator: &Operator,
    ) -> Result<Self, WireError> {
        let uid = operator.uid;
        let admission = &supervisor.admission;
        let living = supervisor.living();
        let taken = supervisor.places.borrow();
        let own = living.iter().filter(|cage| cage.operator() == uid).count();
        let starting = taken.iter().filter(|other| **other == uid).count();
        let own = own + starting;
        let all = living.len() + taken.len();
        drop(taken);
        let at_once = (uid != 0).then_some(STARTS_MAX);
        check("starts of one operator at once", at_once, starting, "wait until some have begun")?;
        let of_operator = admission.rule_for(operator).and_then(|rule| rule.cages_max);
        check("cages of one operator", of_operator, own, "`mews ls` shows yours; end one")?;
        // Root can always look for itself.
        let of_host = admission.cages_max().filter(|_max| uid != 0);
        check("cages of this host", of_host, all, "wait until one ends, or ask the host's admin")?;
        supervisor.places.borrow_mut().push(uid);
        Ok(Self { supervisor: Rc::clone(supervisor), uid })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.supervisor.places.borrow_mut();
        if let Some(index) = places.iter().position(|uid| *uid == self.uid) {
            places.swap_remove(index);
        }
    }
}
