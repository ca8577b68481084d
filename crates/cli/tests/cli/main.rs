//! The `pagefold` command from the outside.

mod bad_input;
mod place;
mod replay;
mod writing;
