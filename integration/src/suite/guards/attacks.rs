//! Acts against what is guarded. Each gets through in a cage that guards nothing.

use anyhow::{Context as _, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::Sandbox;

pub(super) const POLICY: &str = "version = 1\nextends = \"shell\"\n[fs]\n\
    protect = [\".git/hooks\", \".git/config\", \"sub/deep/conf\", \".envrc\"]\n\
    hide = [\".env\", \"keys\", \"**/key\"]\n";

/// The workspace, as a shell makes it.
pub(super) const MAKE: &str = "mkdir -p .git/hooks sub/deep keys && echo hook > .git/hooks/one && \
    echo config > .git/config && echo conf > sub/deep/conf && echo SECRET > .env && \
    echo SECRET > keys/one && echo SECRET > sub/deep/key && echo plain > plain";
/// All of it in one line for each file.
pub(super) const SUM: &str =
    "find . -type f | LC_ALL=C sort | while read -r f; do echo \"$f $(cat $f)\"; done";
pub(super) const WHOLE: &str = "./.env SECRET\n./.git/config config\n./.git/hooks/one hook\n\
    ./keys/one SECRET\n./plain plain\n./sub/deep/conf conf\n./sub/deep/key SECRET\n";

/// Prints `DONE name` or `refused name why` for each; with `plain` the workspace is made anew each time.
const SCRIPT: &str = r#"
import ctypes, os, subprocess, sys
plain = sys.argv[1] == 'plain'
libc = ctypes.CDLL(None, use_errno=True)
def fresh():
    if plain:
        subprocess.run("find . -mindepth 1 -delete; " + MAKE, shell=True, check=True)
def attempt(name, act):
    fresh()
    try:
        word = act()
        print('refused' if word is False else 'DONE', name)
    except OSError as e:
        print('refused', name, e.strerror)
def write(path, flags=os.O_WRONLY | os.O_APPEND):
    fd = os.open(path, flags); os.write(fd, b'EVIL\n'); os.close(fd)
def exchange(a, b):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def evil(path='evil'):
    with open(path, 'w') as f: f.write('EVIL\n')
    return path
def through(path):
    with open(path, 'rb') as f: return b'SECRET' in f.read()
def then(*acts):
    last = None
    for act in acts: last = act()
    return last
def over(path, made):
    try: os.rename(evil(made), path)
    except OSError:
        os.unlink(made); raise
def swapped(path):
    name = evil('evil')
    try: exchange(name, path)
    except OSError:
        os.unlink(name); raise
def replanted(folder, inner):
    os.rename(folder, folder + '2')
    os.makedirs(os.path.dirname(inner)); evil(inner)
def linked(path, then):
    os.link(path, 'alias')
    try: return then('alias')
    finally: os.unlink('alias')
root = '/proc/self/root' + os.getcwd()
for path in ['.git/config', 'sub/deep/conf', '.git/hooks/one']:
    attempt('append ' + path, lambda: write(path))
    attempt('truncate ' + path, lambda: os.truncate(path, 0))
    attempt('create over ' + path, lambda: write(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    attempt('unlink ' + path, lambda: os.unlink(path))
    attempt('rename ' + path, lambda: os.rename(path, 'moved'))
    attempt('rename over ' + path, lambda: over(path, 'evil'))
    attempt('rename over from beside ' + path, lambda: over(path, 'sub/deep/evil'))
    attempt('exchange ' + path, lambda: swapped(path))
    attempt('hard link ' + path, lambda: linked(path, write))
    attempt('chmod ' + path, lambda: os.chmod(path, 0o777))
    attempt('utime ' + path, lambda: os.utime(path))
    attempt('by /proc/self/root ' + path, lambda: write(root + '/' + path))
    attempt('by /proc/self/cwd ' + path, lambda: write('/proc/self/cwd/' + path))
    attempt('by a descriptor ' + path, lambda: then(
        lambda: os.chdir('.'), lambda: os.close(os.dup(1)),
        lambda: os.write(os.open(path, os.O_RDWR, dir_fd=os.open('.', os.O_RDONLY)), b'EVIL')))
    attempt('reopen what is read of ' + path, lambda: then(
        lambda: write('/proc/self/fd/%d' % os.open(path, os.O_RDONLY))))
attempt('make in .git/hooks', lambda: evil('.git/hooks/two'))
attempt('mkdir in .git/hooks', lambda: os.mkdir('.git/hooks/d'))
attempt('link into .git/hooks', lambda: os.symlink('x', '.git/hooks/l'))
attempt('rename .git/hooks', lambda: os.rename('.git/hooks', '.git/h2'))
attempt('remove .git/hooks', lambda: then(lambda: os.unlink('.git/hooks/one'), lambda: os.rmdir('.git/hooks')))
attempt('exchange .git/hooks', lambda: then(lambda: os.makedirs('made', exist_ok=True), lambda: exchange('made', '.git/hooks')))
attempt('another .git', lambda: replanted('.git', '.git/hooks/one'))
attempt('another sub', lambda: replanted('sub', 'sub/deep/conf'))
attempt('another sub/deep', lambda: replanted('sub/deep', 'sub/deep/conf'))
attempt('exchange .git', lambda: then(lambda: os.makedirs('made', exist_ok=True), lambda: exchange('made', '.git')))
attempt('exchange sub', lambda: then(lambda: os.makedirs('made', exist_ok=True), lambda: exchange('made', 'sub')))
for path in ['.env', 'keys/one', 'sub/deep/key']:
    attempt('read ' + path, lambda: through(path))
    attempt('read by /proc/self/root ' + path, lambda: through(root + '/' + path))
    attempt('read by a child ' + path, lambda: b'SECRET' in subprocess.run(['cat', path], capture_output=True).stdout)
    attempt('read a hard link of ' + path, lambda: linked(path, through))
    attempt('rename and read ' + path, lambda: then(lambda: os.rename(path, 'moved'), lambda: through('moved')))
    attempt('write ' + path, lambda: write(path))
    attempt('unlink ' + path, lambda: os.unlink(path))
attempt('list keys', lambda: 'one' in os.listdir('keys'))
attempt('rename keys', lambda: os.rename('keys', 'moved'))
attempt('make in keys', lambda: evil('keys/two'))
attempt('grep', lambda: b'SECRET' in subprocess.run(['grep', '-rs', 'SECRET', '.'], capture_output=True).stdout)
if os.path.isdir('made'): os.rmdir('made')
"#;

/// For `python3 -c`.
pub(super) fn script() -> String {
    format!("MAKE = {MAKE:?}\n{SCRIPT}")
}

/// The workspace as it was.
pub(super) struct Tree {
    folder: PathBuf,
    was: BTreeMap<PathBuf, String>,
}

impl Tree {
    pub(super) fn make(folder: &Path, sandbox: &Sandbox) -> anyhow::Result<Self> {
        let done = Command::new("sh").args(["-ec", MAKE]).current_dir(folder).status()?;
        ensure!(done.success(), "the workspace");
        // An overlay of an ordinary user's does not work on files of a group that it cannot map.
        let uid = sandbox.caller().uid();
        let owner = format!("{uid}:{uid}");
        let done = Command::new("chown").args(["-R", &owner]).arg(folder).status()?;
        ensure!(done.success(), "its owner");
        Ok(Self { was: contents(folder)?, folder: folder.to_owned() })
    }

    pub(super) fn unchanged(&self) -> anyhow::Result<()> {
        let is = contents(&self.folder)?;
        ensure!(is == self.was, "{is:?}\nwas\n{:?}", self.was);
        Ok(())
    }
}

fn contents(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.symlink_metadata()?.is_dir() {
                found.insert(path.clone(), String::new());
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path);
                found.insert(path.clone(), text.with_context(|| path.display().to_string())?);
            }
        }
    }
    Ok(found)
}

pub(super) fn refused(told: &str) -> anyhow::Result<()> {
    let through: Vec<&str> = told.lines().filter(|line| line.starts_with("DONE")).collect();
    ensure!(through.is_empty(), "{}", through.join("\n"));
    ensure!(told.lines().count() > 60, "{told}");
    Ok(())
}

/// Of the same acts where nothing is guarded.
pub(super) fn got_through(told: &str) -> anyhow::Result<()> {
    let stopped: Vec<&str> = told.lines().filter(|line| !line.starts_with("DONE")).collect();
    ensure!(stopped.is_empty(), "proves nothing: {}", stopped.join("\n"));
    ensure!(told.lines().count() > 60, "{told}");
    Ok(())
}
