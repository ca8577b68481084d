//! Swapping of anonymous memory: the layer above `swap`, which manages slots.

pub(crate) mod area;
pub(crate) mod charges;
pub(crate) mod compressed;
pub(crate) mod exchange;
pub(crate) mod swap_out;
