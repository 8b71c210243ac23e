//! What runs on the measured terminals, and what it tells through files in the workspace.

use anyhow::Context as _;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Printed when all is printed; never in this form in the script.
pub(crate) const DONE: &str = "ZZDONEND";
pub(crate) const READY: &str = "ZZREADY";
const TEXT_BYTES: usize = 100_000_000;
/// Columns of the lines that are painted, as `fill` prints them.
const COLUMNS: usize = 200;
const LIMIT: Duration = Duration::from_secs(120);
/// How long a line of input may be lost before another is typed.
const AGAIN: Duration = Duration::from_millis(300);

/// Each waits for a line first, so that a client can be there, unless its argument is `now`.
const SCRIPTS: [(&str, &str); 4] = [
    ("flood", "stamp t0\ncat text\nstamp t1\nprintf '\\nZZDO%sEND\\n' N\nread x\n"),
    ("echo", "stty raw -echo\nstamp t0\nprintf 'ZZRE%sY' AD\nexec cat\n"),
    (
        "fill",
        concat!(
            "awk 'BEGIN{for(i=0;i<194;i++)s=s sprintf(\"%c\",97+i%26);",
            "for(i=0;i<10000;i++)printf(\"%05d %s\\n\",i,s)}'\n",
            // Not a read: portable-pty types a line end and ^D when a keyboard is dropped.
            "printf 'ZZDO%sEND\\n' N\nstamp t1\nexec sleep 1000\n"
        ),
    ),
    ("idle", "stamp t1\nread x\n"),
];
const PROLOGUE: &str = concat!(
    "stamp() { date +%s.%N > \"$1.new\" && mv \"$1.new\" \"$1\"; }\n",
    "echo $$ > pid\n[ \"$1\" = now ] || { stamp up; read x; }\n",
);

/// The folder of jobs and stamps: the workspace of every system.
#[derive(Debug)]
pub(crate) struct Jobs {
    folder: PathBuf,
}

impl Jobs {
    pub(crate) fn new(folder: PathBuf) -> anyhow::Result<Self> {
        for (name, script) in SCRIPTS {
            fs::write(folder.join(format!("{name}.sh")), format!("{PROLOGUE}{script}"))?;
        }
        Ok(Self { folder })
    }

    /// What is flooded with: 100 MB.
    pub(crate) fn write_text(&self) -> anyhow::Result<()> {
        write_text(&self.folder.join("text")).context("the text")
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Forgets what earlier jobs told.
    pub(crate) fn clear(&self) {
        for name in ["up", "t0", "t1", "pid"] {
            fs::remove_file(self.folder.join(name)).ok();
        }
    }

    /// Waits for a job's stamp; seconds since the epoch.
    pub(crate) fn stamp(&self, name: &str) -> anyhow::Result<f64> {
        testkit::pause::until(name, LIMIT, || self.stamped(name))
    }

    fn stamped(&self, name: &str) -> Option<f64> {
        fs::read_to_string(self.folder.join(name)).ok()?.trim().parse().ok()
    }

    /// A file of full lines, so many bytes on a terminal.
    pub(crate) fn lines(&self, bytes: u64) -> anyhow::Result<&'static str> {
        let line = "a".repeat(COLUMNS) + "\n";
        let count = usize::try_from(bytes)? / (line.len() + 1);
        fs::write(self.folder.join("lines"), line.repeat(count) + DONE + "\n")?;
        Ok("lines")
    }

    /// The job's process, where it is not in a cage.
    pub(crate) fn pid(&self) -> Option<i32> {
        fs::read_to_string(self.folder.join("pid")).ok()?.trim().parse().ok()
    }

    /// Types lines until the job has taken one: a client that was just started may lose some.
    pub(crate) fn open_gate(&self, keyboard: &mut dyn Write) -> anyhow::Result<()> {
        self.stamp("up")?;
        for _ in 0..100 {
            keyboard.write_all(b"go\r")?;
            if testkit::pause::until("t0", AGAIN, || self.stamped("t0")).is_ok() {
                return Ok(());
            }
        }
        anyhow::bail!("the job does not take input")
    }
}

/// As the jobs write it.
pub(crate) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Lines of words, 20 to 100 columns; the same every time.
fn write_text(path: &Path) -> anyhow::Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (random >> 33) % below
    };
    let mut written = 0;
    let mut line = String::new();
    while written < TEXT_BYTES {
        line.clear();
        let columns = 20 + usize::try_from(next(80))?;
        while line.len() < columns {
            for _ in 0..=next(9) {
                line.push(char::from(b'a' + u8::try_from(next(26))?));
            }
            line.push(' ');
        }
        line.push('\n');
        file.write_all(line.as_bytes())?;
        written += line.len();
    }
    Ok(file.flush()?)
}
