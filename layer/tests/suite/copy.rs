//! A private copy, and the comparison of its three sides.

use crate::kit::{Place, Times, picture, words};
use layer::{Report, Work};
use std::os::unix::fs::MetadataExt;
use wire::WorkspaceMode::Copy;

const FOLDER: &str = "mkdir -p d1/sub d2 ro; echo a >f1; echo b >d1/f; echo b >d1/sub/f
    echo c >d2/x; echo c2 >d2/y; ln -s f1 link; ln f1 hard; echo z >z; echo r >ro/r; chmod 500 ro
    mkfifo fifo; chmod 750 .; chmod 4755 z; truncate -s 64M sparse; touch -d '2001-02-03 04:05:06' d2";

const SESSION: &str = "echo more >>d1/f; mv d2 d2new; rm link; mkdir link; echo q >link/q
    chmod 700 ro; echo n >ro/n; rm z; chmod 600 fifo; mkdir -p new/deep; echo n >new/deep/f";

#[test]
fn a_copy_is_the_folder() {
    let place = Place::new(Copy, FOLDER);
    let (tree, origin) = (place.path("layer/tree"), place.path("origin"));
    let (mut copy, mut folder) = (crate::kit::metas(&tree), crate::kit::metas(&origin));
    assert_eq!(copy.remove(b"hard".as_slice()).unwrap().nlink(), 2);
    assert_eq!(folder.remove(b"hard".as_slice()).unwrap().nlink(), 2);
    for (path, found) in &folder {
        let made = &copy[path];
        assert_eq!(
            (made.mode(), made.size() * u64::from(!made.is_dir()), made.mtime(), made.mtime_nsec()),
            (
                found.mode(),
                found.size() * u64::from(!found.is_dir()),
                found.mtime(),
                found.mtime_nsec()
            ),
            "{}",
            String::from_utf8_lossy(path)
        );
    }
    assert_eq!(copy.len(), folder.len());
    assert!(copy[b"sparse".as_slice()].blocks() < 64, "holes stay holes");
    assert!(place.diff().is_empty());
}

#[test]
fn changes_are_told_and_applied() {
    let place = Place::new(Copy, FOLDER);
    place.program(SESSION);
    let listed = place.diff();
    assert_eq!(
        listed,
        [
            "modified file d1/f",
            "deleted folder d2",
            "added folder d2new",
            "added file d2new/x",
            "added file d2new/y",
            "modified fifo fifo 644->600",
            "modified folder link",
            "added file link/q",
            "added folder new",
            "added folder new/deep",
            "added file new/deep/f",
            "modified folder ro 500->700",
            "added file ro/n",
            "deleted file z",
        ]
    );
    assert_eq!(place.apply(&[]), (listed, vec![]));
    let tree = || picture(&place.path("layer/tree"), Times::Files);
    assert_eq!(picture(&place.path("origin"), Times::Files), tree());
    assert!(place.diff().is_empty());
    place.program("echo again >>d1/f; rm -r new");
    assert_eq!(place.apply(&[]).1, Vec::<String>::new());
    assert_eq!(picture(&place.path("origin"), Times::Files), tree());
}

#[test]
fn what_only_the_operator_has_changed_is_no_change_and_stays() {
    let place = Place::new(Copy, FOLDER);
    place.program("echo p >>d1/f; rm -r d2; echo p >new");
    place.edit("echo m >>f1; rm z; echo m >mine; rm -r d1/sub; mkdir md; echo m >md/m");
    assert_eq!(place.diff(), ["modified file d1/f", "deleted folder d2", "added file new"]);
    place.edit("echo m >>d1/f; echo m >d2/m; echo m >new");
    let before = picture(&place.path("origin"), Times::Files);
    let (done, left) = place.apply(&[]);
    assert_eq!(done, Vec::<String>::new());
    assert_eq!(
        left,
        [
            "modified file d1/f (changed in your folder since the session began)",
            "deleted folder d2 (\"d2/m\" in it changed in your folder since the session began)",
            "modified file new (changed in your folder since the session began)",
        ]
    );
    assert_eq!(picture(&place.path("origin"), Times::Files), before);
}

#[test]
fn what_is_new_in_a_folder_that_the_operator_has_deleted_stays() {
    let place = Place::new(Copy, "mkdir -p d/e; echo a >d/f");
    place.program("echo n >d/e/n");
    place.edit("rm -r d");
    assert_eq!(place.diff(), ["added file d/e/n (its folder \"d\" is not there in yours)"]);
}

#[test]
fn a_forged_time_hides_nothing() {
    let place = Place::new(Copy, "echo abc >f; echo abc >g");
    place.program("touch -r f r; echo xyz >f; touch -r r f; rm r");
    assert_eq!(place.diff(), ["modified file f"]);
    place.edit("echo mine >g");
    assert_eq!(place.diff(), ["modified file f"]);
}

#[test]
fn a_restore_brings_the_saved_tree_back() {
    let place = Place::new(Copy, FOLDER);
    place.program(SESSION);
    let saved = picture(&place.path("layer/tree"), Times::Files);
    let diff = place.diff();
    assert!(matches!(place.order(Work::Save), Report::Copied(_)));
    place.program("rm -r new d1; echo l >later; chmod 711 d2new; echo x >>f1");
    assert_eq!(
        words(&place.changes(Work::Preview)),
        [
            "added folder d1",
            "added file d1/f",
            "added folder d1/sub",
            "added file d1/sub/f",
            "modified folder d2new 711->755",
            "modified file f1",
            "modified file hard",
            "deleted file later",
            "added folder new",
            "added folder new/deep",
            "added file new/deep/f",
        ]
    );
    assert!(matches!(place.order(Work::Restore), Report::Copied(_)));
    assert_eq!(picture(&place.path("layer/tree"), Times::Files), saved);
    assert!(place.changes(Work::Preview).is_empty());
    assert_eq!(place.diff(), diff);
    let left: Vec<_> = std::fs::read_dir(place.path("layer")).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn what_was_applied_can_be_rolled_back_and_applied_again() {
    let place = Place::new(Copy, "echo a >f; echo b >gone");
    assert!(matches!(place.order(Work::Save), Report::Copied(_)));
    place.program("echo p >>f; rm gone; echo n >new");
    assert_eq!(place.apply(&[]).1, Vec::<String>::new());
    assert!(matches!(place.order(Work::Restore), Report::Copied(_)));
    assert_eq!(place.diff(), ["modified file f", "added file gone", "deleted file new"]);
    assert_eq!(place.apply(&[]).1, Vec::<String>::new());
    assert_eq!(std::fs::read(place.path("origin/f")).unwrap(), b"a\n");
}

#[test]
fn what_is_discarded_is_the_folders_own_again() {
    let place = Place::new(Copy, FOLDER);
    place.program(SESSION);
    place.edit("echo mine >>d1/f");
    let (done, left) = place.discard(&["d1/f", "d2", "link", "new/deep", "ro", "f1"]);
    assert_eq!(done.len(), 8, "{done:?}");
    assert_eq!(left, ["modified file f1 (the session has not changed it)"]);
    assert_eq!(
        place.diff(),
        [
            "added folder d2new",
            "added file d2new/x",
            "added file d2new/y",
            "modified fifo fifo 644->600",
            "added folder new",
            "deleted file z",
        ]
    );
    place.edit("echo mine >>f1");
    place.discard(&[]);
    assert_eq!(
        picture(&place.path("layer/tree"), Times::Files),
        picture(&place.path("origin"), Times::Files)
    );
    place.program("echo p >>f1");
    assert_eq!(place.diff(), ["modified file f1", "modified file hard"]);
}
