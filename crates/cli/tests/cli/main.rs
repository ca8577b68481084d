//! The `pagefold` command from the outside.

mod bad_input;
mod iolog;
mod place;
mod replay;
mod writing;
