//! Caps: how many cages may live at once, of one operator and of all.
//!
//! A spawn takes its place before it does anything, and holds it until its cage is registered and
//! counted itself: two that come at the same time cannot both get the last one.

use crate::admission::Operator;
use crate::supervisor::Supervisor;
use serde_json::json;
use std::rc::Rc;
use wire::{ErrorCode, WireError};

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

fn check(resource: &str, limit: Option<u32>, current: usize, next: &str) -> Result<(), WireError> {
    let Some(limit) =
        limit.filter(|limit| current >= usize::try_from(*limit).unwrap_or(usize::MAX))
    else {
        return Ok(());
    };
    let words = format!("{current} of at most {limit} {resource} are there already: {next}");
    let details = json!({ "resource": resource, "limit": limit, "current": current });
    Err(WireError::new(ErrorCode::LimitReached, words).with(details))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_refused_with_counts() {
        for (limit, current, fits) in
            [(None, 900, true), (Some(3), 2, true), (Some(3), 3, false), (Some(0), 0, false)]
        {
            let told = check("cages", limit, current, "wait");
            assert_eq!(told.is_ok(), fits, "{limit:?} {current}");
            if let Err(error) = told {
                assert_eq!(error.code, ErrorCode::LimitReached);
                let wanted = json!({ "resource": "cages", "limit": limit, "current": current });
                assert_eq!(error.details, wanted);
            }
        }
    }
}
