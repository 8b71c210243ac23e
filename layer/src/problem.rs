//! Why an order cannot be carried out, with the step and the path.

use nix::errno::Errno;
use wire::{Arg, ErrorCode, WireError};

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("{step} {path:?}: {errno}")]
    Step { step: &'static str, path: Arg, errno: Errno },
    #[error("{path:?} lies deeper than {max} folders: nothing that deep is copied or compared")]
    Deep { path: Arg, max: usize },
    #[error("{path:?} holds more than {max} entries: nothing that large is copied or compared")]
    Large { path: Arg, max: usize },
    #[error("{0:?} is no path below the workspace: name one without \"..\", not absolute")]
    Path(Arg),
    #[error("the layer has no {0:?}: it has not been filled, or a fill did not end")]
    NotFilled(Arg),
    #[error("the note {0:?} of the layer cannot be understood: {1}")]
    Note(&'static str, String),
    /// One change that is not brought over.
    #[error("{0}")]
    Stays(String),
    #[error("bad order: {0}")]
    Order(String),
}

impl Problem {
    #[must_use]
    pub fn to_wire(&self) -> WireError {
        let code = match self {
            Self::Step { errno: Errno::ENOSPC | Errno::EDQUOT, .. } => {
                ErrorCode::StorageUnavailable
            }
            Self::Step { errno: Errno::EACCES | Errno::EPERM, .. } => ErrorCode::Forbidden,
            Self::Step { .. } | Self::Note(..) => ErrorCode::Internal,
            Self::Deep { .. } | Self::Large { .. } => ErrorCode::PayloadTooLarge,
            Self::Path(_) => ErrorCode::ValidationFailed,
            Self::NotFilled(_) | Self::Stays(_) => ErrorCode::Conflict,
            Self::Order(_) => ErrorCode::BadRequest,
        };
        WireError::new(code, self.to_string())
    }

    pub(crate) fn step(step: &'static str, path: &[u8], errno: Errno) -> Self {
        Self::Step { step, path: Arg(path.to_vec()), errno }
    }

    /// The kernel's word, where it was the kernel.
    pub(crate) fn errno(&self) -> Option<Errno> {
        if let Self::Step { errno, .. } = self { Some(*errno) } else { None }
    }
}

/// Names the step and the path of a system call that failed.
pub(crate) trait At<T> {
    fn at(self, step: &'static str, path: &[u8]) -> Result<T, Problem>;
}

impl<T> At<T> for Result<T, Errno> {
    fn at(self, step: &'static str, path: &[u8]) -> Result<T, Problem> {
        self.map_err(|errno| Problem::step(step, path, errno))
    }
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, step: &'static str, path: &[u8]) -> Result<T, Problem> {
        self.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
            .at(step, path)
    }
}
