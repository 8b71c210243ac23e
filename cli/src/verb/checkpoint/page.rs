//! One checkpoint as a page: what stood how, what it had used, and the screens.

use super::super::stats;
use super::state_word;
use crate::escape::{command, escape, rendered};
use crate::time::stamp;
use wire::api::CheckpointView;
use wire::{CageCheckpoint, How, PtyCheckpoint, SavedLayer, Suspension, WorkspaceMode};

pub(super) fn page(checkpoint: &CheckpointView) -> String {
    let mut page = String::new();
    let mut line = |name: &str, value: &str| page.push_str(&format!("{name:<11}{value}\n"));
    line("checkpoint", &checkpoint.id.to_string());
    line("state", state_word(checkpoint));
    line("taken", &stamp(checkpoint.created_at_ms));
    if let Some(note) = &checkpoint.note {
        line("note", &escape(note));
    }
    if let Some(error) = &checkpoint.error {
        line("error", &escape(&error.message));
    }
    for cage in &checkpoint.cages {
        page.push('\n');
        page.push_str(&cage_page(cage));
    }
    page
}

fn cage_page(cage: &CageCheckpoint) -> String {
    let mut page = format!("cage      {}\n", cage.cage);
    let files = cage.layer.map_or_else(|| "not part of it".to_owned(), files);
    page.push_str(&format!("files     {files}\n"));
    page.push_str(&format!("stopped   {}\n", counts(&cage.suspension)));
    for process in &cage.suspension.processes {
        let refused = if process.refused { ", did not stop in time" } else { "" };
        let (name, how) = (escape(&process.name), how_word(process.how));
        page.push_str(&format!("  {:>8}  {name:<16}{how}{refused}\n", process.pid));
    }
    if let Some(usage) = &cage.usage {
        page.push_str(&stats::lines(usage));
    }
    cage.ptys.iter().for_each(|pty| page.push_str(&pty_page(pty)));
    page
}

fn files(layer: SavedLayer) -> String {
    let copied = layer.copied;
    let shared = match copied.shared {
        0 => String::new(),
        shared => format!(", {shared} of them share their blocks"),
    };
    let mode = match layer.mode {
        WorkspaceMode::Direct => "direct",
        WorkspaceMode::Overlay => "overlay",
        WorkspaceMode::Copy => "copy",
    };
    let entries = if copied.entries == 1 { "entry" } else { "entries" };
    format!("{mode}: {} {entries}, {} bytes{shared}", copied.entries, stats::bytes(copied.bytes))
}

fn counts(suspension: &Suspension) -> String {
    let kinds = [
        (How::Tstp, suspension.tstp),
        (How::Handler, suspension.handler),
        (How::Stop, suspension.stop),
        (How::Stopped, suspension.stopped),
        (How::Frozen, suspension.frozen),
        (How::Exited, suspension.exited),
    ];
    let told = kinds.iter().filter(|(_how, count)| *count > 0);
    let told: Vec<String> =
        told.map(|(how, count)| format!("{count} {}", how_word(*how))).collect();
    format!("{}; held by {}", told.join(", "), escape(&suspension.by))
}

/// As events and the API call them.
fn how_word(how: How) -> &'static str {
    match how {
        How::Tstp => "tstp",
        How::Handler => "handler",
        How::Stop => "stop",
        How::Stopped => "stopped",
        How::Frozen => "frozen",
        How::Exited => "exited",
    }
}

fn pty_page(pty: &PtyCheckpoint) -> String {
    let kind = if pty.tty { "terminal" } else { "pipes" };
    let mut page = format!("{kind:<10}{}  {}\n", pty.pty, command(&pty.argv));
    let screen = rendered(pty.screen.as_bytes(), false);
    for line in String::from_utf8_lossy(&screen).lines() {
        page.push_str(&format!("  | {}\n", escape(line).trim_end()));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::stats::{MemoryUse, Stats};
    use wire::{CageId, PtyId, Stilled};

    #[test]
    fn a_page_shows_processes_usage_and_screens_without_their_tricks() {
        let process = |pid, how| Stilled { pid, name: "sh\x1b]".into(), how, refused: false };
        let memory = MemoryUse { current_bytes: 3 << 19, ..MemoryUse::default() };
        let usage = Stats { memory: Some(memory), ..Stats::default() };
        let cage = CageCheckpoint {
            cage: CageId::new(),
            suspension: Suspension::new("cgroup v2", vec![process(2, How::Stop)]),
            usage: Some(Box::new(usage)),
            ptys: vec![PtyCheckpoint {
                pty: PtyId::new(),
                argv: vec!["sh".into()],
                tty: true,
                pid: Some(2),
                seq: 9,
                screen: "one\n\x1b[31mtwo\x1b[m\x1b]0;title\x07".into(),
            }],
            layer: None,
            spec: None,
        };
        let page = cage_page(&cage);
        for wanted in [
            "1 stop; held by cgroup v2",
            "memory    1.5M",
            "  | one\n  | two",
            "files     not part",
        ] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
        assert!(!page.contains('\x1b'), "{page:?}");
    }
}
