//! Which paths somebody means: `out/**`, `*.log`, `**/.env`.
//!
//! `*` and `?` stay within one name, `**` is any number of folders, everything else is itself. A pattern
//! that names a folder means all that is below it. Matched folder by folder, so that a walk does not enter
//! what cannot match, in time that no pattern makes long.

use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `**`
    Folders,
    Name(Vec<u8>),
}

/// How far into the pattern a path has come, by every way there is.
pub type Places = BTreeSet<usize>;

impl Glob {
    /// None: absolute, empty, or with `..` in it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> =
            text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if text.starts_with('/') || words.is_empty() || words.contains(&"..") {
            return None;
        }
        let part = |word: &str| match word {
            "**" => Part::Folders,
            name => Part::Name(name.into()),
        };
        Some(Self(words.into_iter().map(part).collect()))
    }

    /// Is this a pattern, or a name as it is?
    #[must_use]
    pub fn is_in(text: &str) -> bool {
        text.contains(['*', '?'])
    }

    /// At the folder that it is seen from.
    #[must_use]
    pub fn start(&self) -> Places {
        self.settled(BTreeSet::from([0]))
    }

    /// One name further; empty: nothing here or below matches.
    #[must_use]
    pub fn step(&self, places: &Places, name: &[u8]) -> Places {
        let next = places.iter().filter_map(|&at| match self.0.get(at) {
            // Past the end: below a folder that matched.
            None => Some(at),
            Some(Part::Folders) => Some(at),
            Some(Part::Name(pattern)) => is_like(pattern, name).then_some(at + 1),
        });
        self.settled(next.collect())
    }

    #[must_use]
    pub fn is_match(&self, places: &Places) -> bool {
        places.contains(&self.0.len())
    }

    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let names = path.split(|&byte| byte == b'/');
        self.is_match(&names.fold(self.start(), |places, name| self.step(&places, name)))
    }

    /// `**` may be no folder at all.
    fn settled(&self, mut places: Places) -> Places {
        let mut at = 0;
        while at < self.0.len() {
            if places.contains(&at) && self.0.get(at) == Some(&Part::Folders) {
                places.insert(at + 1);
            }
            at += 1;
        }
        places
    }
}

/// `*` and `?` within one name, going back only to the last star.
fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, seen));
                at += 1;
            }
            Some(&byte) if byte == b'?' || name.get(seen) == Some(&byte) => {
                at += 1;
                seen += 1;
            }
            Some(_) | None => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (at, seen) = (after, from + 1);
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_as_they_read() {
        for (pattern, path, want) in [
            ("out/**", "out/a", true),
            ("out/**", "out/a/b/c", true),
            ("out/**", "outer/a", false),
            ("out", "out/a/b", true),
            ("out", "out", true),
            ("./out//", "out/a", true),
            ("*.log", "a.log", true),
            ("*.log", "d/a.log", false),
            ("**/*.log", "a.log", true),
            ("**/*.log", "d/e/a.log", true),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/b/c/z", true),
            ("a/**/z", "a/b/c/y", false),
            ("t/*/r?.xml", "t/debug/r1.xml", true),
            ("t/*/r?.xml", "t/debug/r12.xml", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("*", ".hidden", true),
            ("**", "a/b", true),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            assert_eq!(glob.matches(path.as_bytes()), want, "{pattern} {path}");
        }
    }

    #[test]
    fn nothing_outside_of_the_folder_is_meant() {
        for bad in ["", "/", "/etc/*", "..", "a/../../b", "."] {
            assert_eq!(Glob::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_walk_need_not_enter_what_cannot_match() {
        let glob = Glob::parse("out/*.log").unwrap();
        assert!(glob.step(&glob.start(), b"src").is_empty());
        assert!(!glob.step(&glob.start(), b"out").is_empty());
    }

    #[test]
    fn stars_take_no_exponential_time() {
        let glob = Glob::parse(&"*a".repeat(200)).unwrap();
        assert!(!glob.matches(&[b'a'; 199]));
        let deep = Glob::parse(&"**/".repeat(50)).unwrap();
        assert!(deep.matches(&b"x/".repeat(500)[..999]));
    }
}
