//! One test after the other: timing and leftovers would not mean anything otherwise.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;
use testkit::{Sandbox, Skip};

type Body = Box<dyn Fn(&Sandbox) -> anyhow::Result<()>>;

pub(crate) struct Test {
    /// `suite.what_it_shows`.
    pub(crate) name: String,
    body: Body,
}

impl Test {
    pub(crate) fn new(
        name: impl Into<String>,
        body: impl Fn(&Sandbox) -> anyhow::Result<()> + 'static,
    ) -> Self {
        Self { name: name.into(), body: Box::new(body) }
    }

    fn is_wanted(&self, words: &[String]) -> bool {
        let matches =
            |word: &String| self.name == *word || self.name.starts_with(&format!("{word}."));
        let part = |word: &String| word.contains('.') && self.name.contains(word.as_str());
        words.is_empty() || words.iter().any(|word| matches(word) || part(word))
    }

    fn fails_once(&self) -> bool {
        self.name.split('.').next().is_some_and(|suite| FAIL_ONCE.contains(&suite))
    }

    fn run(&self) -> anyhow::Result<()> {
        let sandbox = Sandbox::new()?;
        let body = catch_unwind(AssertUnwindSafe(|| (self.body)(&sandbox)))
            .unwrap_or_else(|_panic| Err(anyhow::anyhow!("panicked")));
        let body = body.map_err(|error| match error.is::<Skip>() {
            true => error,
            false => error.context(format!("daemons' logs:\n{}", sandbox.logs())),
        });
        let finish = sandbox.finish();
        body.and(finish)
    }
}

pub(crate) fn skip(why: &str) -> anyhow::Error {
    Skip(why.to_owned()).into()
}

/// # Errors
/// A [`Skip`] for whoever is not root.
pub(crate) fn need_root() -> anyhow::Result<()> {
    if testkit::caller::is_root() { Ok(()) } else { Err(skip("needs root")) }
}

/// # Errors
/// A [`Skip`] that names the first one which is not installed.
pub(crate) fn need_programs(names: &[&str]) -> anyhow::Result<()> {
    let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(Path::new);
    let is_missing = |name: &&&str| !folders.iter().any(|folder| folder.join(name).exists());
    match names.iter().find(is_missing) {
        Some(name) => Err(skip(&format!("no {name} here"))),
        None => Ok(()),
    }
}

/// So many failures may be the machine's; with more of them nothing is asked a second time.
const SECOND_TRIES_MAX: usize = 3;

/// Suites whose tests look for what happens once in many tries: failed once is failed.
const FAIL_ONCE: &[&str] = &["escape", "exec", "grants", "guards", "hostile", "restart", "users"];

/// A test that fails is run once more behind all others, unless it looks for races: what passes then is
/// counted as passed and named in the last lines as unsteady, with its first failure above.
pub(crate) fn run(tests: &[Test], words: &[String]) -> bool {
    let (mut passed, mut skipped) = (0, 0);
    let mut failed = Vec::new();
    for test in tests.iter().filter(|test| test.is_wanted(words)) {
        match tell(test, "failed") {
            Told::Passed => passed += 1,
            Told::Skipped => skipped += 1,
            Told::Failed => failed.push(test),
        }
    }
    let mut unsteady = Vec::new();
    let may_be_noise = failed.len() <= SECOND_TRIES_MAX && passed > failed.len();
    failed.retain(|test| {
        if !may_be_noise || test.fails_once() {
            println!("test {} ... FAILED, see above", test.name);
            return true;
        }
        print!("once more: ");
        let passes = matches!(tell(test, "FAILED"), Told::Passed);
        if passes {
            unsteady.push(test.name.as_str());
        }
        !passes
    });
    passed += unsteady.len();
    if !unsteady.is_empty() {
        println!("unsteady, passed at the second try: {}", unsteady.join(", "));
    }
    println!("{passed} passed, {} failed, {skipped} skipped", failed.len());
    passed + skipped > 0 && failed.is_empty()
}

enum Told {
    Passed,
    Skipped,
    Failed,
}

/// Runs a test and prints what became of it.
fn tell(test: &Test, failed: &str) -> Told {
    print!("test {} ... ", test.name);
    flush();
    let started = Instant::now();
    match test.run() {
        Ok(()) => {
            println!("ok ({} ms)", started.elapsed().as_millis());
            Told::Passed
        }
        Err(error) if error.is::<Skip>() => {
            println!("skipped ({error})");
            Told::Skipped
        }
        Err(error) => {
            println!("{failed} ({} ms)", started.elapsed().as_millis());
            explain(&error);
            Told::Failed
        }
    }
}

/// The cause first, the logs last.
fn explain(error: &anyhow::Error) {
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    for text in chain.iter().rev() {
        for line in text.lines() {
            println!("    {line}");
        }
    }
}

fn flush() {
    std::io::Write::flush(&mut std::io::stdout()).ok();
}
