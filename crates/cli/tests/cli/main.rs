//! The `pagefold` command from the outside.

mod anonymous;
mod bad_input;
mod documented;
mod iolog;
mod place;
mod policy_report;
mod replay;
mod rooms;
mod writing;
