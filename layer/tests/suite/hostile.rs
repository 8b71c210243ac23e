//! What a caged program may leave: depths, sizes, kinds, links.

use crate::kit::{Place, shell};
use layer::{Report, Work};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use wire::ErrorCode;
use wire::WorkspaceMode::{Copy, Overlay};

/// Folders in folders, with a file in the innermost.
fn nest(top: &Path, name: &str, levels: usize) {
    let mut folder: OwnedFd = File::open(top).unwrap().into();
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    for _ in 0..levels {
        mkdirat(&folder, name, Mode::S_IRWXU).unwrap();
        folder = openat(&folder, name, flags, Mode::empty()).unwrap();
    }
    openat(&folder, "end", OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRUSR).unwrap();
}

fn copied(report: &Report) -> u64 {
    match report {
        Report::Copied(copied) => copied.entries,
        other => panic!("{other:?}"),
    }
}

#[test]
fn paths_longer_than_a_system_call_takes_are_saved_restored_told_and_removed() {
    let place = Place::new(Overlay, ":");
    nest(&place.path("layer/upper"), &"n".repeat(255), 300);
    nest(&place.path("layer/upper"), "d", 1000);
    assert_eq!(copied(&place.order(Work::Save)), 1302);
    assert_eq!(copied(&place.order(Work::Restore)), 1302);
    assert!(place.changes(Work::Preview).is_empty());
    let changes = place.changes(Work::Diff);
    assert_eq!(changes.len(), 1302);
    let longest = changes.iter().map(|change| change.path.as_bytes().len()).max();
    assert_eq!(longest, Some(300 * 256 + 3));
    assert_eq!(place.apply(&[]), (crate::kit::words(&changes), vec![]));
    assert!(place.changes(Work::Diff).is_empty());
    for name in ["layer", "saved", "origin"] {
        let folder = File::open(place.path(name)).unwrap();
        empty(&place, folder);
        assert_eq!(fs::read_dir(place.path(name)).unwrap().count(), 0);
    }
}

/// The caged program chooses how long a path is, and how many there are.
#[test]
fn a_report_of_many_long_paths_is_cut_where_it_would_be_too_large() {
    let place = Place::new(Overlay, ":");
    let top = place.path("layer/upper");
    let deep = format!("{}/", "n".repeat(250)).repeat(12);
    fs::create_dir_all(top.join(&deep)).unwrap();
    for number in 0..6000 {
        File::create(top.join(format!("{deep}{number:0200}"))).unwrap();
    }
    for work in [Work::Diff, Work::Apply { paths: vec![] }] {
        let report = place.order(work);
        assert!(serde_json::to_vec(&report).unwrap().len() <= layer::REPORT_BYTES_MAX);
        let (Report::Changes(list) | Report::Applied { done: list, .. }) = &report else {
            panic!("it is no list")
        };
        assert!(list.truncated && list.changes.len() > 3000, "{}", list.changes.len());
    }
    // The rest comes with the next one.
    let Report::Applied { done, .. } = place.order(Work::Apply { paths: vec![] }) else {
        panic!("it is no list")
    };
    assert!(!done.truncated && !done.changes.is_empty());
    assert!(place.changes(Work::Diff).is_empty());
}

/// `Remove` for any folder.
fn empty(place: &Place, folder: File) {
    use std::os::fd::AsFd;
    let order = layer::Order { mode: place.mode, made: place.made, work: Work::Remove };
    let folders = layer::Folders { layer: folder.as_fd(), origin: None, saved: None };
    assert_eq!(layer::perform(&order, folders).unwrap(), Report::Done);
}

#[test]
fn what_is_too_deep_is_refused_and_can_be_removed() {
    let place = Place::new(Overlay, ":");
    nest(&place.path("layer/upper"), "d", 5000);
    for work in [Work::Save, Work::Diff] {
        let Report::Failed(error) = place.order(work) else { panic!("it was walked") };
        assert_eq!(error.code, ErrorCode::PayloadTooLarge);
        assert!(error.message.contains("1024 folders"), "{error}");
    }
    empty(&place, File::open(place.path("layer")).unwrap());
    assert_eq!(fs::read_dir(place.path("layer")).unwrap().count(), 0);
}

#[test]
fn a_file_of_a_terabyte_that_is_a_hole_costs_nothing() {
    let place = Place::new(Copy, ":");
    place.program(
        "truncate -s 1T big; printf x | dd of=big bs=1 seek=500G conv=notrunc 2>/dev/null",
    );
    assert_eq!(copied(&place.order(Work::Save)), 1);
    assert!(place.changes(Work::Preview).is_empty());
    place.program("printf y | dd of=big bs=1 seek=500G conv=notrunc 2>/dev/null");
    assert_eq!(place.changes(Work::Preview).len(), 1);
    let saved = fs::metadata(place.path("saved/tree/big")).unwrap();
    assert_eq!(saved.len(), 1 << 40);
    assert!(saved.blocks() < 64);
}

#[test]
fn fifos_are_not_opened_and_sockets_are_nothing() {
    let place = Place::new(Copy, "mkfifo was; echo f >sock");
    place.program("mkfifo pipe; rm was; echo file >was; rm sock");
    let _socket = UnixListener::bind(place.path("layer/tree/sock")).unwrap();
    assert_eq!(place.diff(), ["added fifo pipe", "deleted file sock", "modified file was"]);
    assert_eq!(place.apply(&[]).1, Vec::<String>::new());
    assert!(fs::symlink_metadata(place.path("origin/pipe")).unwrap().file_type().is_fifo());
    assert_eq!(copied(&place.order(Work::Save)), 2);
}

#[test]
fn links_lead_nowhere() {
    let place = Place::new(Copy, "mkdir d; echo in >d/f");
    shell(&place.path(""), "mkdir outside; echo secret >outside/f");
    place.program("rm -r d; ln -s ../../outside d; ln -s ../../outside/f l");
    place.edit("rm -r d; ln -s ../outside d");
    let (_, left) = place.apply(&[]);
    assert_eq!(left, ["modified symlink d (changed in your folder since the session began)"]);
    place.program("rm d; mkdir d; echo out >d/f");
    let (_, left) = place.apply(&[]);
    assert_eq!(left, ["added file d/f (deleted in your folder since the session began)"]);
    assert_eq!(fs::read(place.path("outside/f")).unwrap(), b"secret\n");
    place.discard(&["d"]);
    assert_eq!(fs::read(place.path("outside/f")).unwrap(), b"secret\n");
}

#[test]
fn setuid_is_kept_in_a_layer_and_never_brought_to_the_folder() {
    let place = Place::new(Copy, "echo a >f; chmod 755 f; echo b >own; chmod 4755 own");
    place.program("chmod 6755 f; echo n >n; chmod 4711 n; chmod 2777 .; chmod 4700 own");
    assert!(matches!(place.order(Work::Save), Report::Copied(_)));
    let mode = |path: &str| fs::metadata(place.path(path)).unwrap().mode() & 0o7777;
    assert_eq!(mode("saved/tree/n"), 0o4711);
    assert_eq!(place.diff(), ["added file n", "modified file own 4755->4700"]);
    assert_eq!(place.apply(&[]).1, Vec::<String>::new());
    assert_eq!((mode("origin/f"), mode("origin/n"), mode("origin/own")), (0o755, 0o711, 0o4700));
}

#[test]
fn files_that_share_an_inode_share_it_when_restored() {
    let place = Place::new(Overlay, ":");
    let upper = place.path("layer/upper");
    shell(&upper, "mkdir d; echo a >a; ln a d/b; ln a c; mknod w1 c 0 0; ln w1 w2");
    assert!(matches!(place.order(Work::Save), Report::Copied(_)));
    shell(&upper, "rm -r *");
    assert!(matches!(place.order(Work::Restore), Report::Copied(_)));
    let found = |name: &str| fs::symlink_metadata(upper.join(name)).unwrap();
    assert_eq!(found("a").nlink(), 3);
    assert_eq!(found("a").ino(), found("d/b").ino());
    assert!(found("w2").file_type().is_char_device());
}
