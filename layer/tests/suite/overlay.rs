//! The kernel's overlay: what it leaves in a layer, read and written by the orders.

use crate::kit::{Place, Times, picture};
use layer::Work;
use wire::WorkspaceMode::Overlay;

const FOLDER: &str = "mkdir -p d1/sub d2 d3 ro
    echo a >f1; echo b >d1/f; echo b >d1/sub/f; echo c >d2/x; echo c2 >d2/y; echo g >d3/gone
    ln -s f1 link; ln f1 hard; echo z >z; echo r >ro/r; chmod 500 ro; mkfifo fifo; chmod 750 .
    printf '' >\"$(printf 'not\\377utf8')\"";

const SESSION: &str = "echo more >>f1; mv d1 d1new; rm -r d2; mkdir d2; echo new >d2/x
    chmod 700 ro; touch ro/added; rm z; rm link; mkdir link; echo q >link/q; rm -r d3
    chmod 600 fifo; mkdir -p new/deep; echo n >new/deep/f; chmod 000 new/deep; ln -s nowhere s
    rm \"$(printf 'not\\377utf8')\"; echo same >same; touch -d '2001-02-03 04:05:06' new";

#[test]
fn every_kind_of_change_is_told() {
    let place = Place::new(Overlay, FOLDER);
    if !place.program(SESSION) {
        return;
    }
    assert_eq!(
        place.diff(),
        [
            "deleted folder d1",
            "added folder d1new",
            "added file d1new/f",
            "added folder d1new/sub",
            "added file d1new/sub/f",
            "modified file d2/x",
            "deleted file d2/y",
            "deleted folder d3",
            "modified file f1",
            "modified fifo fifo 644->600",
            "modified folder link",
            "added file link/q",
            "added folder new",
            "added folder new/deep",
            "added file new/deep/f",
            "deleted file not\u{fffd}utf8",
            "modified folder ro 500->700",
            "added file ro/added",
            "added symlink s",
            "added file same",
            "deleted file z",
        ]
    );
}

#[test]
fn what_is_applied_is_the_view_and_no_change_any_more() {
    let place = Place::new(Overlay, FOLDER);
    if !place.program(SESSION) {
        return;
    }
    let listed = place.diff();
    let (done, left) = place.apply(&[]);
    assert_eq!((done, left), (listed, vec![]));
    assert_eq!(
        picture(&place.path("origin"), Times::Files),
        picture(&place.path("view"), Times::Files)
    );
    assert!(place.diff().is_empty());
}

#[test]
fn a_program_goes_on_with_what_was_applied() {
    let place = Place::new(Overlay, FOLDER);
    if !place.program(SESSION) {
        return;
    }
    place.apply(&[]);
    assert!(place.program(
        "echo again >>f1; echo again >>d2/x; rm -r new; mkdir new; rm d1new/f; mkdir d3; rm s"
    ));
    assert_eq!(
        place.diff(),
        [
            "deleted file d1new/f",
            "modified file d2/x",
            "added folder d3",
            "modified file f1",
            "deleted folder new/deep",
            "deleted symlink s",
        ]
    );
    assert_eq!(place.apply(&[]).1, Vec::<String>::new());
    assert_eq!(picture(&place.path("origin"), Times::No), picture(&place.path("view"), Times::No));
}

#[test]
fn an_edit_of_the_operators_is_shown_and_never_overwritten() {
    let place = Place::new(
        Overlay,
        "mkdir d e g; echo a >f; echo b >d/f; echo c >e/f; echo g >g/g; echo h >h; echo k >k",
    );
    if !place.program("echo p >>f; rm -r d; echo p >>e/f; echo p >>g/g; rm h; echo p >new; rm k; mkdir k; echo i >k/i") {
        return;
    }
    place.edit("echo mine >>f; echo mine >d/mine; rm -r e; rm g/g; echo mine >h; echo mine >new; echo mine >k");
    let before = picture(&place.path("origin"), Times::Files);
    let (done, left) = place.apply(&[]);
    assert_eq!(done, Vec::<String>::new());
    assert_eq!(
        left,
        [
            "deleted folder d (changed in your folder since the session began)",
            "added folder e (deleted in your folder since the session began)",
            "added file e/f (its folder \"e\" is not there in yours)",
            "modified file f (changed in your folder since the session began)",
            "added file g/g (deleted in your folder since the session began)",
            "deleted file h (changed in your folder since the session began)",
            "modified folder k (changed in your folder since the session began)",
            "added file k/i (its folder \"k\" is not there in yours)",
            "modified file new (changed in your folder since the session began)",
        ]
    );
    assert_eq!(picture(&place.path("origin"), Times::Files), before);
}

#[test]
fn a_restore_brings_the_saved_view_back_and_a_preview_tells_it() {
    let place = Place::new(Overlay, FOLDER);
    if !place.program(SESSION) {
        return;
    }
    let saved = picture(&place.path("view"), Times::Files);
    let report = place.order(Work::Save);
    assert!(matches!(report, layer::Report::Copied(copied) if copied.entries > 20), "{report:?}");
    assert!(
        place.program("rm -r new d2 hard; echo x >>f1; echo l >later; chmod 711 d1new; mkdir z")
    );
    assert_eq!(
        crate::kit::words(&place.changes(Work::Preview)),
        [
            "modified folder d1new 711->755",
            "added folder d2",
            "added file d2/x",
            "modified file f1",
            "added file hard",
            "deleted file later",
            "added folder new",
            "added folder new/deep",
            "added file new/deep/f",
            "deleted folder z",
        ]
    );
    assert!(matches!(place.order(Work::Restore), layer::Report::Copied(_)));
    assert!(place.changes(Work::Preview).is_empty());
    assert!(place.program(":"));
    assert_eq!(picture(&place.path("view"), Times::Files), saved);
}

#[test]
fn what_is_discarded_is_the_folders_own_again() {
    let place = Place::new(Overlay, FOLDER);
    if !place.program(SESSION) {
        return;
    }
    let (done, left) = place.discard(&["d2/y", "z", "new/deep", "link", "d1/f", "hard"]);
    assert_eq!(
        done,
        [
            "deleted file d2/y",
            "modified folder link",
            "added file link/q",
            "added folder new/deep",
            "added file new/deep/f",
            "deleted file z",
        ]
    );
    assert_eq!(
        left,
        [
            "modified file d1/f (it is part of the change of \"d1\": name that)",
            "modified file hard (the session has not changed it)",
        ]
    );
    assert!(place.program("test -L link && test -e z && test ! -e new/deep && test -e d2/y"));
    assert_eq!(std::fs::read(place.path("view/d2/x")).unwrap(), b"new\n");
    place.discard(&[]);
    assert!(place.diff().is_empty());
    assert!(place.program(":"));
    assert_eq!(
        picture(&place.path("origin"), Times::Files),
        picture(&place.path("view"), Times::Files)
    );
}

#[test]
fn some_paths_are_applied_and_the_rest_waits() {
    let place = Place::new(Overlay, FOLDER);
    if !place.program(SESSION) {
        return;
    }
    let (done, left) = place.apply(&["new/deep/f", "./z", "d1/f", "never"]);
    assert_eq!(
        done,
        ["added folder new", "added folder new/deep", "added file new/deep/f", "deleted file z"]
    );
    assert_eq!(
        left,
        [
            "modified file d1/f (it is part of the change of \"d1\": name that)",
            "modified file never (the session has not changed it)",
        ]
    );
    assert_eq!(place.diff().len(), 17);
    for bad in ["../x", "/etc", "", "a/../../b"] {
        let report = place.order(Work::Apply { paths: vec![bad.into()] });
        let layer::Report::Failed(error) = report else { panic!("{report:?}") };
        assert_eq!(error.code, wire::ErrorCode::ValidationFailed);
    }
}
