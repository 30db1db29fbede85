//! Owns the border of what is counted: callgrind collects inside of [`the_counted_part`] only. Not
//! here: what runs in it.

/// Runs `work` where callgrind sees it. The function has a symbol of its own, which is what
/// `--toggle-collect` names.
#[inline(never)]
pub(crate) fn the_counted_part(work: &mut dyn FnMut()) {
    work();
}

/// Pattern of that symbol for callgrind, mangled or not.
pub(crate) const SYMBOL: &str = "*the_counted_part*";
