//! `extends`: what the child says replaces what the parent says; lists are appended.

use super::file::{
    EnvFile, FsFile, LimitsFile, NetFile, PolicyFile, ProcessFile, SuspendFile, TerminalFile,
};

impl PolicyFile {
    /// `self` is the parent, `child` is laid over it.
    pub(super) fn under(self, child: Self) -> Self {
        Self {
            version: child.version.or(self.version),
            name: child.name.or(self.name),
            extends: None,
            extends_line: None,
            leaves: self.leaves.into_iter().chain(child.leaves).collect(),
            require: appended(self.require, child.require),
            fs: self.fs.under(child.fs),
            net: self.net.under(child.net),
            limits: self.limits.under(child.limits),
            process: self.process.under(child.process),
            env: self.env.under(child.env),
            terminal: self.terminal.under(child.terminal),
            suspend: self.suspend.under(child.suspend),
        }
    }
}

impl FsFile {
    fn under(self, child: Self) -> Self {
        // A second tmpfs at the same place is the child's word about its size.
        let tmpfs = {
            let kept = self.tmpfs.into_iter();
            let kept = kept.filter(|old| child.tmpfs.iter().all(|new| new.path != old.path));
            kept.chain(child.tmpfs.iter().cloned()).collect()
        };
        Self {
            read: appended(self.read, child.read),
            write: appended(self.write, child.write),
            tmpfs,
            hide: appended(self.hide, child.hide),
            protect: appended(self.protect, child.protect),
            missing: child.missing.or(self.missing),
            workspace: child.workspace.or(self.workspace),
            home: child.home.or(self.home),
            said: self.said.into_iter().chain(child.said).collect(),
        }
    }
}

impl NetFile {
    fn under(self, child: Self) -> Self {
        // One address has one listener: the child's.
        let kept = self.socket.into_iter();
        let kept = kept.filter(|old| child.socket.iter().all(|new| new.listen != old.listen));
        Self {
            mode: child.mode.or(self.mode),
            socket: kept.chain(child.socket.iter().cloned()).collect(),
        }
    }
}

impl LimitsFile {
    fn under(self, child: Self) -> Self {
        Self {
            memory: child.memory.or(self.memory),
            swap: child.swap.or(self.swap),
            pids: child.pids.or(self.pids),
            cpu: child.cpu.or(self.cpu),
            nofile: child.nofile.or(self.nofile),
            fsize: child.fsize.or(self.fsize),
            core: child.core.or(self.core),
            ptys: child.ptys.or(self.ptys),
            walltime: child.walltime.or(self.walltime),
            idle: child.idle.or(self.idle),
            output_bytes: child.output_bytes.or(self.output_bytes),
            workspace_bytes: child.workspace_bytes.or(self.workspace_bytes),
            workspace_inodes: child.workspace_inodes.or(self.workspace_inodes),
            io: child.io.or(self.io),
            oom: child.oom.or(self.oom),
        }
    }
}

impl ProcessFile {
    fn under(self, child: Self) -> Self {
        Self {
            seccomp: child.seccomp.or(self.seccomp),
            landlock: child.landlock.or(self.landlock),
            user: child.user.or(self.user),
            hostname: child.hostname.or(self.hostname),
        }
    }
}

impl EnvFile {
    fn under(self, child: Self) -> Self {
        let mut set = self.set;
        set.0.extend(child.set.0);
        Self { pass: appended(self.pass, child.pass), set }
    }
}

impl TerminalFile {
    fn under(self, child: Self) -> Self {
        Self {
            enabled: child.enabled.or(self.enabled),
            cols: child.cols.or(self.cols),
            rows: child.rows.or(self.rows),
            scrollback_lines: child.scrollback_lines.or(self.scrollback_lines),
            scrollback_bytes: child.scrollback_bytes.or(self.scrollback_bytes),
            record: child.record.or(self.record),
            record_bytes: child.record_bytes.or(self.record_bytes),
            flow: child.flow.or(self.flow),
            filter: child.filter.or(self.filter),
            record_input: child.record_input.or(self.record_input),
        }
    }
}

impl SuspendFile {
    fn under(self, child: Self) -> Self {
        Self { grace: child.grace.or(self.grace), on_refuse: child.on_refuse.or(self.on_refuse) }
    }
}

/// The parent's, then what the child adds, each once.
fn appended<T: PartialEq>(mut parent: Vec<T>, child: Vec<T>) -> Vec<T> {
    for item in child {
        if !parent.contains(&item) {
            parent.push(item);
        }
    }
    parent
}
