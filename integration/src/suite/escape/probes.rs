//! The probes and their tools, compiled into a folder that every user may read.

use anyhow::Context as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use testkit::process;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/escape");
const COMPILE_WITHIN: Duration = Duration::from_secs(60);

/// `bin/ID` for each probe, `bin/run`, `launch`, `suid-bait`.
pub(super) struct Probes {
    folder: TempDir,
}

impl Probes {
    pub(super) fn compile() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("mews-escape-").tempdir_in("/tmp")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let probes = Self { folder };
        fs::create_dir(probes.bin())?;
        let ids = sources()?;
        let all = probes.folder().join("all.c");
        fs::write(&all, one_unit(&ids))?;
        gcc(&all, &probes.bin().join("probes"))?;
        for (id, _) in &ids {
            symlink("probes", probes.bin().join(id))?;
        }
        gcc(&tool("run"), &probes.run())?;
        gcc(&tool("launch"), &probes.launch())?;
        gcc(&tool("suid-bait"), &probes.folder().join("suid-bait"))?;
        Ok(probes)
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn bin(&self) -> PathBuf {
        self.folder().join("bin")
    }

    pub(super) fn run(&self) -> PathBuf {
        self.bin().join("run")
    }

    pub(super) fn launch(&self) -> PathBuf {
        self.folder().join("launch")
    }
}

fn tool(name: &str) -> PathBuf {
    Path::new(SOURCES).join(format!("tools/{name}.c"))
}

/// Each probe's name and file.
fn sources() -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    let folder = |name| fs::read_dir(Path::new(SOURCES).join(name)).context("the probes' sources");
    for entry in folder("c")?.chain(folder("own")?) {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "c") {
            let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            found.push((id, path));
        }
    }
    found.sort();
    Ok(found)
}

/// All probes as one program that looks at its name: a hundred compilations would take longer than
/// the cages do.
fn one_unit(ids: &[(String, PathBuf)]) -> String {
    let mut text = String::new();
    for (id, path) in ids {
        let path = path.display();
        text += &format!("#define main probe_{id}\n#include \"{path}\"\n#undef main\n");
    }
    text += "int main(int argc, char **argv) {\n";
    text += "    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];\n";
    for (id, _) in ids {
        text += &format!("    if (!strcmp(name, \"{id}\")) return probe_{id}();\n");
    }
    text += "    return 127;\n}\n";
    text
}

fn gcc(source: &Path, program: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("gcc");
    command.args(["-w", "-O1", "-I"]).arg(Path::new(SOURCES).join("c"));
    command.arg("-o").args([program, source]).arg("-lpthread");
    process::run(&mut command, b"", COMPILE_WITHIN).context("gcc")?.expect(0)?;
    Ok(())
}
