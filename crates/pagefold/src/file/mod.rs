//! Open files: a file's state, which all its handles share; a handle; and a file's length.

pub(crate) mod drop_pages;
pub(crate) mod handle;
pub(crate) mod in_flight;
pub(crate) mod length;
pub(crate) mod page_ref;
pub(crate) mod recharge;
pub(crate) mod set_len;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod watch;
pub(crate) mod watchdog;
