//! The program itself, as the supervisor starts it: folders by descriptor, an ordinary user.

use crate::kit::{Place, Times, nix_is_root, picture, shell};
use layer::{Order, Report, Work};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};
use wire::ErrorCode;
use wire::WorkspaceMode::{Copy, Overlay};

/// Some uid that is nobody's.
const UID: &str = "64123";

struct Program<'a> {
    place: &'a Place,
}

impl<'a> Program<'a> {
    /// All that is in the place becomes the user's; the program is where they can start it.
    fn new(place: &'a Place) -> Self {
        let top = place.path("");
        fs::set_permissions(&top, fs::Permissions::from_mode(0o711)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_mews-layer"), top.join("mews-layer")).unwrap();
        if nix_is_root() {
            shell(&top, &format!("chown -Rh {UID}:{UID} origin layer saved"));
        }
        Self { place }
    }

    fn start(&self, work: Work, redirects: &str) -> Child {
        let order = Order { mode: self.place.mode, made: self.place.made, work };
        let top = self.place.path("");
        fs::write(top.join("order"), serde_json::to_vec(&order).unwrap()).unwrap();
        fs::write(top.join("report"), "").unwrap();
        let user =
            format!("setpriv --reuid {UID} --regid {UID} --clear-groups --bounding-set -all");
        let user = if nix_is_root() { user.as_str() } else { "" };
        let text = format!("exec {user} ./mews-layer 3<order 4>report {redirects}");
        Command::new("sh").args(["-c", &text]).current_dir(top).spawn().unwrap()
    }

    fn report(&self) -> Report {
        serde_json::from_slice(&fs::read(self.place.path("report")).unwrap()).unwrap()
    }

    fn order(&self, work: Work) -> Report {
        let status = self.start(work, "5<origin 6<layer 7<saved").wait().unwrap();
        assert!(status.success(), "{status}");
        self.report()
    }
}

#[test]
fn folders_and_files_that_their_owner_may_not_read_are_saved_told_and_stay_as_they_are() {
    let place = Place::new(Overlay, ":");
    let program = Program::new(&place);
    let top = place.path("layer/upper");
    shell(
        &top,
        "mkdir -p a/b/c w; echo s >a/b/c/f; echo t >t; chmod 000 a/b/c/f a/b/c t; chmod 100 a/b
         chmod 400 a; chmod 500 w; chmod 000 .",
    );
    if nix_is_root() {
        shell(&place.path("layer"), &format!("chown -Rh {UID}:{UID} ."));
    }
    let modes = "a 400, a/b 100, a/b/c 0, a/b/c/f 0, t 0, w 500";
    let shown = |top: &str| {
        let found = picture(&place.path(top), Times::No);
        let words = found
            .iter()
            .map(|(path, it)| format!("{} {:o}", String::from_utf8_lossy(path), it.mode));
        words.collect::<Vec<_>>().join(", ")
    };
    assert!(matches!(program.order(Work::Save), Report::Copied(copied) if copied.entries == 6));
    let report = program.order(Work::Diff);
    assert!(matches!(&report, Report::Changes(it) if it.changes.len() == 6), "{report:?}");
    assert!(matches!(program.order(Work::Restore), Report::Copied(_)));
    assert!(matches!(program.order(Work::Preview), Report::Changes(it) if it.changes.is_empty()));
    if nix_is_root() {
        assert_eq!(shown("layer/upper"), modes);
        assert_eq!(shown("saved/upper"), modes);
        let top = fs::metadata(place.path("layer/upper")).unwrap().permissions().mode();
        assert_eq!(top & 0o7777, 0);
    }
    let report = program.order(Work::Apply { paths: vec![] });
    assert!(
        matches!(&report, Report::Applied { done, left } if done.changes.len() == 6
        && left.changes.is_empty()),
        "{report:?}"
    );
    if nix_is_root() {
        assert_eq!(shown("origin"), modes);
        assert_eq!(shown("layer/upper"), modes);
    }
    assert_eq!(program.order(Work::Remove), Report::Done);
    assert_eq!(fs::read_dir(place.path("layer")).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_read_fails_the_copy_with_its_name() {
    let place = Place::new(Copy, ":");
    place.edit("mkdir d; echo s >d/secret; chmod 000 d/secret");
    let program = Program::new(&place);
    let Report::Failed(error) = program.order(Work::Fill) else { panic!("it was copied") };
    assert_eq!(error.code, ErrorCode::Forbidden);
    assert!(error.message.contains("\"d/secret\""), "{error}");
    place.edit("chmod 600 d/secret");
    let report = program.order(Work::Fill);
    assert!(matches!(report, Report::Copied(copied) if copied.entries == 2), "{report:?}");
}

#[test]
fn a_bad_order_is_answered() {
    let place = Place::new(Overlay, ":");
    let program = Program::new(&place);
    for (redirects, words) in [
        ("5<origin 6<layer 7<order", "saved is no folder"),
        ("5<origin 6<layer", "needs the folder saved"),
        ("5<origin", "no layer on descriptor 6"),
    ] {
        assert!(program.start(Work::Save, redirects).wait().unwrap().success());
        let Report::Failed(error) = program.report() else { panic!("it was done") };
        assert_eq!(error.code, ErrorCode::BadRequest);
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn modes_that_a_killed_order_has_changed_are_put_right_by_the_next() {
    let place = Place::new(Overlay, ":");
    let top = place.path("layer/upper");
    shell(&top, "for i in $(seq 300); do mkdir $i; echo a >$i/f; chmod 000 $i/f $i; done");
    let program = Program::new(&place);
    let before = picture(&top, Times::No);
    let unlocked = place.path("layer/unlocked");
    let mut child = program.start(Work::Save, "5<origin 6<layer 7<saved");
    let killed = loop {
        if fs::metadata(&unlocked).is_ok_and(|found| found.len() > 2000) {
            child.kill().unwrap();
            break !child.wait().unwrap().success();
        }
        if child.try_wait().unwrap().is_some() {
            break false;
        }
    };
    assert!(killed || !nix_is_root());
    assert!(matches!(program.order(Work::Save), Report::Copied(copied) if copied.entries == 600));
    if nix_is_root() {
        assert_ne!(before.len(), 0);
        assert_eq!(picture(&top, Times::No), before);
        assert_eq!(picture(&place.path("saved/upper"), Times::No), before);
    }
    assert!(!unlocked.exists());
}

/// Killed again and again, whenever its notes have grown by so many bytes.
#[test]
fn an_apply_that_is_killed_anywhere_is_ended_by_the_next() {
    for step in [150_u64, 700, 1900] {
        let place = Place::new(
            Copy,
            "for i in 1 2 3 4 5 6 7 8 9; do mkdir -p d$i/s; echo a >d$i/f; echo a >d$i/s/f
             echo a >f$i; done",
        );
        let program = Program::new(&place);
        assert!(matches!(program.order(Work::Fill), Report::Copied(_)));
        place.program(
            "for i in 1 2 3; do rm -r d$i; echo b >>f$i; done; for i in 4 5 6; do rm -r d$i
             echo file >d$i; rm f$i; mkdir f$i; echo in >f$i/in; done
             for i in 7 8 9; do mv d$i e$i; rm f$i; ln -s t f$i; done",
        );
        let notes = place.path("layer/applied");
        let length = || fs::metadata(&notes).map_or(0, |found| found.len());
        let mut kills = 0;
        loop {
            let limit = length() + step;
            let mut child =
                program.start(Work::Apply { paths: vec![] }, "5<origin 6<layer 7<saved");
            let ended = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    assert!(status.success(), "{status}");
                    break true;
                }
                if length() >= limit {
                    child.kill().unwrap();
                    break child.wait().unwrap().success();
                }
                std::thread::yield_now();
            };
            if ended {
                break;
            }
            kills += 1;
        }
        let report = program.report();
        assert!(
            matches!(&report, Report::Applied { left, .. } if left.changes.is_empty()),
            "{report:?}"
        );
        assert_eq!(
            picture(&place.path("origin"), Times::No),
            picture(&place.path("layer/tree"), Times::No),
            "after {kills} kills"
        );
        assert!(kills > 0, "it was never killed");
    }
}
