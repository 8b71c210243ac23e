//! One test after the other: timing and leftovers would not mean anything otherwise.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use testkit::Sandbox;

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

/// A test that cannot be had here, with the reason.
#[derive(Debug)]
pub(crate) struct Skip(pub(crate) String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

pub(crate) fn skip(why: &str) -> anyhow::Error {
    Skip(why.to_owned()).into()
}

/// # Errors
/// A [`Skip`] for whoever is not root.
pub(crate) fn need_root() -> anyhow::Result<()> {
    if testkit::caller::is_root() { Ok(()) } else { Err(skip("needs root")) }
}

pub(crate) fn run(tests: &[Test], words: &[String]) -> bool {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for test in tests.iter().filter(|test| test.is_wanted(words)) {
        print!("test {} ... ", test.name);
        flush();
        let started = Instant::now();
        match test.run() {
            Ok(()) => {
                passed += 1;
                println!("ok ({} ms)", started.elapsed().as_millis());
            }
            Err(error) if error.is::<Skip>() => {
                skipped += 1;
                println!("skipped ({error})");
            }
            Err(error) => {
                failed += 1;
                println!("FAILED ({} ms)", started.elapsed().as_millis());
                explain(&error);
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    passed + skipped > 0 && failed == 0
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
