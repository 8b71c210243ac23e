//! Who may write: one viewer at a time.

use wire::{AttachOptions, Join, Role, View};

/// What becomes of a viewer that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    pub role: Role,
    /// The present writer becomes an observer.
    pub takes_over: bool,
}

#[must_use]
pub fn join(options: &AttachOptions, has_writer: bool) -> Joined {
    let wants = match (options.view, options.join) {
        // Somebody who reads logs has no keyboard.
        (View::Lines | View::Bytes, _) | (View::Screen, Join::Observe) => false,
        (View::Screen, Join::Auto) => !has_writer,
        (View::Screen, Join::Take) => true,
    };
    let role = if wants { Role::Writer } else { Role::Observer };
    Joined { role, takes_over: wants && has_writer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_writer() {
        let (writer, observer) = (Role::Writer, Role::Observer);
        for (join_as, view, has_writer, role, takes_over) in [
            (Join::Auto, View::Screen, false, writer, false),
            (Join::Auto, View::Screen, true, observer, false),
            (Join::Observe, View::Screen, false, observer, false),
            (Join::Take, View::Screen, false, writer, false),
            (Join::Take, View::Screen, true, writer, true),
            (Join::Take, View::Lines, true, observer, false),
            (Join::Auto, View::Bytes, false, observer, false),
        ] {
            let options = AttachOptions { join: join_as, view, ..AttachOptions::default() };
            assert_eq!(join(&options, has_writer), Joined { role, takes_over }, "{options:?}");
        }
    }
}
