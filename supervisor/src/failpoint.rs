//! Named places where tests make the supervisor die as if by kill -9. Debug builds only.

/// Dies here if `MEWS_FAILPOINT` names this place.
pub(crate) fn reach(name: &str) {
    #[cfg(debug_assertions)]
    if std::env::var_os("MEWS_FAILPOINT").is_some_and(|wanted| wanted == name) {
        tracing::warn!(name, "failpoint");
        let _dies = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}
