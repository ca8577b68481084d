//! Memory that isn't a file's, on its way to swap areas and back, above what `swap` knows of slots.

pub(crate) mod area;
pub(crate) mod charges;
pub(crate) mod compressed;
pub(crate) mod exchange;
pub(crate) mod swap_out;
