//! An operator who stops their own `mews-layer`, as soon as they see one: it runs under their uid.

use link::PidFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// One that was stopped.
#[derive(Debug)]
struct Stopped {
    handle: PidFd,
    /// Its `limits` and `oom_score_adj`.
    bounds: [String; 2],
}

/// Stops what comes until it is dropped; then all of them go on.
#[derive(Debug)]
pub(in crate::suite) struct Stopper {
    stopped: Arc<Mutex<Vec<Stopped>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stopper {
    /// Among the processes that `candidates` names.
    pub(in crate::suite) fn start(candidates: impl Fn() -> Vec<i32> + Send + 'static) -> Self {
        let stopped = Arc::new(Mutex::new(Vec::new()));
        let ends = Arc::new(AtomicBool::new(false));
        let (list, over) = (Arc::clone(&stopped), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Acquire) {
                for pid in candidates() {
                    if let Some(found) = stop(pid) {
                        list.lock().unwrap_or_else(PoisonError::into_inner).push(found);
                    }
                }
                std::thread::yield_now();
            }
        });
        Self { stopped, ends, thread: Some(thread) }
    }

    /// `limits` and `oom_score_adj` of those that were stopped.
    pub(in crate::suite) fn bounds(&self) -> Vec<[String; 2]> {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.iter().map(|it| it.bounds.clone()).collect()
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        for it in &*self.stopped.lock().unwrap_or_else(PoisonError::into_inner) {
            it.handle.signal(libc::SIGCONT).ok();
        }
    }
}

/// `None`: it is another program, has ended, or stands already.
fn stop(pid: i32) -> Option<Stopped> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let handle = PidFd::open(pid).ok()?;
    let stands = || Some(read("stat")?.rsplit_once(") ")?.1.starts_with('T'));
    if read("cmdline")? != "mews-layer\0" || stands()? {
        return None;
    }
    handle.signal(libc::SIGSTOP).ok()?;
    let bounds = [read("limits")?, read("oom_score_adj")?];
    Some(Stopped { handle, bounds })
}

pub(in crate::suite) fn children_of(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub(in crate::suite) fn processes_of(uid: u32) -> Vec<i32> {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let theirs = entries.filter(|entry| entry.metadata().is_ok_and(|meta| meta.uid() == uid));
    theirs.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
