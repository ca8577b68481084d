//! Memory groups: what is known of a tenant, its limit, and what counts towards it.

pub(crate) mod dirt;
pub(crate) mod reserve;
pub(crate) mod state;
pub(crate) mod stocks;
pub(crate) mod swapped;
pub(crate) mod table;
pub(crate) mod unclean;
pub(crate) mod walk;
